"""Packing code: writing its archive and determining its digest."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from symphony.code import tar
from symphony.code.listing import IGNORE_FILE, CodeFile, list_files
from symphony.code.snapshot import (
    ARCHIVE_SUFFIX,
    CodeArchive,
    CodeProgress,
    CodeSnapshot,
    size_text,
)
from symphony.errors import BackendError, SpecError, shown
from symphony.model.settings.code import CodeSource
from symphony.support.names import join_names

# The maximum size of all files of a snapshot together.
MAX_CODE_BYTES = 100 * 2**20
# A file that has changed while it was read is read again this many times.
_ATTEMPTS = 5
_LARGEST_FILES = 10
# Of much code, the compression would take most of the time.
_MUCH_BYTES = 8 << 20
_COMPRESSION_LEVEL, _FAST_COMPRESSION_LEVEL = 6, 1
_GZIP = 16 + zlib.MAX_WBITS
# The number of bytes that a thread compresses at once. With smaller pieces, the compressed data is
# larger, and the threads wait longer for each other.
_PIECE_BYTES = 4 << 20
_THREADS = 2


def pack(path: Path, source: CodeSource, progress: CodeProgress | None = None) -> CodeArchive:
    """Return the archive of the code in ``path``, a directory or the archive of a snapshot.

    ``progress`` is called while large code is packed.
    """
    absolute = Path(os.path.abspath(path))  # noqa: PTH100  # `resolve` would follow links
    try:
        if absolute.name.endswith(ARCHIVE_SUFFIX) and absolute.is_file():
            return _read_archive(absolute)
        if not absolute.is_dir():
            raise SpecError(f"code: there is no directory {path}; set path to the project")
        files = list_files(absolute, source)
        _check(files, absolute)
        return _pack_files(files, absolute, progress)
    except OSError as exc:
        place = exc.filename or absolute
        raise BackendError(f"code: {place} cannot be read: {exc.strerror or exc}") from exc


def _check(files: Sequence[CodeFile], directory: Path) -> None:
    """Raise `SpecError` if there are no files, or if they are too large."""
    if not files:
        raise SpecError(
            f"code: {directory} has no files, or all of them are ignored; see .gitignore, "
            f"{IGNORE_FILE}, include and exclude"
        )
    size = sum(file.info.st_size for file in files)
    if size > MAX_CODE_BYTES:
        raise _too_large(size, files, directory)


def _too_large(size: int, files: Sequence[CodeFile], directory: Path) -> SpecError:
    largest = sorted(files, key=lambda file: file.info.st_size, reverse=True)[:_LARGEST_FILES]
    names = [f"{shown(file.path)} ({size_text(file.info.st_size)})" for file in largest]
    return SpecError(
        f"code: {directory} has {size_text(size)} in {len(files)} files, and the limit is "
        f"{size_text(MAX_CODE_BYTES)}; exclude files in {directory / IGNORE_FILE}; the largest "
        f"are {join_names(names, limit=_LARGEST_FILES)}"
    )


# --- packing ---


def _pack_files(
    files: Sequence[CodeFile], directory: Path, progress: CodeProgress | None = None
) -> CodeArchive:
    size = sum(file.info.st_size for file in files)
    level = _COMPRESSION_LEVEL if size < _MUCH_BYTES else _FAST_COMPRESSION_LEVEL
    members = _Members(files, directory)
    digest = hashlib.sha256()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="pack") as pool:
        # While this thread reads the next files, the others compress.
        work = []
        for piece in members.pieces():
            digest.update(piece)
            work.append(pool.submit(compressed, piece, level))
            if progress is not None and size >= _MUCH_BYTES:
                progress("packed", members.size, size)
        data = b"".join([done.result() for done in work])
    snapshot = CodeSnapshot(
        source=str(directory),
        digest=digest.hexdigest(),
        files=members.files,
        size=members.size,
        packed_size=len(data),
    )
    return CodeArchive(snapshot, data)


def compressed(piece: bytes, level: int) -> bytes:
    """Return a member of a gzip file. The content of the file is that of all members together."""
    compressor = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
    return compressor.compress(piece) + compressor.flush()


class _Members:
    """The members of the archive of some files.

    ``files`` and ``size`` are the number and the size of the files that were read so far.
    """

    def __init__(self, files: Sequence[CodeFile], directory: Path) -> None:
        self._files = files
        self._directory = directory
        self.files = self.size = 0

    def pieces(self) -> Iterator[bytes]:
        """Yield the archive in pieces."""
        parts: list[bytes] = []
        size = 0
        for member in self._all():
            parts.append(member)
            size += len(member)
            if size >= _PIECE_BYTES:
                yield b"".join(parts)
                parts.clear()
                size = 0
        yield b"".join([*parts, tar.END])

    def _all(self) -> Iterator[bytes]:
        directories: set[bytes] = set()
        for file in self._files:
            name = os.fsencode(file.path)
            member = self._member(file, name)
            if member is None:
                continue
            parent = name.rpartition(b"/")[0]
            if parent not in directories:
                yield from new_directories(parent, directories)
            yield member
            self.files += 1

    def _member(self, file: CodeFile, name: bytes) -> bytes | None:
        """Return the member for a file, or None if the file no longer exists."""
        path = f"{self._directory}/{file.path}"
        try:
            if file.is_link:
                return tar.member(name, tar.LINK, 0o777, link=os.fsencode(Path(path).readlink()))
            content, mode = _read_unchanging(path, file.info)
        except FileNotFoundError:
            return None
        self.size += len(content)
        if self.size > MAX_CODE_BYTES:
            # A file has grown since it was listed.
            raise _too_large(self.size, self._files, self._directory)
        return tar.member(name, tar.FILE, 0o755 if mode & stat.S_IXUSR else 0o644, content)


def new_directories(name: bytes, known: set[bytes]) -> Iterator[bytes]:
    """Yield the members for a directory and those above it that are not in the archive yet."""
    if not name or name in known:
        return
    yield from new_directories(name.rpartition(b"/")[0], known)
    known.add(name)
    yield tar.member(name + b"/", tar.DIRECTORY, 0o755)


def _read_unchanging(path: str, before: os.stat_result) -> tuple[bytes, int]:
    """Return the content and the mode of a file that does not change while it is read.

    ``before`` is its file status when it was listed. Raises `BackendError` if it changes each time.
    """
    for _ in range(_ATTEMPTS):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            content = _read(descriptor, before.st_size)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        is_same = before.st_mtime_ns == after.st_mtime_ns and before.st_size == after.st_size
        if is_same and len(content) == after.st_size:
            return content, after.st_mode
        if not stat.S_ISREG(after.st_mode):
            break
        before = after
    raise BackendError(
        f"code: {path} changes while it is read; stop the program that writes it, or exclude it in "
        f"{IGNORE_FILE}"
    )


def _read(descriptor: int, size: int) -> bytes:
    """Return the content of a file, and more than ``size`` bytes if it has grown."""
    # One call returns a whole file, unless it is very large.
    content = os.read(descriptor, size + 1)
    if len(content) >= size:
        return content
    parts = [content]
    while content:
        content = os.read(descriptor, size + 1)
        parts.append(content)
    return b"".join(parts)


# --- archives of earlier snapshots ---


def _read_archive(path: Path) -> CodeArchive:
    """Read an archive that symphony has written. Raises `SpecError` if it is damaged."""
    data = path.read_bytes()
    try:
        content = decompress(data)
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            members = [member for member in archive if not member.isdir()]
    except (zlib.error, tarfile.TarError, ValueError) as exc:
        raise SpecError(f"code: {path} is not the archive of a snapshot: {exc}") from exc
    snapshot = CodeSnapshot(
        source=str(path),
        digest=hashlib.sha256(content).hexdigest(),
        files=len(members),
        size=sum(member.size for member in members),
        packed_size=len(data),
    )
    return CodeArchive(snapshot, data)


def decompress(data: bytes) -> bytes:
    """Return the tar archive. Raises ValueError if it is incomplete or too large."""
    # The headers and the padding of many small files can exceed their contents.
    remaining = 20 * MAX_CODE_BYTES
    parts = []
    while data:
        decompressor = zlib.decompressobj(_GZIP)
        parts.append(decompressor.decompress(data, remaining))
        remaining -= len(parts[-1])
        if not decompressor.eof or remaining <= 0:
            raise ValueError("it is incomplete or too large")
        data = decompressor.unused_data
    return b"".join(parts)


def unpack(archive: CodeArchive, directory: Path) -> None:
    """Unpack a snapshot into a new directory. If the directory exists, do nothing.

    The directory gets its name when it is complete. Only this user can access it.
    """
    import shutil

    if directory.exists():
        return
    temporary = directory.with_name(f".{directory.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(mode=0o700)
    _extract(decompress(archive.data), os.fsencode(temporary))
    temporary.rename(directory)


def _extract(content: bytes, target: bytes) -> None:
    """Extract a tar archive that `pack` has written into an empty directory.

    Python's own method checks each path with several system calls. Here, each file must be in a
    directory that was extracted before, so no link can lead out of the target.
    """
    directories = {b""}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = archive.getmembers()
    for member in members:
        name = os.fsencode(member.name)
        parent, _, last = name.rpartition(b"/")
        if parent not in directories or last in (b"", b".", b".."):
            raise BackendError(f"code: the archive contains an unexpected path: {member.name!r}")
        path = target + b"/" + name
        if member.isdir():
            os.mkdir(path, member.mode)  # noqa: PTH102
            directories.add(name)
        elif member.issym():
            os.symlink(os.fsencode(member.linkname), path)  # noqa: PTH211
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            start = member.offset_data
            with os.fdopen(os.open(path, flags, member.mode), "wb", buffering=0) as file:
                file.write(content[start : start + member.size])
