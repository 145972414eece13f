"""The verbs. What is known of an experiment is kept in a folder: ``status.json`` and a log for each process."""

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
from symphony.host.processes.identity import ProcessId, identify, is_alive
from symphony.model import Experiment
from symphony.plan.addresses import AddressScheme
from symphony.plan.resolve import resolve
from symphony.status import ExperimentStatus, LogLine, ProcessStatus, State
from symphony_inline.render import Command, InlineManifest, render


class InlineCluster(Cluster):
    """Runs processes one after another. ``folder`` is where their logs and ends are kept."""

    backend: ClassVar[str] = "inline"

    def __init__(self, *, folder: str | os.PathLike[str], **options: Any) -> None:
        super().__init__(**options)
        self._folder = Path(folder).absolute()

    # --- launching ---

    def manifest(self, experiment: Experiment) -> InlineManifest:
        """What a launch would do. The same call is the first half of the launch."""
        scheme = AddressScheme(
            backend=self.backend, host=lambda _: "127.0.0.1", bind_host="127.0.0.1"
        )
        plan = resolve(experiment, scheme, self.defaults)
        if plan.secrets:
            raise Unsupported("the inline backend gives no secrets to processes")
        return render(plan, Path.cwd())

    def _launch(
        self, experiment: Experiment, *, force: bool, on_change: OnChange = None
    ) -> InlineManifest:
        del on_change  # for launches that take time: called with each status meanwhile
        manifest = self.manifest(experiment)  # what is wrong must show before anything is deleted
        name, folder = experiment.name, self._folder / experiment.name
        if (
            not force
            and name in self.list_experiments()
            and not self.describe_experiment(name).ended
        ):
            raise experiment_exists(name)
        self.delete(name)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            _run_all(manifest, folder)
        except BaseException:  # a launch that fails, or is interrupted, takes back what it has made
            shutil.rmtree(folder)
            raise
        return manifest

    def delete(self, experiment: str) -> None:
        """Remove an experiment. What still runs belongs to a terminal: end it there."""
        if experiment in self.list_experiments():
            if not self.describe_experiment(experiment).ended:
                raise BackendError(
                    f"experiment {experiment!r} runs in the foreground of its launcher; stop it there"
                )
            shutil.rmtree(self._folder / experiment)

    # --- observing ---

    def list_experiments(self) -> list[str]:
        """The names of the experiments, in order."""
        return sorted(path.parent.name for path in self._folder.glob("*/status.json"))

    def describe_experiment(self, experiment: str) -> ExperimentStatus:
        """An experiment and its processes as they are now."""
        launcher = self._kept(experiment)["launcher"]
        alive = is_alive(
            ProcessId(**launcher)
        )  # before the states are read: then what they lack never happened
        kept = self._kept(experiment)
        processes = [
            ProcessStatus(**{**process, "state": State(process["state"])})
            for process in kept["processes"]
        ]
        if (
            not alive and kept["launcher"] == launcher
        ):  # nobody is left to see an end or to start anything: say so
            processes = [_unseen(process) for process in processes]
        return ExperimentStatus(name=experiment, backend=self.backend, processes=tuple(processes))

    def _kept(self, experiment: str) -> dict[str, Any]:
        try:
            kept: dict[str, Any] = json.loads(
                (self._folder / experiment / "status.json").read_bytes()
            )
        except FileNotFoundError:
            raise experiment_not_found(experiment, self.list_experiments()) from None
        return kept

    def wait(
        self,
        experiment: str,
        *,
        timeout: float | None = None,
        on_change: OnChange = None,
        until: Until = "ended",
    ) -> ExperimentStatus:
        """Return when every process has ended, or come as far as ``until`` says."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        before = None
        while True:
            now = self.describe_experiment(experiment)
            if on_change is not None and now != before:
                on_change(now)
            going = still_awaited(now, until)
            if not going:
                return now
            if time.monotonic() >= deadline:
                raise wait_timeout(experiment, until, going, timeout or 0.0)
            before = now
            time.sleep(0.1)

    # --- logs ---

    def _read_log(
        self, experiment: str, process: str, *, since: float | str | None, tail: int | None
    ) -> str:
        if since is not None:
            raise Unsupported("the inline backend does not know when a line was written")
        path = self._folder / experiment / f"{process}.log"
        text = path.read_text(errors="replace") if path.exists() else ""
        return (
            text
            if tail is None
            else "".join(text.splitlines(keepends=True)[-tail:] if tail else [])
        )

    def iter_logs(
        self,
        experiment: str,
        processes: Sequence[str] | None = None,
        *,
        follow: bool = False,
        since: float | str | None = None,
        tail: int | None = None,
    ) -> Iterator[LogLine]:
        """What processes wrote; one ended before the next began, so their order is the order of time."""
        status = self.wait(experiment) if follow else self.describe_experiment(experiment)
        wanted = [
            self.find_process(experiment, name).name
            for name in processes or [item.name for item in status]
        ]
        for name in wanted:
            text = self._read_log(experiment, name, since=since, tail=tail)
            yield from (LogLine(process=name, text=line) for line in text.splitlines())


def _run_all(manifest: InlineManifest, folder: Path) -> None:
    states = {
        command.name: ProcessStatus(name=command.name, group=command.group)
        for command in manifest.commands
    }
    for command in manifest.commands:
        running = replace(states[command.name], state=State.RUNNING, started=time.time())
        _save(folder, {**states, command.name: running})
        how = _run(command, folder / f"{command.name}.log")
        states[command.name] = replace(running, ended=time.time(), **how)
    _save(folder, states)


def _run(command: Command, log: Path) -> dict[str, Any]:
    """Run to the end; the part of a status that says how it went."""
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                command.argv,
                cwd=command.folder,
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
            }
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return {"state": State.FAILED if code else State.SUCCEEDED, "exit_code": code}


def _save(folder: Path, states: dict[str, ProcessStatus]) -> None:
    """Write aside and rename, so that a reader sees the old or the new, whole."""
    launcher = identify(os.getpid()) or ProcessId(os.getpid(), 0.0)
    kept = {"launcher": asdict(launcher), "processes": [asdict(state) for state in states.values()]}
    aside = folder / "status.new"
    aside.write_text(json.dumps(kept))
    aside.rename(folder / "status.json")


def _unseen(process: ProcessStatus) -> ProcessStatus:
    if process.state in (State.PENDING, State.RUNNING):
        return replace(process, state=State.UNKNOWN, reason="nobody saw its end: its launcher died")
    return process
