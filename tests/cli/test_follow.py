"""``launch --follow`` and ``logs -f``: output, Ctrl-C, and a closed pipe."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cli.conftest import FOREVER, LOOP, TIMEOUT, Program, after_exit, write_pid
from tests.cli.terminal import INTERRUPT, Terminal

STOPS_ON_TERM = f"trap 'echo bye; exit 0' TERM; echo up; {LOOP}"
IGNORES_TERM = f"trap 'echo no' TERM; echo up; {LOOP}"
KEEPS_WRITING = "echo up; while :; do sleep 0.05; echo more; done"
# Run the program, but block the launch after it has called one function of `handover`.
BLOCKED_LAUNCH = """
import sys, time
from symphony.__main__ import main
from symphony.supervised.supervisor import handover

original = handover.{function}


def blocking(*args, **options):
    result = original(*args, **options)
    print("blocked", flush=True)
    while True:
        time.sleep(0.05)


handover.{function} = blocking
sys.exit(main())
"""


@contextmanager
def piped(program: Program, *words: object) -> Iterator[subprocess.Popen[str]]:
    """Start the program with pipes for its output."""
    with program.popen(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        yield process


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def close_pipe(process: subprocess.Popen[str]) -> str:
    """Close the pipe of standard output, wait for exit code 141, and return the messages."""
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(TIMEOUT) == 141
    return process.stderr.read()


class TestLaunchFollow:
    def test_it_ends_if_every_process_waits_for_a_stopped_one(self, program: Program) -> None:
        second = {"cmd": "true", "starts_after": {"first": "succeeded"}}
        third = {"cmd": "true", "starts_after": "second"}
        first = f"echo up; {FOREVER}"
        file = program.file("rl", {"first": first, "second": second, "third": third})
        with piped(program, "launch", file, "--follow") as process:
            assert read_line(process) == "first  | up\n"
            assert program("stop", "rl", "first").returncode == 0
            _, messages = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 1
        assert messages.splitlines()[-4:] == [
            "rl pending: 1 stopped, 2 pending; no process is running, and none can start by itself",
            "second pending: waiting for first to succeed (first is stopped)",
            "third pending: waiting for second to be ready",
            "to continue: symphony start rl first",
        ]
        # The experiment still exists, so that the user can continue it.
        assert program("start", "rl", "first").stdout == "started first of rl\n"

    def test_output_appears_as_soon_as_it_is_written(self, program: Program) -> None:
        go = program.directory / "go"
        wait = f"until [ -e {go} ]; do sleep 0.05; done"
        file = program.file("rl", {"a": "echo one", "bob": f"{wait}; echo two"})
        with piped(program, "launch", file, "--follow") as process:
            assert read_line(process) == "a   | one\n"
            go.touch()
            output, messages = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, output) == (0, "bob | two\n")
        *events, summary = messages.splitlines()
        assert events == [
            "launched rl on local: 2 processes",
            "symphony: process a exited with 0",
            "symphony: process bob exited with 0",
        ]
        assert re.fullmatch(r"rl succeeded after \S+ s: 2 succeeded", summary)

    def test_restart_is_marked_between_the_lines(self, program: Program) -> None:
        """On a terminal, the events are between the lines, and a progress bar is visible."""
        restarts = {"policy": "OnFailure", "max_restarts": 1}
        bar = "printf '\\r10%%'; sleep 0.1; printf '\\r20%%'; sleep 0.1; echo; exit 9"
        file = program.file("rl", {"c": {"cmd": bar, "restart_policy": restarts}})
        screen = program.terminal("launch", file, "--follow")
        assert screen.finish() == 9
        lines = screen.text.splitlines()
        lines = lines[lines.index("10%") :]
        assert lines[:-2] == [
            "10%",
            "20%",
            "symphony: process c exited with 9",
            "symphony: process c restarting now (1 of 1)",
            "symphony: process c started again (restart 1)",
            "10%",
            "20%",
            "symphony: process c exited with 9 (not restarted again, because the limit is 1)",
        ]

    def test_exit_code_is_that_of_the_first_failure(self, program: Program) -> None:
        b = program.directory / "b"
        after = {"cmd": "true", "starts_after": {"b": "succeeded"}}
        bad = {"a": f"{after_exit(b)}exit 4", "b": f"{write_pid(b)}exit 3", "c": after}
        done = program("launch", program.file("rl", bad), "--follow")
        assert done.returncode == 3
        messages = done.stderr.splitlines()
        assert "symphony: process b exited with 3" in messages
        summary = next(index for index, line in enumerate(messages) if line.startswith("rl failed"))
        messages = messages[summary + 1 :]
        assert [line for line in messages if line[0] != "c"] == [
            "b failed: exit code 3",
            "a failed: exit code 4",
        ]
        # The message for the process that never started contains the reason.
        (message,) = [line for line in messages if line.startswith("c failed: ")]
        assert " b " in message

    def test_json_output_is_the_lines_and_the_final_status(self, program: Program) -> None:
        file = program.file("rl", {"a": "echo one; exit 3"})
        done = program("launch", file, "--follow", "--json")
        line, status = [json.loads(line) for line in done.stdout.splitlines()]
        assert line == {"process": "a", "text": "one"}
        found = (status["name"], status["state"], status["exit_code"], done.returncode)
        assert found == ("rl", "failed", 3, 3)

    def test_no_line_of_a_long_output_is_lost(self, program: Program) -> None:
        done = program("launch", program.file("rl", {"a": "seq 100000"}), "--follow")
        assert done.returncode == 0
        assert done.stdout == "".join(f"{number}\n" for number in range(1, 100_001))

    def test_experiment_deleted_by_another_command(self, program: Program) -> None:
        file = program.file("rl", {"a": f"echo up; {FOREVER}"})
        with piped(program, "launch", file, "--follow") as process:
            assert read_line(process) == "up\n"
            program.cluster.delete("rl")
            _, messages = process.communicate(timeout=TIMEOUT)
        # A deletion first stops the experiment, which is no failure, and then removes it. The
        # command observes either step.
        expected = {0: "rl stopped after ", 1: "symphony: experiment 'rl' was deleted"}
        assert messages.splitlines()[-1].startswith(expected[process.returncode])


class TestInterrupt:
    def test_first_ctrl_c_stops_and_shows_the_remaining_output(self, program: Program) -> None:
        file = program.file("rl", {"a": STOPS_ON_TERM, "b": STOPS_ON_TERM})
        screen = program.terminal("launch", file, "--follow")
        screen.expect("a | up")
        screen.expect("b | up")
        screen.press(INTERRUPT)
        screen.expect("symphony: stopping 'rl'; press Ctrl-C again to kill it\n")
        assert screen.finish() == 130
        assert screen.text.count("| bye") == 2
        assert program.json("ps", "rl")["processes"][0]["exit_code"] == 0
        assert "a | bye" in program.ok("logs", "rl")

    def test_second_ctrl_c_kills(self, program: Program) -> None:
        file = program.file("rl", {"a": IGNORES_TERM, "b": IGNORES_TERM})
        screen = program.terminal("launch", file, "--follow")
        screen.expect("a | up")
        screen.expect("b | up")
        screen.press(INTERRUPT)
        screen.expect("a | no")
        screen.press(INTERRUPT)
        screen.expect("symphony: killing 'rl'")
        assert screen.finish() == 130
        for process in program.json("ps", "rl")["processes"]:
            assert (process["exit_code"], process["stopped"]) == (137, True)

    def test_stopped_process_is_not_reported_as_a_failure(self, program: Program) -> None:
        file = program.file("rl", {"a": f"echo up; {FOREVER}"})
        screen = program.terminal("launch", file, "--follow")
        screen.expect("up")
        screen.press(INTERRUPT)
        assert screen.finish() == 130
        assert "a failed" not in screen.text
        assert program.ok("ps", "rl").splitlines()[1].split()[1] == "stopped"

    @pytest.mark.parametrize("function", ["_send_orders", "hand_over"])
    def test_ctrl_c_during_the_launch_rolls_it_back(self, program: Program, function: str) -> None:
        """Interrupt while processes are being started, and after all of them have started."""
        file = program.file("rl", {f"p{number}": "sleep 300" for number in range(20)})
        script = BLOCKED_LAUNCH.format(function=function)
        argv = [sys.executable, "-c", script, "launch", str(file)]
        screen = Terminal(argv, env=program.env, cwd=program.directory, width=80)
        program.terminals.append(screen)
        screen.expect("launching rl")
        screen.expect("blocked")
        screen.press(INTERRUPT)
        assert screen.finish() == 130
        assert "interrupted: ending the launch of rl" in screen.text
        assert program.state_entries() == []


class TestTermination:
    """SIGTERM, for example from timeout(1), and SIGHUP have the same effect as Ctrl-C."""

    def test_sigterm_stops_and_shows_the_remaining_output(self, program: Program) -> None:
        file = program.file("rl", {"a": STOPS_ON_TERM})
        with piped(program, "launch", file, "--follow") as process:
            assert read_line(process) == "up\n"
            # timeout(1) sends the signal to its child, and then to the process group.
            process.terminate()
            process.terminate()
            output, messages = process.communicate(timeout=TIMEOUT)
        # bash also reports that the signal has terminated sleep(1).
        assert (process.returncode, output.splitlines()[-1]) == (143, "bye")
        assert messages.splitlines()[1:-1] == [
            "symphony: stopping 'rl' because of SIGTERM",
            "symphony: experiment stopping on request",
            "symphony: process a stopped, exited with 0",
        ]
        assert program.json("ps", "rl")["processes"][0]["exit_code"] == 0

    def test_closed_terminal_stops(self, program: Program) -> None:
        file = program.file("rl", {"a": KEEPS_WRITING})
        # If the tests run under nohup(1), the program must not inherit that SIGHUP is ignored.
        previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        screen = program.terminal("launch", file, "--follow")
        signal.signal(signal.SIGHUP, previous)
        screen.expect("more")
        screen.hang_up()
        screen.process.wait(TIMEOUT)
        status = program.cluster.describe_process("rl", "a")
        assert (status.stopped, status.exit_code) == (True, 143)

    def test_ignored_sighup_has_no_effect(self, program: Program) -> None:
        go = program.directory / "go"
        file = program.file("rl", {"a": f"echo up; until [ -e {go} ]; do sleep 0.05; done"})
        argv = ["nohup", *program.argv("launch", file, "--follow")]
        with subprocess.Popen(
            argv,
            env=program.env,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert read_line(process) == "up\n"
            process.send_signal(signal.SIGHUP)
            go.touch()
            assert process.wait(TIMEOUT) == 0

    def test_sigterm_during_the_launch_rolls_it_back(self, program: Program) -> None:
        file = program.file("rl", {"a": "sleep 300"})
        script = BLOCKED_LAUNCH.format(function="hand_over")
        with subprocess.Popen(
            [sys.executable, "-c", script, "launch", str(file)],
            env=program.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert read_line(process) == "blocked\n"
            process.terminate()
            process.terminate()
            _, messages = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, messages) == (143, "symphony: terminated by SIGTERM\n")
        assert program.state_entries() == []


class TestClosedPipe:
    """A reader such as ``head`` closes the pipe; the program exits quietly at its next write."""

    @pytest.mark.parametrize("options", [[], ["a"], ["--json"]])
    def test_while_writing_a_long_log(self, program: Program, options: list[str]) -> None:
        program.run("rl", {"a": "seq 200000", "b": "true"})
        with piped(program, "logs", "rl", *options) as process:
            read_line(process)
            assert close_pipe(process) == ""

    def test_followed_launch_keeps_running(self, program: Program) -> None:
        file = program.file("rl", {"a": KEEPS_WRITING})
        with piped(program, "launch", file, "--follow") as process:
            read_line(process)
            assert close_pipe(process).splitlines()[1:] == [
                "symphony: standard output was closed; experiment 'rl' keeps running"
            ]
        assert program.cluster.describe_process("rl", "a").state.value == "running"

    @pytest.mark.parametrize("words", [("ls", "--json"), ("--help",), ("backends", "--json")])
    def test_before_the_first_write(self, program: Program, words: tuple[str, ...]) -> None:
        with piped(program, *words) as process:
            assert close_pipe(process) == ""

    @pytest.mark.parametrize("words", [("ls", "--json"), ("graph", "rl.yml"), ("--help",)])
    def test_standard_streams_that_were_never_open(
        self, program: Program, words: tuple[str, ...]
    ) -> None:
        program.file("rl", {"a": "true"})
        done = subprocess.run(
            ["/bin/sh", "-c", 'exec "$@" <&- >&-', "sh", *program.argv(*words)],
            cwd=program.directory,
            env=program.env,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT,
        )
        assert (done.returncode, done.stderr) == (0, "")
