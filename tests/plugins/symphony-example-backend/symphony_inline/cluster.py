"""The cluster of the backend ``inline``.

The state of an experiment is a directory with ``status.json`` and a log for each process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

from symphony.cluster import Cluster, OnChange
from symphony.cluster.matching import (
    Until,
    experiment_exists,
    experiment_not_found,
    still_awaited,
    wait_timeout,
)
from symphony.errors import BackendError, Unsupported
from symphony.model import Experiment
from symphony.model.settings.durations import parse_timeout
from symphony.plan.resolution.addresses import AddressScheme
from symphony.plan.resolve import resolve
from symphony.status import ExperimentStatus, LogLine, ProcessStatus, ReasonCode, State
from symphony.supervised.processes.identity import ProcessId, identify, is_alive
from symphony_inline.render import InlineCommand, InlineManifest, render

STATUS_FILE = "status.json"
POLL_INTERVAL_SECONDS = 0.1


class InlineCluster(Cluster):
    """Runs processes one after another. Logs and statuses are stored in ``directory``."""

    backend: ClassVar[str] = "inline"

    def __init__(self, *, directory: str | os.PathLike[str], **options: Any) -> None:
        super().__init__(**options)
        self._directory = Path(directory).absolute()

    # --- launching ---

    def manifest(self, experiment: Experiment) -> InlineManifest:
        """Return the commands that a launch would run. A launch begins with the same call."""
        scheme = AddressScheme(
            backend=self.backend, host=lambda _: "127.0.0.1", bind_host="127.0.0.1"
        )
        plan = resolve(experiment, scheme, self.defaults)
        if plan.secrets:
            raise Unsupported("the inline backend does not support secrets")
        return render(plan, Path.cwd())

    def _launch(
        self, experiment: Experiment, *, force: bool, on_change: OnChange = None
    ) -> InlineManifest:
        # A backend whose launch takes time calls on_change with each new status.
        del on_change
        # Render first: an error must be raised before an experiment is deleted.
        manifest = self.manifest(experiment)
        name = experiment.name
        exists = name in self.list_experiments()
        if exists and not force and not self.describe_experiment(name).ended:
            raise experiment_exists(name)
        self.delete(name)
        directory = self._directory / name
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            _run_all(manifest, directory)
        except BaseException:
            # Roll back a launch that fails or is interrupted.
            shutil.rmtree(directory)
            raise
        return manifest

    def delete(self, experiment: str) -> None:
        """Remove an experiment. Raises `BackendError` if its launch is still running."""
        if experiment not in self.list_experiments():
            return
        if not self.describe_experiment(experiment).ended:
            raise BackendError(
                f"experiment {experiment!r} runs in the foreground of its launcher; stop it there"
            )
        shutil.rmtree(self._directory / experiment)

    # --- observing ---

    def list_experiments(self) -> list[str]:
        """Return the names of the experiments, sorted."""
        return sorted(path.parent.name for path in self._directory.glob(f"*/{STATUS_FILE}"))

    def describe_experiment(self, experiment: str) -> ExperimentStatus:
        """Return the current status of an experiment and its processes."""
        # Check the launcher before reading the states. If it exits in between, the states that are
        # read are the last ones that it wrote.
        launcher = self._load(experiment)["launcher"]
        is_running = is_alive(ProcessId(**launcher))
        state = self._load(experiment)
        processes = [_load_process(process) for process in state["processes"]]
        if not is_running and state["launcher"] == launcher:
            processes = [_without_launcher(process) for process in processes]
        return ExperimentStatus(name=experiment, backend=self.backend, processes=tuple(processes))

    def _load(self, experiment: str) -> dict[str, Any]:
        path = self._directory / experiment / STATUS_FILE
        try:
            state: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise experiment_not_found(experiment, self.list_experiments()) from None
        return state

    def wait(
        self,
        experiment: str,
        *,
        timeout: float | str | None = None,
        on_change: OnChange = None,
        until: Until = "ended",
        processes: Sequence[str] | None = None,
    ) -> ExperimentStatus:
        """Block until the processes have finished, or have reached the condition ``until``."""
        seconds = parse_timeout(timeout)
        deadline = float("inf") if seconds is None else time.monotonic() + seconds
        previous = None
        while True:
            status = self.describe_experiment(experiment)
            if on_change is not None and status != previous:
                on_change(status)
            awaited = still_awaited(status, until, processes)
            if not awaited:
                return status
            if time.monotonic() >= deadline:
                raise wait_timeout(status, until, awaited, seconds or 0.0)
            previous = status
            time.sleep(POLL_INTERVAL_SECONDS)

    # --- logs ---

    def _read_log(
        self, experiment: str, process: str, *, since: float | str | None, tail: int | None
    ) -> str:
        if since is not None:
            raise Unsupported("the inline backend does not record the time of a line")
        path = self._directory / experiment / f"{process}.log"
        text = path.read_text(errors="replace") if path.exists() else ""
        if tail is None:
            return text
        lines = text.splitlines(keepends=True)
        return "".join(lines[-tail:] if tail else [])

    def iter_logs(
        self,
        experiment: str,
        processes: Sequence[str] | None = None,
        *,
        follow: bool = False,
        since: float | str | None = None,
        tail: int | None = None,
    ) -> Iterator[LogLine]:
        """Iterate over the lines of several logs.

        The order of processes is the order of time, because one exits before the next starts.
        """
        status = self.wait(experiment) if follow else self.describe_experiment(experiment)
        wanted = processes or [process.name for process in status]
        names = [self.find_process(experiment, name).name for name in wanted]
        for name in names:
            text = self._read_log(experiment, name, since=since, tail=tail)
            for line in text.splitlines():
                yield LogLine(process=name, text=line)


def _run_all(manifest: InlineManifest, directory: Path) -> None:
    """Run each command in turn, and save the status of all processes after each change."""
    statuses = {
        command.name: ProcessStatus(name=command.name, group=command.group)
        for command in manifest.commands
    }
    for command in manifest.commands:
        running = replace(statuses[command.name], state=State.RUNNING, started=time.time())
        statuses[command.name] = running
        _save(directory, statuses)
        result = _run(command, directory / f"{command.name}.log")
        statuses[command.name] = replace(running, ended=time.time(), **result)
    _save(directory, statuses)


def _run(command: InlineCommand, log: Path) -> dict[str, Any]:
    """Run a command and return the fields of the status that contain the result."""
    with log.open("wb") as output:
        try:
            completed = subprocess.run(
                command.argv,
                cwd=command.directory,
                env={**os.environ, **command.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
            )
        except OSError as exc:
            return {
                "state": State.FAILED,
                "reason": f"cannot be started: {exc.strerror}: {exc.filename}",
                "reason_code": ReasonCode.CANNOT_START,
            }
    code = completed.returncode
    if code < 0:
        # subprocess returns -n if signal n killed the process. A status has 128 + n.
        code = 128 - code
    return {"state": State.FAILED if code else State.SUCCEEDED, "exit_code": code}


def _save(directory: Path, statuses: dict[str, ProcessStatus]) -> None:
    """Write a temporary file and rename it, so that a reader never sees part of a file."""
    launcher = identify(os.getpid()) or ProcessId(os.getpid(), 0.0)
    state = {
        "launcher": launcher._asdict(),
        "processes": [asdict(status) for status in statuses.values()],
    }
    temporary = directory / f"{STATUS_FILE}.new"
    temporary.write_text(json.dumps(state))
    temporary.rename(directory / STATUS_FILE)


def _load_process(fields: dict[str, Any]) -> ProcessStatus:
    code = fields["reason_code"]
    reason_code = None if code is None else ReasonCode(code)
    return ProcessStatus(**{**fields, "state": State(fields["state"]), "reason_code": reason_code})


def _without_launcher(status: ProcessStatus) -> ProcessStatus:
    """Return the status of a process after its launcher was killed."""
    if status.state not in (State.PENDING, State.RUNNING):
        return status
    return replace(
        status,
        state=State.UNKNOWN,
        reason="exit status unknown: the launcher was killed",
        reason_code=ReasonCode.LOST,
    )
