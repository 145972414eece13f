"""Names that are shortened, the current experiment, and deleting many."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Program


@pytest.fixture
def sarahs(program: Program) -> None:
    """Two experiments that have ended, one with a group."""
    program.ended(
        "sarah-rl",
        {"learner": "echo of the learner", "crew": {"processes": {"agent-1": {"cmd": "true"}}}},
    )
    program.ended("sarah-sweep", {"learner": "true"})


@pytest.mark.usefixtures("sarahs")
class TestShortened:
    @pytest.mark.parametrize("short", ["sarah-rl", "sarah-r", "rl", "h-r"])
    def test_the_beginning_the_end_or_the_inside_of_a_name_is_enough(
        self, program: Program, short: str
    ) -> None:
        assert program.ok("logs", short, "learner") == "of the learner\n"

    def test_an_exact_name_is_not_taken_for_a_shortened_one(self, program: Program) -> None:
        program.ended("rl", {"learner": "echo mine"})
        assert program.ok("logs", "rl", "learner") == "mine\n"

    def test_several_are_an_error_in_a_script(self, program: Program) -> None:
        done = program("ps", "sarah")
        assert (done.returncode, done.stdout) == (2, "")
        assert (
            done.stderr
            == "symphony: error: experiment 'sarah' is ambiguous: sarah-rl, sarah-sweep; type more of the name\n"
        )

    def test_several_are_a_menu_on_a_terminal(self, program: Program) -> None:
        terminal = program.terminal("logs", "sarah", "learner")
        terminal.expect("which one? [1-2]")
        assert "1 sarah-rl" in terminal.text
        assert "2 sarah-sweep" in terminal.text
        terminal.press("1\n")
        terminal.expect("of the learner")
        assert terminal.finish() == 0

    def test_no_choice_is_an_error(self, program: Program) -> None:
        terminal = program.terminal("ps", "sarah")
        terminal.expect("which one?")
        terminal.press("7\n")
        terminal.expect("no experiment was chosen")
        assert terminal.finish() == 2

    def test_what_was_taken_is_told_on_a_terminal(self, program: Program) -> None:
        terminal = program.terminal("ps", "rl")
        terminal.expect("experiment 'rl' is sarah-rl")
        assert terminal.finish() == 0

    @pytest.mark.parametrize("short", ["learn", "ner", "earn"])
    def test_a_process_too(self, program: Program, short: str) -> None:
        assert program.ok("logs", "rl", short) == "of the learner\n"

    def test_a_process_within_its_group(self, program: Program) -> None:
        assert program.ok("logs", "rl", "crew/agent") == ""
        assert program("logs", "rl", "crew/learn").returncode == 2

    @pytest.mark.parametrize(
        "wrong", ["cre/agent-1", "crews/agent-1", "crew/learner", "learner/agent-1"]
    )
    def test_a_wrong_group_is_an_error(self, program: Program, wrong: str) -> None:
        done = program("logs", "rl", wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert "not in" in done.stderr

    def test_what_fits_nothing_has_the_near_miss(self, program: Program) -> None:
        assert "did you mean 'sarah-rl'?" in program("ps", "sara-rl").stderr
        assert "did you mean 'learner'?" in program("logs", "rl", "laerner").stderr

    def test_a_script_deletes_only_whole_names(self, program: Program) -> None:
        assert program("delete", "rl", "-f").returncode == 0
        assert program("delete", "rl").returncode == 2
        assert program.left() == ["sarah-rl", "sarah-sweep"]

    def test_deleting_asks_with_the_whole_name(self, program: Program) -> None:
        terminal = program.terminal("delete", "sweep")
        terminal.expect("delete sarah-sweep succeeded: 1 succeeded? [y/N]")
        terminal.press("y\n")
        terminal.expect("deleted sarah-sweep")
        assert terminal.finish() == 0
        assert program.left() == ["sarah-rl"]


@pytest.mark.usefixtures("sarahs")
class TestCurrent:
    def test_it_is_meant_where_none_is_named(self, program: Program) -> None:
        assert program.ok("switch-experiment", "rl") == "sarah-rl\n"
        assert program.ok("e") == "sarah-rl\n"
        assert program.json("ps")["name"] == "sarah-rl"
        assert program.ok("logs", ".", "learner") == "of the learner\n"
        assert program.ok("wait") == "sarah-rl succeeded: 2 succeeded\n"
        assert program.json("se") == {"backend": "local", "experiment": "sarah-rl"}

    def test_without_one_it_is_said_how_to_choose(self, program: Program) -> None:
        done = program("ps")
        assert done.returncode == 2
        assert "no current experiment on local; name an experiment" in done.stderr

    def test_a_dry_run_changes_nothing(self, program: Program) -> None:
        assert program.ok("se", "rl", "--dry-run") == "sarah-rl\n"
        assert program("se").returncode == 2

    def test_it_goes_with_its_experiment(self, program: Program) -> None:
        program.ok("se", "rl")
        program.ok("delete", "-f", "sarah-rl")
        assert "no current experiment on" in program("ps").stderr

    def test_one_that_is_not_there_is_not_chosen(self, program: Program) -> None:
        assert program("se", "nothing").returncode == 2
        assert program("se").returncode == 2


@pytest.mark.usefixtures("sarahs")
class TestBatch:
    def test_all_that_fit_are_deleted(self, program: Program) -> None:
        program.ended("other", {"p": "true"})
        assert program.json("delete-batch", "sarah-*", "-f") == ["sarah-rl", "sarah-sweep"]
        assert program.left() == ["other"]
        assert program.ok("db", "--all", "-f") == "deleted other\n"

    def test_a_dry_run_deletes_nothing(self, program: Program) -> None:
        done = program("db", "--all", "--dry-run")
        assert (done.returncode, done.stdout) == (0, "")
        assert "would delete sarah-rl succeeded: 2 succeeded\n" in done.stderr
        assert "would delete sarah-rl" in program("delete", "sarah-rl", "--dry-run").stderr
        assert program.left() == ["sarah-rl", "sarah-sweep"]

    def test_it_asks(self, program: Program) -> None:
        assert program("db", "sarah-*").returncode == 2
        terminal = program.terminal("db", "*sweep")
        terminal.expect("delete sarah-sweep succeeded: 1 succeeded? [y/N]")
        terminal.press("n\n")
        terminal.expect("nothing was deleted")
        assert terminal.finish() == 1
        assert program.left() == ["sarah-rl", "sarah-sweep"]

    def test_a_pattern_that_fits_nothing(self, program: Program) -> None:
        assert "no experiment matches 'tom-*'" in program("db", "tom-*").stderr
        done = program("db", "tom-*", "-f")
        assert (done.returncode, done.stderr) == (0, "no experiment matches; nothing to delete\n")

    @pytest.mark.parametrize("words", [(), ("rl", "--all")])
    def test_it_wants_patterns_or_all(self, program: Program, words: tuple[str, ...]) -> None:
        assert "name the experiments with patterns" in program("db", *words).stderr


@pytest.mark.usefixtures("sarahs")
class TestDryRuns:
    def test_exec_runs_nothing(self, program: Program) -> None:
        name = program.launched("live", {"p": "sleep 100"})
        done = program("exec", name, "p", "--dry-run", "--", "touch", "made it")
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == "would run in the environment of p of live: touch 'made it'\n"
        assert not (program.folder / "made it").exists()


@pytest.mark.parametrize("alias", ["p", "lsp", "process"])
def test_verbs_have_short_names(program: Program, alias: str) -> None:
    name = program.ended("rl", {"p": "true"})
    assert program.json(alias, name)["name"] == name


class TestWatch:
    def test_a_terminal_is_refreshed_in_place(self, program: Program) -> None:
        name = program.launched(
            "rl", {"p": f"until [ -e {program.folder}/go ]; do sleep 0.05; done"}
        )
        terminal = program.terminal("ps", name, "--watch")
        terminal.expect("running")
        (program.folder / "go").touch()
        terminal.expect("succeeded")
        assert "\x1b[2F\x1b[J" in terminal.shown
        terminal.press("\x03")
        assert terminal.finish() == 130

    def test_a_pipe_gets_a_table_for_each_change(self, program: Program) -> None:
        import signal
        import subprocess

        program.ended("rl", {"p": "true"})
        with program.popen("ls", "-w", stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            assert running.stdout.readline().split()[0] == "NAME"
            assert running.stdout.readline().split()[:2] == ["rl", "succeeded"]
            running.send_signal(signal.SIGINT)
            assert running.wait(60) == 130

    def test_it_is_no_json(self, program: Program) -> None:
        assert program("ls", "-w", "--json").returncode == 2
