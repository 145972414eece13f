"""Reading and writing experiments as YAML or JSON files.

In YAML, values that become arguments or variables are read as text: ``yes`` stays ``yes`` and
``010`` stays ``010``. Every error names the file and, if known, the line and the column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from symphony.errors import NotFound, SpecError, with_filename
from symphony.model.document_path import DocumentPath, is_text
from symphony.model.load import LoadResult, load_experiment
from symphony.names import join_names

if TYPE_CHECKING:
    from symphony.model.experiment import Experiment

MAX_DEPTH = 100
LINE_WIDTH = 100
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
_NULL_TAG = "tag:yaml.org,2002:null"
_TEXT_TAG = "tag:yaml.org,2002:str"
_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"

# A function that returns the position of a value as `file:line:column`, or only the file if the
# line is not known.
Locator = Callable[[DocumentPath], str]
# A function that returns whether a value is read as text; see
# `symphony.model.document_path.is_text`.
IsText = Callable[[DocumentPath, str, bool], bool]


def load(
    experiment_class: type[Experiment], path: Path, parameters: Mapping[str, object] | None = None
) -> LoadResult:
    """Read an experiment. Relative paths in the file are resolved against the file's directory.

    ``parameters`` contains the values of declared parameters. The value of any other parameter
    comes from the environment or, if it is not set there, from its default in the file. Raises
    `NotFound` or `SpecError` if the file cannot be read or parsed; the result contains all other
    errors.
    """
    data, locate = _parser(path)(path, _read_experiment_file(path))
    result = load_experiment(experiment_class, data, parameters)
    if result.experiment is not None:
        result.experiment.base_dir = path.absolute().parent
    errors = [_with_position(error, locate) for error in result.errors]
    return LoadResult(result.experiment, errors)


@contextmanager
def errors_with_position(locate: Locator) -> Iterator[None]:
    """Add the position in a file to a `SpecError` that is raised in the ``with`` block."""
    try:
        yield
    except SpecError as exc:
        raise _with_position(exc, locate) from exc


def _with_position(error: SpecError, locate: Locator) -> SpecError:
    dotted_path = ".".join(map(str, error.path))
    location = (
        f"{locate(error.path)}: {dotted_path}: " if dotted_path else f"{locate(error.path)}: "
    )
    located = SpecError(f"{location}{error}", path=error.path)
    located.__cause__ = error
    return located


def write(data: dict[str, Any], path: Path) -> None:
    """Write the result of `Experiment.dump_dict` as JSON or YAML, depending on the file name."""
    if _is_json(path):
        text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    else:
        text = to_yaml(data)
    with with_filename(path):
        path.write_text(text, encoding="utf-8")


def to_yaml(data: Any) -> str:
    """Return plain data as YAML, with the keys in their original order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=LINE_WIDTH)


def to_yaml_documents(documents: Iterable[Any]) -> str:
    """Return plain data as several YAML documents, each of which begins with ``---``."""
    return yaml.dump_all(
        documents,
        Dumper=_FastDumper,
        explicit_start=True,
        sort_keys=False,
        allow_unicode=True,
        width=LINE_WIDTH,
    )


def _read_experiment_file(path: Path) -> str:
    try:
        return read_text(path)
    except NotFound as exc:
        hint = ""
        if path.parent.is_dir():
            neighbours = sorted(item.name for item in path.parent.glob("*.y*ml"))
            if neighbours:
                hint = f"; files in this directory: {join_names(neighbours)}"
        raise NotFound(f"{exc}{hint}") from None


