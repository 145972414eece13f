"""Secrets as environment variables: described, checked, and given to real processes without being written down."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from symphony import Cluster, Experiment, SpecError
from symphony.host.processes.spec import ProcessSpec
from symphony.plan.resolve import resolve, secret_text
from tests.unit.strategies import SCHEME

VALUE = "sword'fish $HOME\n日本\n"
SHOW = """
import json, os
print(json.dumps({key: os.environ.get(key) for key in ("TOKEN", "KEY")}))
"""


def experiment(**options: Any) -> Experiment:
    return Experiment("e", secrets={"token": "some/token", "key": "some/key"}, **options)


# --- described ---


def test_it_is_kept_dumped_and_loaded() -> None:
    before = experiment()
    before.new_process("p", command="c").set_env_secret("TOKEN", "token")
    dumped = before.dump_dict()
    assert dumped["processes"]["p"] == {"command": ["c"], "env_secrets": {"TOKEN": "token"}}
    assert Experiment.load_dict(json.loads(json.dumps(dumped))).dump_dict() == dumped


def test_in_yaml_a_file_name_is_taken_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "e.yml"
    path.write_text(
        "name: e\nsecrets: {010: x}\nprocesses: {p: {command: c, env_secrets: {TOKEN: 010}}}\n"
    )
    plan = resolve(Experiment.load_file(path), SCHEME)
    assert plan.env_secrets(plan.processes[0]) == {"TOKEN": "010"}


def test_a_member_has_those_of_its_group_and_its_own_win() -> None:
    whole = experiment()
    group = whole.new_process_group("g").set_env_secret("A", "token").set_env_secret("B", "token")
    group.new_process("p", command="c").set_env_secret("B", "key")
    plan = resolve(whole, SCHEME)
    assert plan.env_secrets(plan.processes[0]) == {"A": "token", "B": "key"}


# --- checked ---


def test_an_unknown_secret_is_refused_with_the_near_miss() -> None:
    whole = experiment()
    whole.new_process("p", command="c").set_env_secret("TOKEN", "tokn")
    with pytest.raises(SpecError) as refusal:
        resolve(whole, SCHEME)
    assert str(refusal.value) == (
        "'p' has the variable 'TOKEN' from the secret 'tokn', which is not there; did you mean 'token'?"
    )


def test_one_variable_has_one_source() -> None:
    whole = experiment()
    whole.new_process("p", command="c", env={"TOKEN": "x"}).set_env_secret("TOKEN", "token")
    with pytest.raises(
        SpecError,
        match="'p' has the variable 'TOKEN' twice, from its env and from the secret 'token'",
    ):
        resolve(whole, SCHEME)


def test_it_wins_over_a_variable_of_the_experiment_and_an_address_over_it() -> None:
    whole = experiment(env={"TOKEN": "x"})
    process = whole.new_process("p", command="c").binds("db")
    process.set_env_secret("TOKEN", "token").set_env_secret("SYMPH_DB_PORT", "token")
    plan = resolve(whole, SCHEME)
    assert "TOKEN" not in plan.environment(plan.processes[0])
    assert plan.env_secrets(plan.processes[0]) == {"TOKEN": "token"}


@pytest.mark.parametrize("content", [b"\xff", b"a\0b"])
def test_what_is_no_text_is_refused_without_being_shown(content: bytes) -> None:
    with pytest.raises(SpecError) as refusal:
        secret_text("token", content)
    assert str(refusal.value) == (
        "secret 'token' cannot be a variable: it is no UTF-8 text; read it from SYMPHONY_SECRETS_DIR"
    )


def test_a_command_gets_its_secrets_when_it_is_run(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(VALUE)
    command = ProcessSpec(
        name="p", argv=("c",), cwd="/", env={"A": "1"}, env_secrets={"TOKEN": "token"}
    )
    assert command.with_secrets(tmp_path).env == {"A": "1", "TOKEN": VALUE}
    assert VALUE not in str(command.to_dict())


# --- given to processes of this machine ---


@pytest.fixture
def cluster(machine: Cluster) -> Cluster:
    """Local processes, and tmux."""
    return machine


def launched(cluster: Cluster, tmp_path: Path, content: bytes) -> Experiment:
    (tmp_path / "source").write_bytes(content)
    result = cluster.new_experiment("e", secrets={"token": str(tmp_path / "source")})
    process = result.new_process("p", command=[sys.executable, "-c", SHOW], env={"KEY": "plain"})
    process.set_env_secret("TOKEN", "token")
    return result


def test_a_process_has_the_content_byte_for_byte_and_nothing_that_is_written_has_it(
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
    assert "sword" not in f"{manifest}{manifest.to_dict()}{described.dump_dict()}"
    assert "token" in str(manifest)
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    holding = {path.name for path in files if b"sword" in path.read_bytes()}
    assert holding == {"token", "p.log"}
    (kept,) = [path for path in files if path.name == "token"]
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700


def test_one_that_is_no_text_is_refused_before_anything_starts(
    cluster: Cluster, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match="secret 'token' cannot be a variable"):
        cluster.launch(launched(cluster, tmp_path, b"\xff\xfe"))
    assert cluster.list_experiments() == []
