"""Generate the reference page for all commands from the argument parser."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from docs import md
from symphony.cluster.plugins import installed_backends
from symphony.commandline import SymphonyParser
from symphony.commandline.parsing.arguments import summary_of
from symphony.hookspecs import Option

PROG = "symphony"

HEAD = """
This page lists all commands and their options. It is generated from the argument parser and has the
same texts as `symphony COMMAND --help`. [Command-line conventions](command-line-usage.md) describes
names, exit codes and output for scripts, which are the same for all commands.
"""


def page() -> str:
    """Return the page as Markdown."""
    line = SymphonyParser(prog=PROG)
    parsers = {verb: line.get_subparser(verb) for verb in line.verbs}
    names = {verb: _names(line, parser) for verb, parser in parsers.items()}
    common = {flag for action in _options(line.master_parser) for flag in action.option_strings}
    return md.page(
        "# Commands and options",
        HEAD,
        md.fence("text", f"{PROG} [options] COMMAND [options] [ARGUMENT ...]"),
        *(
            part
            for title, verbs in line.subparsers.grouped().items()
            for part in _group(title, verbs, parsers, names)
        ),
        "## Options of every command",
        "These options may be placed before or after the command.",
        _rows("Option", _options(line.master_parser)),
        *_options_of_backends(),
        *(
            part
            for verb, parser in parsers.items()
            for part in _command(verb, parser, names[verb], common)
        ),
    )


def _group(
    title: str,
    verbs: Sequence[str],
    parsers: Mapping[str, argparse.ArgumentParser],
    names: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    """Yield a table of the commands in one group of the help."""
    yield f"{title[:1].upper()}{title[1:]}:"
    yield md.table(
        ("Command", "Aliases", "Description"),
        [
            (f"[`{verb}`](#{verb})", md.codes(names[verb]), _summary(parsers[verb]))
            for verb in verbs
        ],
    )


def _names(line: SymphonyParser, parser: argparse.ArgumentParser) -> list[str]:
    """Return a command's aliases."""
    verb = parser.get_default("verb")
    return [
        word for word, made in line.subparsers.choices.items() if made is parser and word != verb
    ]


def _options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings]


def _summary(parser: argparse.ArgumentParser) -> str:
    return md.text(summary_of(_description(parser)))


def _description(parser: argparse.ArgumentParser) -> str:
    return (parser.description or "") % {"prog": parser.prog}


# --- options of backends ---


def _options_of_backends() -> Iterator[str]:
    for info in installed_backends():
        if info.options:
            name = info.name
            yield f"### Options of the {name} backend"
            yield (
                f"These options are available if the backend is selected with `-b {name}`, with "
                "`$SYMPHONY_BACKEND` or in the configuration."
            )
            rows = [_option_of_backend(option) for option in info.options]
            yield md.table(("Option", "Description"), rows)


def _option_of_backend(option: Option) -> tuple[str, str]:
    if option.switch:
        value = ""
    elif option.choices:
        value = "{" + ",".join(option.choices) + "}"
    else:
        value = option.metavar or ""
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
        yield f"Aliases: {md.codes(short)}."
    paragraphs = _description(parser).split("\n\n")
    examples = [paragraph for paragraph in paragraphs if "\n " in paragraph]
    yield from (md.paragraph(text) for text in paragraphs if text not in examples)
    yield md.fence("text", _synopsis(verb, positional, own, parser))
    yield _rows("Argument", positional)
    yield _rows("Option", own)
    for example in examples:
        introduction, _, commands = example.partition("\n")
        yield introduction
        yield md.fence("text", textwrap.dedent(commands))


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
    """Return a command's synopsis, wrapped for a terminal with 80 columns."""
    if parser.usage:
        synopsis = re.sub(r"^usage:\s*", "", parser.usage % {"prog": parser.prog})
    else:
        options = ["[options]"] if own else []
        synopsis = " ".join([parser.prog, *options, *map(_form, positional)])
    indent = " " * (len(f"{PROG} {verb}") + 1)
    return textwrap.fill(synopsis, md.TERMINAL_COLUMNS, subsequent_indent=indent)


def _form(action: argparse.Action) -> str:
    name = _value(action)
    forms = {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} ...", None: name}
    return forms[action.nargs if action.nargs is None else str(action.nargs)]


def _value(action: argparse.Action) -> str:
    """Return the placeholder for an argument's value, or an empty string for a switch."""
    if action.nargs == 0:
        return ""
    if action.metavar is None and action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return str(action.metavar or action.dest.upper())


def _rows(kind: str, actions: Sequence[argparse.Action]) -> str:
    shown = [action for action in actions if _is_shown(action) and action.help is not None]
    if not shown:
        return ""
    rows = [(_invocation(action.option_strings, _value(action)), _help(action)) for action in shown]
    return md.table((kind, "Description"), rows)


def _invocation(flags: Sequence[str], value: str) -> str:
    """Return the notation for an argument or option, such as `-b`, `--backend BACKEND`."""
    if not flags:
        return md.code(value)
    *others, last = flags
    return md.codes([*others, f"{last} {value}" if value else last])


def _help(action: argparse.Action) -> str:
    choices = [] if action.choices is None else [str(choice) for choice in action.choices]
    attributes = {
        key: value for key, value in vars(action).items() if value is not argparse.SUPPRESS
    }
    placeholders = {**attributes, "prog": PROG, "choices": ", ".join(choices)}
    text = (action.help or "") % placeholders
    if action.metavar is not None and not all(choice in text for choice in choices):
        text += f" ({', '.join(choices)})"
    return md.text(_joined(text))
