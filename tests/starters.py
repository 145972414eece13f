"""Programs behind the usual starters, each of which must receive one signal when it is stopped."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from symphony import Experiment

# Saves its work for half a second after the first signal. A second signal loses the work.
SAVES = """\
import os, signal, sys, time
received = []
def write(line):
    os.write(1, (line + "\\n").encode())
def stop(number, frame):
    received.append(number)
    write("got " + signal.Signals(number).name)
    if len(received) > 1:
        os._exit(1)
    time.sleep(0.5)
    write("saved")
    sys.exit(0)
for name in ("SIGTERM", "SIGINT"):
    signal.signal(signal.Signals[name], stop)
write("up")
while True:
    time.sleep(0.1)
"""
# Exits at once when it receives the signal, and does not pass it on, as npm and `go run` do.
QUITS = "import os, signal, subprocess, sys; signal.signal(15, lambda *_: os._exit(3)); \
subprocess.run([sys.executable, 'saves.py'])"
# Waits for its child without passing on the signal, as just does.
WAITS = "import signal, subprocess, sys; signal.signal(15, lambda *_: None); \
subprocess.run(['sh', '-c', sys.executable + ' saves.py; echo after'])"


def add_starters(experiment: Experiment, directory: Path, *, signal: str = "TERM") -> None:
    """Add a process for each starter that is installed. All of them run in ``directory``.

    ``signal`` stops them.
    """
    (directory / "saves.py").write_text(SAVES)
    (directory / "Makefile").write_text(f"saves:\n\t@{sys.executable} saves.py\n")
    (directory / "package.json").write_text(
        f'{{"name": "saves", "scripts": {{"saves": "{sys.executable} saves.py"}}}}'
    )
    saves = f"{shlex.quote(sys.executable)} saves.py"
    commands = {
        "bare": [sys.executable, "saves.py"],
        "line": ["bash", "-c", f"true; {saves}; echo after"],
        "and": ["sh", "-c", f"{saves} && echo after"],
        "pipe": ["bash", "-c", f"{saves} | cat"],
        "inner-pipe": ["bash", "-c", f"{{ {saves}; echo after; }} | cat; echo after"],
        "session": ["bash", "-c", f"setsid {saves} & wait; echo after"],
        "job": ["sh", "-c", f"{saves} & wait; echo after"],
        "exit-trap": ["bash", "-c", f"trap 'echo bye' EXIT; {saves}; echo after"],
        "xargs": ["sh", "-c", f"echo saves.py | xargs {shlex.quote(sys.executable)}"],
        # Otherwise, it sends the signal first to its child and then to its whole process group.
        "timeout": ["timeout", "--foreground", "1000", sys.executable, "saves.py"],
        "quits": [sys.executable, "-c", QUITS],
        "waits": [sys.executable, "-c", WAITS],
        "make": ["make", "saves"],
        "npm": ["npm", "run", "--silent", "saves"],
    }
    if signal == "INT":
        # Python itself handles INT, and subprocess.run then kills the child.
        del commands["quits"], commands["waits"]
    for name, command in commands.items():
        if shutil.which(command[0]):
            process = experiment.new_process(name, command=command, start_dir=str(directory))
            # A third of the grace period remains for the child of the starter that waits.
            process.ready(log="^up").termination_grace_period(6).stop_signal(signal)


def lines_after_start(log: str) -> list[str]:
    """Return the lines that a process wrote after it was ready, without those of its shell."""
    lines = log.partition("up")[2].split("\n")
    return [line.strip() for line in lines if line.strip() not in ("", "bye", "Terminated")]
