"""Start many sleeping processes with symphony, with a bare loop over `subprocess.Popen`, and with
honcho.

All processes receive the same environment, which contains the addresses of eight services. Each
process writes to its own file, except under honcho, which forwards the output. `PopenLoop` and
`Honcho` are context managers that always stop their processes on exit.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from symphony import Cluster, Experiment

NAME = "many"
COMMAND = ["sleep", "1000"]
SERVICES = 8  # Each service has four variables.
MEMORY = Path("/dev/shm")
IDLE_MARGIN_PERCENT = 10.0  # This is a percentage of the capacity of all cores.
IDLE_TIMEOUT_SECONDS = 2.0
LAUNCH_WORK_SECONDS = 10.0
# A program sleeps if it has not used a tick of processor time in this time.
SLEEP_SECONDS = 0.1

Environment = Mapping[str, str]


@contextlib.contextmanager
def temporary_directory(within: Path | None = None) -> Iterator[Path]:
    """Yield a new directory, and delete it afterwards.

    The directory is in ``within``, or by default in the system's directory for temporary files.
    """
    with tempfile.TemporaryDirectory(prefix="symphony-bench-", dir=within) as directory:
        yield Path(directory)


def memory() -> Path | None:
    """Return an in-memory directory for a few small files.

    Return None if there is no such directory, or if TMPDIR is set.
    """
    return MEMORY if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) else None


def idle_waiter() -> Callable[[], None]:
    """Return a function that waits until the machine is about as idle as during this call.

    The function waits at most `IDLE_TIMEOUT_SECONDS`, and not at all if this program runs before
    all others.
    """
    if os.sched_getscheduler(0) == os.SCHED_RR:
        return lambda: None
    quiet = psutil.cpu_percent(interval=1.0)

    def settle() -> None:
        deadline = time.monotonic() + IDLE_TIMEOUT_SECONDS
        while (
            psutil.cpu_percent(interval=0.25) > quiet + IDLE_MARGIN_PERCENT
            and time.monotonic() < deadline
        ):
            pass

    return settle


def wait_until_asleep(pid: int) -> None:
    """Wait until a program uses no processor time, such as a supervisor after a launch.

    The function waits at most `LAUNCH_WORK_SECONDS`.
    """
    program = psutil.Process(pid)
    deadline = time.monotonic() + LAUNCH_WORK_SECONDS
    used = -1.0
    while time.monotonic() < deadline:
        before, used = used, sum(program.cpu_times()[:2])
        if used == before:
            return
        time.sleep(SLEEP_SECONDS)


@contextlib.contextmanager
def temporary_state_directory(within: Path | None = None) -> Iterator[Path]:
    """Yield a state directory for one measurement, and delete its experiments afterwards; see
    `local`.
    """
    with temporary_directory(within) as directory:
        try:
            yield directory
        finally:
            cluster = local(directory)
            cluster.delete_batch(cluster.list_experiments())


def local(state: Path) -> Cluster:
    """Return the local backend with the state directory that `environ` passes to programs."""
    return Cluster.new("local", state_dir=state / "local")


def environ(state: Path) -> dict[str, str]:
    """Return the environment in which the command line uses the state directory ``state``.

    In this environment, Python writes bytecode files, as it does by default. Otherwise, every
    program would compile its modules again.
    """
    inherited = {
        key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"
    }
    return {**inherited, "SYMPHONY_STATE_DIR": str(state)}


def symphony(*words: str) -> list[str]:
    """Return the argument vector of a symphony command."""
    return [sys.executable, "-m", "symphony", *words]


def experiment(count: int, name: str = NAME) -> Experiment:
    """Return an experiment of ``count`` processes. Each of the first eight binds one service."""
    exp = Experiment(name)
    for number in range(count):
        process = exp.new_process(f"sleeper-{number}", command=COMMAND)
        if number < SERVICES:
            process.binds(f"service-{number}")
    return exp


def environments(exp: Experiment) -> list[Environment]:
    """Return the complete environment of each process in the experiment."""
    with temporary_directory() as directory:
        data = local(directory).manifest(exp).to_dict()
    return [{**os.environ, **data["env"], **process["env"]} for process in data["processes"]]


class PopenLoop:
    """The minimal peer: a loop over Popen that starts each process in its own session."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> PopenLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, envs: Sequence[Environment]) -> None:
        """Start one process, with its own log file, for each environment."""
        with _undisturbed():
            for number, env in enumerate(envs):
                log_path = f"{self._directory}/{number}.log"
                with open(log_path, "wb") as log:  # noqa: PTH123  (faster than Path.open)
                    self.started.append(
                        subprocess.Popen(
                            COMMAND,
                            env=env,
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=log,
                            start_new_session=True,
                        )
                    )

    def stop(self) -> None:
        """Send TERM to each process group, and reap each process."""
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.started:
            process.wait()
        self.started.clear()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Delay Ctrl-C and TERM until the end of the block.

    If a signal interrupted Popen, a process that has just been started could be lost.
    """
    received: list[int] = []
    before = {
        number: signal.signal(number, lambda signum, _: received.append(signum))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for signum in received:
            signal.raise_signal(signum)


class Honcho:
    """A peer that is in common use: ``honcho start`` with a Procfile and a ``.env`` file."""

    def __init__(self, directory: Path, env: Environment, count: int) -> None:
        self._directory = directory
        self._count = count
        self._process: subprocess.Popen[bytes] | None = None
        self.pids: list[int] = []
        lines = (f"sleeper-{number}: {' '.join(COMMAND)}\n" for number in range(count))
        (directory / "Procfile").write_text("".join(lines))
        added = {key: value for key, value in env.items() if os.environ.get(key) != value}
        (directory / ".env").write_text(
            "".join(f'{key}="{value}"\n' for key, value in added.items())
        )

    @staticmethod
    def is_installed() -> bool:
        """Return whether honcho is installed next to this Python or on the PATH."""
        return shutil.which("honcho", path=_search_path()) is not None

    def __enter__(self) -> Honcho:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The pid of honcho itself."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Start honcho, and return when it has reported the start of every process."""
        program = shutil.which("honcho", path=_search_path()) or "honcho"
        self._process = subprocess.Popen(
            [program, "start"],
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if not self._all_started():
            raise RuntimeError(
                f"honcho ended after starting {len(self.pids)} of {self._count} processes"
            )

    def _all_started(self) -> bool:
        """Read output until every process has started. Return False if honcho exited before
        that.
        """
        output = self._process.stdout if self._process else None
        while output and len(self.pids) < self._count:
            line = output.readline()
            if not line:
                return False
            _, started, rest = line.partition(b" started (pid=")
            if started:
                self.pids.append(int(rest.split(b")")[0]))
        return True

    def stop(self) -> None:
        """Stop the processes and honcho."""
        if self._process is None:
            return
        # If honcho is stopped while it starts processes, it forgets the processes that it has
        # already started.
        self._all_started()
        # honcho exits when its processes have exited. Each of honcho's helpers exits together with
        # the process that it started.
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGTERM)
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
        self._process = None
        self.pids.clear()


def _search_path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def supervisor_pid(state: Path, name: str = NAME) -> int:
    """Return the pid of an experiment's supervisor, as recorded in the run directory."""
    return int(json.loads((state / "local" / name / "supervisor.json").read_text())["pid"])
