"""Reading what processes wrote: whole, from the end, since a time, and as it comes.

A process writes straight into its file, so a file has no times in it. The supervisor notes beside it how long
it was at which time, at most once a second and only while it grows: what was written before a note was there
by that time. ``since`` and the order between processes are therefore right to about a second.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.host.run.directory import RunDirectory
from symphony.status import LogLine

if TYPE_CHECKING:
    from symphony.host.inotify import Watch

LOOK_EVERY = 0.02
_CHUNK = 1 << 18

Note = tuple[float, int]


def notes(run: RunDirectory, process: str) -> list[Note]:
    """``(time, length)`` of a log, in order."""
    try:
        written = run.when(process).read_text()
    except FileNotFoundError:
        return []
    pairs = (line.split() for line in written.splitlines())
    return [(float(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2]


def start_of(run: RunDirectory, process: str, since: float | None, tail: int | None) -> int:
    """Where reading a log begins, in bytes."""
    start = 0
    if since is not None:
        start = line_start(
            run.log(process),
            max((length for at, length in notes(run, process) if at <= since), default=0),
        )
    if tail is not None:
        start = max(start, tail_start(run.log(process), tail))
    return start


def line_start(path: Path, offset: int) -> int:
    """Where the line begins in which ``offset`` stands: a note may have been taken in the middle of one."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return offset
    with file:
        while offset > 0:
            step = min(_CHUNK, offset)
            file.seek(offset - step)
            block = file.read(step)
            if b"\n" in block:
                return offset - step + block.rindex(b"\n") + 1
            offset -= step
    return 0


def tail_start(path: Path, lines: int) -> int:
    """Where the last ``lines`` lines of a file begin, in bytes; an unfinished last line counts."""
    if lines <= 0:
        return path.stat().st_size if path.exists() else 0
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        end = position = file.seek(0, 2)
        wanted = lines
        while position > 0:
            step = min(_CHUNK, position)
            position -= step
            file.seek(position)
            block = file.read(step)
            if position + step == end and block.endswith(b"\n"):
                wanted += 1
            breaks = block.count(b"\n")
            if breaks >= wanted:
                return position + _nth_last(block, wanted) + 1
            wanted -= breaks
    return 0


def _nth_last(block: bytes, count: int) -> int:
    """Where the ``count``-th newline from the end of ``block`` is."""
    index = len(block)
    for _ in range(count):
        index = block.rindex(b"\n", 0, index)
    return index


def read(
    run: RunDirectory, process: str, *, since: float | None = None, tail: int | None = None
) -> str:
    """What a process wrote, as text (bytes that are not UTF-8 are replaced)."""
    try:
        file = run.log(process).open("rb")
    except FileNotFoundError:
        return ""
    with file:
        file.seek(start_of(run, process, since, tail))
        return file.read().decode(errors="replace")


class Tail:
    """The lines of one log, from a place on, as they come."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path = path
        self.offset = start
        self._rest = b""

    def more(self, limit: int | None = None) -> list[str]:
        """Whole lines that were written since the last call, up to the byte ``limit``."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            file.seek(self.offset)
            data = file.read(-1 if limit is None else max(0, limit - self.offset))
        if not data:
            return []
        self.offset += len(data)
        whole, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._rest += data
            return []
        text = (self._rest + whole).decode(errors="replace")
        self._rest = rest
        return text.split("\n")

    def last(self) -> list[str]:
        """What stands after the last newline, when nothing more will come."""
        rest, self._rest = self._rest, b""
        return [rest.decode(errors="replace")] if rest else []


def merged(
    run: RunDirectory,
    processes: Sequence[str],
    *,
    since: float | None = None,
    tail: int | None = None,
) -> tuple[list[LogLine], dict[str, Tail]]:
    """The lines so far of several logs in the order of time, and where each log was left."""
    tails = {name: Tail(run.log(name), start_of(run, name, since, tail)) for name in processes}
    pieces: list[tuple[float, int, list[LogLine]]] = []
    for index, (name, log) in enumerate(tails.items()):
        latest = 0.0  # whatever the clock says, and to whatever it was rounded, one log is in order
        for at, length in [*notes(run, name), (time.time(), _size(log.path))]:
            latest = max(latest, at)
            lines = log.more(length) if length > log.offset else []
            pieces.append((latest, index, [LogLine(process=name, text=text) for text in lines]))
    pieces.sort(key=lambda piece: piece[:2])
    return [line for _, _, lines in pieces for line in lines], tails


def follow(
    run: RunDirectory,
    tails: Mapping[str, Tail],
    ended: Callable[[], bool],
    *,
    check_every: float = 0.5,
) -> Iterator[LogLine]:
    """Lines as they are written, until ``ended`` says that no more will come and all was read."""
    over = ended()
    grown: Collection[str] = tails.keys()
    with growing({**{name: log.path for name, log in tails.items()}, "": run.events}) as wait:
        while True:
            for name in [name for name in tails if name in grown]:  # always in the same order
                yield from (LogLine(process=name, text=text) for text in tails[name].more())
            if over:
                break
            grown = wait(check_every)
            if (
                "" in grown or not grown
            ):  # to look at every process takes time: not for each line of one
                over = ended()
                grown = tails.keys() if over else grown
    for name, log in tails.items():
        yield from (LogLine(process=name, text=text) for text in log.last())


@contextlib.contextmanager
def growing(paths: Mapping[str, Path]) -> Iterator[Callable[[float], set[str]]]:
    """A function that returns the files that have grown, once one has, or none after so many seconds."""
    try:
        from symphony.host.inotify import Watch

        watch = Watch()
    except OSError:  # this system has no inotify, or this user no more of it
        yield _by_looking(paths)
        return
    try:
        yield _by_watching(watch, paths)
    finally:
        watch.close()


def _by_watching(watch: Watch, paths: Mapping[str, Path]) -> Callable[[float], set[str]]:
    unwatched = dict(paths)
    sizes: dict[str, int] = {}

    def wait(timeout: float) -> set[str]:
        grown: set[str] = set()
        for key, path in list(unwatched.items()):
            try:
                watch.add(key, path)
                del unwatched[key]
            except (
                OSError
            ):  # not there yet, or the user's limit of watches is reached: look again soon
                timeout = min(timeout, LOOK_EVERY)
            # What was written between the last read and this watch would never be told.
            size = _size(path)
            if size != sizes.get(key):
                sizes[key] = size
                grown.add(key)
                timeout = 0.0
        told = watch.told(timeout)
        unwatched.update({key: paths[key] for key in told})
        return grown | told

    return wait


def _by_looking(paths: Mapping[str, Path]) -> Callable[[float], set[str]]:
    sizes: dict[str, int] = {}

    def wait(timeout: float) -> set[str]:
        deadline = time.monotonic() + timeout
        while True:
            grown = {key for key, path in paths.items() if sizes.get(key) != _size(path)}
            if grown or time.monotonic() >= deadline:
                sizes.update({key: _size(paths[key]) for key in grown})
                return grown
            time.sleep(LOOK_EVERY)

    return wait


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
