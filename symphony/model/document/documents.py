"""Parsing YAML, JSON and TOML files from any source.

All files that users write are read here. Each file is checked against `symphony.model.limits`
before the parser creates objects that are large or deeply nested. Every error names the file and,
if known, the line and the column.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from symphony.errors import NotFound, SpecError, dotted, shown_name
from symphony.model.document.yaml_causes import likely_cause
from symphony.model.document_path import DocumentPath
from symphony.model.limits import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_DIRECTIVES,
    MAX_VALUES,
    TOO_DEEP,
    TOO_MANY_DIGITS,
    TOO_MANY_VALUES,
)

_BINARY_TAG = "tag:yaml.org,2002:binary"
_NULL_TAG = "tag:yaml.org,2002:null"
_INTEGER_TAG = "tag:yaml.org,2002:int"
_MERGE_TAG = "tag:yaml.org,2002:merge"
_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"
# The characters << and = have these tags if they are the whole value.
_TEXT_TAGS = frozenset({_MERGE_TAG, "tag:yaml.org,2002:value"})
_NULL_TEXTS = ("", "~", "null", "Null", "NULL")

# A function that returns the position of a value as `file:line:column`, or only the file if the
# line is not known.
Locator = Callable[[DocumentPath], str]
# A function that returns whether a value is read as text; see
# `symphony.model.document.text_values.is_text`.
IsText = Callable[[DocumentPath, str, bool], bool]
# A function that returns the value for a tag that is not part of YAML, such as `!reset`, and the
# value after it.
FromTag = Callable[[str, Any], Any]


@contextmanager
def errors_with_position(locate: Locator) -> Iterator[None]:
    """Add the position in a file to a `SpecError` that is raised in the ``with`` block."""
    try:
        yield
    except SpecError as exc:
        raise with_position(exc, locate) from exc


def with_position(error: SpecError, locate: Locator) -> SpecError:
    """Return a copy of an error whose message begins with its position and its path."""
    dotted_path = dotted(error.path)
    location = (
        f"{locate(error.path)}: {dotted_path}: " if dotted_path else f"{locate(error.path)}: "
    )
    located = SpecError(f"{location}{error}", path=error.path)
    located.__cause__ = error
    return located


def read_text(path: Path) -> str:
    """Return the contents of a text file.

    Raises `NotFound` if there is no such file, and `SpecError` if the file is too large or cannot
    be read as UTF-8 text. The error messages contain the file name.
    """
    return decode(path, read_bytes(path, MAX_BYTES))


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """Return the contents of a file of at most ``max_bytes`` bytes.

    Raises `NotFound` if there is no such file, and `SpecError` if the file is too large or cannot
    be read. The error messages contain the file name.
    """
    try:
        with path.open("rb") as file:
            # A file such as /dev/zero has no size, so the limit applies to what is read.
            data = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise NotFound(f"{shown_name(str(path))}: no such file") from None
    except OSError as exc:
        raise SpecError(f"{shown_name(str(path))}: cannot be read: {exc.strerror}") from exc
    if len(data) > max_bytes:
        raise SpecError(
            f"{shown_name(str(path))}: larger than {max_bytes >> 20} MiB, which is the maximum size"
        )
    return data


def decode(path: Path, data: bytes) -> str:
    """Return the contents of a file as text with the line breaks of Unix.

    Raises `SpecError` if the contents are not UTF-8 text.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise SpecError(
            f"{shown_name(str(path))}: not UTF-8 text (byte {exc.start}); save it as UTF-8"
        ) from exc
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


# --- JSON ---


