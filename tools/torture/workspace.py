"""The isolated surroundings of one round: directories, ports, commands and found processes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from symphony import Cluster, Experiment, SymphonyError
from symphony.plan.restart_policy import Backoff
from symphony.status import ExperimentStatus
from symphony.supervised.processes.environment import read_environment
from symphony.supervised.processes.identity import ProcessId, birth_time
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.guardian import NAME as GUARDIAN_NAME
from torture import checks
from torture.checks import FoundProcess
from torture.children import INTERRUPTED_CODE, Child

LOCAL, TMUX, KUBE = "local", "tmux", "kube"
NAME = "exp"

# The file of a round with one line for each interrupted command: the verb and what was killed.
MOMENTS = "moments"

# Each round has a block of ports of its own, outside the ports that symphony chooses by default and
# below those that Linux gives to clients.
_FIRST_PORT, _LAST_PORT, PORTS_PER_ROUND = 10_000, 30_000, 100

# The command of most processes. It is also how `sleepers` recognizes them.
SLEEP = ("sleep", "100000")
_SLEEP_COMMAND = " ".join(SLEEP)

# How long a killed launcher's supervisor, a tmux server and its shells may need to exit.
SETTLE_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.02
# A process can start another one before it is killed.
_KILL_ATTEMPTS = 100

# The shortest and the longest delay before something is killed. The delays are distributed so that
# short and long ones are equally frequent, because it is not known how fast the machine is.
_SHORTEST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS = 0.002, 1.0
_LONGEST_QUICK_DELAY_SECONDS = 0.3


class Violation(Exception):
    """Raised if an invariant is violated. The message contains one line for each violation."""


class Workspace:
    """The surroundings of one round. Use it in a ``with`` block.

    All random decisions of a round use ``random``. ``quick`` selects small numbers of processes,
    programs and lines.
    """

    def __init__(self, backend: str, seed: int, directory: Path, *, quick: bool = False) -> None:
        self.backend = backend
        self.random = random.Random(seed)
        self.directory = directory
        self.root = directory / "state" / backend
        self.recorded = directory / "pids"
        # Each round has a process of its own.
        self._created = birth_time(os.getpid()) or 0.0
        self._quick = quick
        self._children: list[Child] = []
        self._run_ids: set[str] = set()
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Workspace:
        self.recorded.mkdir(parents=True)
        (self.directory / "commands").mkdir()
        os.environ |= {
            "SYMPHONY_STATE_DIR": str(self.root.parent),
            "XDG_CONFIG_HOME": str(self.directory / "config"),
            checks.ROUND_VARIABLE: str(self.directory),
        }
        for name in ("TMUX", "SYMPHONY_BACKEND", "SYMPHONY_PROFILE", "SYMPHONY_EXPERIMENT_FOLDER"):
            os.environ.pop(name, None)
        self.ports = self._reserve_ports()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill everything that the round has started."""
        for child in self._children:
            child.kill()
        for _attempt in range(_KILL_ATTEMPTS):
            left = self.processes()
            if not left:
                break
            for found in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(found.pid, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        self._cleanup.close()

    def on_exit(self, function: Callable[[], object]) -> None:
        """Call a function when the round is over and nothing is running."""
        self._cleanup.callback(function)

    def _reserve_ports(self) -> range:
        """Return a block of ports that no other round on this machine uses."""
        starts = list(range(_FIRST_PORT, _LAST_PORT, PORTS_PER_ROUND))
        # The block is not a decision of the round: other programs may use the ports.
        random.SystemRandom().shuffle(starts)
        for start in starts:
            lease = self._cleanup.enter_context(socket.socket(socket.AF_UNIX))
            ports = range(start, start + PORTS_PER_ROUND)
            with contextlib.suppress(OSError):
                lease.bind(f"\0symphony-torture/{start}")
                if not checks.used_ports(ports):
                    return ports
        raise RuntimeError("no block of free ports was found")

    # --- random decisions ---

    def count(self, low: int, high: int) -> int:
        """Return a random number from ``low`` to ``high``, or ``low`` if the round is quick."""
        return low if self._quick else self.random.randint(low, high)

    def sleep(self) -> None:
        """Wait for a random time."""
        longest = _LONGEST_QUICK_DELAY_SECONDS if self._quick else _LONGEST_DELAY_SECONDS
        factor = longest / _SHORTEST_DELAY_SECONDS
        time.sleep(_SHORTEST_DELAY_SECONDS * factor ** self.random.random())

    # --- experiments and commands ---

    def cluster(self, backoff: Backoff | None = None) -> Cluster:
        """Return a cluster that uses the state directory of the round."""
        return Cluster.new(self.backend, backoff=backoff)

    def experiment(
        self, name: str = NAME, processes: int = 3, *, has_fixed_ports: bool = True
    ) -> Experiment:
        """Return an experiment whose processes sleep. Each of them binds a port of the round.

        With ``has_fixed_ports``, the first port belongs to the first process, and so on. Otherwise,
        symphony chooses the ports.
        """
        port_range = (self.ports[0], self.ports[-1])
        experiment = self.cluster().new_experiment(name, port_range=port_range)
        for number in range(processes):
            process = experiment.new_process(f"p-{number}", command=list(SLEEP))
            port = self.ports[number] if has_fixed_ports else None
            process.binds({f"service-{number}": port})
        return experiment

    def start(self, function: Callable[[], int], name: str) -> Child:
        """Run a function in a child process, and return at once."""
        path = self.directory / "commands" / f"{len(self._children):04}-{name}"
        child = Child(function, path)
        self._children.append(child)
        return child

    def start_command(self, *words: str) -> Child:
        """Run ``symphony WORDS -b BACKEND`` in a child process, and return at once."""
        head, separator, tail = _split(words)
        command = ["symphony", *head, "-b", self.backend, *separator, *tail]
        return self.start(partial(_run_command, command), words[0])

    def start_launch(self, experiment: Experiment, *options: str) -> Child:
        """Launch an experiment in a child process, and return at once."""
        path = self.directory / "commands" / f"{len(self._children):04}.json"
        experiment.dump_file(path)
        return self.start_command("launch", str(path), *options)

    def expect(
        self,
        child: Child,
        *words: str,
        is_permitted: Callable[[int], bool] = checks.is_usual,
        timeout: float = checks.MAX_COMMAND_SECONDS,
    ) -> int:
        """Wait for a command, check its answer and return its exit code.

        ``timeout`` is longer on a busy machine.
        """
        try:
            code = child.wait(checks.on_busy_machine(timeout))
        except TimeoutError as exc:
            raise Violation(f"symphony {' '.join(words)}: {exc}") from None
        output = child.output + child.errors
        self.refuse(checks.wrong_answer(words, code, output, is_permitted=is_permitted))
        return code

    def run(self, *words: str, is_permitted: Callable[[int], bool] = checks.is_usual) -> str:
        """Run a command, check its answer and return its standard output."""
        child = self.start_command(*words)
        self.expect(child, *words, is_permitted=is_permitted)
        return child.output

    def launch(self, experiment: Experiment, *options: str) -> None:
        """Launch an experiment. Raises Violation if this fails."""
        child = self.start_launch(experiment, *options)
        self.expect(child, "launch", experiment.name, is_permitted=is_success)
        self.note_runs()

    def delete_all(self) -> None:
        """Delete all experiments, and check that none of their processes is left."""
        self.note_runs()
        names = self.cluster().list_experiments() or [NAME]
        self.run("delete", "--force", *names, is_permitted=is_success)
        left = [found for found in self.processes() if found.run_id is not None]
        self.refuse(checks.left_processes(left))

    def refuse(self, violations: Sequence[str]) -> None:
        """Raise Violation if there are violations."""
        if violations:
            raise Violation("\n".join(violations))

    # --- observing ---

    def note_runs(self) -> None:
        """Remember the identifiers of the runs that exist now."""
        self._run_ids |= self.run_ids()

    def run_ids(self) -> set[str]:
        """Return the identifiers of the runs that exist now."""
        found = set()
        for path in self.root.glob("*/manifest.json"):
            # Another program may be writing or removing the directory.
            with contextlib.suppress(OSError, ValueError, KeyError):
                found.add(json.loads(path.read_bytes())["run_id"])
        return found

    def processes(self) -> list[FoundProcess]:
        """Return all running processes of the round, except for the commands of `start`."""
        recorded = []
        for path in self.recorded.iterdir():
            pid, _, birth = path.name.partition("-")
            recorded.append(ProcessId(int(pid), float(birth)))
        identity = str(self.directory)
        return checks.find_processes(identity, self._run_ids, recorded, since=self._created)

    def sleepers(self) -> list[FoundProcess]:
        """Return the processes of the experiments that `experiment` has described."""
        return [
            found
            for found in self.processes()
            if found.run_id is not None and found.command == _SLEEP_COMMAND
        ]

    def supervisors(self) -> list[FoundProcess]:
        """Return the supervisors, also those whose launch is not complete."""
        return [found for found in self._supervision() if not _is_guardian(found)]

    def guardians(self) -> list[FoundProcess]:
        """Return the guardians of supervisors."""
        return [found for found in self._supervision() if _is_guardian(found)]

    def _supervision(self) -> list[FoundProcess]:
        return [
            found
            for found in self.processes()
            if found.run_id is None and "supervisor/__main__.py" in found.command
        ]

    def copiers(self) -> list[FoundProcess]:
        """Return the programs that copy the output of processes to their logs."""
        return [
            found
            for found in self.processes()
            if found.run_id is None and "capture/copy_output.py" in found.command
        ]

    def status(self, name: str = NAME) -> ExperimentStatus | None:
        """Return the status of an experiment, or None if there is no such experiment."""
        try:
            return self.cluster().describe_experiment(name)
        except SymphonyError:
            return None

    def wait_for(
        self, condition: Callable[[], bool], describe: Callable[[], Sequence[str]]
    ) -> None:
        """Wait until a condition is true.

        If it is not true after `settle_seconds`, which are more on a busy machine, raise Violation
        with the lines that ``describe`` returns, or return if there are none.
        """
        seconds = checks.on_busy_machine(self.settle_seconds)
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                lines = list(describe())
                if not lines:
                    return
                state = ", ".join(str(found) for found in self.processes())
                self.refuse([*lines, f"after {seconds:.0f} s; running: {state}"])
            time.sleep(_POLL_SECONDS)

    def settle(self) -> bool:
        """Wait until the experiment exists or nothing of it is left, and return whether it exists.

        Call this method after a launcher was killed.
        """
        self.wait_for(
            self._is_settled, lambda: ["the experiment neither exists nor is rolled back"]
        )
        return NAME in self.cluster().list_experiments()

    def _is_settled(self) -> bool:
        names = os.listdir(self.root) if self.root.exists() else []
        staged = [RunDirectory(self.root / name) for name in names if name.startswith(".new-")]
        if any(run.is_locked() for run in staged):
            return False
        return NAME in names or not [found for found in self.processes() if not _is_tmux(found)]

    # --- interruptions; see `torture.trials.interrupting` ---

    settle_seconds = SETTLE_TIMEOUT_SECONDS

    # What can be interrupted. A name that occurs twice is chosen more often.
    interruptions: Sequence[str] = ("client", "supervisor", "both")

    def interrupted_connection(self, attack: str) -> contextlib.AbstractContextManager[None]:
        """Interrupt the connections to the API server inside the block."""
        raise RuntimeError(f"{self.backend} has no connections to interrupt for {attack!r}")

    def use_own_namespaces(self) -> str:
        """Use a namespace for each experiment, and return a name for an experiment."""
        raise RuntimeError(f"{self.backend} has no namespaces")

    def has_objects(self) -> bool:
        """Return whether a launch has begun to create the objects of an experiment."""
        raise RuntimeError(f"{self.backend} has no objects")

    def left_objects(self, name: str) -> list[str]:
        """Return the objects that symphony has created for an experiment and that still exist."""
        raise RuntimeError(f"{self.backend} has no objects for {name!r}")

    def running_texts(self) -> dict[tuple[str, str], str]:
        """Return the identities of the running processes.

        The keys consist of the name of a process and its variable ``TEXT``. If there are several
        processes with the same key, their identities are joined.
        """
        found: dict[tuple[str, str], str] = {}
        for sleeper in self.sleepers():
            environment = read_environment(sleeper.pid)
            if environment is not None:
                variables = environment.variables
                key = (variables["SYMPHONY_ROLE"], variables.get("TEXT", ""))
                found[key] = f"{found[key]}, {sleeper.pid}" if key in found else str(sleeper.pid)
        return found

    def note_moment(self, verb: str, attack: str) -> None:
        """Record that a command is interrupted, for the table of the moments."""
        with (self.directory / MOMENTS).open("a") as file:
            file.write(f"{verb}\t{attack}\n")

    def duration(self, verb: str) -> float | None:
        """Return the duration of a command in seconds, or None if no round has measured it.

        A quick round assumes a duration.
        """
        if self._quick:
            return _LONGEST_QUICK_DELAY_SECONDS
        with contextlib.suppress(FileNotFoundError, ValueError):
            return float(self._duration_file(verb).read_text())
        return None

    def note_duration(self, verb: str, seconds: float) -> None:
        """Record the duration of a command for all following rounds."""
        self._duration_file(verb).write_text(f"{seconds}")

    def _duration_file(self, verb: str) -> Path:
        return self.directory.parent / f"duration-{self.backend}-{verb.replace(' ', '-')}"

    # --- the invariants ---

    def check_status(self) -> None:
        """Check that the status of the sleeping processes agrees with the processes themselves.

        Both may still change for a short time: a tmux window runs its command only after the launch
        has returned.
        """
        self.wait_for(lambda: not self._status_errors(), self._status_errors)

    def _status_errors(self) -> list[str]:
        status = self.status()
        running = {found.pid for found in self.sleepers()}
        if status is None:
            return [f"process {pid} runs, but the experiment does not exist" for pid in running]
        return checks.wrong_status(status, running)

    def check_commands(self, name: str = NAME, count: int = 2) -> None:
        """Run some commands, which must answer whatever has happened to the experiment."""
        commands: tuple[tuple[str, ...], ...] = (
            ("ls",),
            ("ls", "--json"),
            ("ps", name),
            ("ps", name, "--json"),
            ("describe", name, "p-0"),
            ("logs", name),
            ("logs", name, "--json", "--tail", "3"),
            ("graph", name),
            ("visit", name, "service-0"),
            ("exec", name, "p-0", "--", "true"),
            ("delete", name, "--dry-run"),
            ("wait", name, "--timeout", "0.1"),
        )
        for words in self.random.sample(commands, count):
            # The exit code of `wait` is that of the experiment.
            is_permitted = is_any_code if words[0] == "wait" else checks.is_usual
            self.run(*words, is_permitted=is_permitted)

    def check_end(self) -> None:
        """Check that all is deleted completely, and that the name and the ports are free again."""
        self._check_commands_have_exited()
        self.check_commands()
        self.delete_all()
        self._check_nothing_is_left()
        self.launch(self.experiment())
        self.refuse(checks.not_running(self.status()))
        self.delete_all()
        self._check_nothing_is_left()
        # The launch has removed the directories of killed launchers.
        self.refuse(checks.left_files(self.root))

    def _check_commands_have_exited(self) -> None:
        for child in self._children:
            if child.poll() is None:
                raise Violation("a command of the trial still runs")

    def _check_nothing_is_left(self) -> None:
        listed = self.cluster().list_experiments()
        self.refuse([f"{name} is still listed" for name in listed])
        # Processes that belong to no run, such as a tmux server, may need some time.
        self.wait_for(lambda: not self.processes(), lambda: checks.left_processes(self.processes()))
        self.refuse(checks.used_ports(self.ports))

    # --- tmux ---

    def tmux(self, *arguments: str) -> str:
        """Run a tmux command on symphony's server. Its failure is ignored."""
        command = ["tmux", "-L", "symphony", *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout


def is_success(code: int) -> bool:
    """Return whether an exit code means success."""
    return code == 0


def is_any_code(code: int) -> bool:
    """Return whether a command has exited by itself."""
    return code >= 0


def is_interrupted_by(numbers: Collection[int]) -> Callable[[int], bool]:
    """Return a function that permits the exit codes of a command that received these signals."""
    codes = {code for number in numbers for code in (128 + number, -number)}
    return lambda code: code in codes or checks.is_usual(code)


def _is_guardian(found: FoundProcess) -> bool:
    try:
        return Path(f"/proc/{found.pid}/comm").read_bytes().strip() == GUARDIAN_NAME
    except OSError:
        return False


def _is_tmux(found: FoundProcess) -> bool:
    return found.run_id is None and "tmux -L symphony" in found.command


def _split(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Split a command line at the word ``--``."""
    if "--" not in words:
        return words, (), ()
    index = list(words).index("--")
    return words[:index], ("--",), words[index + 1 :]


def _run_command(command: list[str]) -> int:
    try:
        from symphony.__main__ import main
    except KeyboardInterrupt:
        # The command has not begun, so it cannot handle this.
        return INTERRUPTED_CODE
    sys.argv = command
    return main()
