"""Snapshots of code: their digests and their archives.

The archive is a tar archive that gzip has compressed. The digest is that of the tar archive, so it
depends only on the names, modes and contents of the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.model.settings.code import CodeSource, code_source

if TYPE_CHECKING:
    from symphony.model import Experiment

SHORT_DIGEST_LENGTH = 12
ARCHIVE_SUFFIX = ".tar.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSnapshot:
    """The description of a snapshot.

    ``source`` is the absolute path of the directory, or of the archive of an earlier snapshot.
    ``digest`` identifies the contents. ``files`` is the number of files, and ``size`` and
    ``packed_size`` are in bytes.
    """

    source: str
    digest: str
    files: int
    size: int
    packed_size: int

    @property
    def short_digest(self) -> str:
        """The first characters of the digest."""
        return self.digest[:SHORT_DIGEST_LENGTH]

    def __str__(self) -> str:
        count = f"{self.files} file" if self.files == 1 else f"{self.files} files"
        sizes = f"{size_text(self.size)}, {size_text(self.packed_size)} compressed"
        return f"{self.short_digest} ({count}, {sizes})"

    def to_dict(self) -> dict[str, Any]:
        """Return the description as a dictionary of JSON-serializable values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CodeSnapshot:
        """Create a description from the output of `to_dict`."""
        return cls(**data)


@dataclass(frozen=True, slots=True)
class CodeArchive:
    """A snapshot and its compressed archive."""

    snapshot: CodeSnapshot
    data: bytes


# Maps the names of processes to the archives of their code.
CodeArchives = Mapping[str, CodeArchive]


# Called with what was done, such as ``packed``, with the number of bytes, and with their total.
CodeProgress = Callable[[str, int, int], None]


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

            packed[key] = pack(*key)
        result[process.name] = packed[key]
    return result


def size_text(size: int) -> str:
    """Return a number of bytes as text.

    >>> size_text(500), size_text(300_000), size_text(5_000_000)
    ('500 B', '293.0 KiB', '4.8 MiB')
    """
    if size < 2**10:
        return f"{size} B"
    if size < 2**20:
        return f"{size / 2**10:.1f} KiB"
    return f"{size / 2**20:.1f} MiB"