def from_json(path: Path, text: str, repeatable_keys: Collection[str] = ()) -> tuple[Any, Locator]:
    """Parse the contents of a JSON file. Return the data and a function that locates its values.

    The keys in ``repeatable_keys`` can occur several times in one object. The last value counts.
    Raises `SpecError` if the text is not valid JSON, contains a duplicate key, or exceeds a limit.
    """

    def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result and key not in repeatable_keys:
                raise SpecError(f"{path}: duplicate key {key!r}")
            result[key] = value
        return result

    def parse_integer(digits: str) -> int:
        if len(digits) > MAX_DIGITS:
            raise SpecError(f"{path}: {TOO_MANY_DIGITS}")
        return int(digits)

    try:
        data = json.loads(text, object_pairs_hook=without_duplicates, parse_int=parse_integer)
    except json.JSONDecodeError as exc:
        raise SpecError(f"{path}:{exc.lineno}:{exc.colno}: not JSON: {exc.msg}") from exc
    except RecursionError:
        raise SpecError(f"{path}: {TOO_DEEP}") from None
    if _is_too_deep(data):
        raise SpecError(f"{path}: {TOO_DEEP}")
    return data, lambda _: str(path)


def _is_too_deep(data: Any) -> bool:
    level = [data]
    for _ in range(MAX_DEPTH + 1):
        level = [item for node in level for item in _children(node)]
    return bool(level)


def _children(node: Any) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


# --- TOML ---

# A string or a comment, a word such as a bare key or a number, a single other character, or spaces.
# The text of a string can contain brackets, dots and digits, which do not count.
_TOML_TOKEN = re.compile(
    r"""
      (?P<string> \"\"\"(?:[^\\]|\\.)*?\"\"\" | '''.*?'''
                | "(?:[^"\\\n]|\\.)*" | '[^'\n]*' | \#[^\n]* )
    | (?P<word> [\w+-]+ )
    | (?P<other> [^ \t] )
    | [ \t]+
    """,
    re.DOTALL | re.VERBOSE,
)


def from_toml(path: Path, text: str) -> tuple[Any, Locator]:
    """Parse the contents of a TOML file. Return the data and a function that locates its values.

    Raises `SpecError` if the text is not valid TOML or exceeds a limit, or if no TOML parser is
    installed.
    """
    _check_toml(path, text)
    try:
        data = _toml_loads(path)(text)
    except ValueError as exc:
        message, _, position = str(exc).partition(" (at ")
        match = re.match(r"line (\d+), column (\d+)", position)
        suffix = f":{match[1]}:{match[2]}" if match else ""
        raise SpecError(f"{path}{suffix}: not TOML: {message.rstrip('.')}") from exc
    if _is_too_deep(data):
        raise SpecError(f"{path}: {TOO_DEEP}")
    # TOML supports dates, but no field takes a date. Convert dates to strings.
    data = json.loads(json.dumps(data, default=str))
    # The TOML parser does not report positions.
    return data, lambda _: str(path)


def _check_toml(path: Path, text: str) -> None:
    """Raise `SpecError` if the text exceeds a limit.

    The parser needs memory in proportion to the square of the length of a dotted key, and it calls
    itself for each nested list.
    """
    brackets = key_parts = 0
    for token in _TOML_TOKEN.finditer(text):
        problem = None
        if token.lastgroup == "word":
            digits = token["word"].lstrip("+-").removeprefix("0x")
            if len(digits) > MAX_DIGITS and re.fullmatch("[0-9a-fA-F_]+", digits):
                problem = TOO_MANY_DIGITS
        elif token.lastgroup == "other":
            character = token["other"]
            if character in "\"'":
                return  # The string does not end. The parser reports this error.
            key_parts = key_parts + 1 if character == "." else 0
            if character in "[{":
                brackets += 1
            elif character in "]}":
                brackets -= 1
            if brackets > MAX_DEPTH or key_parts >= MAX_DEPTH:
                problem = TOO_DEEP
        if problem:
            line = text.count("\n", 0, token.start()) + 1
            column = token.start() - text.rfind("\n", 0, token.start())
            raise SpecError(f"{path}:{line}:{column}: {problem}")


