"""Access to processes whose terminals the supervisor holds."""

from __future__ import annotations

from symphony.cluster.backend import NamedProcess
from symphony.errors import NotFound, Unsupported
from symphony.status import State
from symphony.supervised.host_access import HostAccess


class TerminalAccess(HostAccess):
    """Access that attaches the user's terminal to that of a process with the setting ``tty``."""

    def attach(self, experiment: str, process: NamedProcess, *, dry_run: bool) -> None:
        """Attach the terminal to a process with the setting ``tty``, until the user leaves it.

        Raises Unsupported if the process has no terminal, and NotFound if it is not running.
        """
        from symphony.supervised.user_requests.attach import attach

        self._check_terminal(experiment, process)
        if dry_run:
            return
        with self._runs.find(experiment).pin() as run:
            attach(run, process.find().name, self._runs.link(run))

    def _check_terminal(self, experiment: str, process: NamedProcess) -> None:
        """Raise Unsupported if a process has no terminal, and NotFound if it is not running."""
        found = process.find()
        manifest = self._runs.find(experiment).load_manifest()
        spec = next(item for item in manifest["processes"] if item["name"] == found.name)
        if not spec.get("tty"):
            raise Unsupported(
                f"process {found.path!r} has no terminal: set tty: true on it and launch it again; "
                "'symphony exec' runs a command in its environment, 'symphony logs -f' follows its "
                "log"
            )
        if found.state is not State.RUNNING:
            raise NotFound(f"process {found.path!r} is not running ({found.state})")
