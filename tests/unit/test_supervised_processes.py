"""The processes of a supervisor, before and after a change of the experiment."""

from __future__ import annotations

from dataclasses import dataclass

from symphony.host.processes.identity import ProcessId
from symphony.host.processes.spec import ProcessSpec
from symphony.host.supervisor.supervised_process import ProcessTable


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


def test_order_and_units_follow_from_the_descriptions() -> None:
    processes = table(
        spec("db"),
        spec("app", starts_after={"db": "ready"}),
        spec("rank-0", unit="job"),
        spec("rank-1", unit="job"),
    )
    assert processes.followers_of("db") == ["app"]
    assert processes.followers_of("app") == []
    assert processes.ranks_with("rank-1") == ["rank-0", "rank-1"]
    assert processes.ranks_with("db") == []
    assert processes.stop_waves(["db", "app"]) == [["app"], ["db"]]


def test_process_is_gone_when_no_program_of_it_is_running() -> None:
    processes = table(spec("db"))
    process = processes["db"]
    assert processes.is_gone("db")
    assert processes.is_gone("unknown")
    process.child = RunningChild("db", 7, 1.0)
    assert not processes.is_gone("db")
    assert processes.leaders() == {"db": ProcessId(7, 1.0)}
    process.child, process.leftovers = None, ProcessId(7, 1.0)
    assert not processes.is_gone("db")
    assert processes.has_leftovers()
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


def test_restarted_process_is_stopped_as_it_was_described_before() -> None:
    old, new = spec("db", grace=9.0), spec("db", grace=1.0)
    processes = table(old)
    processes.change({"db": new}, {"db": old}, [])
    process = processes["db"]
    assert processes.running_spec(process) is new
    process.is_delayed = True
    assert processes.running_spec(process) is old


def test_processes_that_a_change_has_removed_are_restored() -> None:
    processes = ProcessTable({"db": spec("db")}, {"app": spec("app", grace=3.0)})
    processes.restore_leaving(["app"])
    assert processes["app"].spec.grace == 3.0
    assert processes["app"].is_leaving
