"""Commands without -b: the experiments of all backends, and names that exist on several."""

from __future__ import annotations

import functools
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony.cluster import Cluster
from symphony.commandline.commands.lookup import find_backend
from symphony_kube.api.retries import Timeouts
from tests.cli.conftest import TIMEOUT, Program, cleaned_up
from tests.machine import socket_directory

CREW = {"processes": {"q": {"cmd": "true"}}}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The finished experiments ``here`` on local, ``there`` on tmux, and ``both`` on both."""
    with (
        socket_directory() as sockets,
        pytest.MonkeyPatch.context() as patch,
        cleaned_up(Program(tmp_path_factory.mktemp("backends"))) as made,
    ):
        patch.setenv("TMUX_TMPDIR", str(sockets))
        patch.delenv("TMUX", raising=False)
        made.env["TMUX_TMPDIR"] = str(sockets)
        made.run("here", {"p": "echo local"})
        made.run("both", {"p": "true"})
        tmux = Cluster.new("tmux", state_dir=made.state / "tmux")
        for name in ("there", "both"):
            file = made.file(name, {"p": "echo of tmux", "crew": CREW})
            made.ok("launch", file, "-b", "tmux")
            tmux.wait(name, timeout=TIMEOUT)
        yield made
        for name in tmux.list_experiments():
            tmux.delete(name)


def listed(program: Program, *words: str) -> list[tuple[str, str]]:
    return [(status["name"], status["backend"]) for status in program.json("ls", *words)]


def test_command_finds_the_cluster_of_an_experiment_in_the_record_of_its_launch(
    program: Program,
) -> None:
    run = program.state / "runs" / ".active" / "far-20261122-093011-7f3a"
    run.mkdir(parents=True, mode=0o700)
    kubeconfig = str(program.directory / "missing.yaml")
    record = {
        "run": run.name,
        "experiment": "far",
        "backend": "kube",
        "launched": 1.0,
        "options": {"kubeconfig": kubeconfig},
    }
    (run / "record.json").write_text(json.dumps(record))
    done = program("ps", "far")
    shutil.rmtree(run)
    assert (done.returncode, kubeconfig in done.stderr) == (3, True), done.stderr


def test_ls_lists_the_experiments_of_all_backends_of_this_machine(program: Program) -> None:
    both = [("both", "local"), ("both", "tmux")]
    assert listed(program) == [*both, ("here", "local"), ("there", "tmux")]
    assert listed(program, "-b", "tmux") == [("both", "tmux"), ("there", "tmux")]
    header, *rows = program.ok("ls").splitlines()
    index = header.split().index("BACKEND")
    assert [row.split()[index] for row in rows] == ["local", "tmux", "local", "tmux"]


def test_command_finds_the_experiment_on_another_backend(program: Program) -> None:
    assert program.json("ps", "there")["backend"] == "tmux"
    assert program.ok("logs", "there", "p") == "of tmux\n"
    assert "there" in program.ok("graph", "there")


def test_beginning_of_a_name_on_another_backend(program: Program) -> None:
    done = program("logs", "the", "p")
    assert (done.stdout, done.stderr) == ("of tmux\n", "experiment 'the' is there\n")
    done = program("stop", "the")
    assert (done.returncode, done.stderr) == (
        2,
        "symphony: error: no experiment 'the' on local; did you mean 'there'? (on tmux)\n",
    )


def test_error_names_the_backend_that_has_the_experiment(program: Program) -> None:
    error = "symphony: error: no experiment 'there' on local; it is on tmux\n"
    for command in (["ps"], ["logs"], ["stop"], ["delete", "--dry-run"]):
        done = program(*command, "there", "-b", "local")
        assert (done.returncode, done.stdout, done.stderr) == (2, "", error)


def test_name_that_exists_on_two_backends_is_refused(program: Program) -> None:
    error = (
        "symphony: error: experiment 'both' exists on local and tmux; name the backend: add "
        "-b local or -b tmux\n"
    )
    for words in (["ps", "both"], ["delete", "-f", "here", "both"]):
        done = program(*words)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", error)
    assert program.json("ps", "both", "-b", "tmux")["backend"] == "tmux"
    assert program.json("ps", "both", "-b", "local")["backend"] == "local"


def test_beginning_of_names_on_two_backends_is_refused(program: Program) -> None:
    done = program("ps", "bot")
    assert done.stderr == (
        "symphony: error: experiment 'bot' is ambiguous: both on local, both on tmux; type more "
        "of the name, or add -b BACKEND\n"
    )


def test_pattern_of_delete_selects_experiments_of_one_backend(program: Program) -> None:
    done = program("delete", "--dry-run", "--all")
    assert "there" not in done.stderr
    done = program("delete", "ther*", "--dry-run")
    assert done.stderr == (
        "symphony: error: no experiment matches 'ther*' on local; for those on another backend, "
        "add -b tmux\n"
    )


def test_delete_finds_experiments_on_several_backends(program: Program) -> None:
    file = program.file("gone", {"p": "true"})
    program.ok("launch", file, "-b", "tmux")
    program.run("gone-too", {"p": "true"})
    assert program.ok("delete", "-f", "gone", "gone-too") == "deleted gone\ndeleted gone-too\n"
    assert "gone" not in {name for name, _ in listed(program)}


def test_completion_offers_the_names_of_all_backends(program: Program) -> None:
    assert program.ok("__complete", "ps", "").split() == ["both", "here", "there"]
    assert program.ok("__complete", "ps", "there", "").split() == ["p", "crew/q", "crew"]


def test_next_commands_name_the_backend_if_another_one_has_the_name(program: Program) -> None:
    output = program.ok("launch", program.file("both", {"p": "true"}))
    assert "symphony ps -b local both" in output


class TestCluster:
    """A cluster that accepts connections, but does not respond."""

    @pytest.fixture
    def configured(
        self, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[Path]:
        monkeypatch.setattr(find_backend, "RESPONSE_TIMEOUT_SECONDS", 0.3)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            kubeconfig = tmp_path / "kubeconfig"
            cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
            context = {"name": "far", "context": {"cluster": "c", "user": "u"}}
            described = {
                "clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}],
            }  # fmt: skip
            kubeconfig.write_text(json.dumps(described))
            configuration = tmp_path / "config.json"
            options = {"context": "far", "kubeconfig": str(kubeconfig)}
            configuration.write_text(json.dumps({"options": {"kube": options}}))
            yield configuration

    def test_does_not_block_ls(self, program: Program, configured: Path) -> None:
        done = program("ls", SYMPHONY_CONFIG=str(configured))
        assert done.returncode == 0
        assert "there" in done.stdout
        assert done.stderr == (
            "symphony: the experiments on kube are not listed: kube did not respond within 0.3 s; "
            "to wait longer, add -b kube\n"
        )

    def test_is_not_asked_if_this_machine_has_the_experiment(
        self, program: Program, configured: Path
    ) -> None:
        assert program.ok("ps", "there", SYMPHONY_CONFIG=str(configured))
        done = program("ps", "nowhere", SYMPHONY_CONFIG=str(configured))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("symphony: kube did not respond within 0.3 s")

    def test_is_asked_if_it_is_the_configured_backend_and_the_name_may_be_ambiguous(
        self, program: Program, configured: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        environment = {"SYMPHONY_CONFIG": str(configured), "SYMPHONY_BACKEND": "kube"}
        impatient = functools.partial(Timeouts, unreached=0.1, first_response=0.3)
        monkeypatch.setattr("symphony_kube.api.client.Timeouts", impatient)
        done = program("ps", "there", **environment)
        assert done.returncode == 3
        assert done.stderr.endswith("for the experiment 'there' there, add -b tmux\n")
        done = program("ls", **environment)
        assert (done.returncode, "there" in done.stdout) == (3, True)
