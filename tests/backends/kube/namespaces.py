"""Containers without a container runtime: process namespaces in which scripts are tested."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_AS_USER = [] if os.geteuid() == 0 else ["--map-root-user"]
# The first process of a Pod reaps processes that have lost their parent. It has another control
# group than the containers.
_PAUSE = """
mount --bind "$1" /proc/1/cgroup && exec "$2" -I -S -c '
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("up", flush=True)
while True:
    signal.pause()
'
"""
# Enter the namespaces of a process, start a command, and exit with its exit code. nsenter would be
# stopped together with the command. The command ignores no signal, as below a container runtime,
# also if the tests run below nohup, which ignores HUP, or in the background of a shell, which can
# ignore INT and QUIT.
_JOIN = """
import ctypes, os, signal, sys
pid, command = sys.argv[1], sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
paths = [f"/proc/{pid}/ns/{kind}" for kind in ("user", "mnt", "pid")]
own = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("user", "mnt", "pid")]
files = [open(path) for path, link in zip(paths, own) if os.readlink(path) != link]
directory = os.getcwd()
for file in files:
    if libc.setns(file.fileno(), 0):
        raise OSError(ctypes.get_errno(), "setns")
os.chdir(directory)
child = os.fork()
if not child:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    os.closerange(3, 100)
    os.execvp(command[0], command)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.exit(code if code >= 0 else 128 - code)
"""


class Pod:
    """A process namespace that is shared by all containers of a Pod."""

    def __init__(self, directory: Path) -> None:
        self._group = directory / "cgroup"
        self._group.write_text("1:name=systemd:/pause\n")
        command = ["unshare", *_AS_USER, "--mount", "--pid", "--fork", "--mount-proc"]
        self._pause = subprocess.Popen(
            [*command, "sh", "-c", _PAUSE, "sh", str(self._group), sys.executable],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if not self._pause.stdout.readline():
            raise OSError(self._pause.communicate()[1])
        self._first = child_of(self._pause.pid)
        self._enter = [sys.executable, "-I", "-S", "-c", _JOIN, str(self._first)]
        self._processes: list[subprocess.Popen] = []

    def start(self, *command: str, **options) -> subprocess.Popen:
        """Start a process whose parent is not in the namespace, like a container runtime."""
        process = subprocess.Popen([*self._enter, *command], text=True, **options)
        self._processes.append(process)
        return process

    def move_to_other_container(self, process: subprocess.Popen) -> None:
        """Let a process have the control group of another container."""
        status = Path(f"/proc/{child_of(process.pid)}/status").read_text()
        pid = status.split("NSpid:")[1].split("\n")[0].split()[-1]
        mount = self.start("mount", "--bind", str(self._group), f"/proc/{pid}/cgroup")
        if mount.wait():
            raise OSError("mount failed")

    def kill(self) -> None:
        """Kill all processes, as the exit of the first process of a container does."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._first, signal.SIGKILL)

    def end(self) -> None:
        """Kill all processes, and wait for their exits."""
        self.kill()
        self._pause.communicate()
        for process in self._processes:
            process.wait()
            for file in (process.stdout, process.stderr):
                if file is not None:
                    file.close()


def child_of(pid: int) -> int:
    """Return the process ID of the only child of a process."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def are_available() -> bool:
    """Return whether this user can create namespaces."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", *_AS_USER, "--mount", "--pid", "--fork", "--mount-proc", "true"]
    return subprocess.run(command, capture_output=True).returncode == 0
