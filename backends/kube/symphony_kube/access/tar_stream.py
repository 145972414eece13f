"""Pack local files and directories into a tar stream, and unpack a tar stream into local files.

A received stream is not trusted: device files, pipes, sparse files, paths that pass through links,
names that lead outside the archive, and directories that are nested too deeply are refused. Files
are unpacked into a staging directory and stay there
until all of them have been verified.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Protocol

from symphony.errors import BackendError, NotFound, SpecError
from symphony.model.limits import MAX_DIRECTORY_LEVELS, TOO_MANY_DIRECTORIES
from symphony_kube.access.checksum import Checksum

if TYPE_CHECKING:
    from typing_extensions import Self

_CHUNK_BYTES = 1 << 18
_BLOCK_BYTES = tarfile.BLOCKSIZE
# The maximum size of a header that extends the next one, for example with a long name. The module
# tarfile reads such a header into memory.
_MAX_HEADER_BYTES = 1 << 20
_EXTENSION_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
_END = bytes(2 * _BLOCK_BYTES)
# The name under which the copied file or directory is stored in the archive.
_ROOT = "it"
# An outgoing archive also contains a list of its files, each of which is followed by a zero byte,
# and the checksum of their contents in this order.
_FILE_LIST, _CHECKSUM = "files", "checksum"


class Readable(Protocol):
    """A binary stream that can be read."""

    def read(self, size: int = -1, /) -> bytes:
        """Return ``size`` bytes, or fewer at the end of the stream."""
        ...


# --- from local files to a stream ---


class OutgoingArchive:
    """A file or directory as a tar stream.

    Links in a directory are stored as links, but if ``path`` itself is a link, it is followed.
    ``size`` is the length of the stream in bytes if the files do not change.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        try:
            self._status = self._path.stat()
        except OSError as exc:
            raise NotFound(f"cannot copy {path!r}: {exc.strerror}") from exc
        if not (stat.S_ISDIR(self._status.st_mode) or stat.S_ISREG(self._status.st_mode)):
            raise SpecError(f"cannot copy {path!r}: it is neither a file nor a directory")
        self.size = len(_END) + len(_small_file(_CHECKSUM, b"0 0"))
        list_bytes = 0
        for info, _ in self._members():
            self.size += len(_header(info)) + info.size + len(_padding(info.size))
            if info.isreg():
                list_bytes += len(_listed(info))
        self.size += len(_small_file(_FILE_LIST, bytes(list_bytes)))

    @property
    def is_directory(self) -> bool:
        """True if the archive contains a directory rather than a single file."""
        return stat.S_ISDIR(self._status.st_mode)

    @property
    def mode(self) -> int:
        """The permission bits of the file or directory."""
        return stat.S_IMODE(self._status.st_mode) & 0o777

    def stream(self) -> Iterator[bytes]:
        """Yield the tar stream in chunks.

        Raises `BackendError` if a file becomes shorter during the copy, and `SpecError` if a file
        cannot be read.
        """
        # Each chunk is sent on its own, so the headers of small files must not be chunks.
        chunk: list[bytes] = []
        chunk_bytes = 0
        for part in self._parts():
            if chunk_bytes + len(part) > _CHUNK_BYTES:
                yield b"".join(chunk)
                chunk, chunk_bytes = [], 0
            chunk.append(part)
            chunk_bytes += len(part)
        yield b"".join(chunk)

    def _parts(self) -> Iterator[bytes]:
        checksum = Checksum()
        file_list = bytearray()
        for info, path in self._members():
            yield _header(info)
            if info.isreg():
                file_list += _listed(info)
                for data in self._content(info, path):
                    checksum.update(data)
                    yield data
                yield _padding(info.size)
        yield _small_file(_FILE_LIST, file_list)
        yield _small_file(_CHECKSUM, checksum.text().encode())
        yield _END

    def _members(self) -> Iterator[tuple[tarfile.TarInfo, Path]]:
        yield self._tar_info(_ROOT, self._path, self._status), self._path
        if self.is_directory:
            yield from self._members_of(_ROOT, self._path)

    def _members_of(self, name: str, directory: Path) -> Iterator[tuple[tarfile.TarInfo, Path]]:
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError as exc:
            raise SpecError(f"cannot copy {str(directory)!r}: {exc.strerror}") from exc
        for entry in entries:
            member, path = f"{name}/{entry.name}", Path(entry.path)
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISSOCK(status.st_mode):
                continue
            yield self._tar_info(member, path, status), path
            if stat.S_ISDIR(status.st_mode):
                if member.count("/") > MAX_DIRECTORY_LEVELS:
                    raise SpecError(f"cannot copy {str(self._path)!r}: {TOO_MANY_DIRECTORIES}")
                yield from self._members_of(member, path)

    def _tar_info(self, name: str, path: Path, status: os.stat_result) -> tarfile.TarInfo:
        info = tarfile.TarInfo(name)
        info.mode = stat.S_IMODE(status.st_mode) & 0o777
        info.mtime = int(status.st_mtime)
        if stat.S_ISDIR(status.st_mode):
            info.type = tarfile.DIRTYPE
            if name == _ROOT:  # The receiver moves the directory, which requires write permission.
                info.mode |= 0o700
        elif stat.S_ISLNK(status.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            info.size = status.st_size
        else:
            raise SpecError(
                f"cannot copy {str(path)!r}: it is neither a file, a directory nor a link"
            )
        return info

    def _content(self, info: tarfile.TarInfo, path: Path) -> Iterator[bytes]:
        bytes_left = info.size
        try:
            with path.open("rb") as file:
                while bytes_left:
                    data = file.read(min(bytes_left, _CHUNK_BYTES))
                    if not data:
                        raise BackendError(
                            f"cannot copy {str(path)!r}: it became shorter while it was copied; "
                            "copy it again"
                        )
                    bytes_left -= len(data)
                    yield data
        except OSError as exc:
            raise SpecError(f"cannot copy {str(path)!r}: {exc.strerror}") from exc


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape")


def _padding(size: int) -> bytes:
    """Return the bytes that follow a file's contents."""
    return bytes(-size % _BLOCK_BYTES)


def _listed(info: tarfile.TarInfo) -> bytes:
    return info.name.encode("utf-8", "surrogateescape") + b"\0"


def _small_file(name: str, content: bytes | bytearray) -> bytes:
    info = tarfile.TarInfo(name)
    info.mode, info.size = 0o600, len(content)
    return _header(info) + content + _padding(len(content))


# --- from a stream to local files ---


class _LimitedHeader(tarfile.TarInfo):
    """A header of a received archive. Headers with which a short stream becomes large are refused.

    A sparse file can be any number of terabytes long. ``tar`` writes sparse files only if it is
    called with ``--sparse``, which symphony does not use.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read a header. Raises `SpecError` if the header is refused."""
        header = super().frombuf(buf, encoding, errors)
        if header.type == tarfile.GNUTYPE_SPARSE:
            raise _sparse_file(header.name)
        if header.type in _EXTENSION_HEADERS and header.size > _MAX_HEADER_BYTES:
            raise SpecError(
                f"cannot copy {header.name!r}: its header has more than {_MAX_HEADER_BYTES} bytes"
            )
        return header


class IncompleteArchive(BackendError):
    """Raised if the end of a received archive is missing."""


class IncomingArchive:
    """A tar stream that is unpacked into a staging directory next to ``target``.

    `commit` moves the files to the target. Use the archive as a context manager: the end of the
    ``with`` block removes the staging directory.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._staging = Path()
        self._directory_modes: dict[Path, int] = {}
        self._root: Path | None = None

    def __enter__(self) -> IncomingArchive:
        try:
            self._staging = Path(tempfile.mkdtemp(prefix=".symphony-", dir=self._target.parent))
        except OSError as exc:
            raise SpecError(f"cannot copy to {str(self._target)!r}: {exc.strerror}") from exc
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for path, _, _ in os.walk(self._staging):
            with contextlib.suppress(OSError):
                Path(path).chmod(0o700)
        shutil.rmtree(self._staging, ignore_errors=True)

    def unpack(self, stream: Readable) -> None:
        """Unpack the file, or the contents of the directory, that ``stream`` contains.

        Raises `SpecError` if the stream contains an unsafe name or file type, or if a file cannot
        be written, `IncompleteArchive` if the end of the archive is missing, and `BackendError` if
        the archive is damaged.
        """
        fileobj: Any = stream
        try:
            with tarfile.open(
                fileobj=fileobj,
                mode="r|",
                bufsize=_CHUNK_BYTES,
                encoding="utf-8",
                errors="surrogateescape",
                tarinfo=_LimitedHeader,
            ) as tar:
                for member in tar:
                    self._unpack_member(tar, member)
        except tarfile.TarError as exc:
            stream.read()
            if self._root is None:
                return  # The sender's exit status explains why there is no archive.
            is_incomplete = "unexpected end" in str(exc)
            error_class = IncompleteArchive if is_incomplete else BackendError
            raise error_class(
                f"cannot copy to {str(self._target)!r}: the received archive is damaged: {exc}"
            ) from exc
        except OSError as exc:
            raise SpecError(f"cannot copy to {str(self._target)!r}: {exc.strerror or exc}") from exc

    def commit(self) -> None:
        """Move the unpacked files to the target."""
        target = self._target
        if self._root is None:
            raise BackendError(f"cannot copy to {str(target)!r}: nothing was received")
        is_directory = self._root.is_dir() and not self._root.is_symlink()
        if target.is_dir() and not is_directory:
            raise SpecError(f"cannot copy to {str(target)!r}: a file cannot replace a directory")
        if is_directory and not target.is_dir() and os.path.lexists(target):
            raise SpecError(f"cannot copy to {str(target)!r}: a directory cannot replace a file")
        try:
            if target.is_dir():
                self._merge(self._root, target)
            else:
                self._root.replace(target)
                self._set_directory_modes(self._root, target)
        except OSError as exc:
            path = exc.filename or target
            raise SpecError(f"cannot copy to {str(path)!r}: {exc.strerror}") from exc

    def _set_directory_modes(self, root: Path, target: Path) -> None:
        """Set the modes of the unpacked directories, innermost first.

        The order matters, because a directory's mode can make its contents inaccessible.
        """
        innermost_first = sorted(self._directory_modes, key=lambda path: -len(path.parts))
        for path in innermost_first:
            (target / path.relative_to(root)).chmod(self._directory_modes[path])

    def _merge(self, source: Path, target: Path) -> None:
        for entry in os.scandir(source):
            path, destination = Path(entry.path), target / entry.name
            if not entry.is_dir(follow_symlinks=False):
                path.replace(destination)
            elif destination.is_dir() and not destination.is_symlink():
                self._merge(path, destination)
            elif os.path.lexists(destination):
                message = "a directory cannot replace a file"
                raise OSError(errno.EEXIST, message, str(destination))
            else:
                path.replace(destination)
                destination.chmod(self._directory_modes.get(path, 0o755))

    def _unpack_member(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = self._destination(member)
        if member.isdir():
            path.mkdir(mode=0o700, exist_ok=True)
            self._directory_modes[path] = member.mode & 0o777
        elif member.issym():
            path.symlink_to(member.linkname)
        elif member.islnk():
            self._unpack_hard_link(member, path)
        elif member.issparse():
            raise _sparse_file(member.name)
        elif member.isreg():
            content = tar.extractfile(member)
            if content is not None:
                self._unpack_file(member, path, content)
        else:
            raise SpecError(
                f"cannot copy {member.name!r}: it is neither a file, a directory nor a link"
            )

    def _destination(self, member: tarfile.TarInfo) -> Path:
        """Return the local path for an archive member.

        Raises `SpecError` if the path's parent is not an unpacked directory, for example because it
        is a link, or if another member has the same path.
        """
        parts = _parts(member.name)
        if self._root is None:
            self._root = self._staging / _ROOT
            # The stream contains either a single named file, or a directory whose first member is
            # ".".
            if bool(parts) == member.isdir():
                raise _unsafe_name(member.name)
            return self._root
        path = self._root.joinpath(*parts)
        if not parts or path.parent not in self._directory_modes or os.path.lexists(path):
            raise _unsafe_name(member.name)
        return path

    def _unpack_hard_link(self, member: tarfile.TarInfo, path: Path) -> None:
        """Create a hard link to a file that has already been unpacked."""
        source = (self._staging / _ROOT).joinpath(*_parts(member.linkname))
        if source.is_symlink() or not source.is_file():
            raise _unsafe_name(member.linkname)
        if source.parent not in self._directory_modes:
            raise _unsafe_name(member.linkname)
        os.link(source, path)

    def _unpack_file(self, member: tarfile.TarInfo, path: Path, content: IO[bytes]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            while data := content.read(_CHUNK_BYTES):
                file.write(data)
            os.fchmod(descriptor, member.mode & 0o777)
        os.utime(path, (member.mtime, member.mtime))


def _parts(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise _unsafe_name(name)
    if len(parts) > MAX_DIRECTORY_LEVELS + 1:
        raise SpecError(f"cannot copy {'/'.join(parts[:3])!r}: {TOO_MANY_DIRECTORIES}")
    return parts


def _sparse_file(name: str) -> SpecError:
    return SpecError(
        f"cannot copy {name!r}: it is a sparse file, whose size in the archive is not its real size"
    )


def _unsafe_name(name: str) -> SpecError:
    return SpecError(
        f"cannot copy {name!r}: its name leads outside the archive or is repeated; "
        "nothing was copied"
    )
