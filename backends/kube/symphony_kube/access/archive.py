"""Files and folders of this machine as a stream of tar, and such a stream as files and folders.

Nothing of a stream is believed: names that lead elsewhere, ways through links, devices and pipes are refused. What
is unpacked stands in a folder of its own until it is kept.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

from symphony.errors import BackendError, NotFound, SpecError

TOOLS = {"sha256sum": "sha256", "md5sum": "md5"}
_PIECE = 1 << 18
_BLOCK = tarfile.BLOCKSIZE
_TOP = "it"


class Readable(Protocol):
    """A stream to read from."""

    def read(self, size: int = -1, /) -> bytes:
        """So many bytes, fewer only at the end."""
        ...


class _Hashes:
    """The digests of one file, by every tool that the other side may have."""

    def __init__(self) -> None:
        self._hashes = {
            tool: hashlib.new(name, usedforsecurity=False) for tool, name in TOOLS.items()
        }

    def update(self, data: bytes) -> None:
        for one in self._hashes.values():
            one.update(data)

    def hex(self) -> dict[str, str]:
        return {tool: one.hexdigest() for tool, one in self._hashes.items()}


class Digests:
    """The digests of files by their names in the archive."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, str]] = {}

    def note(self, name: str, digests: dict[str, str]) -> None:
        """Keep those of a file."""
        self._files[name] = digests

    def of(self, name: str) -> dict[str, str]:
        """Those of a file."""
        return self._files[name]

    def missing_in(self, listed: bytes, tool: str) -> str | None:
        """The first file whose digest is not in what ``tool`` printed, or None where all are.

        Names with a newline or a backslash are printed in one of two ways, by the tool's age.
        """
        lines = set(listed.split(b"\n"))
        for name, digests in self._files.items():
            digest, path = digests[tool].encode(), os.fsencode(name)
            if digest + b"  " + path in lines:
                continue
            escaped = path.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
            odd = escaped != path and (
                b"\\" + digest + b"  " + escaped in lines
                or digest + b"  " + path + b"\n" in listed + b"\n"
            )
            if not odd:
                return name
        return None


# --- out ---


