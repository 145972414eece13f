"""Complete names and their beginnings, and menus."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cli.conftest import FOREVER, Program, cleaned_up

# The commands that change something, with the words that follow the name of the experiment.
CHANGING = {
    "stop": ["learner"],
    "start": [],
    "restart": [],
    "signal": ["-s", "HUP"],
    "scale": ["agent=2"],
    "exec": ["learner", "--", "true"],
    "attach": ["learner"],
    "cp": ["learner:x", "."],
    "debug": ["learner"],
    "delete": [],
    "rerun": [],
}


def run_experiments(program: Program) -> None:
    """Run two experiments, one of them with a group, until they have finished."""
    crew = {"processes": {"agent-1": {"cmd": "true"}}}
    program.run("sarah-rl", {"learner": "echo of the learner", "crew": crew})
    program.run("sarah-sweep", {"learner": "true"})


@pytest.fixture
def experiments(program: Program) -> None:
    """The experiments, which the test can change."""
    run_experiments(program)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The experiments for all tests that change nothing."""
    with cleaned_up(Program(tmp_path_factory.mktemp("shared"))) as made:
        run_experiments(made)
        yield made


@pytest.mark.usefixtures("experiments")
def test_exact_name_takes_precedence(program: Program) -> None:
    program.run("rl", {"learner": "echo mine"})
    assert program.ok("logs", "rl", "learner") == "mine\n"


class TestExperimentNames:
    @pytest.fixture
    def program(self, shared: Program) -> Program:
        return shared

    def test_reading_command_accepts_the_beginning_and_reports_the_name(
        self, program: Program
    ) -> None:
        done = program("logs", "sarah-r", "learner")
        assert (done.returncode, done.stdout) == (0, "of the learner\n")
        assert done.stderr == "experiment 'sarah-r' is sarah-rl\n"
        assert program("logs", "h-r", "learner").returncode == 2

    @pytest.mark.parametrize("verb", CHANGING)
    def test_changing_command_refuses_the_beginning(self, program: Program, verb: str) -> None:
        done = program(verb, "sarah-r", *CHANGING[verb])
        assert (done.returncode, done.stdout) == (2, "")
        assert re.match(r"symphony: error: .*; did you mean '?sarah-rl", done.stderr)
        assert program.state_entries() == ["sarah-rl", "sarah-sweep"]

    def test_changing_command_refuses_the_beginning_on_a_terminal(self, program: Program) -> None:
        terminal = program.terminal("delete", "sarah-s")
        terminal.expect("no experiment 'sarah-s'; did you mean 'sarah-rl' or 'sarah-sweep'?")
        assert terminal.finish() == 2

    def test_several_matches_are_an_error_in_a_script(self, program: Program) -> None:
        done = program("ps", "sarah")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "symphony: error: experiment 'sarah' is ambiguous: sarah-rl, sarah-sweep; "
            "type more of the name\n"
        )

    def test_invalid_choice_is_an_error(self, program: Program) -> None:
        terminal = program.terminal("ps", "sarah")
        terminal.expect("which one?")
        terminal.press("7\n")
        terminal.expect("no experiment was chosen")
        assert terminal.finish() == 2


class TestProcessNames:
    @pytest.fixture
    def program(self, shared: Program) -> Program:
        return shared

    def test_reading_command_accepts_the_beginning(self, program: Program) -> None:
        done = program("logs", "sarah-rl", "lear")
        assert (done.stdout, done.stderr) == ("of the learner\n", "process 'lear' is learner\n")

    @pytest.mark.parametrize("verb", ["exec", "attach", "cp", "debug", "stop", "start", "restart"])
    def test_changing_command_refuses_the_beginning(self, program: Program, verb: str) -> None:
        words = {"exec": ["--", "true"], "cp": ["."]}.get(verb, [])
        name = "lear:x" if verb == "cp" else "lear"
        done = program(verb, "sarah-rl", name, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "'lear'; did you mean 'learner'?" in done.stderr

    def test_group_limits_the_candidates(self, program: Program) -> None:
        assert program("logs", "sarah-rl", "crew/agent").returncode == 0
        assert program("logs", "sarah-rl", "crew/learn").returncode == 2

    @pytest.mark.parametrize("path", ["cre/agent-1", "crews/agent-1", "crew/learner"])
    def test_wrong_group_is_an_error(self, program: Program, path: str) -> None:
        done = program("logs", "sarah-rl", path)
        assert (done.returncode, done.stdout) == (2, "")
        assert "not in" in done.stderr


class TestSelections:
    """Groups, replicated names and patterns in commands that inspect or use processes."""

    @pytest.fixture
    def selections(self, program: Program) -> str:
        """An experiment with two running copies and a finished process."""
        agents = {"cmd": f"echo up; {FOREVER}", "replicas": 2}
        crew = {"processes": {"agent": agents, "late": {"cmd": "exit 3"}}}
        return program.launch("sel", {"learner": "exit 4", "crew": crew})

    def test_commands_accept_groups_replicated_names_and_patterns(
        self, program: Program, selections: str
    ) -> None:
        done = program("wait", selections, "lea*", "crew/late")
        assert done.returncode in (3, 4)
        assert done.stdout == "sel failed: 2 failed\n"
        shown = program.json("ps", selections, "agent", "learner")
        names = [process["name"] for process in shown["processes"]]
        assert names == ["learner", "agent-0", "agent-1"]
        *_, first, second = program.ok("ps", selections, "crew/agent-*").splitlines()
        assert (first.split()[0], second.split()[0]) == ("crew/agent-0", "crew/agent-1")
        described = program.json("describe", selections, "agent")
        assert [details["name"] for details in described] == ["agent-0", "agent-1"]
        assert program.json("describe", selections, "*-1")["name"] == "agent-1"
        assert program.ok("describe", selections, "agent").count("log") >= 2

    def test_exec_and_cp_need_one_process(self, program: Program, selections: str) -> None:
        several = "symphony: error: process 'agent' is ambiguous: agent-0, agent-1; "
        done = program("exec", selections, "agent", "--", "true")
        assert done.stderr == (
            f"{several}name one process, or run the command in each with --all\n"
        )
        done = program("cp", selections, "agent:x", ".")
        assert done.stderr == f"{several}type more of the name\n"
        assert program.ok("exec", selections, "*-1", "--", "echo", "one") == "one\n"
        done = program("exec", selections, "crew", "--all", "--dry-run", "--", "true")
        assert len(done.stderr.splitlines()) == 3
        # The command succeeds in the first process and fails in the second one.
        script = "echo out; echo err >&2; test ! -e made || exit 5; touch made"
        done = program("exec", selections, "agent", "--all", "--", "sh", "-c", script)
        assert (done.returncode, done.stderr) == (5, "")
        assert done.stdout == (
            "crew/agent-0 | out\ncrew/agent-0 | err\ncrew/agent-1 | out\ncrew/agent-1 | err\n"
        )
