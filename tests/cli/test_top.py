"""The end of `symphony top` by signals, and the errors of its start."""

import signal
import sys

import pytest

from tests.cli.conftest import FOREVER
from tests.cli.tmux_screen import TIMEOUT, tmux_screen


def test_signals_and_a_closed_terminal_end_top_and_nothing_else(program):
    program.launch("rl", {"a": FOREVER})
    with tmux_screen() as top:
        top.start(program.argv("top", "rl"), env=program.env, cwd=program.directory)
        top.expect("rl on local  running: 1 running")
        top.program().send_signal(signal.SIGTERM)
        assert top.finish() == 128 + signal.SIGTERM
        top.expect("symphony: terminated by SIGTERM")
    with tmux_screen() as top:
        # This is the directory of the launch, so that the command needs no name.
        top.start(program.argv("top"), env=program.env, cwd=program.directory)
        top.expect("rl on local  running: 1 running")
        running = top.program()
        top.close()
        running.wait(TIMEOUT)
    assert program.json("ps", "rl")["state"] == "running"


def test_top_needs_a_terminal(program):
    done = program("top")
    assert (done.returncode, done.stdout) == (2, "")
    assert "top needs a terminal as standard input, output and error" in done.stderr


def test_a_missing_library_is_reported_with_the_command_that_installs_it(program, monkeypatch):
    monkeypatch.delitem(sys.modules, "symphony.commandline.top.app", raising=False)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    done = program("top")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "install it with: pip install" in done.stderr
    assert "[ui]" in done.stderr


@pytest.mark.parametrize("name", ["nothing", "r"])
def test_an_experiment_is_found_as_by_other_commands(program, name):
    program.launch("rl", {"a": FOREVER})
    terminal = program.terminal("top", name)
    if name == "r":
        terminal.expect("experiment 'r' is rl")
        terminal.expect("rl on local")
        terminal.press("q")
        assert terminal.finish() == 0
    else:
        assert terminal.finish() == 2
        assert "no experiment 'nothing'" in terminal.text