def read_text(path: Path) -> str:
    """Return the contents of a text file.

    Raises `NotFound` if there is no such file, and `SpecError` if the file cannot be read as UTF-8
    text. The error messages contain the file name.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file") from None
    except UnicodeDecodeError as exc:
        raise SpecError(f"{path}: not UTF-8 text (byte {exc.start}); save it as UTF-8") from exc
    except OSError as exc:
        raise SpecError(f"{path}: cannot be read: {exc.strerror}") from exc


def _parser(path: Path) -> Callable[[Path, str], tuple[Any, Locator]]:
    if _is_json(path):
        return from_json
    if path.suffix in {".yml", ".yaml"}:
        return _experiment_from_yaml
    raise SpecError(
        f"{path}: the name of an experiment file must end with .yml, .yaml or .json, "
        f"not {path.suffix or 'nothing'!r}"
    )


def _is_json(path: Path) -> bool:
    return path.suffix == ".json"


# --- JSON ---


def from_json(path: Path, text: str) -> tuple[Any, Locator]:
    """Parse the contents of a JSON file. Return the data and a function that locates its values.

    Raises `SpecError` if the text is not valid JSON, contains a duplicate key, or is nested too
    deeply.
    """

    def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise SpecError(f"{path}: duplicate key {key!r}")
            result[key] = value
        return result

    try:
        data = json.loads(text, object_pairs_hook=without_duplicates)
    except json.JSONDecodeError as exc:
        raise SpecError(f"{path}:{exc.lineno}:{exc.colno}: not JSON: {exc.msg}") from exc
    except RecursionError:
        raise SpecError(f"{path}: {_TOO_DEEP}") from None
    if _is_too_deep(data):
        raise SpecError(f"{path}: {_TOO_DEEP}")
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


# --- YAML ---


def _experiment_from_yaml(path: Path, text: str) -> tuple[Any, Locator]:
    data, locate = from_yaml(path, text, is_text)
    if data is None:
        raise SpecError(f"{path}: the file is empty; an experiment needs name: and processes:")
    return data, locate


def from_yaml(path: Path, text: str, is_text: IsText) -> tuple[Any, Locator]:
    """Parse the contents of a YAML file. Return the data and a function that locates its values.

    The data is None if the file is empty. Values for which ``is_text`` returns true are read as
    text. Raises `SpecError` if the text is not valid YAML, contains a duplicate key or a key that
    is not a scalar, or is nested too deeply.
    """
    reader = _Reader(text, is_text)
    try:
        try:
            data = reader.read(getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError:
            # The libyaml loader is faster, but the Python loader produces better error messages. If
            # there is an error, the text is therefore parsed again with the Python loader.
            data = reader.read(yaml.SafeLoader)
    except _UnsupportedYaml as exc:
        raise SpecError(f"{_position(path, exc.problem_mark)}: {exc.problem}") from exc
    except yaml.MarkedYAMLError as exc:
        problem = ", ".join(part for part in (exc.context, exc.problem) if part)
        position = _position(path, exc.problem_mark or exc.context_mark)
        raise SpecError(f"{position}: not YAML: {problem}") from exc
    except yaml.YAMLError as exc:
        raise SpecError(f"{path}: not YAML: {str(exc).splitlines()[0]}") from exc
    except RecursionError:
        raise SpecError(f"{path}: {_TOO_DEEP}") from None
    return data, lambda document_path: _position(path, reader.nearest_mark(document_path))


def _position(path: Path, mark: yaml.Mark | None) -> str:
    return f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)


class _UnsupportedYaml(yaml.MarkedYAMLError):
    """An error for YAML that is valid but that an experiment file must not contain."""


class _Reader:
    """A reader that parses a YAML document and records the position of each value."""

    def __init__(self, text: str, is_text: IsText) -> None:
        self._text = text
        self._is_text = is_text
        self._marks: dict[DocumentPath, yaml.Mark] = {}

    def read(self, loader: type[yaml.SafeLoader]) -> Any:
        self._loader = loader(self._text)
        root = self._loader.get_single_node()
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
                problem=f"{_TOO_DEEP}, or an alias that contains itself",
                problem_mark=node.start_mark,
            )
        if isinstance(node, yaml.MappingNode):
            return self._plain_mapping(node, path, as_text=as_text)
        if isinstance(node, yaml.SequenceNode):
            return [
                self._plain_data(item, (*path, index), as_text=as_text)
                for index, item in enumerate(node.value)
            ]
        # Timestamps remain text, so that the same data can be written as JSON.
        if node.tag == _TIMESTAMP_TAG or (as_text and node.tag != _NULL_TAG):
            return node.value
        return self._loader.construct_object(node, deep=True)

    def _plain_mapping(
        self, node: yaml.MappingNode, path: DocumentPath, *, as_text: bool
    ) -> dict[str, Any]:
        _refuse_duplicate_keys(node)
        self._loader.flatten_mapping(node)
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _key_text(key_node)
            value_path = (*path, key)
            self._marks[value_path] = key_node.start_mark
            result[key] = self._plain_data(
                value_node, value_path, as_text=self._is_text(path, key, as_text)
            )
        return result


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


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that indents lists and does not use anchors or aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)


# When PyYAML folds text, it loses these Unicode line breaks unless they are escaped.
_UNICODE_LINE_BREAKS = {"\x85", "\u2028", "\u2029"}


def _text_style(text: str) -> str | None:
    return None if _UNICODE_LINE_BREAKS.isdisjoint(text) else '"'


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar(_TEXT_TAG, text, _text_style(text))


_Dumper.add_representer(str, _represent_text)


_FastestDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# Text that a YAML block scalar can contain without changes. It has several lines, and the first
# line is not indented.
_BLOCK_TEXT = re.compile(r"[!-~][\t\n -~]*\n[\t\n -~]*")
# Text that every YAML parser reads as a string. Some parsers read `y` as a boolean and `1e3` as a
# number.
_UNAMBIGUOUS_TEXT = re.compile(
    r"(?!(y|n|yes|no|on|off|true|false|null)$)(--?|\./)?[a-z/_]", re.IGNORECASE
)


class _FastDumper(_FastestDumper):  # type: ignore[misc]
    """A YAML dumper that uses libyaml if it is installed, and quotes ambiguous strings."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True

    def represent_data(self, data: Any) -> yaml.Node:
        """Return the YAML node for a value. Most values are strings and need no further
        analysis.
        """
        if type(data) is str:
            return yaml.ScalarNode(_TEXT_TAG, data, style=_unambiguous_style(data))
        node: yaml.Node = super().represent_data(data)
        return node


def _unambiguous_style(text: str) -> str | None:
    """Return the style (plain, quoted or block) in which every parser reads ``text`` as a
    string.
    """
    if "\n" in text and _BLOCK_TEXT.fullmatch(text):
        return "|"
    if not text.isascii():
        return _text_style(text)
    return None if _UNAMBIGUOUS_TEXT.match(text) else "'"
