"""The words of other programs: the commands and options that they stand for exist."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from symphony.commandline import SymphonyParser
from symphony.commandline.commands.change import scale
from symphony.commandline.exit_codes import UsageError
from symphony.commandline.parsing.words import COMMANDS, OPTIONS, command_hint, option_hints

LINE = SymphonyParser(prog="symphony")
PARSERS = {verb: LINE.get_subparser(verb) for verb in LINE.verbs}


def refuse_unknown_options(parser: argparse.ArgumentParser, words: list[str]) -> None:
    for word in words:
        if word.startswith("-") and word != "--":
            assert word in parser._option_string_actions, (parser.prog, word)


@pytest.mark.parametrize("word", COMMANDS)
def test_the_hint_for_a_command_names_existing_commands_and_options(word: str) -> None:
    assert LINE.find_subparser(word) is None
    suggestions = re.findall(r"'symphony ([^']+)'", command_hint(word, "symphony"))
    assert suggestions
    for suggestion in suggestions:
        verb, *words = shlex.split(suggestion)
        if verb.startswith("-"):
            assert verb in LINE.master_parser._option_string_actions
        elif verb != "COMMAND":
            refuse_unknown_options(PARSERS[verb], words)


@pytest.mark.parametrize("verb", OPTIONS)
def test_the_hint_for_an_option_names_existing_options(verb: str) -> None:
    known = PARSERS[verb]._option_string_actions
    for option, hint in option_hints(verb, f"symphony {verb}").items():
        assert option not in known
        words = re.findall(r"(?<= )--?[a-z][-a-z]*", hint)
        if "add -b kube" not in hint and "as in -- sh" not in hint:
            refuse_unknown_options(PARSERS[verb], words)


@pytest.mark.parametrize(
    ("alias", "verb"),
    [
        ("list", "ls"),
        ("status", "ps"),
        ("validate", "check"),
        ("delete-batch", "delete"),
    ],
)
def test_a_word_with_the_same_meaning_is_an_alias(alias: str, verb: str) -> None:
    assert LINE.find_subparser(alias) is PARSERS[verb]


def test_commands_that_change_something_take_only_complete_names() -> None:
    changing = {verb for verb in LINE.verbs if changes_something(verb)}
    assert changing >= {
        *("init", "import", "launch", "submit", "rerun", "up", "scale", "stop", "start", "restart"),
        *("signal", "debug", "exec", "attach", "cp", "down", "delete", "prune", "resume"),
        "config",
    }


def changes_something(verb: str) -> bool:
    line = SymphonyParser(prog="symphony")
    line.args.verb = verb
    return line.changes_something


def test_the_hint_contains_the_arguments() -> None:
    assert command_hint("run", "lab", ["rl.yml"]).startswith("use 'lab launch rl.yml', or ")
    assert command_hint("shell", "lab", ["rl", "agent-1"]) == "use 'lab exec rl agent-1 -- bash'"
    assert command_hint("shell", "lab", ["-it", "agent-1"]) == "use 'lab exec agent-1 -- bash'"
    assert command_hint("stats", "lab", ["a b"]) == "use 'lab ps 'a b' --usage', or 'lab top 'a b''"
    assert command_hint("shell", "lab") == "use 'lab exec NAME PROCESS -- bash'"


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        ("kill web", "symphony signal web --signal KILL"),
        ("kill -9 web", "symphony signal web --signal 9"),
        ("kill -HUP web", "symphony signal web --signal HUP"),
        ("kill -s HUP web", "symphony signal web --signal HUP"),
        ("kill --signal=INT rl web", "symphony signal rl web --signal INT"),
        ("rollout restart deployment/web", "symphony restart web"),
        ("rollout status deploy web", "symphony ps web"),
        ("rollout undo web", "symphony up"),
        ("scontrol show job 12", "symphony describe 12"),
        ("port web 80", "symphony visit web"),
        ("port rl web", "symphony visit rl web"),
        ("port-forward svc/web 8080:80", "symphony forward web 80:8080"),
        ("port-forward web 80", "symphony forward web 80"),
        ("port-forward rl web 8080:80", "symphony forward rl web 80:8080"),
        ("port-forward rl web", "symphony forward rl web PORT:LOCAL"),
        ("port-forward", "symphony forward NAME PROCESS PORT:LOCAL"),
        ("shell pod/web", "symphony exec web -- bash"),
    ],
)
def test_the_hint_is_the_line_to_type(words: str, suggestion: str) -> None:
    word, *following = words.split()
    assert f"'{suggestion}'" in command_hint(word, "symphony", following)


def test_a_signal_of_kill_never_becomes_a_name() -> None:
    assert command_hint("kill", "symphony", ["-s", "HUP", "web"]).count("symphony") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("exec web ls -l", "write the command after --, as in symphony exec PROCESS -- CMD"),
        ("exec -T web ls", "a terminal is used if there is one"),
        ("exec web --dryrun", "did you mean '--dry-run'"),
        ("-V", "use --version"),
        ("restart -t 5 web", "set termination_grace_period"),
        ("signal rl web HUP", "use 'symphony signal rl web --signal HUP'"),
        ("signal web HUP", "use 'symphony signal web --signal HUP'"),
        ("signal HUP web", "use 'symphony signal web --signal HUP'"),
        ("signal web sighup", "use 'symphony signal web --signal sighup'"),
        ("signal -9 web", "use 'symphony signal web --signal 9'"),
        ("-b tmux signal web USR1", "use 'symphony -b tmux signal web --signal USR1'"),
        ("signal web db", "arguments are required: -s/--signal"),
        ("top -b -n 1", "use 'symphony ps --usage'"),
        ("top -b -n 1 rl", "use 'symphony ps rl --usage'"),
        ("top -bn1", "use 'symphony ps --usage'"),
        ("top -n 1", "use 'symphony ps --usage'"),
        ("top rl --once", "use 'symphony ps rl --usage'"),
        ("logs --tail all", "-t/--tail: all of them are shown without this option: remove it"),
        ("logs --tail=-1 rl", "-t/--tail: all of them are shown without this option: remove it"),
        ("logs -n all", "-n: all of them are shown without this option: remove it"),
    ],
)
def test_the_error_for_an_option_contains_the_fix(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert SymphonyParser(prog="symphony").run(words.split()) == 2
    assert message in capsys.readouterr().err


def test_n_of_logs_is_a_number_of_lines_or_a_namespace() -> None:
    line = SymphonyParser(prog="symphony")
    words = ["logs", "-b", "kube", "-n", "team-a", "rl", "-fn20"]
    line._parsers.prepare(words)
    args, unknown = line._parsers.parse(words)
    assert (args.option_namespace, args.tail, args.follow, unknown) == ("team-a", 20, True, [])


@pytest.mark.parametrize(
    ("words", "counts"),
    [
        (["agent=16"], {"agent": "16"}),
        (["agent", "16"], {"agent": "16"}),
        (["agent", "+2", "actor=-1"], {"agent": "+2", "actor": "-1"}),
    ],
)
def test_numbers_of_replicas(words: list[str], counts: dict[str, str]) -> None:
    assert scale._counts(words) == counts


@pytest.mark.parametrize("words", [["agent"], ["agent", "actor=1"], ["=3"], ["agent="], ["3"]])
def test_invalid_numbers_of_replicas(words: list[str]) -> None:
    with pytest.raises(UsageError, match="write NAME=NUMBER"):
        scale._counts(words)


def test_an_experiment_file_is_not_a_command() -> None:
    assert command_hint("rl.yml", "lab") == "use 'lab launch rl.yml'"
    assert command_hint("frobnicate", "lab") == ""


def test_a_command_without_a_group_comes_last_in_the_help() -> None:
    class Lab(SymphonyParser):
        def setup(self) -> None:
            """Add a command."""
            self.add_subparser("calibrate")

        def action_calibrate(self, _: argparse.Namespace) -> None:
            """Calibrate the robot."""

    lab = Lab(prog="lab")
    lab.run(["--help"])
    groups = list(lab.subparsers.grouped().items())
    assert groups[0][0] == "define experiments"
    assert groups[-1] == ("other commands", ["calibrate"])
