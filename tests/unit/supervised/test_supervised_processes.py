"""The processes of a supervisor, before and after a change of the experiment."""

from __future__ import annotations

from dataclasses import dataclass

from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.supervisor.execution.supervised_process import ProcessTable


@dataclass(frozen=True)
class RunningChild:
    """A child that is running."""

    name: str
    pid: int
    birth: float


def spec(name: str, **values: object) -> ProcessSpec:
    data = {"name": name, "argv": ["true"], "cwd": "/", **values}
    return ProcessSpec.from_dict(data)


def table(*specs: ProcessSpec) -> ProcessTable:
    return ProcessTable({each.name: each for each in specs}, {})


def test_ranks_of_a_unit_know_each_other() -> None:
    processes = table(spec("db"), spec("rank-0", unit="job"), spec("rank-1", unit="job"))
    assert processes.ranks_with("rank-1") == ["rank-0", "rank-1"]
    assert processes.ranks_with("db") == []
    assert processes.ranks_with("unknown") == []


def test_leaders_are_the_running_children() -> None:
    processes = table(spec("db"), spec("app"))
    process = processes["db"]
    process.child = RunningChild("db", 7, 1.0)
    assert processes.leaders() == {"db": ProcessId(7, 1.0)}
    assert processes.running() == [process]
    process.child, process.leftovers = None, ProcessId(7, 1.0)
    assert processes.leaders() == {}


def test_removed_process_stays_until_it_has_exited() -> None:
    old, new = spec("db"), spec("db", grace=1.0)
    processes = table(old, spec("app"))
    db, app = processes["db"], processes["app"]
    processes.change({"db": new, "web": spec("web")}, {"db": old, "app": app.spec}, ["app"])
    assert list(processes.present) == ["db", "web"]
    assert processes["db"] is db
    assert db.spec is new
    assert processes["app"] is app
    assert app.is_leaving
    assert "app" not in processes
    assert [process.name for process in processes] == ["db", "web", "app"]


def test_restarted_process_is_stopped_as_it_was_started() -> None:
    old, new = spec("db", grace=9.0), spec("db", grace=1.0)
    processes = table(old)
    process = processes["db"]
    process.running_spec = old
    processes.change({"db": new}, {"db": old}, [])
    assert process.spec is new
    assert process.running_spec is old


def test_description_that_needs_no_restart_applies_at_once() -> None:
    old, new = spec("db", grace=9.0), spec("db", grace=1.0)
    processes = table(old)
    process = processes["db"]
    process.running_spec = old
    processes.change({"db": new}, {}, [])
    assert process.running_spec is new


def test_processes_that_a_change_has_removed_are_restored() -> None:
    processes = ProcessTable({"db": spec("db")}, {"app": spec("app", grace=3.0)})
    processes.restore_leaving(["app"])
    assert processes["app"].spec.grace == 3.0
    assert processes["app"].is_leaving