class Outgoing:
    """A file or a folder as a stream of tar of a known ``size`` in bytes; links in it are kept as links."""

    def __init__(self, path: str) -> None:
        self.digests = Digests()
        self._path = Path(path)
        try:
            self._top = self._path.stat()
        except OSError as exc:
            raise NotFound(f"cannot copy {path!r}: {exc.strerror}") from exc
        if not (stat.S_ISDIR(self._top.st_mode) or stat.S_ISREG(self._top.st_mode)):
            raise SpecError(f"cannot copy {path!r}: it is neither a file nor a folder")
        self._sizes: dict[str, int] = {}
        self.size = sum(self._length(info) for info, _ in self._members()) + 2 * _BLOCK

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self._top.st_mode)

    @property
    def mode(self) -> int:
        """Who may do what with it."""
        return stat.S_IMODE(self._top.st_mode) & 0o777

    def stream(self) -> Iterator[bytes]:
        """The archive, piece by piece. Raises `BackendError` for a file that changes meanwhile."""
        for info, path in self._members(again=True):
            yield _header(info)
            if info.isreg():
                yield from self._content(info, path)
        yield bytes(2 * _BLOCK)

    def _length(self, info: tarfile.TarInfo) -> int:
        return len(_header(info)) + -(-info.size // _BLOCK) * _BLOCK

    def _members(self, *, again: bool = False) -> Iterator[tuple[tarfile.TarInfo, Path]]:
        yield self._info(_TOP, self._path, self._top, again), self._path
        if self.is_folder:
            yield from self._inside(_TOP, self._path, again)

    def _inside(
        self, name: str, folder: Path, again: bool
    ) -> Iterator[tuple[tarfile.TarInfo, Path]]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as exc:
            raise SpecError(f"cannot copy {str(folder)!r}: {exc.strerror}") from exc
        for entry in entries:
            path, inner = Path(entry.path), f"{name}/{entry.name}"
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISSOCK(found.st_mode):
                continue
            yield self._info(inner, path, found, again), path
            if stat.S_ISDIR(found.st_mode):
                yield from self._inside(inner, path, again)

    def _info(self, name: str, path: Path, found: os.stat_result, again: bool) -> tarfile.TarInfo:
        info = tarfile.TarInfo(name)
        info.mode = stat.S_IMODE(found.st_mode) & 0o777
        info.mtime = int(found.st_mtime)
        if stat.S_ISDIR(found.st_mode):
            info.type = tarfile.DIRTYPE
            if name == _TOP:  # it has to be moved, which only those can who may write to it
                info.mode |= 0o700
        elif stat.S_ISLNK(found.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
        elif stat.S_ISREG(found.st_mode):
            # The length was promised when the first byte was sent.
            info.size = self._sizes[name] if again and name in self._sizes else found.st_size
            self._sizes[name] = info.size
        else:
            raise SpecError(f"cannot copy {str(path)!r}: it is neither a file, a folder nor a link")
        return info

    def _content(self, info: tarfile.TarInfo, path: Path) -> Iterator[bytes]:
        hashes, left = _Hashes(), info.size
        try:
            with path.open("rb") as file:
                while left:
                    data = file.read(min(left, _PIECE))
                    if not data:
                        raise BackendError(
                            f"cannot copy {str(path)!r}: it became shorter meanwhile; copy it again"
                        )
                    left -= len(data)
                    hashes.update(data)
                    yield data
        except OSError as exc:
            raise SpecError(f"cannot copy {str(path)!r}: {exc.strerror}") from exc
        name = info.name.removeprefix(f"{_TOP}/") if self.is_folder else info.name
        self.digests.note(f"./{name}", hashes.hex())
        yield bytes(-info.size % _BLOCK)


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape")


# --- in ---


class Incoming:
    """What comes in a stream of tar, for ``target``: unpacked beside it, and put in its place by `keep`."""

    def __init__(self, target: Path) -> None:
        self.digests = Digests()
        self._target = target
        self._folder = Path()
        self._modes: dict[Path, int] = {}
        self._top: Path | None = None

    def __enter__(self) -> Incoming:
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=".symphony-", dir=self._target.parent))
        except OSError as exc:
            raise SpecError(f"cannot copy to {str(self._target)!r}: {exc.strerror}") from exc
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for path, _, _ in os.walk(self._folder):
            with contextlib.suppress(OSError):
                Path(path).chmod(0o700)
        shutil.rmtree(self._folder, ignore_errors=True)

    def unpack(self, stream: Readable) -> None:
        """Unpack a file, or what is in a folder. Raises `SpecError` for what must not be unpacked."""
        try:
            with tarfile.open(
                fileobj=_as_file(stream),
                mode="r|",
                bufsize=_PIECE,
                encoding="utf-8",
                errors="surrogateescape",
            ) as tar:
                for member in tar:
                    self._unpack(tar, member)
        except tarfile.TarError as exc:
            stream.read()
            if self._top is None:
                return  # what the other side says of its end tells why
            raise BackendError(
                f"cannot copy to {str(self._target)!r}: what came is no whole archive: {exc}"
            ) from exc
        except OSError as exc:
            raise SpecError(f"cannot copy to {str(self._target)!r}: {exc.strerror or exc}") from exc

    def keep(self) -> None:
        """Put what was unpacked where it belongs."""
        if self._top is None:
            raise BackendError(f"cannot copy to {str(self._target)!r}: nothing came")
        folder = self._top.is_dir() and not self._top.is_symlink()
        there = self._target.is_dir()
        if there and not folder:
            raise SpecError(
                f"cannot copy to {str(self._target)!r}: a file cannot take the place of a folder"
            )
        if folder and not there and os.path.lexists(self._target):
            raise SpecError(
                f"cannot copy to {str(self._target)!r}: a folder cannot take the place of a file"
            )
        try:
            if there:
                self._merge(self._top, self._target)
            else:
                self._top.replace(self._target)
                # Those inside moved with it; each gets its mode when those below it have theirs.
                for path, mode in sorted(self._modes.items(), key=lambda item: -len(item[0].parts)):
                    (self._target / path.relative_to(self._top)).chmod(mode)
        except OSError as exc:
            raise SpecError(
                f"cannot copy to {str(exc.filename or self._target)!r}: {exc.strerror}"
            ) from exc

    def _merge(self, source: Path, target: Path) -> None:
        for entry in os.scandir(source):
            here = target / entry.name
            if not entry.is_dir(follow_symlinks=False):
                Path(entry.path).replace(here)
            elif here.is_dir() and not here.is_symlink():
                self._merge(Path(entry.path), here)
            elif os.path.lexists(here):
                raise OSError(errno.EEXIST, "a folder cannot take the place of a file", str(here))
            else:
                Path(entry.path).replace(here)
                here.chmod(self._modes.get(Path(entry.path), 0o755))

    def _unpack(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = self._place(member)
        if member.isdir():
            path.mkdir(mode=0o700, exist_ok=True)
            self._modes[path] = member.mode & 0o777
        elif member.issym():
            path.symlink_to(member.linkname)
        elif member.islnk():
            self._link(member, path)
        elif member.isreg():
            content = tar.extractfile(member)
            if content is not None:
                self._write(member, path, content)
        else:
            raise SpecError(
                f"cannot copy {member.name!r}: it is neither a file, a folder nor a link"
            )

    def _place(self, member: tarfile.TarInfo) -> Path:
        """Where a member goes; its folder is one that was unpacked before, and no link."""
        parts = _parts(member.name)
        if self._top is None:
            self._top = self._folder / _TOP
            if not parts and not member.isdir():
                raise _strange(member.name)
            if parts and member.isdir():
                raise _strange(member.name)
            return self._top
        path = self._top.joinpath(*parts)
        if not parts or path.parent not in self._modes or os.path.lexists(path):
            raise _strange(member.name)
        return path

    def _link(self, member: tarfile.TarInfo, path: Path) -> None:
        """A second name of a file that came before."""
        name = "./" + "/".join(_parts(member.linkname))
        source = self._folder / _TOP / name
        if source.is_symlink() or not source.is_file() or source.parent not in self._modes:
            raise _strange(member.linkname)
        os.link(source, path)
        self.digests.note(self._listed(member), self.digests.of(name))

    def _write(self, member: tarfile.TarInfo, path: Path, content: IO[bytes]) -> None:
        hashes = _Hashes()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            while data := content.read(_PIECE):
                hashes.update(data)
                file.write(data)
            os.fchmod(descriptor, member.mode & 0o777)
        os.utime(path, (member.mtime, member.mtime))
        self.digests.note(self._listed(member), hashes.hex())

    def _listed(self, member: tarfile.TarInfo) -> str:
        """The name under which the other side lists a file."""
        return "./" + "/".join(_parts(member.name))


def _parts(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise _strange(name)
    return parts


def _strange(name: str) -> SpecError:
    return SpecError(
        f"cannot copy {name!r}: its name leads out of what is copied, or comes twice; nothing was kept"
    )


def _as_file(stream: Readable) -> Any:
    return stream
