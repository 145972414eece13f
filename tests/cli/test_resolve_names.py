"""Parts of names, menus, and the current experiment."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Program


@pytest.fixture(autouse=True)
def experiments(program: Program) -> None:
    """Two finished experiments, one with a group."""
    crew = {"processes": {"agent-1": {"cmd": "true"}}}
    program.run("sarah-rl", {"learner": "echo of the learner", "crew": crew})
    program.run("sarah-sweep", {"learner": "true"})


class TestExperimentNames:
    def test_part_of_the_name_is_enough(self, program: Program) -> None:
        assert program.ok("logs", "h-r", "learner") == "of the learner\n"

    def test_exact_name_takes_precedence(self, program: Program) -> None:
        program.run("rl", {"learner": "echo mine"})
        assert program.ok("logs", "rl", "learner") == "mine\n"

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
    def test_part_of_the_name_is_enough(self, program: Program) -> None:
        assert program.ok("logs", "rl", "earn") == "of the learner\n"

    def test_group_limits_the_candidates(self, program: Program) -> None:
        assert program.ok("logs", "rl", "crew/agent") == ""
        assert program("logs", "rl", "crew/learn").returncode == 2

    @pytest.mark.parametrize("path", ["cre/agent-1", "crews/agent-1", "crew/learner"])
    def test_wrong_group_is_an_error(self, program: Program, path: str) -> None:
        done = program("logs", "rl", path)
        assert (done.returncode, done.stdout) == (2, "")
        assert "not in" in done.stderr


class TestCurrentExperiment:
    def test_is_used_if_no_experiment_is_named(self, program: Program) -> None:
        assert program.ok("switch-experiment", "rl") == "sarah-rl\n"
        assert program.ok("e") == "sarah-rl\n"
        assert program.json("ps")["name"] == "sarah-rl"
        assert program.ok("logs", ".", "learner") == "of the learner\n"
        assert program.ok("wait") == "sarah-rl succeeded: 2 succeeded\n"
        assert program.json("se") == {"backend": "local", "experiment": "sarah-rl"}

    def test_error_explains_how_to_set_it(self, program: Program) -> None:
        done = program("ps")
        assert done.returncode == 2
        assert done.stderr == (
            "symphony: error: no current experiment on local; name an experiment, or set the "
            "current one with: symphony switch-experiment NAME\n"
        )

    @pytest.mark.parametrize("words", [("rl", "--dry-run"), ("nothing",)])
    def test_is_not_set_by_a_dry_run_or_an_error(
        self, program: Program, words: tuple[str, ...]
    ) -> None:
        program("se", *words)
        assert program("se").returncode == 2

    def test_is_unset_when_the_experiment_is_deleted(self, program: Program) -> None:
        program.ok("se", "rl")
        program.ok("delete", "-f", "sarah-rl")
        assert "no current experiment" in program("ps").stderr