def _toml_loads(path: Path) -> Callable[[str], dict[str, Any]]:
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    try:
        loads: Callable[[str], dict[str, Any]] = importlib.import_module(name).loads
    except ModuleNotFoundError as exc:
        raise SpecError(
            f"{path}: reading TOML on this version of Python needs the package {name!r}: "
            f"pip install {name}; or use YAML"
        ) from exc
    return loads


# --- YAML ---


# The beginning of a line such as `%TAG ! !x`. The parser compares each directive with all others.
_YAML_DIRECTIVE = re.compile("^%|[\n\x85\u2028\u2029]%")


def from_yaml(
    path: Path, text: str, is_text: IsText, tags: Mapping[str, FromTag] = MappingProxyType({})
) -> tuple[Any, Locator]:
    """Parse the contents of a YAML file. Return the data and a function that locates its values.

    The data is None if the file is empty. Values for which ``is_text`` returns true are read as
    text. ``tags`` contains the tags that the file can use in addition to those of YAML, and those
    of YAML whose values are converted if they are read as text. Raises `SpecError` if the text is
    not valid YAML, contains a duplicate key, a key that is not a scalar or another tag, or exceeds
    a limit.
    """
    reader = _Reader(text, is_text, tags)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if len(_YAML_DIRECTIVE.findall(text)) > MAX_DIRECTIVES:
        raise SpecError(f"{path}: more than {MAX_DIRECTIVES} lines begin with %")
    try:
        try:
            data = reader.read(loader)
        except _UnsupportedYaml:
            raise
        except yaml.YAMLError:
            # The libyaml loader is faster, but the Python loader produces better error messages. If
            # there is an error, the text is therefore parsed again with the Python loader.
            data = reader.read(yaml.SafeLoader)
    except _UnsupportedYaml as exc:
        raise SpecError(f"{_position(path, exc.problem_mark)}: {exc.problem}") from exc
    except yaml.MarkedYAMLError as exc:
        problem = ", ".join(part for part in (exc.context, exc.problem) if part)
        mark = exc.problem_mark or exc.context_mark
        cause = None
        if mark is not None:
            context_line = exc.context_mark.line if exc.context_mark else None
            cause = likely_cause(text, problem, mark.line, mark.column, context_line)
        hint = f"; {cause}" if cause else ""
        raise SpecError(f"{_position(path, mark)}: not YAML: {problem}{hint}") from exc
    except yaml.YAMLError as exc:
        raise SpecError(f"{path}: not YAML: {str(exc).splitlines()[0]}") from exc
    except RecursionError:
        raise SpecError(f"{path}: {TOO_DEEP}") from None
    return data, lambda document_path: _position(path, reader.nearest_mark(document_path))


def _check_yaml(text: str, loader: type[yaml.SafeLoader]) -> None:
    """Raise `_UnsupportedYaml` if the text exceeds a limit.

    This function only reads the parser's events, because the number of values can be exponential in
    the number of aliases.
    """
    # The number of values in each collection that has been opened but not closed, preceded by the
    # number of values in the document.
    counts = [0]
    open_anchors: list[str | None] = []
    values_by_anchor: dict[str, int] = {}
    for event in yaml.parse(text, loader):
        if isinstance(event, yaml.CollectionStartEvent):
            counts.append(1)
            open_anchors.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            values = counts.pop()
            counts[-1] += values
            anchor = open_anchors.pop()
            if anchor is not None:
                values_by_anchor[anchor] = values
        elif isinstance(event, yaml.AliasEvent):
            counts[-1] += values_by_anchor.get(str(event.anchor), 1)
        elif isinstance(event, yaml.ScalarEvent):
            counts[-1] += 1
        mark: Any = event.start_mark
        if len(counts) > MAX_DEPTH + 2:
            raise _UnsupportedYaml(problem=TOO_DEEP, problem_mark=mark)
        if counts[-1] > MAX_VALUES:
            raise _UnsupportedYaml(problem=TOO_MANY_VALUES, problem_mark=mark)


