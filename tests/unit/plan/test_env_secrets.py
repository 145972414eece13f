"""Secrets as environment variables, in the description and in running processes."""

from __future__ import annotations

import contextlib
import json
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from symphony import Cluster, Experiment, SpecError
from symphony.plan.resolution.process_settings import secret_text
from symphony.plan.resolve import resolve
from symphony.supervised.processes.spec import ProcessSpec
from tests.unit.strategies import SCHEME

# Launches record the difference between the checkout and its commit, so no source has the value.
MARK = uuid.uuid4().hex
VALUE = f"{MARK}' $HOME\n日本\n"
SHOW = """
import json, os
print(json.dumps({key: os.environ.get(key) for key in ("TOKEN", "KEY")}))
"""


def experiment(**options: Any) -> Experiment:
    return Experiment("e", secrets={"token": "some/token", "key": "some/key"}, **options)


# --- in the description ---


def test_env_secrets_are_dumped_and_loaded() -> None:
    before = experiment()
    before.new_process("p", command="c").set_env_secret("TOKEN", "token")
    dumped = before.dump_dict()
    assert dumped["processes"]["p"] == {"command": ["c"], "env_secrets": {"TOKEN": "token"}}
    assert Experiment.load_dict(json.loads(json.dumps(dumped))).dump_dict() == dumped


def test_a_file_name_in_yaml_is_text(tmp_path: Path) -> None:
    path = tmp_path / "e.yml"
    path.write_text(
        "name: e\nsecrets: {010: x}\nprocesses: {p: {command: c, env_secrets: {TOKEN: 010}}}\n"
    )
    plan = resolve(Experiment.load_file(path), SCHEME)
    assert plan.env_secrets(plan.processes[0]) == {"TOKEN": "010"}


def test_the_secrets_of_a_member_take_precedence_over_those_of_its_group() -> None:
    whole = experiment()
    group = whole.new_process_group("g").set_env_secret("A", "token").set_env_secret("B", "token")
    group.new_process("p", command="c").set_env_secret("B", "key")
    plan = resolve(whole, SCHEME)
    assert plan.env_secrets(plan.processes[0]) == {"A": "token", "B": "key"}


def test_a_secret_replaces_a_variable_of_the_experiment_but_not_an_address() -> None:
    whole = experiment(env={"TOKEN": "x"})
    process = whole.new_process("p", command="c").binds("db")
    process.set_env_secret("TOKEN", "token").set_env_secret("SYMPH_DB_PORT", "token")
    plan = resolve(whole, SCHEME)
    assert "TOKEN" not in plan.environment(plan.processes[0])
    assert plan.env_secrets(plan.processes[0]) == {"TOKEN": "token"}


@pytest.mark.parametrize("content", [b"\xff", b"a\0b"])
def test_a_secret_that_is_not_text_is_refused_without_showing_it(content: bytes) -> None:
    with pytest.raises(SpecError) as caught:
        secret_text("token", content)
    assert str(caught.value) == (
        "secret 'token' cannot be the value of a variable, because it is not UTF-8 text; "
        "read the file in SYMPHONY_SECRETS_DIR"
    )


def test_a_command_receives_its_secrets_when_it_runs(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(VALUE)
    command = ProcessSpec(
        name="p", argv=("c",), cwd="/", env={"A": "1"}, env_secrets={"TOKEN": "token"}
    )
    assert command.with_secrets(tmp_path).env == {"A": "1", "TOKEN": VALUE}
    assert VALUE not in str(command.to_dict())


# --- in running processes ---


@pytest.fixture
def cluster(machine: Cluster) -> Cluster:
    """The local and the tmux backend."""
    return machine


def launched(cluster: Cluster, tmp_path: Path, content: bytes) -> Experiment:
    (tmp_path / "source").write_bytes(content)
    result = cluster.new_experiment("e", secrets={"token": str(tmp_path / "source")})
    process = result.new_process("p", command=[sys.executable, "-c", SHOW], env={"KEY": "plain"})
    process.set_env_secret("TOKEN", "token")
    return result


def existing_files(directory: Path) -> dict[Path, bytes]:
    """Return the contents of all files below a directory."""
    found = {}
    for path in directory.rglob("*"):
        # The supervisor, which has not exited yet, removes its temporary files.
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                found[path] = path.read_bytes()
    return found


def test_a_process_receives_the_content_and_no_other_file_contains_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    described = launched(cluster, tmp_path, VALUE.encode())
    manifest = cluster.launch(described)
    cluster.wait("e", timeout=60)
    shown = cluster.get_log("e", "p")
    assert json.loads("".join(shown.split("\r\n")[0].splitlines())) == {
        "TOKEN": VALUE,
        "KEY": "plain",
    }
    assert MARK not in f"{manifest}{manifest.to_dict()}{described.dump_dict()}"
    assert "token" in str(manifest)
    files = existing_files(tmp_path / "state")
    holding = {path.name for path, content in files.items() if MARK.encode() in content}
    assert holding == {"token", "p.log"}
    (kept,) = [path for path in files if path.name == "token"]
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700


def test_a_secret_that_is_not_text_prevents_the_launch(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="secret 'token' cannot be the value of a variable"):
        cluster.launch(launched(cluster, tmp_path, b"\xff\xfe"))
    assert cluster.list_experiments() == []
