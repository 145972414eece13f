"""The facts about the processes of a node that a new supervisor has to know.

The agent reports starts and exits when they happen. A supervisor that is killed can have received
reports that it has not recorded, and the reports that follow are lost until the next supervisor is
connected. Therefore, the agent reports the latest execution of each process to each new supervisor.
"""

from __future__ import annotations

from symphony_slurm.job.agent_protocol import Message


class Executions:
    """The latest executions of the processes of one node."""

    def __init__(self) -> None:
        self._latest: dict[str, Message] = {}
        # The process groups that have running members.
        self._groups: set[int] = set()

    def note_start(self, name: str, pid: int, birth: float, *, has_terminal: bool) -> None:
        """Note that a process was started."""
        self._latest[name] = {
            "name": name,
            "pid": pid,
            "birth": birth,
            "has_terminal": has_terminal,
            "exit": None,
        }
        self._groups.add(pid)

    def note_exit(self, message: Message) -> None:
        """Note the exit of a process. ``message`` is the report of it."""
        latest = self._latest.get(message["name"])
        if latest is not None and latest["pid"] == message["pid"]:
            latest["exit"] = message
        if not message["has_group"]:
            self._groups.discard(message["pid"])

    def note_group(self, group: int) -> None:
        """Note a process group that has running members although its process has exited."""
        self._groups.add(group)

    def note_group_end(self, group: int) -> None:
        """Note that the process group of an exited process has no members any more."""
        self._groups.discard(group)

    def report(self) -> Message:
        """Return the executions and groups for a new supervisor."""
        return {"executions": list(self._latest.values()), "groups": sorted(self._groups)}