def _compose(
    text: str, loader_class: type[yaml.SafeLoader]
) -> tuple[yaml.SafeLoader, yaml.Node | None]:
    """Return a loader and the root node of the document, which is None if the document is empty.

    Raises `_UnsupportedYaml` if the text exceeds a limit.
    """
    # Without aliases, the limits can be checked while the nodes are created, so that the text is
    # parsed only once.
    has_no_alias = "*" not in text
    if has_no_alias:
        loader = _limited(loader_class)(text)
        with suppress(_LimitExceeded):
            return loader, loader.get_single_node()
    # This also finds the position of the value that exceeds a limit.
    _check_yaml(text, loader_class)
    loader = loader_class(text)
    return loader, loader.get_single_node()


class _LimitExceeded(Exception):
    """A document without aliases is nested too deeply or has too many values."""


def _limited(loader_class: type[yaml.SafeLoader]) -> type[yaml.SafeLoader]:
    """Return a subclass of a loader that raises `_LimitExceeded` before a node exceeds a limit.

    libyaml creates nodes recursively, and crashes if they are nested too deeply. All loaders call
    `descend_resolver` before they create a node, and `ascend_resolver` afterwards.
    """

    class LimitedLoader(loader_class):  # type: ignore[misc, valid-type]
        depth = values = 0

        def descend_resolver(self, *_: object) -> None:
            self.depth += 1
            self.values += 1
            if self.depth > MAX_DEPTH or self.values > MAX_VALUES:
                raise _LimitExceeded

        def ascend_resolver(self) -> None:
            self.depth -= 1

    return LimitedLoader


def _position(path: Path, mark: yaml.Mark | None) -> str:
    return f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)


class _UnsupportedYaml(yaml.MarkedYAMLError):
    """An error for YAML that is valid but that symphony does not accept."""


class _Reader:
    """A reader that parses a YAML document and records the position of each value."""

    def __init__(self, text: str, is_text: IsText, tags: Mapping[str, FromTag]) -> None:
        self._text = text
        self._is_text = is_text
        self._tags = tags
        self._marks: dict[DocumentPath, yaml.Mark] = {}

    def read(self, loader: type[yaml.SafeLoader]) -> Any:
        self._loader, root = _compose(self._text, loader)
        return None if root is None else self._plain_data(root, (), as_text=False)

    def nearest_mark(self, path: DocumentPath) -> yaml.Mark | None:
        """Return the position of the value at ``path``.

        If that position is unknown, return that of the nearest enclosing value.
        """
        while path and path not in self._marks:
            path = path[:-1]
        return self._marks.get(path)

    def _plain_data(self, node: yaml.Node, path: DocumentPath, *, as_text: bool) -> Any:
        self._marks.setdefault(path, node.start_mark)
        if len(path) > MAX_DEPTH:
            raise _UnsupportedYaml(
                problem=f"{TOO_DEEP}, or an alias that contains itself",
                problem_mark=node.start_mark,
            )
        if node.tag in _TEXT_TAGS:
            return node.value
        if node.tag not in self._loader.yaml_constructors:
            return self._tagged_data(node, path, as_text=as_text)
        return self._untagged_data(node, path, as_text=as_text)

    def _tagged_data(self, node: yaml.Node, path: DocumentPath, *, as_text: bool) -> Any:
        """Return the value of a node with a tag that is not part of YAML."""
        from_tag = self._tags.get(node.tag)
        if from_tag is None:
            raise _UnsupportedYaml(
                problem=f"the tag {node.tag} is not supported; remove it",
                problem_mark=node.start_mark,
            )
        is_null = isinstance(node, yaml.ScalarNode) and node.value in _NULL_TEXTS
        data = None if is_null else self._untagged_data(node, path, as_text=as_text)
        return from_tag(node.tag, data)

    def _untagged_data(self, node: yaml.Node, path: DocumentPath, *, as_text: bool) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._plain_mapping(node, path, as_text=as_text)
        if isinstance(node, yaml.SequenceNode):
            return [
                self._plain_data(item, (*path, index), as_text=as_text)
                for index, item in enumerate(node.value)
            ]
        # Timestamps remain text, so that the same data can be written as JSON.
        if node.tag == _TIMESTAMP_TAG or (as_text and node.tag != _NULL_TAG):
            from_tag = self._tags.get(node.tag)
            return node.value if from_tag is None else from_tag(node.tag, node.value)
        if node.tag == _INTEGER_TAG and len(node.value) > MAX_DIGITS:
            raise _UnsupportedYaml(problem=TOO_MANY_DIGITS, problem_mark=node.start_mark)
        if node.tag == _BINARY_TAG:
            raise _UnsupportedYaml(
                problem="binary data is not supported; write text", problem_mark=node.start_mark
            )
        try:
            return self._loader.construct_object(node, deep=True)
        except (ValueError, KeyError) as exc:
            # An explicit tag does not match the value, as in `!!int x`.
            raise yaml.MarkedYAMLError(
                problem=f"{node.value!r} does not match its tag", problem_mark=node.start_mark
            ) from exc

    def _plain_mapping(
        self, node: yaml.MappingNode, path: DocumentPath, *, as_text: bool
    ) -> dict[str, Any]:
        _merge(node)
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _key_text(key_node)
            value_path = (*path, key)
            self._marks[value_path] = key_node.start_mark
            result[key] = self._plain_data(
                value_node, value_path, as_text=self._is_text(path, key, as_text)
            )
        return result


