"""Reading and writing experiments as YAML or JSON files.

In YAML, values that become arguments or variables are read as text: ``yes`` stays ``yes`` and
``010`` stays ``010``. Every error names the file and, if known, the line and the column.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from symphony.errors import NotFound, SpecError, SymphonyError, unusable_path_errors, with_filename
from symphony.model.document.documents import (
    Locator,
    from_json,
    from_yaml,
    read_text,
    with_position,
)
from symphony.model.document.load import LoadResult, load_experiment
from symphony.model.document.text_values import is_text
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.model.experiment.experiment import Experiment

LINE_WIDTH = 100
_TEXT_TAG = "tag:yaml.org,2002:str"


def load(
    experiment_class: type[Experiment],
    path: Path,
    parameters: Mapping[str, object] | None = None,
    *,
    default_name: str | None = None,
) -> LoadResult:
    """Read an experiment. Relative paths in the file are resolved against the file's directory.

    ``parameters`` contains the values of declared parameters. The value of any other parameter
    comes from the environment or, if it is not set there, from its default in the file.
    ``default_name`` is the name of the experiment if the file contains none. Raises `NotFound` or
    `SpecError` if the file cannot be read or parsed; the result contains all other errors.
    """
    data, locate = _parser(path)(path, _read_experiment_file(path))
    result = load_experiment(experiment_class, data, parameters, default_name=default_name)
    if result.experiment is not None:
        file = absolute_path(path)
        result.experiment.base_dir = file.parent
        result.experiment.file = file
    errors = [with_position(error, locate) for error in result.errors]
    return LoadResult(result.experiment, errors)


def absolute_path(path: Path) -> Path:
    """Return the absolute path of a file without ``..``, so that it is the same in commands from
    all directories.

    Links are kept, except if ``..`` follows a link to a directory.
    """
    absolute = path.absolute()
    normal = Path(os.path.normpath(absolute))
    is_same = normal == absolute or (normal.exists() and normal.samefile(absolute))
    return normal if is_same else absolute.resolve()


def is_experiment(path: Path) -> bool:
    """Return whether a YAML file contains an experiment: a mapping with a name and processes.

    A file with these words that cannot be parsed counts as an experiment, so that its errors are
    reported.
    """
    try:
        text = read_text(path)
        if "name" not in text or "processes" not in text:
            return False
    except SymphonyError:
        return False
    try:
        data, _ = from_yaml(path, text, is_text)
    except SymphonyError:
        return True
    return isinstance(data, dict) and {"name", "processes"} <= data.keys()


def write(data: dict[str, Any], path: Path) -> None:
    """Write the result of `Experiment.dump_dict` as JSON or YAML, depending on the file name."""
    if _is_json(path):
        text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    else:
        text = to_yaml(data)
    with with_filename(path), unusable_path_errors(path, "written"):
        path.write_text(text, encoding="utf-8")


def to_yaml(data: Any) -> str:
    """Return plain data as YAML, with the keys in their original order."""
    return _dump([data], _Dumper)


def to_yaml_documents(documents: Iterable[Any]) -> str:
    """Return plain data as several YAML documents, each of which begins with ``---``."""
    return _dump(list(documents), _FastDumper, explicit_start=True)


def _dump(documents: Sequence[Any], dumper: Any, **options: Any) -> str:
    """Return documents as YAML.

    YAML regards some characters as printable that can control a terminal or reorder the text, such
    as U+202E. If the text contains such a character, all characters other than ASCII are escaped.
    """
    for allow_unicode in (True, False):
        text: str = yaml.dump_all(
            documents,
            Dumper=dumper,
            sort_keys=False,
            allow_unicode=allow_unicode,
            width=LINE_WIDTH,
            **options,
        )
        if text.replace("\n", "").replace("\t", "").isprintable():
            break
    return text


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


def _experiment_from_yaml(path: Path, text: str) -> tuple[Any, Locator]:
    data, locate = from_yaml(path, text, is_text)
    if data is None:
        raise SpecError(f"{path}: the file is empty; an experiment needs name: and processes:")
    return data, locate


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
