"""The tools: the commands that agents can call, with their arguments, from the table of commands.

The name, the description and the arguments of a tool are those of the command, so that they are
written only once.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symphony.commandline.exit_codes import UsageError
from symphony.commandline.parsing.arguments import (
    COMMON_OPTIONS,
    NumberOption,
    parse_count,
    parse_last,
    parse_seconds,
)
from symphony.commandline.parsing.command import Command, Table
from symphony.errors import shown
from symphony.support.data_classes import dataclass
from symphony.support.names import did_you_mean, join_names

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

# The options that no tool has: those that never end or can take hours, that write files outside the
# scope, that show secrets, and that select the form of the output.
LEFT_OUT = frozenset(
    {
        *("follow", "watch", "queue"),
        *("save", "output", "with_secrets"),
        *("raw", "show_secrets"),
        "json",
    }
)
# The argument with the words of another command, such as that of exec.
REMAINDER = "command"
BACKEND = "backend"
# How many lines of each process `logs` shows if the call does not limit them.
DEFAULT_TAIL = 50

_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z-])")
_OPTION_FIRST = re.compile(r"(?:With )?(--[a-z][a-z-]*)")

_TEXT: dict[str, Any] = {"type": "string"}
_TYPES: dict[object, dict[str, Any]] = {
    parse_count: {"type": "integer", "minimum": 0},
    parse_last: {"type": "integer", "minimum": 0},
    parse_seconds: {"type": ["number", "string"]},
}
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A command that agents can call.

    ``actions`` maps the names of its arguments to those of the parser. The command line ends with
    the words of another command if ``remainder`` is set.
    """

    name: str
    description: str
    changes: bool
    remainder: bool
    actions: Mapping[str, argparse.Action]
    takes_backend: bool

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        properties = {name: _schema_of(action) for name, action in self.actions.items()}
        required = [name for name, action in self.actions.items() if _is_required(action)]
        if self.remainder:
            properties[REMAINDER] = {
                "type": "array",
                "items": _TEXT,
                "minItems": 1,
                "description": "the command and its arguments, each as one item; no shell reads it",
            }
            required.append(REMAINDER)
        if self.takes_backend:
            properties[BACKEND] = {
                **_TEXT,
                "description": "backend, such as local or kube (default: the one with the "
                "experiment, or the configured one)",
            }
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        return {**schema, "additionalProperties": False}

    def words(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the words of the command line for a call with valid arguments.

        Raises `UsageError` for an argument that the command would take for an option.
        """
        words = [self.name]
        for name, action in self.actions.items():
            value = arguments.get(name)
            if value is None or value is False or value == []:
                continue
            values = [str(item) for item in (value if isinstance(value, list) else [value])]
            if action.option_strings:
                flag = _flag_of(action)
                words += [flag] if action.nargs == 0 else [f"{flag}={item}" for item in values]
            else:
                words += self._positional(name, values)
        if arguments.get(BACKEND) is not None:
            words.append(f"--backend={arguments[BACKEND]}")
        if self.remainder:
            words += ["--", *arguments[REMAINDER]]
        return words

    def _positional(self, name: str, values: Sequence[str]) -> Sequence[str]:
        for value in values:
            if value.startswith("-"):
                raise UsageError(f"{self.name}: {name} must not begin with '-': {value!r}")
        return values

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise `UsageError` for unknown, missing and wrong arguments."""
        schema = self.schema
        properties: dict[str, dict[str, Any]] = schema["properties"]
        for name, value in arguments.items():
            if name not in properties:
                hint = did_you_mean(name, properties) or f"; it has {join_names(properties)}"
                raise UsageError(f"the tool {self.name} has no argument {name!r}{hint}")
            problem = None if value is None else _problem(value, properties[name])
            if problem:
                raise UsageError(f"{self.name}: {name} must be {problem}, not {shown(value)}")
        missing = [name for name in schema.get("required", ()) if not arguments.get(name)]
        if missing:
            raise UsageError(f"{self.name} needs the argument {missing[0]!r}")


def find_tools(line: Line, table: Table) -> dict[str, Tool]:
    """Return the tools by their names, in the order of the help.

    If the command line selects a backend, no tool has an argument for it.
    """
    found = {}
    for name in table.titles:
        command = table.load(name).COMMAND
        if not command.no_tool:
            parser = line.get_subparser(name)
            actions = dict(_arguments(parser, command))
            found[name] = Tool(
                name=name,
                description=_describe(parser.description or "", actions.values()),
                changes=command.changes,
                remainder=command.remainder,
                actions=actions,
                takes_backend=not line.names_backend,
            )
    return found


def refusal(name: str, table: Table, tools: Mapping[str, Tool]) -> str:
    """Return why there is no tool of this name."""
    if name in table.titles:
        return f"{name} is not a tool: {table.load(name).COMMAND.no_tool}"
    return f"there is no tool {name!r}{did_you_mean(name, tools)}"


def _describe(description: str, actions: Iterable[argparse.Action]) -> str:
    """Return the description of a command without its examples, which are command lines, and
    without the sentences that begin with an option that the tool does not have.

    If a paragraph begins with such an option, the whole paragraph is about it.
    """
    flags = {flag for action in actions for flag in action.option_strings}
    paragraphs = []
    for paragraph in description.partition("\n\nFor example:")[0].replace("%%", "%").split("\n\n"):
        sentences = _SENTENCE_END.split(" ".join(paragraph.split()))
        kept = [text for text in sentences if _option_of(text) in {None, *flags}]
        if kept[:1] == sentences[:1]:
            paragraphs.append(" ".join(kept))
    return "\n\n".join(paragraphs)


def _option_of(sentence: str) -> str | None:
    """Return the option with which a sentence begins, or None."""
    found = _OPTION_FIRST.match(sentence)
    return found[1] if found else None


def _arguments(
    parser: argparse.ArgumentParser, command: Command
) -> Iterator[tuple[str, argparse.Action]]:
    """Yield the arguments of a command that agents can use, with their names."""
    # The options of other commands that write something are left out.
    known = set(LEFT_OUT if command.changes else LEFT_OUT | {"dry_run"})
    for group in parser._action_groups:
        if (group.title or "").startswith(COMMON_OPTIONS):
            continue
        for action in group._group_actions:
            if action.help == argparse.SUPPRESS or action.dest in known:
                continue
            known.add(action.dest)
            name = _flag_of(action).lstrip("-") if action.option_strings else action.dest
            yield name.replace("-", "_"), action


def _flag_of(action: argparse.Action) -> str:
    return max(action.option_strings, key=len)


def _schema_of(action: argparse.Action) -> dict[str, Any]:
    """Return the schema of an argument."""
    text = (action.help or "").replace("%%", "%")
    if action.nargs == 0:
        return {"type": "boolean", "description": text}
    is_number = isinstance(action, NumberOption)
    item = {"type": "integer"} if is_number else _TYPES.get(action.type, _TEXT)
    if action.choices is not None:
        item = {**item, "enum": list(action.choices)}
    if action.nargs in ("*", "+") or isinstance(action, argparse._AppendAction):
        schema: dict[str, Any] = {"type": "array", "items": item}
        if action.nargs == "+":
            schema["minItems"] = 1
        return {**schema, "description": _with_form(text, action)}
    if action.dest == "tail":
        text = f"{text} (default: {DEFAULT_TAIL}, or all with since)"
    return {**item, "description": _with_form(text, action)}


def _with_form(text: str, action: argparse.Action) -> str:
    """Add the form of a value, such as ``NAME=VALUE``, to its description."""
    form = action.metavar if isinstance(action.metavar, str) else ""
    return f"{text} ({form})" if "=" in form else text


def _is_required(action: argparse.Action) -> bool:
    # argparse requires arguments of which there can be none.
    return action.required and action.nargs not in ("*", "?")


def _problem(value: object, schema: Mapping[str, Any]) -> str | None:
    """Return what a value must be, or None if it is valid."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    types = tuple(kind for name in kinds for kind in _PYTHON_TYPES[name])
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        return "a list of texts" if kinds == ["array"] else " or ".join(map(_article, kinds))
    if isinstance(value, list):
        wrong = [item for item in value if _problem(item, schema["items"])]
        return (
            f"a list, each of whose items is {_problem(wrong[0], schema['items'])}"
            if wrong
            else None
        )
    if "enum" in schema and value not in schema["enum"]:
        return f"one of {join_names(schema['enum'])}"
    if isinstance(value, (int, float)) and value < schema.get("minimum", value):
        return f"at least {schema['minimum']}"
    return None


def _article(kind: str) -> str:
    return {"string": "a text", "integer": "a whole number", "boolean": "true or false"}.get(
        kind, f"a {kind}"
    )
