"""The supervisor of one experiment: ``python -m symphony_detached.supervisor DIRECTORY``.

It observes the processes, lets `symphony.plan.decide` decide what follows, records the events and
carries the actions out. All policies, such as restarts and the start order, are decided there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from symphony.line_search import SearchProcess
from symphony.plan.actions import Action, Clear, Finish, Kill, Start, Stop
from symphony.plan.decide import decide
from symphony.plan.observation import Observation, Seen
from symphony.plan.policies import Policies
from symphony.plan.requests import stop_all
from symphony.plan.state import Event, apply, fold
from symphony.plan.wish import Wish
from symphony.supervised.processes.identity import ProcessId, identify
from symphony.supervised.processes.scratch import SCRATCH_VARIABLE
from symphony.supervised.processes.spec import ProcessSpec, with_directory_variable
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import encode
from symphony.supervised.supervisor.execution.probes import make_probe
from symphony.supervised.supervisor.wishes import process_wish

TEST_PAUSE_SECONDS = 0.1
BLOCK_BYTES = 1 << 16


class Supervisor:
    """The supervisor of the experiment in the directory ``run``."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._manifest = run.load_manifest()
        specs = [ProcessSpec.from_dict(item) for item in self._manifest["processes"]]
        self._specs = {spec.name: spec for spec in specs}
        policies = Policies.from_dict(self._manifest["policies"])
        self._wish = Wish(map(process_wish, specs), policies, name=run.name)
        self._state = fold(self._specs, [])
        self._seen: dict[str, Seen] = {}
        self._kills_at_once = False
        self._is_finished = False
        self._events = run.events.open("ab", buffering=0)
        self._search_process = SearchProcess()
        self._news = asyncio.Event()
        self._tasks: dict[str, list[asyncio.Future[None]]] = {}

    async def run(self, launched: int) -> None:
        """Supervise the experiment until it has finished.

        Close the descriptor ``launched`` after a byte when the first processes have started.
        """
        self._record([{"event": "launched", "at": time.time()}])
        loop = asyncio.get_running_loop()
        for number, at_once in ((signal.SIGTERM, False), (signal.SIGQUIT, True)):
            loop.add_signal_handler(number, partial(self._stop_all, at_once=at_once))
        wake_at = self._advance()
        os.write(launched, b"1")
        os.close(launched)
        while not self._is_finished:
            timeout = None if wake_at is None else max(0.0, wake_at - time.time())
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), timeout)
            self._news.clear()
            wake_at = self._advance()

    def _advance(self) -> float | None:
        """Decide, record and act until nothing more follows. Return when to decide again."""
        while True:
            observation = Observation(self._seen, kills_at_once=self._kills_at_once)
            decision = decide(self._wish, self._state, observation, time.time())
            self._record(decision.events)
            for action in decision.actions:
                self._execute(action)
            if self._is_finished or not (decision.events or decision.actions):
                return decision.wake_at

    def _record(self, events: Iterable[Event]) -> None:
        for event in events:
            apply(self._state, event)
            self._events.write(encode(event))

    # --- actions ---

    def _execute(self, action: Action) -> None:
        now = time.time()
        if isinstance(action, Start):
            self._start(self._specs[action.process], action.attempt)
        elif isinstance(action, Stop):
            if self._seen[action.process].signaled_at is None:
                self._signal(action.process, signal.SIGTERM)
            self._note(action.process, signaled_at=now, kill_at=action.kill_at)
        elif isinstance(action, Kill):
            self._signal(action.process, signal.SIGKILL)
            self._note(action.process, signaled_at=now, killed=True)
        elif isinstance(action, Clear):
            # The programs that a process leaves in its session are killed at its exit.
            self._note(action.process, cleared=True)
        elif isinstance(action, Finish):
            self._is_finished = True

    def _note(self, name: str, **facts: Any) -> None:
        self._seen[name] = self._seen.get(name, Seen())._replace(**facts)
        self._news.set()

    def _signal(self, name: str, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._seen[name].pid, number)

    def _start(self, spec: ProcessSpec, attempt: int) -> None:
        """Start a process in a session of its own."""
        spec = with_directory_variable(spec.with_secrets(self._run.secrets))
        env = {**os.environ, **self._manifest["env"], **spec.env}
        Path(env[SCRATCH_VARIABLE]).mkdir(mode=0o700, parents=True, exist_ok=True)
        # A program that opens its output again would truncate a file.
        output, output_of_process = os.pipe()
        os.set_blocking(output, False)
        try:
            process = subprocess.Popen(
                spec.argv,
                cwd=spec.cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output_of_process,
                stderr=output_of_process,
                start_new_session=True,
            )
        except OSError as exc:
            os.close(output)
            reason = f"cannot start {spec.argv[0]!r}: {exc.strerror}"
            self._seen[spec.name] = Seen(attempt=attempt, failed=True, reason=reason)
            return
        finally:
            os.close(output_of_process)
        log = self._run.log(spec.name)
        pid, birth = identify(process.pid) or ProcessId(process.pid, 0.0)
        self._seen[spec.name] = Seen(
            attempt=attempt,
            running=True,
            pid=pid,
            birth=birth,
            since=time.time(),
            log_start=log.stat().st_size if log.exists() else 0,
            testing=spec.ready is not None,
        )
        # The event loop does not keep its tasks alive.
        self._tasks[spec.name] = [asyncio.ensure_future(self._observe(spec.name, process, output))]
        if spec.ready is not None:
            self._tasks[spec.name].append(asyncio.ensure_future(self._test(spec, env, attempt)))

    # --- facts ---

    async def _observe(self, name: str, process: subprocess.Popen[bytes], output: int) -> None:
        """Copy the output of a process to its log, and note its exit."""
        exited = asyncio.Event()
        exit_descriptor = os.pidfd_open(process.pid)
        loop = asyncio.get_running_loop()
        loop.add_reader(exit_descriptor, exited.set)
        loop.add_reader(output, self._copy, name, output)
        await exited.wait()
        # The programs that the process has left in its session end with it.
        self._signal(name, signal.SIGKILL)
        code = process.wait()
        while self._copy(name, output):
            pass
        for descriptor in (exit_descriptor, output):
            loop.remove_reader(descriptor)
            os.close(descriptor)
        exit_code = code if code >= 0 else 128 - code
        self._note(name, running=False, testing=False, exit_code=exit_code, since=time.time())

    def _copy(self, name: str, output: int) -> bool:
        """Append what a process has written to its log, with the time and the new length."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(output, BLOCK_BYTES)
            if not data:
                # The process has closed its output, and may go on.
                asyncio.get_running_loop().remove_reader(output)
        if data:
            with (
                self._run.log(name).open("ab") as log,
                self._run.log_times(name).open("a") as times,
            ):
                log.write(data)
                times.write(f"{time.time():.3f} {log.tell()}\n")
        return bool(data)

    async def _test(self, spec: ProcessSpec, env: Mapping[str, str], attempt: int) -> None:
        """Test whether a process is ready until it is, or has exited."""
        log, name = self._run.log(spec.name), spec.name
        probe = make_probe(spec, log, self._seen[name].log_start, env, self._search_process)
        deadline = time.monotonic() + spec.ready_timeout
        result = "not tested yet"
        while result:
            result = await asyncio.to_thread(probe.test, probe.usual_timeout)
            seen = self._seen[name]
            if not seen.running or seen.attempt != attempt:
                return
            is_late = time.monotonic() > deadline
            self._note(name, ready=not result, test_result=result, testing=not is_late)
            await asyncio.sleep(TEST_PAUSE_SECONDS)

    # --- the end ---

    def _stop_all(self, *, at_once: bool) -> None:
        """Begin to stop the whole experiment, because a client has sent a signal."""
        self._kills_at_once = self._kills_at_once or at_once
        is_together = self._run.stops_together()
        self._record(stop_all(self._state, time.time(), is_together=is_together))
        self._news.set()


def main(path: str) -> int:
    """Supervise an experiment in a child process. Return when its processes have started."""
    reader, launched = os.pipe()
    if os.fork():
        os.close(launched)
        return 0 if os.read(reader, 1) else 1
    os.chdir("/")
    run = RunDirectory(Path(path))
    run.record_supervisor(identify(os.getpid()) or ProcessId(os.getpid(), 0.0))
    asyncio.run(Supervisor(run).run(launched))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
