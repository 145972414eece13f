"""Experiments in files: YAML or JSON in, YAML or JSON out.

In YAML, what becomes an argument or a variable is taken as it is written: ``yes`` stays ``yes``, ``010`` stays
``010``. Every error names the file, and the line and column where YAML tells them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from symphony.errors import NotFound, SpecError, with_filename
from symphony.model.document_path import Place, is_text
from symphony.model.experiment import Experiment
from symphony.model.load import experiment
from symphony.names import join_names

_NULL, _DATE = "tag:yaml.org,2002:null", "tag:yaml.org,2002:timestamp"

# How many levels a file may have.
_DEEPEST = 100
_TOO_DEEP = f"nested more than {_DEEPEST} deep"

Where = Callable[[Place], str]
IsText = Callable[[Place, str, bool], bool]


def load(path: Path, parameters: Mapping[str, object] | None = None) -> Experiment:
    """Read an experiment; relative paths in it are relative to the folder of the file.

    ``parameters`` are values of those that the file declares, over the environment and the file's own.
    """
    data, where = _reader(path)(path, _read(path))
    with told(where):
        result = experiment(data, parameters)
    result.base_dir = path.absolute().parent
    return result


@contextmanager
def told(where: Where) -> Iterator[None]:
    """Tell, of every `SpecError` that passes, where in a file it is."""
    try:
        yield
    except SpecError as exc:
        raise SpecError(f"{where(exc.path)}: {_dotted(exc.path)}{exc}", path=exc.path) from exc


def write(data: dict[str, Any], path: Path) -> None:
    """Write an experiment's dump in the form that the file's name asks for."""
    if _is_json(path):
        written = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    else:
        written = to_yaml(data)
    with with_filename(path):
        path.write_text(written, encoding="utf-8")


def to_yaml(data: Any) -> str:
    """Plain data as YAML in the order in which it stands."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def to_yaml_documents(documents: Iterable[Any]) -> str:
    """Plain data as several YAML documents, each begun by ``---``."""
    return yaml.dump_all(
        documents,
        Dumper=_QuickDumper,
        explicit_start=True,
        sort_keys=False,
        allow_unicode=True,
        width=100,
    )


def _read(path: Path) -> str:
    try:
        return read_text(path)
    except NotFound as exc:
        beside = (
            sorted(item.name for item in path.parent.glob("*.y*ml")) if path.parent.is_dir() else []
        )
        hint = f"; beside it: {join_names(beside)}" if beside else ""
        raise NotFound(f"{exc}{hint}") from None


def read_text(path: Path) -> str:
    """A file as text, or a `NotFound` or `SpecError` that names it."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file") from None
    except UnicodeDecodeError as exc:
        raise SpecError(f"{path}: not UTF-8 text (byte {exc.start}); save it as UTF-8") from exc
    except OSError as exc:
        raise SpecError(f"{path}: cannot be read: {exc.strerror}") from exc


def _reader(path: Path) -> Callable[[Path, str], tuple[Any, Where]]:
    if _is_json(path):
        return from_json
    if path.suffix in {".yml", ".yaml"}:
        return _experiment_from_yaml
    raise SpecError(
        f"{path}: an experiment's file ends in .yml, .yaml or .json, not {path.suffix or 'nothing'!r}"
    )


def _is_json(path: Path) -> bool:
    return path.suffix == ".json"


def _dotted(path: Place) -> str:
    return f"{'.'.join(map(str, path))}: " if path else ""


# --- JSON ---


def from_json(path: Path, text: str) -> tuple[Any, Where]:
    """What a JSON file says, and where it says it. Raises `SpecError`."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            keys = [key for key, _ in pairs]
            raise SpecError(
                f"{path}: a key stands twice: {next(key for key in keys if keys.count(key) > 1)!r}"
            )
        return result

    try:
        data = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as exc:
        raise SpecError(f"{path}:{exc.lineno}:{exc.colno}: not JSON: {exc.msg}") from exc
    except RecursionError:
        raise SpecError(f"{path}: {_TOO_DEEP}") from None
    if _is_deep(data):
        raise SpecError(f"{path}: {_TOO_DEEP}")
    return data, lambda _: str(path)


def _is_deep(data: Any) -> bool:
    """Whether plain data has more levels than a file may have."""
    level = [data]
    for _ in range(_DEEPEST + 1):
        level = [item for node in level for item in _inside(node)]
    return bool(level)


def _inside(node: Any) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


# --- YAML ---


def _experiment_from_yaml(path: Path, text: str) -> tuple[Any, Where]:
    data, where = from_yaml(path, text, is_text)
    if data is None:
        raise SpecError(
            f"{path}: the file is empty; an experiment begins with name: and processes:"
        )
    return data, where


