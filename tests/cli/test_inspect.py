"""``symphony ls``, ``ps``, ``describe`` and ``wait``, and the commands without an experiment."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

import pytest

from symphony import __version__
from symphony.archive.archived_usage import USAGE_FILE, UsageLog
from symphony.commandline.output.refresh_screen import WatchedTable, fit_table
from symphony.supervised.processes.identity import is_suspended
from symphony.supervised.record.directory import RunDirectory
from symphony.usage import ExperimentUsage, ProcessUsage
from tests.cli.conftest import FOREVER, TIMEOUT, Program, after_exit, write_pid
from tests.supervision import kill_supervision


@pytest.fixture
def rl(program: Program) -> str:
    """A running experiment with one process and one group."""
    return program.launch("rl", {"a": FOREVER, "crew": {"processes": {"b": {"cmd": FOREVER}}}})


class TestLs:
    def test_without_experiments_only_the_header_is_shown(self, program: Program) -> None:
        done = program("ls")
        assert done.returncode == 0
        assert done.stdout.split() == [
            "NAME", "STATE", "PROCESSES", "READY", "FAILED", "AGE", "BACKEND", "NOTE",
        ]  # fmt: skip

    def test_one_aligned_row_per_experiment(self, program: Program, rl: str) -> None:
        program.run("bad", {"a": "exit 3", "b": "true"})
        header, *rows = program.ok("ls").splitlines()
        assert [row.split()[:5] for row in rows] == [
            ["bad", "failed", "2", "-", "1"],
            ["rl", "running", "2", "2/2", "0"],
        ]
        assert header.index("STATE") == rows[0].index("failed") == rows[1].index("running")
        assert [(status["name"], status["state"]) for status in program.json("ls")] == [
            ("bad", "failed"),
            ("rl", "running"),
        ]

    def test_backend_comes_from_the_option_or_the_environment(
        self, program: Program, rl: str
    ) -> None:
        assert "rl" in program.ok("-b", "local", "ls", SYMPHONY_BACKEND="nowhere")
        assert "rl" in program.ok("ls", SYMPHONY_BACKEND="subprocess")
        assert program("ls", SYMPHONY_BACKEND="nowhere").returncode == 2


class TestPs:
    def test_pid_column_contains_running_processes(self, program: Program, rl: str) -> None:
        _, *rows = program.ok("ps", rl).splitlines()
        for row in rows:
            os.kill(int(row.split()[6]), 0)

    def test_exit_codes_and_reasons(self, program: Program) -> None:
        program.run("rl", {"good": "true", "bad": "exit 7", "dead": "kill -KILL $$"})
        rows = {row.split()[0]: row for row in program.ok("ps", "rl").splitlines()}
        assert rows["good"].split()[1:4] == ["succeeded", "-", "0"]
        assert rows["bad"].split()[1:4] == ["failed", "-", "7"]
        assert rows["dead"].split()[1:4] == ["failed", "-", "137"]
        assert rows["dead"].endswith("killed by SIGKILL")

    def test_usage_has_a_column_for_each_value_that_is_known(
        self, program: Program, rl: str
    ) -> None:
        header, first, _ = program.ok("ps", rl, "--usage").splitlines()
        assert header.split()[6:] == ["PID", "CPU", "MEM", "PSS", "FILES", "REASON"]
        assert re.fullmatch(r"\d\.\d\d", first.split()[7])
        usage = program.json("ps", rl, "a", "--usage")["usage"]
        assert [process["process"] for process in usage["processes"]] == ["a"]
        assert usage["processes"][0]["memory"] > 1 << 20

    def test_suspended_supervisor_is_reported(self, program: Program, rl: str) -> None:
        supervisor = RunDirectory(program.state / "local" / rl).supervisor()
        assert supervisor is not None
        os.kill(supervisor.pid, signal.SIGSTOP)
        try:
            while not is_suspended(supervisor):
                time.sleep(0.01)
            note = (
                f"the supervisor (pid {supervisor.pid}) is suspended by a signal; "
                f"resume it with: kill -CONT {supervisor.pid}\n"
            )
            assert program("ls").stdout.endswith(note)
            for command in (("ps", rl), ("describe", rl, "a"), ("wait", rl, "--timeout=0.1")):
                done = program(*command)
                assert done.stderr.startswith(f"{rl}: {note}")
            with program.popen("logs", "-f", rl, stderr=subprocess.PIPE) as process:
                assert process.stderr.readline() == f"{rl}: {note}"
                process.terminate()
            done = program("delete", "--force", rl)
            assert (done.returncode, done.stdout) == (3, "")
            message = f"symphony: error: experiment {rl!r} cannot be stopped: {note}"
            assert done.stderr == message
        finally:
            os.kill(supervisor.pid, signal.SIGCONT)
        assert program.ok("delete", "--force", rl) == f"deleted {rl}\n"

    def test_dead_supervisor_is_replaced_and_reported(self, program: Program, rl: str) -> None:
        kill_supervision(RunDirectory(program.state / "local" / rl))
        done = program("ps", rl)
        assert done.returncode == 0
        note = "the supervisor was killed, and a new one has been started"
        assert done.stderr == f"{rl}: {note}\n"
        assert program("ps", rl).stderr == ""

    @pytest.mark.parametrize("alias", ["status", "process"])
    def test_aliases(self, program: Program, alias: str) -> None:
        name = program.run("rl", {"p": "true"})
        assert program.json(alias, name)["name"] == name


class TestWatch:
    STATES = ("running",) * 30 + ("failed",) + ("succeeded",) * 10 + ("pending",) * 13

    def table(self) -> WatchedTable:
        return WatchedTable(
            title="rl: summary",
            states=self.STATES,
            format_rows=lambda rows: ["NAME", *(f"p-{row} {self.STATES[row]}" for row in rows)],
        )

    def test_rows_that_need_attention_are_shown_first_if_not_all_fit(self) -> None:
        title, header, *rows, last = fit_table(self.table(), height=24)
        assert (title, header) == ("rl: summary", "NAME")
        assert rows == [
            "p-30 failed",
            *(f"p-{row} pending" for row in range(41, 54)),
            *(f"p-{row} running" for row in range(6)),
        ]
        assert last == "and 34 more: 24 running, 10 succeeded"
        assert len(rows) + len((title, header, last)) == 24 - 1, "the cursor needs a line"

    @pytest.mark.parametrize("height", [56, None])
    def test_rows_keep_their_order_if_all_fit(self, height: int | None) -> None:
        assert fit_table(self.table(), height) == self.table().format_rows(range(54))

    def test_message_about_an_outage_needs_a_line(self) -> None:
        table = self.table()._replace(outage="the API server does not answer")
        assert fit_table(table, height=24) == fit_table(self.table(), height=23)

    def test_at_least_one_row_is_shown(self) -> None:
        assert "p-30 failed" in fit_table(self.table(), height=2)

    def test_pipe_receives_one_table_per_change(self, program: Program) -> None:
        program.run("rl", {"p": "true"})
        with program.popen("ls", "-w", stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            assert running.stdout.readline().split()[0] == "NAME"
            assert running.stdout.readline().split()[:2] == ["rl", "succeeded"]
            running.send_signal(signal.SIGINT)
            assert running.wait(TIMEOUT) == 130

    def test_cannot_be_combined_with_json(self, program: Program) -> None:
        done = program("ls", "-w", "--json")
        assert done.returncode == 2
        assert "--watch and --json cannot be combined" in done.stderr


class TestDescribe:
    def test_failed_process(self, program: Program) -> None:
        name = program.run(
            "rl",
            {
                "server": {"cmd": "true", "binds": {"replay": 7411}},
                "crew": {"processes": {"agent": {"cmd": "seq 30; exit 3", "connects": "replay"}}},
            },
        )
        lines = program.ok("describe", name, "agent").splitlines()
        facts = {
            line.split("  ")[1]: line.split("  ")[-1].strip()
            for line in lines
            if line.startswith("  ")
        }
        assert facts["process"] == "crew/agent of rl"
        assert (facts["state"], facts["exit code"]) == ("failed", "3")
        assert facts["replay"] == "127.0.0.1:7411"
        assert "exit 3" in facts["command"]
        events = lines.index("events")
        assert lines[events + 1].split(" ago  ")[1].startswith("started as process ")
        assert "exited with code 3" in lines[events + 2]
        assert lines[-11:] == [
            "last lines (of crew/agent)",
            *(f"  {number}" for number in range(21, 31)),
        ]

    def test_pending_process(self, program: Program) -> None:
        late = {"cmd": "true", "starts_after": {"a": "succeeded"}}
        name = program.launch("rl", {"a": FOREVER, "b": late})
        output = program.ok("describe", name, "b")
        assert "reason   waiting for a to succeed" in output
        assert "last lines" not in output

    def test_json_output(self, program: Program) -> None:
        name = program.run("rl", {"a": {"cmd": "true", "exposes": {"page": 7412}}})
        details = program.json("describe", name, "a")
        found = [details[key] for key in ("experiment", "name", "state", "exit_code")]
        assert found == ["rl", "a", "succeeded", 0]
        assert details["addresses"] == {"page": "127.0.0.1:7412"}
        assert len(details["events"]) == 2
        assert len(details["facts"]) == 3


class TestWait:
    def test_exit_code_is_that_of_the_first_failure(self, program: Program) -> None:
        first = program.directory / "first"
        bad = {"late": f"{after_exit(first)}exit 4", "first": f"{write_pid(first)}echo no; exit 3"}
        program.launch("rl", {**bad, "good": "true"})
        done = program("wait", "rl")
        assert (done.returncode, done.stdout) == (3, "rl failed: 2 failed, 1 succeeded\n")
        assert done.stderr.splitlines() == [
            "first failed: exit code 3",
            "late failed: exit code 4",
            "last lines (of first):",
            "  no",
        ]
        assert program.json("wait", "rl", code=3)["exit_code"] == 3

    def test_success(self, program: Program) -> None:
        program.launch("rl", {"a": "true"})
        assert program.ok("wait", "rl", "--timeout", "30s") == "rl succeeded: 1 succeeded\n"

    def test_exit_code_is_124_after_the_timeout(self, program: Program, rl: str) -> None:
        done = program("wait", rl, "--timeout", "0.1")
        assert (done.returncode, done.stdout) == (124, "")
        assert re.fullmatch(r"symphony: error: .* after 0.1 s: a.*\n", done.stderr)

    def test_stopped_process_is_not_a_failure(self, program: Program, rl: str) -> None:
        program.cluster.stop(rl)
        assert program.ok("wait", rl) == "rl stopped: 2 stopped\n"


def test_backends_are_listed(program: Program) -> None:
    header, *rows = program.ok("backends").splitlines()
    assert header.split() == ["NAME", "ALIASES", "CAN", "SUMMARY"]
    assert rows[1].split()[:2] == ["local", "subproc,subprocess"]
    (local,) = [info for info in program.json("backends") if info["name"] == "local"]
    assert "launch" in local["capabilities"]


def test_version_and_default_help(program: Program) -> None:
    assert program.ok("--version") == f"symphony {__version__}\n"
    assert program.ok() == program.ok("--help")


def test_broken_record_does_not_hide_the_other_experiments(program: Program, rl: str) -> None:
    program.run("other", {"a": "true"})
    (program.state / "local" / rl / "manifest.json").write_text(json.dumps({}))
    done = program("ls")
    assert done.returncode == 3
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["NAME", "other"]
    assert done.stderr.startswith("symphony: error: the record of experiment 'rl' is damaged")


def test_the_history_of_a_running_experiment_contains_no_end(program: Program) -> None:
    program.launch("rl", {"a": FOREVER, "b": "exit 3"})
    program.cluster.wait("rl", processes=["b"], timeout=TIMEOUT)
    (run,) = program.json("history", "rl")
    assert (run["state"], run["exit_code"], run["ended"]) == ("running", None, None)


class TestRecordedUsage:
    def test_show_and_compare_report_means_and_peaks(self, program: Program) -> None:
        for name, memory in (("one", 100), ("two", 300)):
            program.run(name, {"a": "true"})
            log = UsageLog(program.state / "local" / name / USAGE_FILE)
            for cpu, factor in ((1.0, 1), (0.5, 2)):
                usage = ProcessUsage(process="a", cpu=cpu, memory=(memory * factor) << 20)
                log.append(ExperimentUsage(at=factor, processes=(usage,)))
        *_, titles, row = program.ok("show", "one").splitlines()
        assert titles.split() == ["NAME", "CPU", "CPU-PEAK", "MEM", "MEM-PEAK"]
        assert row.split() == ["a", "0.75", "1.00", "150Mi", "200Mi"]
        assert program.json("show", "one")["usage"] == {
            "a": {
                "cpu": {"mean": 0.75, "peak": 1.0, "samples": 2},
                "memory": {"mean": 150 << 20, "peak": 200 << 20, "samples": 2},
            }
        }
        differences = program.json("compare", "one", "two")
        assert differences["usage.a.memory.peak"] == ["200Mi", "600Mi"]
        assert "usage.a.cpu.peak" not in differences
