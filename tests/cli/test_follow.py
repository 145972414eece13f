"""``launch --follow`` and ``logs -f``: what is shown, Ctrl-C once and twice, a reader that goes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.cli.conftest import FOREVER, TIMEOUT, Program, after_the_end, telling
from tests.cli.terminal import INTERRUPT, Terminal

POLITE = f"trap 'echo bye; exit 0' TERM; echo up; {FOREVER}"
STUBBORN = f"trap 'echo no' TERM; echo up; {FOREVER}"
# The program, whose launch goes no further than where it has given its orders, or has heard that all is started.
HELD = """
import sys, time
from symphony.__main__ import main
from symphony.host.supervisor import handover as detach

usual = detach.{moment}


def held(*args, **options):
    found = usual(*args, **options)
    print("held", flush=True)
    while not time.sleep(0.05):
        pass
    return found


detach.{moment} = held
sys.exit(main())
"""


class TestToTheEnd:
    def test_merged_logs_and_success(self, program: Program) -> None:
        go = program.folder / "go"
        file = program.file(
            "rl", {"a": "echo one", "bob": f"until [ -e {go} ]; do sleep 0.05; done; echo two"}
        )
        with program.popen(
            "launch", file, "--follow", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as follower:
            assert follower.stdout is not None
            first = follower.stdout.readline()
            go.touch()
            rest, said = follower.communicate(timeout=TIMEOUT)
        assert (follower.returncode, first + rest) == (0, "a   | one\nbob | two\n")
        assert said == "launched rl on local: 2 processes\n"

    def test_the_first_failure_decides_and_each_is_told(self, program: Program) -> None:
        b = program.folder / "b"
        bad = {"a": f"{after_the_end(b)}exit 4", "b": f"{telling(b)}exit 3"}
        done = program(
            "launch",
            program.file("rl", {**bad, "c": {"cmd": "true", "starts_after": "b"}}),
            "--follow",
        )
        assert done.returncode == 3
        assert done.stderr.splitlines()[1:] == ["b failed: exit code 3", "a failed: exit code 4"]

    def test_what_never_started_is_told_with_its_reason(self, program: Program) -> None:
        after = {"cmd": "true", "starts_after": {"b": "succeeded"}}
        done = program("launch", program.file("rl", {"b": "exit 3", "c": after}), "--follow")
        assert done.returncode == 3
        (told,) = [line for line in done.stderr.splitlines() if line.startswith("c failed: ")]
        assert "b" in told

    def test_json_is_the_lines_and_then_the_status(self, program: Program) -> None:
        done = program(
            "launch", program.file("rl", {"a": "echo one; exit 3"}), "--follow", "--json"
        )
        line, status = [json.loads(line) for line in done.stdout.splitlines()]
        assert line == {"process": "a", "text": "one"}
        assert (status["name"], status["state"], status["exit_code"], done.returncode) == (
            "rl",
            "failed",
            3,
            3,
        )

    def test_nothing_is_lost_of_much(self, program: Program) -> None:
        done = program("launch", program.file("rl", {"a": "seq 100000"}), "--follow")
        assert done.returncode == 0
        assert done.stdout == "".join(f"{number}\n" for number in range(1, 100_001))

    def test_an_experiment_that_somebody_deletes(self, program: Program) -> None:
        file = program.file("rl", {"a": f"echo up; {FOREVER}"})
        with program.popen(
            "launch", file, "--follow", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as follower:
            assert follower.stdout is not None
            assert follower.stdout.readline() == "up\n"
            program.cluster.delete("rl")
            _, said = follower.communicate(timeout=TIMEOUT)
        # To delete is to stop, which is no failure, and then to remove: it may see the one or the other.
        seen = {0: "launched rl on local: 1 process", 1: "symphony: experiment 'rl' was deleted"}
        assert said.splitlines()[-1] == seen[follower.returncode]


class TestInterrupted:
    def test_the_first_stops_and_shows_the_rest(self, program: Program) -> None:
        screen = program.terminal(
            "launch", program.file("rl", {"a": POLITE, "b": POLITE}), "--follow"
        )
        screen.expect("a | up")
        screen.expect("b | up")
        screen.press(INTERRUPT)
        screen.expect("symphony: stopping 'rl'; press Ctrl-C again to kill it")
        assert screen.finish() == 130
        assert screen.text.count("| bye") == 2
        assert program.json("ps", "rl")["processes"][0]["exit_code"] == 0
        assert "a | bye" in program.ok("logs", "rl")

    def test_the_second_kills(self, program: Program) -> None:
        screen = program.terminal(
            "launch", program.file("rl", {"a": STUBBORN, "b": STUBBORN}), "--follow"
        )
        screen.expect("a | up")
        screen.expect("b | up")
        screen.press(INTERRUPT)
        screen.expect("a | no")
        screen.press(INTERRUPT)
        screen.expect("symphony: killing 'rl'")
        assert screen.finish() == 130
        status = program.json("ps", "rl")
        assert {(process["exit_code"], process["stopped"]) for process in status["processes"]} == {
            (137, True)
        }

    def test_a_stopped_process_is_not_told_as_a_failure(self, program: Program) -> None:
        screen = program.terminal(
            "launch", program.file("rl", {"a": f"echo up; {FOREVER}"}), "--follow"
        )
        screen.expect("up")
        screen.press(INTERRUPT)
        assert screen.finish() == 130
        assert "a failed" not in screen.text
        assert program.ok("ps", "rl").splitlines()[1].split()[1] == "stopped"

    @pytest.mark.parametrize("moment", ["_send_orders", "hand_over"])
    def test_ctrl_c_while_launching_leaves_nothing(self, program: Program, moment: str) -> None:
        """While processes are being started, and when all have been, but the launch is not over."""
        file = program.file("rl", {f"p{number}": "sleep 300" for number in range(20)})
        argv = [sys.executable, "-c", HELD.format(moment=moment), "launch", str(file)]
        screen = Terminal(argv, env=program.env, cwd=program.folder, width=80)
        program.terminals.append(screen)
        screen.expect("launching rl")
        screen.expect("held")
        screen.press(INTERRUPT)
        assert screen.finish() == 130
        assert "interrupted: rolling back the launch of rl" in screen.text
        assert program.left() == []

    def test_following_logs_ends_and_the_experiment_goes_on(self, program: Program) -> None:
        program.launched("rl", {"a": f"echo up; {FOREVER}"})
        screen = program.terminal("logs", "-f", "rl")
        screen.expect("up")
        screen.press(INTERRUPT)
        assert screen.finish() == 130
        assert screen.text == "up\n^C"
        assert program.cluster.describe_process("rl", "a").state.value == "running"


class TestAReaderThatGoes:
    """A reader such as ``head`` that closes the pipe: the next write ends the program quietly."""

    WRITES_ON = "echo up; while :; do sleep 0.05; echo more; done"

    def test_while_following(self, program: Program) -> None:
        program.launched("rl", {"a": self.WRITES_ON, "b": FOREVER})
        with program.popen(
            "logs", "-f", "rl", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as following:
            assert following.stdout is not None
            assert following.stderr is not None
            assert following.stdout.readline() == "a | up\n"
            following.stdout.close()
            assert (following.wait(TIMEOUT), following.stderr.read()) == (141, "")

    def test_while_writing_much(self, program: Program) -> None:
        program.ended("rl", {"a": "seq 200000", "b": "true"})
        for words in (["logs", "rl"], ["logs", "rl", "a"], ["logs", "rl", "--json"]):
            with program.popen(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writing:
                assert writing.stdout is not None
                assert writing.stderr is not None
                writing.stdout.readline()
                writing.stdout.close()
                assert (writing.wait(TIMEOUT), writing.stderr.read()) == (141, "")

    def test_a_launch_that_is_followed_goes_on(self, program: Program) -> None:
        file = program.file("rl", {"a": self.WRITES_ON})
        with program.popen(
            "launch", file, "--follow", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as following:
            assert following.stdout is not None
            assert following.stderr is not None
            following.stdout.readline()
            following.stdout.close()
            assert following.wait(TIMEOUT) == 141
            assert following.stderr.read().splitlines()[1:] == [
                "symphony: standard output was closed; experiment 'rl' keeps running"
            ]
        assert program.cluster.describe_process("rl", "a").state.value == "running"

    @pytest.mark.parametrize("verb", [("ls",), ("--help",), ("backends", "--json")])
    def test_before_anything_is_written(self, program: Program, verb: tuple[str, ...]) -> None:
        with program.popen(*verb, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writing:
            assert writing.stdout is not None
            assert writing.stderr is not None
            writing.stdout.close()
            assert (writing.wait(TIMEOUT), writing.stderr.read()) == (141, "")

    def test_output_that_was_closed_from_the_start(self, program: Program) -> None:
        """``>&-``: there is no standard output at all."""
        done = subprocess.run(
            ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *program.argv("ls")],
            env=program.env,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT,
        )
        assert (done.returncode, done.stderr) == (0, "")
