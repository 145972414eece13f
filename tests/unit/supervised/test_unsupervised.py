"""Ports and GPUs of a killed supervisor: reserved while processes of the experiment are running."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from symphony.errors import LaunchFailed
from symphony.supervised.processes.identity import RUN_ID_VARIABLE, ProcessId, identify
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record import directory
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import encode, is_finished
from symphony.supervised.resources.gpus import assign_gpus
from symphony.supervised.resources.leases import GpuLeases, PortLeases
from symphony.supervised.resources.unsupervised import UnsupervisedUsage

PORT = 8999
DEVICE = f"GPU-{uuid.uuid4().hex[:8]}"
FINISHED = {"event": "finished", "at": 3.0}


@pytest.fixture
def process() -> Iterator[ProcessId]:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as popen:
        found = identify(popen.pid)
        assert found is not None
        yield found
        popen.kill()


def spec(name: str, device: str, *ports: int) -> dict[str, Any]:
    """Return the record of a process that has leased one GPU."""
    process = ProcessSpec(
        name=name,
        group=None,
        argv=("true",),
        cwd="/",
        env={"CUDA_VISIBLE_DEVICES": device},
        releases=ports,
        gpus=1,
    )
    return process.to_dict()


@pytest.fixture
def run(tmp_path: Path, process: ProcessId) -> RunDirectory:
    """The run directory of an experiment whose process is running and whose supervisor is not."""
    run = RunDirectory(tmp_path / "exp")
    run.path.mkdir()
    run.lock.touch()
    run.record_supervisor(ProcessId(1, 1.0))
    trainer = spec("trainer", DEVICE, PORT)
    idle = spec("idle", "another")
    manifest = {
        "experiment": "exp",
        "backend": "local",
        "run_id": os.urandom(16).hex(),
        "env": {},
        "exposed": [],
        "processes": [trainer, idle],
        "services": {"board": f"127.0.0.1:{PORT}"},
    }
    run.manifest.write_text(json.dumps(manifest))
    started = {"event": "started", "process": "trainer", "at": 2.0, "ready": True}
    append(run, {"event": "launched", "at": 1.0})
    append(run, {**started, "pid": process.pid, "birth": process.birth})
    return run


def append(run: RunDirectory, event: dict[str, Any]) -> None:
    with run.events.open("ab") as file:
        file.write(encode(event))


def usage(run: RunDirectory) -> UnsupervisedUsage:
    return UnsupervisedUsage([run.path.parent])


def test_port_and_gpu_of_a_running_process_are_not_available(run: RunDirectory) -> None:
    with PortLeases(unsupervised=usage(run)) as ports, GpuLeases([DEVICE], usage(run)) as gpus:
        assert ports.reserve(PORT) == (
            "is reserved by experiment 'exp', whose processes are running although its supervisor "
            "was killed; delete 'exp'"
        )
        assert (ports.leases, ports.holds) == ({}, {})
        assert gpus.count_free() == 0
        spec = ProcessSpec(name="p", argv=("c",), cwd="/", gpus=1)
        with pytest.raises(
            LaunchFailed, match="; processes of 'exp' are running although .*: delete 'exp' to free"
        ):
            assign_gpus([spec], gpus)
        assert gpus.leases == {}
    assert usage(run).experiment_using_gpu("another") is None, "its process is not running"


def exit_recorded(run: RunDirectory, process: ProcessId) -> None:
    append(run, {"event": "exited", "process": "trainer", "at": 3.0, "code": 0})


def finished(run: RunDirectory, process: ProcessId) -> None:
    append(run, FINISHED)


def rebooted(run: RunDirectory, process: ProcessId) -> None:
    record = run.path / "supervisor.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "boot": "another"}))


def supervised(run: RunDirectory, process: ProcessId) -> None:
    """This process is the supervisor."""
    own = identify(os.getpid())
    assert own is not None
    run.record_supervisor(own, replaces=True)


def exited(run: RunDirectory, process: ProcessId) -> None:
    os.kill(process.pid, 9)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def damaged(run: RunDirectory, process: ProcessId) -> None:
    run.manifest.write_text("{")


@pytest.mark.parametrize("change", [exit_recorded, finished, rebooted, supervised, exited, damaged])
def test_nothing_else_is_reserved(
    run: RunDirectory, process: ProcessId, change: Callable[[RunDirectory, ProcessId], None]
) -> None:
    assert usage(run).experiment_using_port(PORT) == "exp"
    change(run, process)
    assert usage(run).experiment_using_port(PORT) is None
    assert usage(run).experiment_using_gpu(DEVICE) is None


def test_process_without_a_known_name_may_use_every_gpu(run: RunDirectory) -> None:
    env = {RUN_ID_VARIABLE: run.load_manifest()["run_id"]}
    with subprocess.Popen(["sleep", "1000"], env=env, start_new_session=True) as unknown:
        assert usage(run).experiment_using_gpu("another") == "exp"
        unknown.kill()


def test_replaced_experiment_does_not_reserve_its_ports(run: RunDirectory) -> None:
    assert UnsupervisedUsage([run.path.parent], run).experiment_using_port(PORT) is None


def test_roots_of_all_backends_are_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    other = tmp_path / "other"
    assert directory.all_roots(other) == [other]
    roots = [tmp_path / "state" / backend for backend in ("local", "tmux")]
    for root in roots:
        root.mkdir(parents=True)
    assert directory.all_roots(roots[1]) == [roots[1], roots[0]]


def test_end_of_the_events_shows_whether_the_experiment_has_finished(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    assert not is_finished(events)
    for content, expected in [
        (b"", False),
        (encode({"event": "exited", "reason": "r" * 1000}), False),
        (encode({"event": "exited", "reason": "r" * 1000}) + encode(FINISHED), True),
        (encode(FINISHED)[:-4], False),
        (b"[]\n", False),
    ]:
        events.write_bytes(content)
        assert is_finished(events) is expected
