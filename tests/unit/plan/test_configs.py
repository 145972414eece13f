"""Configuration files of processes: their texts on each backend, differences and errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from symphony import Experiment, SpecError
from symphony.lint import structure
from symphony.plan.changes import compare, snapshot_of_plan
from symphony.plan.plan import Plan
from symphony.plan.resolve import check_experiment, resolve
from tests.unit.strategies import SCHEME

TEMPLATE = "server ${pool.0.addr};\nall ${pool.addrs} $host $${pool.addr} ${HOME}\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "a.in").write_text(TEMPLATE)
    return tmp_path


def loaded(directory: Path, app: dict[str, Any], replicas: int = 2) -> Experiment:
    pool = {"command": "p", "binds": {"pool": "720${index}"}, "replicas": replicas}
    experiment = Experiment.load_dict(
        {"name": "e", "processes": {"app": {"command": "c", **app}, "pool": pool}}
    )
    experiment.base_dir = directory
    return experiment


def configs(plan: Plan) -> dict[str, dict[str, str]]:
    return {process.name: process.configs for process in plan if process.configs}


def test_addresses_in_files_are_replaced_for_each_process(directory: Path) -> None:
    (directory / "b.in").write_bytes(b"own ${pool.addr}\r\n")
    experiment = loaded(directory, {"configs": {"a.conf": "a.in"}})
    for process in experiment.list_all_processes()[1:]:
        process.configs("b.in")
    assert configs(resolve(experiment, SCHEME)) == {
        "app": {
            "a.conf": "server pool-0.example:7200;\n"
            "all pool-0.example:7200,pool-1.example:7201 $host ${pool.addr} ${HOME}\n"
        },
        "pool-0": {"b.in": "own pool-0.example:7200\r\n"},
        "pool-1": {"b.in": "own pool-1.example:7201\r\n"},
    }


@pytest.mark.parametrize("replicas", [0, 1, 3])
def test_a_line_is_repeated_for_each_replica(directory: Path, replicas: int) -> None:
    (directory / "a.in").write_bytes(
        b"[\r\n  s${pool.*.index} ${pool.*.addr} ${app.port} $${pool.*.addr}\r\n]\r\n"
        b"${app.*.host}:${app.*.port} ${app.*.index}"
    )
    app = {"configs": {"a": "a.in"}, "binds": {"app": 80}}
    line = "  s{0} pool-{0}.example:720{0} 80 ${{pool.*.addr}}\r\n"
    lines = "".join(line.format(number) for number in range(replicas))
    found = configs(resolve(loaded(directory, app, replicas), SCHEME))["app"]["a"]
    assert found == f"[\r\n{lines}]\r\napp.example:80 0"


def test_members_of_a_group_have_its_files_and_their_own(directory: Path) -> None:
    experiment = Experiment("e")
    experiment.base_dir = directory
    experiment.new_process("pool", command="c").binds("pool", replicated=True)
    group = experiment.new_process_group("g").configs({"a": "a.in", "b": directory / "a.in"})
    group.new_process("p", command="c").configs({"b": "b.in"})
    (directory / "b.in").write_text("own")
    found = configs(resolve(experiment, SCHEME))["p"]
    assert found["a"].startswith("server pool-0.example:7000;")
    assert found["b"] == "own"


def test_a_changed_file_or_address_is_a_difference(directory: Path) -> None:
    app = {"configs": {"a.conf": "a.in"}}

    def changed(before: Plan, after: Plan) -> list[str]:
        return compare(snapshot_of_plan(before), snapshot_of_plan(after)).names("restarted")

    first = resolve(loaded(directory, app), SCHEME)
    assert changed(first, resolve(loaded(directory, app), SCHEME)) == []
    assert changed(first, resolve(loaded(directory, app, replicas=3), SCHEME)) == ["app"]
    (directory / "a.in").write_text(TEMPLATE + "more\n")
    assert changed(first, resolve(loaded(directory, app), SCHEME)) == ["app"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing.in", "missing.in: no such file"),
        ("x" * 300, "xxx: cannot be read: File name too long"),
        (".", "not a file; name a text file"),
        ("pipe", "pipe: not a file; name a text file"),
        ("binary", "binary: not UTF-8 text (byte 1); save it as UTF-8, or use volumes for other"),
        ("large", "large: larger than 1 MiB, which is the maximum size"),
        (
            "typo.in",
            "typo.in:2: ${pol.addr} refers to service 'pol', which no process binds or expo",
        ),
        ("field.in", "field.in:1: ${pool.adr} has an unknown field 'adr'; did you mean 'addr'"),
        ("each.in", "each.in:1: ${pool.*.addrs} has an unknown field 'addrs'; did you mean 'addr'"),
        ("two.in", "two.in:1: the line refers to each replica of pool, other; write a line for"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_error(directory: Path, path: str, message: str) -> None:
    os.mkfifo(directory / "pipe")
    (directory / "binary").write_bytes(b"a\xff")
    (directory / "large").write_bytes(b"a" * ((1 << 20) + 1))
    (directory / "typo.in").write_text("\n${pol.addr}")
    (directory / "field.in").write_text("${pool.adr}")
    (directory / "each.in").write_text("${pool.*.addrs}")
    (directory / "two.in").write_text("${pool.*.addr} ${other.*.addr}")
    experiment = loaded(directory, {"configs": {"a": path}, "binds": "other"})
    with pytest.raises(SpecError) as caught:
        resolve(experiment, SCHEME)
    assert str(caught.value).startswith("process 'app': ")
    assert message in str(caught.value)
    assert caught.value.path == ("processes", "app", "configs", "a")
    assert len(list(check_experiment(experiment))) == 1


def test_the_files_of_a_process_have_at_most_one_mebibyte(directory: Path) -> None:
    (directory / "half").write_bytes(b"a" * (1 << 19))
    experiment = loaded(directory, {"configs": {"a": "half", "b": "half"}})
    resolve(experiment, SCHEME)
    experiment.get_process("app").configs({"c": "a.in"})
    with pytest.raises(SpecError, match=r"configuration files have 1\.00 MiB, and the limit is 1"):
        resolve(experiment, SCHEME)


@pytest.mark.parametrize("name", ["../a", "a/b", "/a", "..", "", "a\0"])
def test_the_name_of_a_file_is_a_plain_name(directory: Path, name: str) -> None:
    with pytest.raises(SpecError):
        loaded(directory, {"configs": {name: "a.in"}})
    with pytest.raises(SpecError):
        Experiment("e").new_process("p", command="c").configs({name: "a.in"})


def test_a_service_in_a_file_is_used(directory: Path) -> None:
    def unused(experiment: Experiment) -> list[str]:
        found = structure.rules(experiment)
        return [finding.rule for finding in found if finding.rule == "unused-service"]

    assert unused(loaded(directory, {"configs": {"a": "a.in"}})) == []
    assert unused(loaded(directory, {})) == ["unused-service"] * 2
