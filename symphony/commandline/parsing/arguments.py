"""The argument parser: one-line errors, suggestions for misspelled words, and readable help."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from symphony.commandline.exit_codes import STANDARD_OUTPUT, UsageError
from symphony.commandline.output.terminal import terminal_width
from symphony.commandline.parsing.intermixed import arguments_first
from symphony.errors import with_filename

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

DRY_RUN_SERVER = "--dry-run-server"
# Completion scripts run this command. The help does not list it.
COMPLETE_COMMAND = "__complete"
# The title of each option group that many commands share begins with this text.
COMMON_OPTIONS = "options for "
# The title of the commands that are in no group.
OTHER_COMMANDS = "other commands"

# What docker and kubectl accept instead of a number of items if all of them are to be shown.
ALL_ITEMS = ("all", "-1")

# Longer lines are hard to read, even if the terminal is wider.
MAX_WIDTH = 100
# The width of help texts that are not printed to a terminal, and the unused columns on the right.
_DEFAULT_COLUMNS, _MARGIN = 80, 2
_NO_BREAK = "\N{NO-BREAK SPACE}"


def _columns() -> int:
    """Return the width for which help texts are formatted, as `shutil.get_terminal_size` does."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    return terminal_width(sys.__stdout__) or _DEFAULT_COLUMNS


class Formatter(argparse.HelpFormatter):
    """A help formatter whose output is the same on every version of Python.

    The usage is short, and the list of commands has no additional title. Paragraphs are wrapped to
    at most `MAX_WIDTH` characters, except for paragraphs with indented lines, such as examples.
    """

    def __init__(self, prog: str) -> None:
        # Without a width, argparse imports shutil, which imports the modules for compression.
        width = min(_columns() - _MARGIN, MAX_WIDTH)
        super().__init__(prog, max_help_position=29, width=width)

    def _format_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Any, prefix: str | None
    ) -> str:
        """Format the usage with the required options and all arguments.

        ``[options]`` stands for the other options, which are described below the usage.
        """
        if usage is not None:
            return super()._format_usage(usage, actions, groups, prefix)
        shown = [action for action in actions if action.help is not argparse.SUPPRESS]
        options = [action for action in shown if action.option_strings]
        arguments = [action for action in shown if not action.option_strings]
        words = [self._prog]
        if any(not option.required for option in options):
            words.append("[options]")
        words += [self._usage_of(option) for option in options if option.required]
        words += [self._usage_of(argument) for argument in arguments]
        # Text such as "[PROCESS ...]" stays on one line.
        unbreakable = [word.replace(" ", _NO_BREAK) for word in words]
        start = "usage: " if prefix is None else prefix
        indent = " " * min(len(f"{start}{self._prog} "), self._width // 2)
        text = _fill(f"{start}{' '.join(unbreakable)}", self._width, indent)
        return text.replace(_NO_BREAK, " ") + "\n\n"

    def _usage_of(self, action: argparse.Action) -> str:
        if action.option_strings:
            return self._format_action_invocation(action).rpartition(", ")[2]
        return self._format_args(action, self._get_default_metavar_for_positional(action))

    def _iter_indented_subactions(
        self, action: argparse.Action
    ) -> Generator[argparse.Action, None, None]:
        yield from getattr(action, "_get_subactions", list)()

    def _format_action(self, action: argparse.Action) -> str:
        if isinstance(action, Commands):
            return "\n".join(self._format_commands(action))
        return super()._format_action(action)

    def _format_commands(self, action: Commands) -> Iterator[str]:
        """Yield a section for each group of commands."""
        entries = {entry.dest: entry for entry in action._get_subactions()}
        for title, names in action.grouped().items():
            lines = [self._format_action(entries[name]) for name in names]
            yield f"{title}:\n{''.join(lines)}"

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Return an invocation such as ``-b, --backend BACKEND``, with the metavar only once."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap

        paragraphs = textwrap.dedent(text).split("\n\n")
        filled = []
        for part in paragraphs:
            has_layout = "\n " in part
            filled.append(part if has_layout else _fill(part, width))
        return textwrap.indent("\n\n".join(filled), indent)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return _fill(text, width).splitlines()


class Commands(argparse._SubParsersAction):  # type: ignore[type-arg]
    """The commands of a command line. The help lists them in groups and omits their aliases.

    ``groups`` maps the names of commands to the titles of their groups. ``words`` is the command
    line that is parsed.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.groups: dict[str, str] = {}
        self.words: list[str] = []

    def add_parser(self, name: str, *, aliases: Iterable[str] = (), **options: Any) -> Any:
        """Add a command, and let the aliases stand for it."""
        parser = super().add_parser(name, **options)
        for alias in aliases:
            self._name_parser_map[alias] = parser
        return parser

    def grouped(self) -> dict[str, list[str]]:
        """Return a mapping from the titles of the groups to the names of the commands.

        A command without a group is in the last group.
        """
        titles = dict.fromkeys([*self.groups.values(), OTHER_COMMANDS])
        result: dict[str, list[str]] = {title: [] for title in titles}
        for entry in self._get_subactions():
            result[self.groups.get(entry.dest, OTHER_COMMANDS)].append(entry.dest)
        return {title: names for title, names in result.items() if names}


class NumberOption(argparse.Action):
    """An option of a command with a number, whose flag can also be that of a backend's option.

    Any other value is the value of the backend's option, which sets ``other_destination``.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.other_destination: str | None = None

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,  # noqa: ARG002
    ) -> None:
        """Store the value."""
        if self.other_destination is not None and not values.isdecimal():
            setattr(namespace, self.other_destination, values)
            return
        try:
            setattr(namespace, self.dest, parse_last(values))
        except argparse.ArgumentTypeError as exc:
            raise argparse.ArgumentError(self, str(exc)) from None


