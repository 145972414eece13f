"""Another port for the ranks of a unit that restarts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from symphony import Experiment
from symphony.model.settings.validators import DEFAULT_PORT_RANGE
from symphony.plan.plan import Plan
from symphony.plan.resolution.addresses import AddressScheme
from symphony.plan.resolve import resolve
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.render import render
from symphony.supervised.supervisor.execution.master_ports import replace_master_port
from symphony.supervised.supervisor.process_host import ProcessHost

SCHEME = AddressScheme(backend="local", host=lambda _: "127.0.0.1", bind_host="127.0.0.1")
RANKS = {"ranks": 2, "command": "c"}


class Host:
    """Machines on which the present port cannot be bound, if ``port`` is not None."""

    def __init__(self, port: int | None) -> None:
        self._port = port
        self.asked: list[tuple[str, tuple[int, int]]] = []

    def replace_port(
        self, address: str, port_range: tuple[int, int]
    ) -> tuple[int, Mapping[int, int]] | None:
        self.asked.append((address, port_range))
        return None if self._port is None else (self._port, {self._port: 99})


def planned(**processes: Any) -> Plan:
    return resolve(Experiment.load_dict({"name": "e", "processes": processes}), SCHEME)


def write_manifest(directory: Path, plan: Plan) -> RunDirectory:
    run = RunDirectory(directory)
    manifest = render(
        plan,
        run_id="0" * 32,
        launched=0.0,
        directory=directory,
        working_directory=directory,
        shell="/bin/sh",
    )
    run.manifest.write_text(json.dumps(manifest.to_dict()))
    return run


def replaced(run: RunDirectory, host: Host) -> Any:
    return replace_master_port(run, cast(ProcessHost, host), "t")


def test_all_ranks_and_the_services_have_the_new_port(tmp_path: Path) -> None:
    ranks = {**RANKS, "env": {"JAX_COORDINATOR_ADDRESS": "127.0.0.1:7000", "OTHER": "7000"}}
    run = write_manifest(tmp_path, planned(t=ranks, o={"command": "c"}))
    before = run.load_manifest()
    host = Host(7005)
    new = replaced(run, host)
    assert host.asked == [("127.0.0.1:7000", DEFAULT_PORT_RANGE)]
    assert new.holds == {7005: 99}
    after = run.load_manifest()
    assert after["services"] == {"t-master": "127.0.0.1:7005"}
    assert after["env"]["SYMPH_T_MASTER_ADDR"] == "127.0.0.1:7005"
    assert after["env"]["SYMPH_T_MASTER_PORT"] == "7005"
    first, second, other = after["processes"]
    for rank in (first, second):
        env = rank["env"]
        assert env["MASTER_PORT"] == env["SYMPHONY_MASTER_PORT"] == "7005"
        assert env["JAX_COORDINATOR_ADDRESS"] == "127.0.0.1:7005"
        assert env["OTHER"] == "7000"
    assert (first["releases"], second["releases"]) == ([7005], [])
    assert other == before["processes"][2]
    specs = [ProcessSpec.from_dict(item) for item in before["processes"][:2]]
    assert [new.spec(spec).to_dict() for spec in specs] == [
        ProcessSpec.from_dict(item).to_dict() for item in (first, second)
    ]


def test_a_port_that_a_server_can_bind_remains(tmp_path: Path) -> None:
    run = write_manifest(tmp_path, planned(t=RANKS))
    before = run.manifest.read_bytes()
    assert replaced(run, Host(None)) is None
    assert run.manifest.read_bytes() == before


@pytest.mark.parametrize(
    "user",
    [
        {"command": ["c", "--peer=${t-master.addr}"]},
        {"command": "c", "env": {"PEER": "${t-master.port}"}},
        {"cmd": "c ${t-master.host}"},
    ],
)
def test_a_port_that_other_processes_use_remains(tmp_path: Path, user: dict[str, Any]) -> None:
    run = write_manifest(tmp_path, planned(t=RANKS, o=user))
    host = Host(7005)
    assert replaced(run, host) is None
    assert host.asked == []
