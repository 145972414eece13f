"""argparse as symphony uses it: one line for a mistake, near misses, help that fits the terminal."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from symphony.commandline.exit_codes import UsageError
from symphony.commandline.parsing.intermixed import arguments_first

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


DRY_RUN_SERVER = "--dry-run-server"
# How the titles of those options begin that many commands have.
COMMON_OPTIONS = "options of "


# Longer lines are hard to read, however wide the terminal is.
MAX_WIDTH = 100
_NO_BREAK = "\N{NO-BREAK SPACE}"


class Formatter(argparse.HelpFormatter):
    """Help that is the same on every Python: short usage, commands without a title, no line over `WIDEST`.

    Paragraphs are filled to the width; those with indented lines, such as examples, are left as they are.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=29)
        self._width = min(self._width, MAX_WIDTH)

    def _format_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Any, prefix: str | None
    ) -> str:
        """Name what must be given; ``[options]`` stands for the options, which follow below."""
        if usage is not None:
            return super()._format_usage(usage, actions, groups, prefix)
        shown = [action for action in actions if action.help is not argparse.SUPPRESS]
        words = [self._prog]
        if any(action.option_strings and not action.required for action in shown):
            words.append("[options]")
        words += [
            self._needed(action) for action in shown if action.required and action.option_strings
        ]
        words += [self._needed(action) for action in shown if not action.option_strings]
        whole = (
            word.replace(" ", _NO_BREAK) for word in words
        )  # "[PROCESS ...]" stays on one line
        start = "usage: " if prefix is None else prefix
        indent = " " * min(len(f"{start}{self._prog} "), self._width // 2)
        return (
            _filled(f"{start}{' '.join(whole)}", self._width, indent).replace(_NO_BREAK, " ")
            + "\n\n"
        )

    def _needed(self, action: argparse.Action) -> str:
        if action.option_strings:
            return self._format_action_invocation(action).rpartition(", ")[2]
        return self._format_args(action, self._get_default_metavar_for_positional(action))

    def _iter_indented_subactions(
        self, action: argparse.Action
    ) -> Generator[argparse.Action, None, None]:
        yield from getattr(action, "_get_subactions", list)()

    def _format_action(self, action: argparse.Action) -> str:
        if isinstance(
            action, argparse._SubParsersAction
        ):  # the commands stand below a title of their own
            return "".join(map(self._format_action, self._iter_indented_subactions(action)))
        return super()._format_action(action)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """``-b, --backend BACKEND``: the value is named once."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = (
            part if "\n " in part else _filled(part, width)
            for part in textwrap.dedent(text).split("\n\n")
        )
        return textwrap.indent("\n\n".join(filled), indent)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return _filled(text, width).splitlines()


def _filled(text: str, width: int, indent: str = "") -> str:
    """Text broken at spaces alone: an option such as ``--dry-run`` stays whole."""
    return textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError` where argparse would print its usage and exit.

    Groups of options whose title begins with `SHARED` come last in its help. ``elsewhere`` has a hint for
    options that it does not take and others do.
    """

    elsewhere: Mapping[str, str] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": Formatter, "allow_abbrev": False, **options})
        self._positionals.title = "arguments"

    def format_help(self) -> str:
        """The help, in which options that all commands have come after a command's own."""
        self._action_groups.sort(key=lambda group: (group.title or "").startswith(COMMON_OPTIONS))
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError`."""
        raise UsageError(f"{message.removeprefix('argument ')}; see {self.prog} --help")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Write help; argparse would not tell that nobody reads it."""
        print(message, end="", file=file)

    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse, wherever options stand between arguments."""
        words = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(arguments_first(self, words), namespace)

    def refuse_extra(self, words: Sequence[str]) -> None:
        """Raise `UsageError` for words that nothing takes, with the near miss of an option.

        Of several it is about the first option: an argument too many may be the value that it was given.
        """
        if words:
            from symphony.names import did_you_mean

            word = next((word for word in words if word.startswith("-")), words[0])
            option = word.startswith("-")
            hint = did_you_mean(word, self._option_string_actions) if option else ""
            hint = self.elsewhere.get(word.partition("=")[0], hint)
            self.error(f"unknown {'option' if option else 'argument'} {word!r}{hint}")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Say what was probably meant, where argparse lists everything."""
        if action.choices is not None and value not in action.choices:
            from symphony.names import did_you_mean, join_names

            known = [str(choice) for choice in action.choices]
            hint = did_you_mean(str(value), known) or f"; there are {join_names(known, limit=20)}"
            what = _named(action)
            raise UsageError(f"unknown {what} {str(value)!r}{hint}; see {self.prog} --help")


def _named(action: argparse.Action) -> str:
    if isinstance(action, argparse._SubParsersAction):
        return "command"
    return str(action.metavar or next(iter(action.option_strings), action.dest))


def expand_dry_run(words: Sequence[str]) -> list[str]:
    """``--dry-run=server`` and ``--dry-run=client``, as kubectl has them, in words that argparse can take.

    (An option whose value may be left out would take the file that follows it for its value.)
    """
    forms = {"--dry-run=server": DRY_RUN_SERVER, "--dry-run=client": "--dry-run"}
    return [forms.get(word, word) for word in words]


def split_remainder(argv: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """The arguments before the first ``--`` and those after it, untouched; None where there is no ``--``.

    >>> split_remainder(["exec", "rl", "agent", "--", "ls", "--", "-l"])
    (['exec', 'rl', 'agent'], ['ls', '--', '-l'])
    """
    words = list(argv)
    if "--" not in words:
        return words, None
    place = words.index("--")
    return words[:place], words[place + 1 :]


def help_from_docstring(doc: str, prog: str, *, without: Collection[str] = ()) -> tuple[str, str]:
    """The summary and the description that a docstring gives, ready for argparse; examples name ``prog``.

    ``without`` are options whose examples are left out.
    """
    lines = list(
        _fitting(textwrap.dedent(f"{' ' * _margin(doc)}{doc}").strip().splitlines(), without)
    )
    shown = (
        line.replace("symphony ", f"{prog} ") if line.startswith(" ") else line for line in lines
    )
    text = "\n".join(shown).replace("%", "%%").rstrip().removesuffix("\n\nFor example:")
    return text.partition("\n")[0], text


def _fitting(lines: Iterable[str], without: Collection[str]) -> Iterator[str]:
    """The lines but for examples that have one of these options. One that ends in a backslash goes on in the next."""
    left_out = goes_on = False
    for line in lines:
        left_out = (
            left_out
            if goes_on
            else line.startswith(" ") and not set(without).isdisjoint(line.split())
        )
        goes_on = line.endswith("\\")
        if not left_out:
            yield line


def _margin(doc: str) -> int:
    """How far all lines but the first are indented."""
    rest: Iterable[str] = (line for line in doc.splitlines()[1:] if line.strip())
    return min((len(line) - len(line.lstrip()) for line in rest), default=0)


def parse_seconds(text: str) -> float:
    """A time to wait: ``90``, ``90s``, ``1m30s``, in seconds."""
    import math
    import re

    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
    number = r"\d+(?:\.\d+)?"
    if not re.fullmatch(rf"{number}|(?:{number}(?:ms|s|m|h|d))+", text):
        raise argparse.ArgumentTypeError(
            f"a time is seconds or a duration such as 90s or 5m, not {text!r}"
        )
    total = sum(
        float(count) * units[unit] for count, unit in re.findall(rf"({number})(ms|s|m|h|d|)", text)
    )
    if not math.isfinite(total):
        raise argparse.ArgumentTypeError(f"{text!r} is longer than can be waited for")
    return total


def parse_parameter(text: str) -> tuple[str, str]:
    """``NAME=VALUE``, of which the value may be empty and hold further ``=``."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(
            f"a parameter is NAME=VALUE, such as agents=8, not {text!r}"
        )
    return name, value


def parse_since(text: str) -> str:
    """A time that was, as `symphony.Cluster.get_log` takes it for ``since``: ``5m``, or ISO 8601."""
    from symphony.cluster.since import parse_since
    from symphony.errors import SpecError

    try:
        parse_since(text, 0.0)
    except (SpecError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"a time is a duration such as 90s or 5m, or an ISO 8601 time, not {text!r}"
        ) from None
    return text


def parse_count(text: str) -> int:
    """A number of lines, at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number of at least 0, not {text!r}")
    return int(text)
