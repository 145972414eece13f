"""Parts of experiment files in the documentation that no command of a page uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

from symphony import Experiment
from symphony.model.document.load import EXPERIMENT_KEYS
from symphony.model.document_path import REPLICA_KEYS
from symphony.model.experiment.process import PROCESS_OPTIONS
from symphony.model.settings.table import SETTINGS

from .runner import ROOT, page_names, read_page

PROCESS_KEYS = {*PROCESS_OPTIONS, *SETTINGS, *REPLICA_KEYS}
_PARAMETER = re.compile(r"(?<!\$)\$\{(?!index\}|group_index\})(\w+)\}")


def file_of(text: str) -> str | None:
    """Return an experiment file that contains a fragment, or None if the text is not a fragment of
    an experiment file.

    A fragment contains keys of a process or of an experiment.
    """
    try:
        fragment = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    # A text in braces describes the form of a value, and dots stand for omitted parts.
    is_mapping = isinstance(fragment, dict) and not text.startswith("{") and "..." not in text
    if not is_mapping or not fragment.keys() <= {*PROCESS_KEYS, *EXPERIMENT_KEYS}:
        return None
    parts = []
    if "name" not in fragment:
        parts.append("name: e")
    parameters = _PARAMETER.findall(text)
    if parameters and "parameters" not in fragment:
        parts.append(f"parameters: {dict.fromkeys(parameters, 1)}")
    if fragment.keys() <= PROCESS_KEYS:
        lines = text.splitlines()
        if not fragment.keys() & {"command", "cmd", "cmds"}:
            lines.append("command: c")
        if "${index}" in text and not fragment.keys() & set(REPLICA_KEYS):
            lines.append("replicas: 2")
        parts += ["processes:", "  p:", *(f"    {line}" for line in lines)]
    else:
        parts.append(text)
        if "processes" not in fragment:
            parts.append("processes: {p: {command: c}}")
    return "\n".join(parts)


def inline_codes(text: str) -> Iterator[str]:
    """Yield the inline code of a page, also that in tables."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        for child in token.children or ():
            if child.type == "code_inline":
                yield child.content


def unused_blocks(name: str) -> Iterator[str]:
    """Yield the YAML blocks of a page that no command of the page uses."""
    blocks = read_page(name).blocks
    commands = " ".join(command.text for block in blocks for command in block.commands)
    for block in blocks:
        is_used = bool(block.title) and block.title in commands
        if block.language == "yaml" and not block.excerpt and not is_used:
            yield block.text


@pytest.mark.parametrize("name", page_names())
def test_parts_of_experiment_files_are_valid(name: str, tmp_path: Path) -> None:
    texts = [*inline_codes((ROOT / name).read_text(encoding="utf-8")), *unused_blocks(name)]
    for text in texts:
        file = file_of(text)
        if file is not None:
            try:
                load(file, tmp_path)
            except ValueError as exc:
                pytest.fail(f"{name}: {text!r}: {exc}", pytrace=False)


def test_inline_code_is_loaded(tmp_path: Path) -> None:
    text = """Write `name: ...`, or `binds: {a: "80${index}"}`."""
    (file,) = filter(None, map(file_of, inline_codes(text)))
    processes = load(file, tmp_path).list_all_processes()
    assert [process.settings.binds for process in processes] == [{"a": 800}, {"a": 801}]


def load(file: str, directory: Path) -> Experiment:
    path = directory / "e.yml"
    path.write_text(file, encoding="utf-8")
    return Experiment.load_file(path)