def _fill(text: str, width: int, indent: str = "") -> str:
    """Wrap text only at spaces, so that an option such as ``--dry-run`` is not split."""
    # Only the help is wrapped, and importing this module compiles long regular expressions.
    import textwrap

    return textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError` instead of printing its usage and exiting.

    Options can appear between arguments. Option groups whose titles begin with `COMMON_OPTIONS`
    come last in the help. ``option_hints`` maps unknown options to hints for the error message. The
    key ``""`` stands for all options that it does not contain.
    """

    option_hints: Mapping[str, str] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": Formatter, "allow_abbrev": False, **options})
        self._positionals.title = "arguments"

    def format_help(self) -> str:
        """Return the help, with the common options after the command's own options."""
        self._action_groups.sort(key=lambda group: (group.title or "").startswith(COMMON_OPTIONS))
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError`."""
        raise UsageError(f"{message.removeprefix('argument ')}; see {self.prog} --help")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        # argparse would ignore a write error, for example if a pipe is closed.
        if file is not None and file is not sys.stdout:
            file.write(message)
            return
        with with_filename(STANDARD_OUTPUT):
            sys.stdout.write(message)

    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse a command line in which options can appear between arguments."""
        words = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(arguments_first(self, words), namespace)

    def refuse_unknown(self, words: Sequence[str]) -> None:
        """Raise `UsageError` if ``words``, the unknown words on a command line, is not empty.

        The message names the first unknown option, and suggests a similar option if there is one.
        An unknown argument is named only if there is no unknown option, because the argument may be
        the value of such an option.
        """
        if not words:
            return
        from symphony.support.names import did_you_mean

        options = [word for word in words if word.startswith("-")]
        if not options:
            self.error(f"unknown argument {words[0]!r}")
        option = options[0]
        hint = self.option_hints.get(option.partition("=")[0])
        if hint is None:
            hint = did_you_mean(option, self._option_string_actions) or self.option_hints.get(
                "", ""
            )
        self.error(f"unknown option {option!r}{hint}")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Raise `UsageError` for a value that is not one of the choices.

        The message suggests a similar choice if there is one, and otherwise lists the choices. For
        a command of another program, it names the command to use instead.
        """
        if action.choices is None or value in action.choices:
            return
        from symphony.commandline.parsing.words import command_hint
        from symphony.support.names import did_you_mean, join_names

        if isinstance(action, Commands):
            words = action.words
            following = words[words.index(str(value)) + 1 :] if value in words else []
            instead = command_hint(str(value), self.prog, following)
            if instead:
                raise UsageError(f"{self.prog} has no command {str(value)!r}; {instead}")
        choices = [str(choice) for choice in action.choices]
        if isinstance(action, Commands):
            # The help does not list the aliases either.
            choices = [entry.dest for entry in action._get_subactions()]
        hint = did_you_mean(str(value), choices)
        if not hint:
            hint = f"; choose from {join_names(choices, limit=20)}"
        name = _display_name(action)
        raise UsageError(f"unknown {name} {str(value)!r}{hint}; see {self.prog} --help")


def _display_name(action: argparse.Action) -> str:
    if isinstance(action, argparse._SubParsersAction):
        return "command"
    return str(action.metavar or next(iter(action.option_strings), action.dest))


def expand_dry_run(words: Sequence[str]) -> list[str]:
    """Replace the kubectl options ``--dry-run=server`` and ``--dry-run=client``, and the option
    ``-dr`` of the first versions of symphony.

    They are replaced with options that take no value. If ``--dry-run`` had an optional value,
    argparse would interpret a file name after it as that value.
    """
    forms = {
        "--dry-run=server": DRY_RUN_SERVER,
        "--dry-run=client": "--dry-run",
        "-dr": "--dry-run",
    }
    return [forms.get(word, word) for word in words]


def split_remainder(argv: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return the words before the first ``--``, and the words after it.

    The second list is None if there is no ``--``.

    >>> split_remainder(["exec", "rl", "agent", "--", "ls", "--", "-l"])
    (['exec', 'rl', 'agent'], ['ls', '--', '-l'])
    """
    words = list(argv)
    if "--" not in words:
        return words, None
    index = words.index("--")
    return words[:index], words[index + 1 :]


