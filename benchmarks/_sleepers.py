"""Many processes that only sleep, started by symphony, by a bare loop over `subprocess.Popen`, and by honcho.

All get the same environment, with the addresses of eight services in it, and what they would print goes to a
file each (honcho passes it on instead). Each is a context that ends what it started, however it is left.
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
SERVICES = 8  # of four variables each
MEMORY = Path("/dev/shm")
MARGIN = 10.0  # percent of all cores
SETTLE_LONGEST = 10.0  # seconds

Environment = Mapping[str, str]


@contextlib.contextmanager
def scratch(within: Path | None = None) -> Iterator[Path]:
    """A folder that is gone afterwards, in ``within`` or else where temporary files are."""
    with tempfile.TemporaryDirectory(prefix="symphony-bench-", dir=within) as folder:
        yield Path(folder)


def memory() -> Path | None:
    """A folder in memory, for few small files; None where there is none, or where TMPDIR says what to use."""
    return MEMORY if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) else None


def settling() -> Callable[[], None]:
    """A function that returns when the machine is as idle as now, and what ended costs nothing any more."""
    quiet = psutil.cpu_percent(interval=1.0)

    def settle() -> None:
        deadline = time.monotonic() + SETTLE_LONGEST
        while psutil.cpu_percent(interval=0.25) > quiet + MARGIN and time.monotonic() < deadline:
            pass

    return settle


@contextlib.contextmanager
def state_dir(within: Path | None = None) -> Iterator[Path]:
    """A state directory of one's own, in which nothing is left running; see `local`."""
    with scratch(within) as folder:
        try:
            yield folder
        finally:
            cluster = local(folder)
            cluster.delete_batch(cluster.list_experiments())


def local(state: Path) -> Cluster:
    """The local backend on the state directory that `environ` names to programs."""
    return Cluster.new("local", state_dir=state / "local")


def environ(state: Path) -> dict[str, str]:
    """The environment in which the command line uses the state directory ``state``.

    Python keeps what it compiled there, as it does unless told otherwise: else every program would compile anew.
    """
    inherited = {
        key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"
    }
    return {**inherited, "SYMPHONY_STATE_DIR": str(state)}


def symphony(*words: str) -> list[str]:
    """A command line of symphony."""
    return [sys.executable, "-m", "symphony", *words]


def experiment(count: int, name: str = NAME) -> Experiment:
    """``count`` processes, the first of which bind the services."""
    exp = Experiment(name)
    for number in range(count):
        process = exp.new_process(f"sleeper-{number}", command=COMMAND)
        if number < SERVICES:
            process.binds(f"service-{number}")
    return exp


def environments(exp: Experiment) -> list[Environment]:
    """What each process of the experiment would get, the inherited included."""
    with scratch() as folder:
        data = local(folder).manifest(exp).to_dict()
    return [{**os.environ, **data["env"], **process["env"]} for process in data["processes"]]


class Bare:
    """The peer that does the least: a loop over Popen, each process in a session of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Bare:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self, envs: Sequence[Environment]) -> None:
        """Start a process for each environment, with a log file each."""
        with _undisturbed():
            for number, env in enumerate(envs):
                with open(self._folder / f"{number}.log", "wb") as log:
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

    def end(self) -> None:
        """TERM to each group, and reap each process."""
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.started:
            process.wait()
        self.started.clear()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Put off Ctrl-C and TERM: one that comes within Popen would lose a process that was just started."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda got, _: came.append(got))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for got in came:
            signal.raise_signal(got)


class Honcho:
    """The peer that people use: ``honcho start`` on a Procfile, with the variables in its ``.env`` file."""

    def __init__(self, folder: Path, env: Environment, count: int) -> None:
        self._folder = folder
        self._count = count
        self._process: subprocess.Popen[bytes] | None = None
        self.pids: list[int] = []
        lines = (f"sleeper-{number}: {' '.join(COMMAND)}\n" for number in range(count))
        (folder / "Procfile").write_text("".join(lines))
        added = {key: value for key, value in env.items() if os.environ.get(key) != value}
        (folder / ".env").write_text("".join(f'{key}="{value}"\n' for key, value in added.items()))

    @staticmethod
    def is_there() -> bool:
        """Whether it is installed beside this Python."""
        return shutil.which("honcho", path=_beside()) is not None

    def __enter__(self) -> Honcho:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """The id of honcho itself."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Start it, and return when it has said of every process that it was started."""
        program = shutil.which("honcho", path=_beside()) or "honcho"
        self._process = subprocess.Popen(
            [program, "start"],
            cwd=self._folder,
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
        """Read on until it has started every process; False where it ended before."""
        output = self._process.stdout if self._process else None
        while output and len(self.pids) < self._count:
            line = output.readline()
            if not line:
                return False
            _, started, rest = line.partition(b" started (pid=")
            if started:
                self.pids.append(int(rest.split(b")")[0]))
        return True

    def end(self) -> None:
        """Stop the processes, and honcho with them."""
        if self._process is None:
            return
        # Stopped while it starts, honcho forgets what it has started: so it starts the rest first.
        self._all_started()
        # It ends by itself once they have, and each of its helpers when its own process has.
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


def _beside() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def supervisor_pid(state: Path, name: str = NAME) -> int:
    """The supervisor of an experiment, as its run directory names it."""
    return int(json.loads((state / "local" / name / "supervisor.json").read_text())["pid"])
