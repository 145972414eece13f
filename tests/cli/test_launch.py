"""``symphony launch`` without ``--follow``, and ``symphony render``."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.cli.conftest import FOREVER, TIMEOUT, Program

NEVER_READY = {"command": ["false"], "timeout": 0.3}
LATE = "not ready within 0.3 s: exit code 1"


def test_next_commands_name_the_requested_backend(program: Program) -> None:
    output = program.ok("launch", program.file("rl", {"a": "true"}), "-b", "SubProcess")
    assert "symphony ps -b SubProcess rl" in output


def test_finished_experiment_is_replaced_and_a_running_one_with_force(program: Program) -> None:
    program.run("rl", {"a": "true"})
    program.ok("launch", program.file("rl", {"b": FOREVER}))
    program.ok("launch", program.file("rl", {"c": FOREVER}), "--force")
    assert [process["name"] for process in program.json("ps", "rl")["processes"]] == ["c"]


def test_name_option_overrides_the_file_and_start_dir_is_next_to_the_file(
    program: Program,
) -> None:
    (program.directory / "sub").mkdir()
    file = program.file("rl", {"a": "pwd"}).rename(program.directory / "sub" / "rl.yml")
    assert program.ok("launch", file, "--name", "rl-2").startswith("launched rl-2 ")
    program.cluster.wait("rl-2", timeout=30)
    assert program.ok("logs", "rl-2") == f"{program.directory / 'sub'}\n"


class TestWait:
    def test_returns_when_every_process_is_ready(self, program: Program) -> None:
        ready = {"cmd": f"echo up; {FOREVER}", "ready": {"log": "^up"}}
        file = program.file("rl", {"a": ready, "b": "true"})
        assert program.ok("launch", file, "--wait", "ready").startswith("launched rl ")
        assert program.cluster.describe_process("rl", "a").ready

    @pytest.mark.parametrize("options", [[], ["--json"]])
    def test_exit_code_is_that_of_the_first_failure(
        self, program: Program, options: list[str]
    ) -> None:
        bad = {"cmd": "seq 12; exit 5", "ready": {"command": ["false"]}}
        file = program.file("rl", {"good": FOREVER, "bad": bad})
        done = program("launch", file, "--wait", "ready", *options)
        last_lines = "".join(f"  {number}\n" for number in range(3, 13))
        assert (done.returncode, done.stderr) == (
            5,
            f"bad failed: exit code 5\nlast lines (of bad):\n{last_lines}",
        )
        if options:
            assert json.loads(done.stdout)["experiment"] == "rl"
        else:
            assert done.stdout.startswith("launched rl on local: 2 processes\n")
        assert program.cluster.describe_process("rl", "good").state.value == "running"

    def test_exit_code_is_1_if_a_process_is_not_ready_in_time(self, program: Program) -> None:
        late = {"cmd": f"echo not yet; {FOREVER}", "ready": NEVER_READY}
        file = program.file("rl", {"late": late, "next": {"cmd": "true", "starts_after": "late"}})
        done = program("launch", file, "--wait", "ready")
        assert (done.returncode, done.stderr.splitlines()) == (
            1,
            [
                f"next failed: never started: late was {LATE}",
                f"late running: {LATE}",
                "last lines (of late):",
                "  not yet",
            ],
        )
        (status, _) = program.json("ps", "rl")["processes"]
        assert (status["state"], status["late"]) == ("running", True)

    def test_failure_takes_precedence_over_a_late_process(self, program: Program) -> None:
        late = {"cmd": FOREVER, "ready": NEVER_READY}
        bad = {"cmd": "exit 7", "ready": {"command": ["false"]}}
        done = program("launch", program.file("rl", {"late": late, "bad": bad}), "--wait", "ready")
        assert (done.returncode, done.stderr.splitlines()) == (
            7,
            ["bad failed: exit code 7", f"late running: {LATE}"],
        )

    def test_process_that_cannot_start_is_a_failure(self, program: Program) -> None:
        broken = program.directory / "broken"
        broken.write_bytes(b"\x7fELF, but not a valid program")
        broken.chmod(0o755)
        late = {"cmd": FOREVER, "ready": {"command": ["false"], "timeout": 0.1}}
        later = {"command": str(broken), "starts_after": {"first": "succeeded"}}
        file = program.file("rl", {"first": "true", "a": later, "late": late})
        done = program("launch", file, "--wait", "started")
        assert done.returncode == 1
        assert re.fullmatch(r"a failed: cannot start '.*/broken': .*\n", done.stderr)

    def test_timeout_ends_the_wait_and_the_experiment_keeps_running(self, program: Program) -> None:
        restarts_forever = {"cmd": "exit 1", "restart_policy": "Always"}
        waits = {"cmd": "true", "starts_after": {"a": "succeeded"}}
        file = program.file("rl", {"a": restarts_forever, "b": waits})
        done = program("launch", file, "--wait", "started", "--timeout", "0.2")
        assert done.returncode == 124
        assert done.stdout.startswith("launched rl ")
        assert done.stderr.endswith(
            "experiment 'rl' is not started after 0.2 s: b (waiting for a to succeed)\n"
        )
        assert program.json("ps", "rl")["state"] == "pending"

    @pytest.mark.parametrize("command", [["launch", "rl.yml"], ["submit", "--", "true"]])
    def test_timeout_needs_wait(self, program: Program, command: list[str]) -> None:
        done = program(command[0], "--timeout", "5", *command[1:])
        assert (done.returncode, done.stdout) == (2, "")
        assert "--timeout limits how long --wait waits; add --wait" in done.stderr


def test_policies_on_the_command_line_replace_those_of_the_file(
    program: Program, tmp_path: Path
) -> None:
    file = tmp_path / "rl.yml"
    file.write_text(
        "name: rl\nends_with: server\nprocesses:\n"
        "  server: {command: [sleep, '1000']}\n"
        "  agent: {count: 2, cmd: exit 3}\n"
    )
    options = ["--ends-with", "agent", "--on-failure", "stop", "--deadline", "1h30m"]
    rendered = program.json("render", file, *options)
    assert rendered["policies"] == {
        "ends_with": ["agent-0", "agent-1"],
        "on_failure": "stop",
        "deadline": 5400,
    }
    refused = program("launch", file, "--ends-with", "agent,srver")
    assert (refused.returncode, refused.stderr) == (
        2,
        "symphony: error: the experiment ends with 'srver', which is not in the experiment; "
        "did you mean 'server'?\n",
    )
    followed = program("launch", file, *options, "--follow")
    assert followed.returncode == 3
    assert "rl: the experiment failed: agent-" in program("ps", "rl").stderr


def test_remaining_time_before_a_deadline_is_shown(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "rl.yml"
    file.write_text("name: rl\ndeadline: 6h\nprocesses:\n  a: {command: [sleep, '1000']}\n")
    program.ok("launch", file)
    for command in (["ps", "rl"], ["describe", "rl", "a"]):
        assert "rl: the deadline is in 5h59m" in program(*command).stderr
    assert "the deadline is in 5h59m" in program.ok("ls")
    assert program.json("ps", "rl")["deadline"] > program.json("ps", "rl")["created"]
    program.ok("delete", "rl", "-f")


def test_subset_is_launched_with_the_processes_that_it_needs(program: Program) -> None:
    file = program.file(
        "sub",
        {
            "learner": {"cmd": "true", "connects": "replay"},
            "replay": {"cmd": "true", "binds": "replay"},
            "agent": {"cmd": "true", "replicas": 2},
        },
        ends_with=["learner"],
    )
    done = program("launch", file, "learner", "agent-*")
    assert done.returncode == 0
    assert done.stderr == "symphony: also selected, because needed by learner: replay\n"
    assert program("launch", file, "agent", "--dry-run", "--force").returncode == 2
    assert program.ok("launch", file, "agent", "--force", "--ends-with", "agent").startswith(
        "launched sub on local: 2 processes\n"
    )


class TestQueue:
    def test_launch_waits_for_gpus_and_reports_errors_at_once(self, program: Program) -> None:
        program.env["CUDA_VISIBLE_DEVICES"] = uuid.uuid4().hex
        one = {"cmd": FOREVER, "resource_limit": {"gpu": 1}}
        program.launch("first", {"p": one})
        second = program.file("second", {"p": one})
        assert "to wait for them, launch with --queue" in program("launch", second).stderr
        for number, processes in enumerate(
            ({"p": one, "q": one}, {"p": {**one, "start_dir": "/no"}})
        ):
            wrong = program.file(f"wrong-{number}", processes)
            assert program("launch", wrong, "--queue").returncode == 2
        options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        with program.popen("launch", second, "--queue", **options) as queued:
            assert queued.stderr is not None
            reason = queued.stderr.readline()
            assert reason == "symphony: second: waiting for 1 GPU: 0 of 1 are free\n"
            # A launch that is interrupted leaves nothing that others would wait for.
            with program.popen("launch", second, "--queue", **options) as interrupted:
                assert interrupted.stderr is not None
                assert "1 launch is before this one" in interrupted.stderr.readline()
                interrupted.send_signal(signal.SIGINT)
                assert interrupted.wait(TIMEOUT) == 130
            program.ok("down", "first")
            assert queued.wait(TIMEOUT) == 0
        assert program.json("ps", "second")["processes"][0]["state"] == "running"