def help_from_docstring(doc: str, prog: str, *, without: Collection[str] = ()) -> tuple[str, str]:
    """Return a docstring's summary and description for argparse.

    Examples use ``prog`` as the program name. Examples with an option in ``without`` are omitted.
    """
    lines = _without_margin(doc).strip().splitlines()
    shown = []
    for line in _without_examples(lines, without):
        # Examples are indented.
        is_example = line.startswith(" ")
        shown.append(line.replace("symphony ", f"{prog} ") if is_example else line)
    text = "\n".join(shown).replace("%", "%%").rstrip().removesuffix("\n\nFor example:")
    return summary_of(text), text


def summary_of(description: str) -> str:
    """Return the first sentence of a description in one line.

    It ends at the first full stop before a capital letter, or else with the first paragraph.
    """
    paragraph = " ".join(description.strip().partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", paragraph, maxsplit=1)[0]


def _without_examples(lines: Iterable[str], options: Collection[str]) -> Iterator[str]:
    """Yield the lines, except for examples that contain any of the options.

    An example whose line ends with a backslash continues on the next line.
    """
    left_out = continued = False
    for line in lines:
        if not continued:
            is_example = line.startswith(" ")
            left_out = is_example and not set(options).isdisjoint(line.split())
        continued = line.endswith("\\")
        if not left_out:
            yield line


def _without_margin(doc: str) -> str:
    """Return a docstring without the common indentation of all lines except the first line."""
    first, *rest = doc.splitlines() or [""]
    margin = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    return "\n".join([first, *(line[margin:].rstrip() for line in rest)])


def parse_seconds(text: str) -> float:
    """Convert a duration such as ``90``, ``90s`` or ``1m30s`` to seconds.

    Raises `argparse.ArgumentTypeError` if ``text`` is not a duration.
    """
    from symphony.errors import SpecError
    from symphony.model.settings.durations import parse_duration

    try:
        return parse_duration(text, "a time")
    except SpecError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def parse_parameter(text: str) -> tuple[str, str]:
    """Return the name and the value in ``NAME=VALUE``. The value can be empty or contain ``=``.

    Raises `argparse.ArgumentTypeError` if the name or ``=`` is missing.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(
            f"a parameter must be NAME=VALUE, such as agents=8, not {text!r}"
        )
    return name, value


def check_since(text: str) -> str:
    """Validate ``text`` as a duration such as ``5m`` or an ISO 8601 time, and return it.

    The result is a value for the ``since`` argument of `symphony.Cluster.get_log`. Raises
    `argparse.ArgumentTypeError` if ``text`` is neither a duration nor an ISO 8601 time.
    """
    from symphony.cluster.since import parse_since
    from symphony.errors import SpecError

    try:
        parse_since(text, 0.0)
    except (SpecError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"a time must be a duration such as 90s or 5m, or an ISO 8601 time, not {text!r}"
        ) from None
    return text


def parse_count(text: str) -> int:
    """Parse a non-negative integer.

    Raises `argparse.ArgumentTypeError` if ``text`` is not such an integer.
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, not {text!r}")
    return int(text)


def parse_last(text: str) -> int:
    """Parse the number of items at the end of a list, all of which are shown by default.

    Raises `argparse.ArgumentTypeError` if ``text`` is not such a number.
    """
    if text in ALL_ITEMS:
        raise argparse.ArgumentTypeError("all of them are shown without this option: remove it")
    return parse_count(text)
