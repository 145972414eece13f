"""Looking for programs that processes have left behind: one look serves many processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.supervisor.execution.remains import COLLECTION_SECONDS, Remains
from symphony.supervised.supervisor.execution.supervised_process import ProcessTable


class Host:
    """A host on which nothing is left behind. It counts the looks."""

    def __init__(self) -> None:
        self.looks = 0
        self.stopping: set[str] = set()

    def is_stopping(self, name: str) -> bool:
        return name in self.stopping

    def stop_strays(self, *_: object, **options: object) -> bool:
        self.looks += 1
        return False


class Loop:
    """An event loop whose timers expire when `expire` is called."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        self.timers.append((seconds, callback))

    def expire(self) -> None:
        for _, callback in self.timers:
            callback()
        self.timers.clear()


class Facts:
    def __init__(self) -> None:
        self.cleared: list[str] = []

    def note(self, name: str, **changes: Any) -> None:
        assert changes == {"cleared": True, "clearing": False}
        self.cleared.append(name)


def test_processes_that_exit_while_others_are_being_stopped_share_one_look() -> None:
    host, loop, facts = Host(), Loop(), Facts()
    specs = {name: ProcessSpec(name=name, argv=("true",), cwd="/") for name in "abcd"}
    processes = ProcessTable(specs, {})
    remains = Remains(loop, processes, host, facts, on_error=lambda _: None)  # type: ignore[arg-type]
    host.stopping = {"b", "c", "d"}
    for name in "abc":
        remains.clear({name: 1.0}, spares_commands=False)
    assert (host.looks, [seconds for seconds, _ in loop.timers]) == (0, [COLLECTION_SECONDS])
    # A request starts one of them again, and a change removes another one.
    remains.cancel("b")
    del processes.present["c"]
    loop.expire()
    assert (host.looks, facts.cleared) == (1, ["a"])
    host.stopping.clear()
    remains.clear({"d": 1.0}, spares_commands=False)
    assert (host.looks, facts.cleared) == (2, ["a", "d"])
