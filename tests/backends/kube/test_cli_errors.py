"""The command line reports a wrong kubeconfig, server or context in one line."""

import pytest

from tests.cli.conftest import Program
from tests.cli.scenarios import refuse

from .conftest import write_kubeconfig


@pytest.fixture
def cli(tmp_path):
    program = Program(tmp_path)
    program.env["SYMPHONY_BACKEND"] = "kube"
    return program


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        ("clusters: [", "is not a kubeconfig"),
        ("{unreachable}", "cannot be reached"),
    ],
)
def test_unreachable_cluster(cli, content, message):
    path = cli.directory / "elsewhere.yaml"
    if content == "{unreachable}":
        write_kubeconfig(path, "https://127.0.0.1:1")
    elif content is not None:
        path.write_text(content)
    for words in (["ls"], ["launch", cli.file("unborn", {"a": "true"}), "--image", "i"]):
        assert message in refuse(cli, *words, "--kubeconfig", path, code=3)


def test_unknown_context(cli):
    path = write_kubeconfig(cli.directory / "config.yaml")
    output = refuse(cli, "ls", "--kubeconfig", path, "--context", "nowhere")
    assert "has no context 'nowhere'" in output


@pytest.mark.parametrize("words", [["launch", "--dry-run"], ["render"]])
def test_errors_of_rendering_have_a_position(cli, words):
    file = cli.directory / "rl.yml"
    file.write_text(
        "name: rl\nprocesses:\n  ok: {command: a}\n  p:\n    command: a\n    env: {..: x}\n"
    )
    output = refuse(cli, *words, file, "--image", "i")
    assert f"{file}:4:3: process 'p' has a variable '..'" in output
