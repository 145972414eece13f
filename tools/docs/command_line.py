"""The page of all commands, from the parser that reads them."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator, Sequence

from docs import md
from symphony.cluster.plugins import installed_backends
from symphony.commandline import SymphonyParser
from symphony.hookspecs import Option

PROG = "symphony"

HEAD = """
What each command takes, as `symphony COMMAND --help` tells it. This page is written from the parser itself.
[The command line](command-line-usage.md) explains what commands have in common: names, exit codes, output for scripts.
"""


def page() -> str:
    """The page as Markdown."""
    line = SymphonyParser(prog=PROG)
    parsers = {verb: line.get_subparser(verb) for verb in line.verbs}
    names = {verb: _names(line, parser) for verb, parser in parsers.items()}
    common = {flag for action in _options(line.master_parser) for flag in action.option_strings}
    return md.page(
        "# Commands and options",
        HEAD,
        md.fence("text", f"{PROG} [options] COMMAND [options] [ARGUMENT ...]"),
        md.table(
            ("command", "short", "what it does"),
            [
                (f"[`{verb}`](#{verb})", md.codes(names[verb]), _summary(parsers[verb]))
                for verb in parsers
            ],
        ),
        "## Options of every command",
        "They stand before the command or after it.",
        _rows("option", _options(line.master_parser)),
        *_of_backends(),
        *(
            part
            for verb, parser in parsers.items()
            for part in _command(verb, parser, names[verb], common)
        ),
    )


def _names(line: SymphonyParser, parser: argparse.ArgumentParser) -> list[str]:
    """The short names of a command."""
    verb = parser.get_default("verb")
    return [
        word for word, made in line.subparsers.choices.items() if made is parser and word != verb
    ]


def _options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings]


def _summary(parser: argparse.ArgumentParser) -> str:
    return md.text(_description(parser).partition("\n")[0])


def _description(parser: argparse.ArgumentParser) -> str:
    return (parser.description or "") % {"prog": parser.prog}


# --- options of backends ---


def _of_backends() -> Iterator[str]:
    for info in installed_backends():
        if info.options:
            yield f"### Options of the {info.name} backend"
            yield f"They are there where it is chosen: with `-b {info.name}`, `$SYMPHONY_BACKEND` or by configuration."
            yield md.table(("option", ""), [_option_of_backend(option) for option in info.options])


def _option_of_backend(option: Option) -> tuple[str, str]:
    value = (
        ""
        if option.switch
        else "{" + ",".join(option.choices) + "}"
        if option.choices
        else option.metavar or ""
    )
    return _invocation(option.flags, value), md.text(option.help)


# --- one command ---


def _command(
    verb: str, parser: argparse.ArgumentParser, short: Sequence[str], common: set[str]
) -> Iterator[str]:
    own = [action for action in _options(parser) if common.isdisjoint(action.option_strings)]
    positional = [
        action for action in parser._actions if not action.option_strings and _is_shown(action)
    ]
    yield f"## {verb}"
    if short:
        yield f"Also {md.codes(short)}."
    paragraphs = _description(parser).split("\n\n")
    shown = [part for part in paragraphs if "\n " not in part]
    yield from map(md.paragraph, shown)
    yield md.fence("text", _synopsis(verb, positional, own, parser))
    yield _rows("argument", positional)
    yield _rows("option", own)
    for part in paragraphs:
        if part not in shown:
            first, _, rest = part.partition("\n")
            yield first
            yield md.fence("text", textwrap.dedent(rest))


def _is_shown(action: argparse.Action) -> bool:
    return action.help is not argparse.SUPPRESS


def _joined(paragraph: str) -> str:
    return " ".join(paragraph.split())


def _synopsis(
    verb: str,
    positional: Sequence[argparse.Action],
    own: Sequence[argparse.Action],
    parser: argparse.ArgumentParser,
) -> str:
    """How the command is typed, in lines that a terminal of 80 columns holds."""
    if parser.usage:
        typed = re.sub(r"^usage:\s*", "", parser.usage % {"prog": parser.prog})
    else:
        typed = " ".join([parser.prog, *(["[options]"] if own else []), *map(_typed, positional)])
    return textwrap.fill(typed, md.WIDTH, subsequent_indent=" " * (len(f"{PROG} {verb}") + 1))


def _typed(action: argparse.Action) -> str:
    name = _value(action)
    forms = {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} ...", None: name}
    return forms[action.nargs if action.nargs is None else str(action.nargs)]


def _value(action: argparse.Action) -> str:
    """What stands for the value of an argument or option; nothing for a switch."""
    if action.nargs == 0:
        return ""
    if action.metavar is None and action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return str(action.metavar or action.dest.upper())


def _rows(what: str, actions: Sequence[argparse.Action]) -> str:
    rows = [
        (_invocation(action.option_strings, _value(action)), _help(action)) for action in actions
    ]
    return (
        md.table((what, ""), [row for row in rows if row[1] != argparse.SUPPRESS]) if rows else ""
    )


def _invocation(flags: Sequence[str], value: str) -> str:
    """`-b`, `--backend BACKEND`; of an argument, its name."""
    *others, last = flags or [value]
    return md.codes([*others, f"{last} {value}" if value and flags else last])


def _help(action: argparse.Action) -> str:
    if action.help is argparse.SUPPRESS or action.help is None:
        return argparse.SUPPRESS
    choices = [] if action.choices is None else [str(choice) for choice in action.choices]
    words = {key: value for key, value in vars(action).items() if value is not argparse.SUPPRESS}
    told = action.help % {**words, "prog": PROG, "choices": ", ".join(choices)}
    if action.metavar is not None and not all(choice in told for choice in choices):
        told += f" ({', '.join(choices)})"
    return md.text(_joined(told))
