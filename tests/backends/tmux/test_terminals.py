"""Terminals that are attached to processes: each shows its own window, and what is typed goes there."""

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
from symphony_tmux.client import Tmux
from tests.backends.tmux.conftest import eventually, python, tmux, windows

ASKS = "print('up')\nwhile True: print('got', input())"
LOGIN = (
    "import sys, json, fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from symphony import Cluster;"
    "Cluster.new('tmux', **json.loads(sys.argv[1])).login('exp', sys.argv[2])"
)
DETACH, NEW_WINDOW = "\x02d", "\x02c"


class Terminal:
    """A pseudo-terminal in which somebody attaches to a process."""

    def __init__(self, options, process):
        self._side, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
        os.set_blocking(self._side, False)
        words = [sys.executable, "-c", LOGIN, json.dumps(options), process]
        env = {**os.environ, "TERM": "xterm"}
        self.program = subprocess.Popen(
            words, stdin=other, stdout=other, stderr=other, start_new_session=True, env=env
        )
        os.close(other)
        self._seen = ""

    def seen(self):
        """All that it was given to show so far."""
        try:
            while more := os.read(self._side, 65536):
                self._seen += more.decode(errors="replace")
        except OSError:  # no more for now, or for ever
            pass
        return self._seen

    def shows(self, text):
        eventually(lambda: text in self.seen())

    def type(self, text):
        os.write(self._side, text.encode())

    def over(self):
        """How its program ended."""
        eventually(lambda: self.seen() is not None and self.program.poll() is not None)
        return self.program.returncode

    def close(self):
        """As somebody does who closes the window of a terminal."""
        if self._side >= 0:
            os.close(self._side)
            self._side = -1
            self.program.wait(20)


@pytest.fixture
def terminal(options):
    made = []

    def attach(process):
        made.append(Terminal(options, process))
        made[-1].shows(f"{process}*")
        return made[-1]

    yield attach
    for each in made:
        each.close()


@pytest.fixture
def launched(cluster, experiment):
    """Two processes that say what was typed."""
    for name in ("first", "second"):
        python(experiment, name, ASKS).ready(log="^up$").termination_grace_period(5)
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: all(process.ready for process in now))
    tmux(
        "set-option", "-g", "assume-paste-time", "0"
    )  # who types as fast as a test would else be taken to paste


def sessions():
    return tmux("list-sessions", "-F", "#S", check=False).split()


def got(cluster, process):
    return [
        line.removeprefix("got ")
        for line in cluster.get_log("exp", process).splitlines()
        if "got " in line
    ]


def test_each_terminal_has_a_window_of_its_own(cluster, launched, terminal):
    one, two = terminal("first"), terminal("second")
    one.type("alpha\r")
    two.type("beta\r")
    eventually(lambda: got(cluster, "first") == ["alpha"] and got(cluster, "second") == ["beta"])
    one.shows("got alpha")
    two.shows("got beta")
    assert "beta" not in one.seen()
    assert "[exp]" in one.seen()
    assert "exp@" not in one.seen()
    assert len(sessions()) == 3
    assert cluster.list_experiments() == ["exp"]
    one.type(DETACH)
    assert one.over() == 0, one.seen()[-1500:]
    two.close()
    eventually(lambda: sessions() == ["exp"])
    assert [process.state for process in cluster.describe_experiment("exp")] == [State.RUNNING] * 2


def test_delete_while_terminals_are_attached(cluster, launched, terminal):
    one, two = terminal("first"), terminal("second")
    tmux("new-session", "-d", "-s", "mine", "sleep", "1000")
    cluster.delete("exp")
    assert [each.over() for each in (one, two)] == [0, 0]
    assert sessions() == ["mine"]


def test_the_server_ends_with_the_last_experiment_though_terminals_are_attached(
    cluster, launched, terminal
):
    one = terminal("first")
    cluster.delete("exp")
    assert one.over() == 0, one.seen()[-1500:]
    eventually(lambda: sessions() == [])


def test_a_session_that_is_closed_by_hand_lives_on_until_the_terminal_is_detached(
    cluster, launched, terminal
):
    one = terminal("first")
    tmux("kill-session", "-t", "=exp")
    one.type("still here\r")
    eventually(lambda: got(cluster, "first") == ["still here"])
    one.type(DETACH)
    until(cluster, "exp", lambda now: all(process.state is State.UNKNOWN for process in now))
    cluster.delete("exp")
    eventually(lambda: sessions() == [])


def test_a_window_that_is_opened_in_a_terminal_has_the_addresses(
    cluster, launched, terminal, tmp_path
):
    one = terminal("second")
    one.type(NEW_WINDOW)
    eventually(lambda: len(windows()) == 3)
    one.type(f"echo $SYMPHONY_EXPERIMENT,$SYMPHONY_RUN,$TMUX_TMPDIR >{tmp_path}/said\r")
    eventually(
        lambda: (tmp_path / "said").exists() and (tmp_path / "said").read_text().endswith("\n")
    )
    assert (tmp_path / "said").read_text() == f"exp,,{os.environ['TMUX_TMPDIR']}\n"


def test_a_session_to_which_no_terminal_came_ends(cluster, launched, monkeypatch):
    """As of somebody who was killed just when they attached."""
    monkeypatch.setattr(render, "UNATTACHED_SECONDS", 1)
    run_id = json.loads((cluster._root / "exp" / "manifest.json").read_text())["run_id"]
    words = render.attach_command("exp", run_id, name="exp@1", window="1", env={})
    made = Tmux(name="test").run([*words, 'list-sessions -F "#S"'])  # asked with it: it ends soon
    assert (made.lines[1:], made.error) == (["exp", "exp@1"], "")
    eventually(lambda: sessions() == ["exp"])
    assert len(windows()) == 2
    assert (
        Tmux(name="test")
        .run(render.attach_command("exp", "other", name="exp@2", window="1", env={}))
        .lines
        == []
    )
    assert sessions() == ["exp"]
