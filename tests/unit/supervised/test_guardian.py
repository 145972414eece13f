"""The guardian, with small programs instead of supervisors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from symphony.supervised.processes.exit_status import ExitRecord
from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.supervisor import __file__ as package_file
from symphony.supervised.supervisor import guardian

# Each supervisor does what the next argument says, and records when it begins. The standard output
# of the guardian remains open until it exits.
PROGRAM = f"""
import os, sys, time
sys.path.append({str(Path(guardian.__file__).parent)!r})
import guardian
guardian._FIRST_DELAY_SECONDS = guardian._LONGEST_DELAY_SECONDS = float(sys.argv[1])
path = sys.argv[2]
link = guardian.guard_first(path)
with open(path + "/starts", "a+") as file:
    file.write(f"{{time.monotonic()}} {{link.path}}\\n")
    file.seek(0)
    number = len(file.readlines()) - 1
steps = sys.argv[3:][number] if number < len(sys.argv) - 3 else "die"
for step in steps.split():
    if step == "launch":
        os.write(link.messages, guardian.SUPERVISES + os.fsencode(path) + b"\\n")
    elif step == "work":
        os.write(link.messages, guardian.SUPERVISES)
    elif step == "end":
        os.write(link.messages, guardian.ENDED)
    elif step == "leave":
        os.write(link.messages, guardian.LEAVES)
    elif step == "start":
        # A supervisor needs much longer than its guardian until it starts a process.
        while not os.path.exists(path + "/guardian"):
            time.sleep(0.001)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            gate = open(path + "/gate")
            gate.read()
            os._exit(7)
        birth = open(f"/proc/{{pid}}/stat").read().rpartition(") ")[2].split()[19]
        open(path + "/child", "w").write(f"{{pid}} {{birth}}")
os._exit(1)
"""

# A supervisor that exits later than it closes its pipe, as if the kernel were slow.
SLOW_EXIT = f"""
import os, sys, time
sys.path.append({str(Path(guardian.__file__).parent)!r})
import guardian
link = guardian.guard_first(sys.argv[1])
while not os.path.exists(sys.argv[1] + "/guardian"):
    time.sleep(0.001)
os.write(2, b"%d" % os.getpid())
os.close(2)
os.close(1)
os.close(link.messages)
time.sleep(0.2)
"""

# A supervisor that is killed when it has started the program of its next guardian.
KILLED = """
import os, signal, subprocess, sys
from symphony.supervised.supervisor import guarding

start = subprocess.Popen

def start_and_die(*arguments, **options):
    start(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)

subprocess.Popen = start_and_die
alive, messages = os.pipe()
preparation = {"path": [sys.argv[2], *sys.path]}
guarding.Guard(preparation, alive, messages, sys.argv[1])._start_guardian()
"""

# The first module that a supervisor imports. The guardian is its parent.
NEXT_SUPERVISOR = """
import os, pathlib, signal

pathlib.Path(os.environ["STARTED"]).touch()
os.kill(os.getppid(), signal.SIGKILL)
os._exit(0)
"""


def run(path: Path, *steps: str, delay: float = 0.0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PROGRAM, str(delay), str(path), *steps],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def starts(path: Path) -> list[float]:
    """Return the times at which the supervisors have started."""
    lines = (path / "starts").read_text().splitlines()
    paths = [line.partition(" ")[2] for line in lines]
    assert paths == ["", *[str(path)] * (len(lines) - 1)]
    return [float(line.partition(" ")[0]) for line in lines]


def test_launcher_reads_end_of_file_when_the_supervisor_of_a_failed_launch_has_exited(
    tmp_path: Path,
) -> None:
    program = [sys.executable, "-I", "-S", "-c", SLOW_EXIT, str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        supervisor = int(os.read(process.stderr.fileno(), 100))
        # The launcher sends this signal to the process group of both.
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == b""
        assert not Path(f"/proc/{supervisor}").exists()


@pytest.mark.parametrize(
    ("steps", "count"),
    [
        (["launch end"], 1),
        (["launch leave"], 1),
        (["die"], 1),
        (["launch", "work end"], 2),
        (["launch", "work", "die", "leave"], 4),
        (["launch"], 10),
    ],
)
def test_supervisor_that_dies_is_started_again(
    tmp_path: Path, steps: list[str], count: int
) -> None:
    """If all of them die at once, the tenth is the last one."""
    output, _ = run(tmp_path, *steps).communicate(timeout=60)
    assert len(starts(tmp_path)) == count
    assert output == (
        "guardian: 10 supervisors have died at once; giving up\n" if count == 10 else ""
    )


def test_supervisors_that_die_at_once_are_delayed(tmp_path: Path) -> None:
    run(tmp_path, "launch", "die", "end", delay=0.5).communicate(timeout=60)
    _, second, third = starts(tmp_path)
    assert third - second >= 0.5


def test_exits_of_adopted_processes_are_recorded(tmp_path: Path) -> None:
    """A guardian without a supervisor exits when they have exited."""
    os.mkfifo(tmp_path / "gate")
    process = run(tmp_path, "launch start", "work leave")
    with (tmp_path / "gate").open("w"):
        # The child has opened the gate.
        pass
    process.communicate(timeout=60)
    pid, birth = (tmp_path / "child").read_text().split()
    assert ExitRecord(tmp_path / "exits").code(ProcessId(int(pid), float(birth))) == 7


def test_large_file_of_exits_is_emptied(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    exits = tmp_path / "exits"
    exits.write_bytes(b"1 1 0\n" * (guardian.EXITS_LIMIT_BYTES // 6 + 1))
    process = run(tmp_path, "launch start", "work leave")
    with (tmp_path / "gate").open("w"):
        pass
    process.communicate(timeout=60)
    assert len(exits.read_text().splitlines()) == 1


def test_guardian_of_a_supervisor_that_was_just_killed_starts_the_next_one(tmp_path: Path) -> None:
    modules, started = tmp_path / "modules", tmp_path / "started"
    package = modules / "symphony" / "support"
    package.mkdir(parents=True)
    for directory in (package.parent, package):
        (directory / "__init__.py").touch()
    (package / "inherited_signals.py").write_text(NEXT_SUPERVISOR)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(modules)],
        env={**os.environ, "STARTED": str(started)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    assert started.exists()


@pytest.mark.parametrize("arguments", [["exp"], ["exp", "7", "8"]])
def test_program_whose_starter_was_killed_exits(arguments: list[str]) -> None:
    program = Path(package_file).with_name("__main__.py")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(program), *arguments],
        input=b"2f6e6f",
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