def _merge(node: yaml.MappingNode) -> None:
    """Replace the keys ``<<`` of a mapping by the keys and values of the mappings that they name.

    A key of the mapping itself takes precedence. In a list of mappings, the first mapping with a
    key takes precedence, as in the definition of the merge key: https://yaml.org/type/merge.html.
    PyYAML is not used for this, because its versions differ in the order of precedence. Raises an
    error if a mapping contains a key twice.
    """
    _refuse_duplicate_keys(node)
    pairs: dict[str, tuple[yaml.Node, yaml.Node]] = {}
    own = []
    for key_node, value_node in node.value:
        if key_node.tag != _MERGE_TAG:
            own.append((key_node, value_node))
            continue
        for source in reversed(_merged_mappings(value_node)):
            _merge(source)
            pairs.update({_key_text(pair[0]): pair for pair in source.value})
    if len(own) < len(node.value):
        pairs.update({_key_text(pair[0]): pair for pair in own})
        # Aliases refer to the same node, which is read once for each of them.
        node.value = list(pairs.values())


def _merged_mappings(node: yaml.Node) -> list[yaml.MappingNode]:
    """Return the mappings in the value of a key ``<<``, which is a mapping or a list of them."""
    items: list[yaml.Node] = node.value if isinstance(node, yaml.SequenceNode) else [node]
    mappings = []
    for item in items:
        if not isinstance(item, yaml.MappingNode):
            raise yaml.MarkedYAMLError(
                problem="the value of << is not a mapping or a list of mappings",
                problem_mark=item.start_mark,
            )
        mappings.append(item)
    return mappings


def _refuse_duplicate_keys(node: yaml.MappingNode) -> None:
    keys: set[str] = set()
    for key_node, _ in node.value:
        key = _key_text(key_node)
        # A mapping can contain the key `<<` several times, to merge several other mappings.
        if key in keys and key != "<<":
            raise yaml.MarkedYAMLError(
                problem=f"duplicate key {key!r}", problem_mark=key_node.start_mark
            )
        keys.add(key)


def _key_text(node: yaml.Node) -> str:
    """Return a key as it is written in the file.

    Raises an error if the key is a mapping or a list. YAML reads a template placeholder such as
    ``{{ name }}`` as a mapping.
    """
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    kind = "a mapping" if isinstance(node, yaml.MappingNode) else "a list"
    raise _UnsupportedYaml(
        problem=f"a key must be text, not {kind}; put '{{{{ ... }}}}' in quotes",
        problem_mark=node.start_mark,
    )
