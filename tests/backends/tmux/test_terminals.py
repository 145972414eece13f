"""Test terminals that are attached to processes: each one shows its own window."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from symphony.status import State
from symphony.testing import until
from symphony_tmux import render
from symphony_tmux.tmux_commands import Tmux
from tests.backends.tmux.conftest import eventually, new_session, python, run_id, tmux, windows
from tests.starters import SAVES, add_starters, lines_after_start

READ_LINES = "print('up')\nwhile True: print('got', input())"
LOGIN = (
    "import sys, json, fcntl, termios\n"
    "from symphony import Cluster\n"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "Cluster.new('tmux', **json.loads(sys.argv[1])).login('exp', sys.argv[2])"
)
DETACH, NEW_WINDOW = "\x02d", "\x02c"


class Terminal:
    """A pseudo-terminal that is attached to a process by ``login``."""

    def __init__(self, options, process):
        self._side, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
        os.set_blocking(self._side, False)
        command = [sys.executable, "-c", LOGIN, json.dumps(options), process]
        env = {**os.environ, "TERM": "xterm"}
        self.program = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, start_new_session=True, env=env
        )
        os.close(other)
        self._output = ""

    def output(self):
        """Return everything that the terminal has received so far."""
        try:
            while more := os.read(self._side, 65536):
                self._output += more.decode(errors="replace")
        except OSError:  # There is no more output yet, or the program has exited.
            pass
        return self._output

    def expect(self, text):
        eventually(lambda: text in self.output())

    def type(self, text):
        os.write(self._side, text.encode())

    def wait(self):
        """Return the exit code of the program."""

        def has_exited():
            self.output()  # The program blocks if its output is not read.
            return self.program.poll() is not None

        eventually(has_exited)
        return self.program.returncode

    def close(self):
        """Hang up, as a terminal emulator does when its window is closed."""
        if self._side >= 0:
            os.close(self._side)
            self._side = -1
            self.program.wait(20)


@pytest.fixture
def terminal(options):
    """Return a function that attaches a new terminal to a process."""
    terminals = []

    def attach(process):
        terminal = Terminal(options, process)
        terminals.append(terminal)
        terminal.expect(f"{process}*")
        return terminal

    yield attach
    for terminal in terminals:
        terminal.close()


@pytest.fixture
def launched(cluster, experiment):
    """Launch two processes that print each line of their input."""
    for name in ("first", "second"):
        python(experiment, name, READ_LINES).ready(log="^up$").termination_grace_period(5)
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: all(process.ready for process in now))
    # Otherwise tmux assumes that text which is typed as fast as here is pasted.
    tmux("set-option", "-g", "assume-paste-time", "0")


def sessions():
    return tmux("list-sessions", "-F", "#S", check=False).split()


def received(cluster, process):
    lines = cluster.get_log("exp", process).splitlines()
    return [line.removeprefix("got ") for line in lines if "got " in line]


def test_each_terminal_shows_its_own_window(cluster, launched, terminal):
    one, two = terminal("first"), terminal("second")
    one.type("alpha\r")
    two.type("beta\r")
    eventually(
        lambda: received(cluster, "first") == ["alpha"] and received(cluster, "second") == ["beta"]
    )
    one.expect("got alpha")
    two.expect("got beta")
    assert "beta" not in one.output()
    assert "[exp]" in one.output()
    assert "exp@" not in one.output()
    assert len(sessions()) == 3
    assert cluster.list_experiments() == ["exp"]
    one.type(DETACH)
    assert one.wait() == 0, one.output()[-1500:]
    two.close()
    eventually(lambda: sessions() == ["exp"])
    assert [process.state for process in cluster.describe_experiment("exp")] == [State.RUNNING] * 2


def test_delete_detaches_terminals(cluster, launched, terminal):
    one, two = terminal("first"), terminal("second")
    new_session("mine")
    cluster.delete("exp")
    assert [terminal.wait() for terminal in (one, two)] == [0, 0]
    assert sessions() == ["mine"]


def test_server_exits_after_the_last_delete_with_attached_terminals(cluster, launched, terminal):
    one = terminal("first")
    cluster.delete("exp")
    assert one.wait() == 0, one.output()[-1500:]
    eventually(lambda: sessions() == [])


def test_windows_of_a_killed_session_exist_until_the_terminal_is_detached(
    cluster, launched, terminal
):
    one = terminal("first")
    tmux("kill-session", "-t", "=exp")
    one.type("still here\r")
    eventually(lambda: received(cluster, "first") == ["still here"])
    one.type(DETACH)
    until(cluster, "exp", lambda now: all(process.state is State.UNKNOWN for process in now))
    cluster.delete("exp")
    eventually(lambda: sessions() == [])


def test_new_window_in_a_terminal_has_the_addresses(cluster, launched, terminal, tmp_path):
    one = terminal("second")
    one.type(NEW_WINDOW)
    eventually(lambda: len(windows()) == 3)
    output = tmp_path / "output"
    one.type(f"echo $SYMPHONY_EXPERIMENT,$SYMPHONY_RUN,$TMUX_TMPDIR >{output}\r")
    eventually(lambda: output.exists() and output.read_text().endswith("\n"))
    assert output.read_text() == f"exp,,{os.environ['TMUX_TMPDIR']}\n"


def test_session_without_a_terminal_is_closed(cluster, launched, monkeypatch):
    """A program that is killed while it attaches leaves such a session."""
    monkeypatch.setattr(render, "UNATTACHED_SECONDS", 1)
    client = Tmux(name="test")
    attach = render.attach_command("exp", run_id(cluster), name="exp@1", window="1", env={})
    # The list is part of the same command, because the session exists only for a second.
    result = client.run([*attach, 'list-sessions -F "#S"'])
    assert (result.lines[1:], result.error) == (["exp", "exp@1"], "")
    eventually(lambda: sessions() == ["exp"])
    assert len(windows()) == 2
    attach = render.attach_command("exp", "other", name="exp@2", window="1", env={})
    assert client.run(attach).lines == []
    assert sessions() == ["exp"]


def test_a_program_behind_a_starter_keeps_its_terminal_until_it_has_exited(
    cluster, experiment, tmp_path
):
    add_starters(experiment, tmp_path)
    cluster.launch(experiment)
    cluster.wait("exp", timeout=60, until="ready")
    cluster.stop("exp")
    names = [process.name for process in experiment.list_all_processes()]
    found = {name: lines_after_start(cluster.get_log("exp", name)) for name in names}
    assert found == {name: ["got SIGTERM", "saved"] for name in names}
    codes = [cluster.describe_process("exp", name).exit_code for name in ("bare", "line")]
    assert codes == [0, 143]


def test_a_suspended_process_is_stopped_at_once(cluster, experiment):
    python(experiment, "p", SAVES).ready(log="^up")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=60, until="ready")
    cluster.signal_processes("exp", None, "STOP")
    cluster.stop("exp")
    assert lines_after_start(cluster.get_log("exp", "p")) == ["got SIGTERM", "saved"]
    assert cluster.describe_process("exp", "p").exit_code == 0
