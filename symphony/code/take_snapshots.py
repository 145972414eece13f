"""Taking the snapshots of the code of an experiment, each directory once in a command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.code.snapshot import CodeArchive, CodeProgress
from symphony.model.settings.code import CodeSource, code_source

if TYPE_CHECKING:
    from symphony.model import Experiment


@dataclass(slots=True)
class _Command:
    """The archives that one command has packed, and the function that shows its progress."""

    progress: CodeProgress | None = None
    packed: dict[tuple[Path, CodeSource], CodeArchive] = field(default_factory=dict)


_command: ContextVar[_Command | None] = ContextVar("_command", default=None)


@contextlib.contextmanager
def packing_once(progress: CodeProgress | None = None) -> Iterator[None]:
    """Let `take_snapshots` pack each directory only once inside the block.

    A command that compares an experiment before it changes it then uses the same code for both. An
    inner block belongs to the outer one. ``progress`` is called while large code is packed or sent.
    """
    if _command.get() is not None:
        yield
        return
    token = _command.set(_Command(progress))
    try:
        yield
    finally:
        _command.reset(token)


def code_progress() -> CodeProgress:
    """Return the function that shows the progress of the command that is running."""
    command = _command.get()
    if command is None or command.progress is None:
        return lambda _what, _done, _total: None
    return command.progress


def take_snapshots(experiment: Experiment) -> dict[str, CodeArchive]:
    """Return the archives of the code of all processes that have code, by their names.

    The code is that of `Experiment.recorded_code`, or else the present one. Raises `SpecError` if a
    directory does not exist or contains too much, and `BackendError` if a file cannot be read.
    """
    base = experiment.base_dir or Path.cwd()
    packed = (_command.get() or _Command()).packed
    result = {}
    for process in experiment.list_all_processes():
        source = code_source(process)
        if source is None:
            continue
        if process.name in experiment.recorded_code:
            result[process.name] = experiment.recorded_code[process.name]
            continue
        key = (base / source.path, source)
        if key not in packed:
            # Most experiments have no code.
            from symphony.code.pack import pack

            packed[key] = pack(*key, code_progress())
        result[process.name] = packed[key]
    return result