def from_yaml(path: Path, text: str, is_text: IsText) -> tuple[Any, Where]:
    """What a YAML file says, None where it is empty, and where it says it. Raises `SpecError`.

    What stands where ``is_text`` says so is taken as it is written.
    """
    reading = _Reading(text, is_text)
    try:
        try:
            data = reading.data(getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError:  # libyaml is quick, PyYAML's own loader says better what is wrong
            data = reading.data(yaml.SafeLoader)
    except _Unwanted as exc:
        raise SpecError(f"{_position(path, exc.problem_mark)}: {exc.problem}") from exc
    except yaml.MarkedYAMLError as exc:
        what = ", ".join(part for part in (exc.context, exc.problem) if part)
        raise SpecError(
            f"{_position(path, exc.problem_mark or exc.context_mark)}: not YAML: {what}"
        ) from exc
    except yaml.YAMLError as exc:
        raise SpecError(f"{path}: not YAML: {str(exc).splitlines()[0]}") from exc
    except RecursionError:
        raise SpecError(f"{path}: {_TOO_DEEP}") from None
    return data, lambda place: _position(path, reading.nearest(place))


def _position(path: Path, mark: yaml.Mark | None) -> str:
    return f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)


class _Unwanted(yaml.MarkedYAMLError):
    """What is YAML, and yet no part of a file of ours."""


class _Reading:
    """One pass over a YAML document that keeps where each part of it stands."""

    def __init__(self, text: str, is_text: IsText) -> None:
        self._text = text
        self._is_text = is_text
        self._marks: dict[Place, yaml.Mark] = {}

    def data(self, loader: type[yaml.SafeLoader]) -> Any:
        self._loader = loader(self._text)
        root = self._loader.get_single_node()
        return None if root is None else self._plain(root, (), as_text=False)

    def nearest(self, place: Place) -> yaml.Mark | None:
        """Where ``place`` stands, or what is around it."""
        while place and place not in self._marks:
            place = place[:-1]
        return self._marks.get(place)

    def _plain(self, node: yaml.Node, place: Place, *, as_text: bool) -> Any:
        self._marks.setdefault(place, node.start_mark)
        if len(place) > _DEEPEST:
            raise _Unwanted(
                problem=f"{_TOO_DEEP}, or an alias that contains itself",
                problem_mark=node.start_mark,
            )
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place, as_text=as_text)
        if isinstance(node, yaml.SequenceNode):
            return [
                self._plain(item, (*place, index), as_text=as_text)
                for index, item in enumerate(node.value)
            ]
        if node.tag == _DATE or (as_text and node.tag != _NULL):  # JSON knows no dates
            return node.value
        return self._loader.construct_object(node, deep=True)

    def _mapping(self, node: yaml.MappingNode, place: Place, *, as_text: bool) -> dict[str, Any]:
        _refuse_twins(node)
        self._loader.flatten_mapping(node)
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _key(key_node)
            below = (*place, key)
            self._marks[below] = key_node.start_mark
            result[key] = self._plain(value_node, below, as_text=self._is_text(place, key, as_text))
        return result


def _refuse_twins(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key_node, _ in node.value:
        key = _key(key_node)
        if key in seen and key != "<<":
            raise yaml.MarkedYAMLError(
                problem=f"the key {key!r} stands twice", problem_mark=key_node.start_mark
            )
        seen.add(key)


def _key(node: yaml.Node) -> str:
    """A key as it is written. The placeholder of a template, ``{{ name }}``, is a mapping to YAML."""
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    what = "a mapping" if isinstance(node, yaml.MappingNode) else "a list"
    raise _Unwanted(
        problem=f"a key is text, not {what}; quote '{{{{ ... }}}}'", problem_mark=node.start_mark
    )


_TEXT = "tag:yaml.org,2002:str"


class _Dumper(yaml.SafeDumper):
    """Writes indented lists and repeats what is equal instead of naming it, as people write YAML."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text_style(text: str) -> str | None:
    # Line breaks that only Unicode knows: PyYAML folds them away unless they are escaped.
    return '"' if not {"\x85", "\u2028", "\u2029"}.isdisjoint(text) else None


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar(_TEXT, text, _text_style(text))


_Dumper.add_representer(str, _text_node)


_Quick: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# What a block can hold as it is: several lines, none of them indented first, and no line break but the newline.
_BLOCK = re.compile(r"[!-~][\t\n -~]*\n[\t\n -~]*")
# What is text for every reader of YAML: for some, y and 1e3 are none.
_SURE = re.compile(r"(?!(y|n|yes|no|on|off|true|false|null)$)(--?|\./)?[a-z/_]", re.IGNORECASE)


class _QuickDumper(_Quick):  # type: ignore[misc]
    """Writes by libyaml, where it is there, repeats what is equal instead of naming it, and quotes when in doubt."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_data(self, data: Any) -> yaml.Node:
        """The node of anything; of text, which most of it is, at once."""
        if type(data) is str:
            return yaml.ScalarNode(_TEXT, data, style=_sure_style(data))
        node: yaml.Node = super().represent_data(data)
        return node


def _sure_style(text: str) -> str | None:
    """How text is written so that it is text for every reader: as it is, quoted, or as a block."""
    if "\n" in text and _BLOCK.fullmatch(text):
        return "|"
    if not text.isascii():
        return _text_style(text)
    return None if _SURE.match(text) else "'"
