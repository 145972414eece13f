"""Copying files and folders from and to the container of a process, as a stream of tar over exec.

What is copied comes into a folder of its own beside the target, is compared with the source by the digest of every
file, and only then takes the target's place. The container needs a shell, tar and a digest program.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.cluster.remote_path import RemotePath, parse_transfer
from symphony.errors import BackendError, NotFound, SpecError, Unreachable
from symphony_kube.access import archive, exec, exec_stream
from symphony_kube.access.archive import Digests
from symphony_kube.access.exec_stream import Channels
from symphony_kube.api.errors import one_line
from symphony_kube.api.labels import Scope
from symphony_kube.status import find_pod
from symphony_kube.status.pod_status import ContainerRef

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

# Called with the bytes so far, and of how many, where that is known.
Progress = Callable[[int, "int | None"], None]

# The first lines of every script. One that gives up says so on a line that begins with this mark, on standard error:
# how it ended may never be told, where it left input unread.
_SAID = "symphony: "
_BEGIN = f"""\
clean() {{ :; }}
fail() {{ clean; printf '{_SAID}%s\\n' "$1" >&2; exit 1; }}
for tool in "$@"; do [ "$tool" = -- ] && break; command -v "$tool" >/dev/null 2>&1 || fail "needs $tool"; done
while [ "$1" != -- ]; do shift; done; shift
for sum in sha256sum md5sum ''; do command -v "$sum" >/dev/null 2>&1 && break; done
[ "$sum" ] || fail "needs sha256sum"
"""
# Writes a file or the content of a folder; links that are named are followed, others kept.
_SEND = (
    _BEGIN
    + """\
cd -- "$1" 2>/dev/null || fail "no folder"
[ -e "$2" ] || fail "not there"
if [ -d "$2" ]; then cd -- "$2" || fail "cannot be read"; exec tar -cf - .; else exec tar -chf - "$2"; fi
"""
)
_SUM = """\
if [ -d "$2" ]; then cd -- "$2" && find . -type f -exec "$sum" {} +; else "$sum" "$2"; fi && printf '\\n%s\\n' "$sum"
"""
_DIGESTS = _BEGIN + 'cd -- "$1" 2>/dev/null || fail "no folder"\n' + _SUM
# Says when it is ready, and only then is anything sent. Takes tar's stream by its length, tells the digests, and goes
# on when it is told that they are right.
_READY = b"ready\n"
_RECEIVE = (
    _BEGIN
    + """\
target=$1 base=$2 parent=$3 kind=$4 size=$5 tmp=$6 mode=$7
if [ -d "$target" ]; then parent=$target; [ "$base" ] && target=$target/$base; fi
[ -d "$parent" ] || fail "no folder"
if [ "$kind" = file ]; then [ -d "$target" ] && fail "is a folder"
elif [ -e "$target" ] && [ ! -d "$target" ]; then fail "is a file"; fi
tmp=$parent/$tmp
mkdir -m 700 "$tmp" || fail "its folder cannot be written to"
clean() { chmod -R u+rwx "$tmp" 2>/dev/null; rm -rf "$tmp" 2>/dev/null; }
trap clean EXIT
trap 'fail "it was broken off there"' HUP INT TERM
trap 'exit 1' PIPE
echo ready
head -c "$size" | tar -xpf - -C "$tmp" || fail "it could not be unpacked"
(set -- "$tmp" ./it; cd "$1" || exit 1
"""
    + _SUM
    + """\
) || fail "what came could not be read again"
read -r answer && [ "$answer" = keep ] || fail "it was broken off here"
if [ ! -d "$target" ]; then
    mv -f "$tmp/it" "$target" && chmod "$mode" "$target" || fail "it could not be put in its place"
    exit
fi
cd "$tmp/it" || fail "it could not be put in its place"
case $target in /*) ;; *) target=$OLDPWD/$target;; esac
find . -type d -exec sh -c 'for d; do [ -d "$0/$d" ] || mkdir "$0/$d" || exit 1; done' "$target" {} + ||
    fail "could not be merged"
find . ! -type d -exec sh -c 'for f; do [ -d "$0/$f" ] && [ ! -L "$0/$f" ] && exit 3
mv -f "$f" "$0/$f" || exit 1; done' "$target" {} + || fail "could not be merged"
"""
)
_GAVE_UP = re.compile(rb"^%s(.*)\n" % _SAID.encode(), re.MULTILINE)
# How long what is sent may wait to be taken, in seconds.
STALLED = 120.0
# What any machine reads, writes and digests at least, in bytes per second.
SLOWEST = 10e6

_TOOLS = ("tar", "find")
_TOOLS_TO_RECEIVE = (*_TOOLS, "head", "mv", "rm", "mkdir", "chmod")


def transfer(
    api: Api, scope: Scope, source: str, target: str, *, progress: Progress | None = None
) -> None:
    """Copy a file or a folder; one of ``source`` and ``target`` is ``process:path`` or ``group/process:path``.

    As with ``cp -r``: into a target that is a folder, else under its name; ``folder/.`` is what is in the folder. A
    folder that is there already is added to, files are replaced. Modes and links are kept.
    Raises `NotFound`, `SpecError`, and `BackendError` where what arrived is not what was sent.
    """
    tell: Progress = progress or (lambda _done, _of: None)
    there, here = parse_transfer(source, target)
    if there is not None:
        place = find_pod.running_container(api, scope, there.process, there.group)
        _download(api, scope, place, there, target, tell)
    elif here is not None:
        place = find_pod.running_container(api, scope, here.process, here.group)
        _upload(api, scope, place, source, here, tell)


def dry_run(api: Api, scope: Scope, source: str, target: str) -> None:
    """Refuse what `transfer` would refuse before it looks into the container, and copy nothing."""
    there, here = parse_transfer(source, target)
    beside = there or here
    if beside is not None:
        find_pod.running_container(api, scope, beside.process, beside.group)
    if there is not None:
        _landing(there, target)
    else:
        archive.Outgoing(source)


# --- from a process ---


def _landing(source: RemotePath, target: str) -> Path:
    """Where here something from a process comes to stand. Raises `NotFound`."""
    _, name = _split(source.path)
    path = Path(target)
    final = path / name if path.is_dir() and name != "." else path
    if target.endswith("/") and not path.is_dir():
        raise NotFound(f"there is no folder {str(path)!r} here")
    if not final.parent.is_dir():
        raise NotFound(f"there is no folder {str(final.parent)!r} here")
    return final


def _download(
    api: Api, scope: Scope, place: ContainerRef, source: RemotePath, target: str, tell: Progress
) -> None:
    folder, name = _split(source.path)
    final = _landing(source, target)
    with archive.Incoming(final) as incoming:
        script = ["sh", "-c", _SEND, "sh", *_TOOLS, "--", folder, _plain(name)]
        with exec.connect(api, scope, place, script) as channels:
            output = _Output(channels, place, str(source), tell)
            incoming.unpack(output)
            output.finish()
        script = ["sh", "-c", _DIGESTS, "sh", *_TOOLS, "--", folder, _plain(name)]
        with exec.connect(api, scope, place, script) as channels:
            output = _Output(channels, place, str(source), lambda _done, _of: None)
            said = output.read()
            output.finish()
        _compare(incoming.digests, said, str(source))
        incoming.keep()


class _Output:
    """What a script writes, as a file to read from; its errors are raised where it failed."""

    def __init__(self, channels: Channels, place: ContainerRef, what: str, tell: Progress) -> None:
        self._channels = channels
        self._place = place
        self._what = what
        self._tell = tell
        self._kept = bytearray()
        self._errors = bytearray()
        self._status: bytes | None = None
        self._count = 0
        self._left, self._moved = 0, time.monotonic()
        # How long the script may be silent that has got all it waits for, in seconds; None for ever.
        self.answer_within: float | None = None

    def read(self, size: int = -1) -> bytes:
        """So many bytes, fewer only at the end."""
        while (size < 0 or len(self._kept) < size) and self._more():
            pass
        cut = len(self._kept) if size < 0 else size
        data = bytes(self._kept[:cut])
        del self._kept[:cut]
        return data

    def until(self, ends: tuple[bytes, ...]) -> bytes:
        """All up to one of ``ends``. Raises where the script ends before that."""
        while not (b"\n" + self._kept[-100:]).endswith(ends):
            if not self._more():
                self.finish()
                break
        return bytes(self._kept)

    def poll(self) -> None:
        """Send what waits, and take in what came; raises where the script has failed already."""
        self._wait(None if self._channels.full else 0.0)
        if self._status is not None or self._channels.closed:
            self.finish()

    def finish(self) -> None:
        """Read on to the end of the script. Raises where it failed."""
        while self._more():
            self._kept.clear()
        code = exec.exit_code(exec.how_ended(self._status), self._place, ["sh"])
        if code:
            raise _failure(self._errors.decode(errors="replace"), self._what, self._place)

    def _more(self) -> bool:
        if self._status is not None or self._channels.closed:
            return False
        self._wait(None)
        return True

    def _wait(self, timeout: float | None) -> None:
        """Send and take in. Raises what the script says of itself, and `Unreachable` where nothing moves any more."""
        messages, _ = self._channels.wait(timeout)
        self._take(messages)
        if _GAVE_UP.search(self._errors):
            raise _failure(self._errors.decode(errors="replace"), self._what, self._place)
        now, left = time.monotonic(), self._channels.backlog
        limit = STALLED if left else self.answer_within
        if messages or left < self._left or limit is None:
            self._moved = now
        elif now > self._moved + limit:
            what = "taken" if left else "heard from"
            raise Unreachable(
                f"cannot copy {self._what!r}: nothing was {what} there for {limit:.3g} s; copy it again"
            )
        self._left = left

    def _take(self, messages: list[tuple[int, bytes]]) -> None:
        for channel, data in messages:
            if channel == exec_stream.STDOUT:
                self._kept += data
                self._count += len(data)
                self._tell(self._count, None)
            elif channel == exec_stream.STDERR:
                self._errors += data[: 1 << 16]
            elif channel == exec_stream.STATUS:
                self._status = data


def _failure(said: str, what: str, place: ContainerRef) -> BackendError | NotFound | SpecError:
    """The error for what a script said of itself, or a tool in it."""
    found = _GAVE_UP.search(said.encode())
    if found is None:
        return BackendError(
            f"cannot copy {what!r}: {one_line(said) or 'the copying was cut short'}"
        )
    why, before = found[1].decode(), one_line(said.encode()[: found.start()].decode())
    if why.startswith("needs "):
        return SpecError(
            f"cannot copy {what!r}: the image of {place.process!r} has no {why.removeprefix('needs ')}"
        )
    words = {
        "no folder": f"there is no such folder beside {place.process!r}",
        "not there": f"there is no such file or folder beside {place.process!r}",
        "is a folder": "a file cannot take the place of a folder",
        "is a file": "a folder cannot take the place of a file",
        "could not be merged": "it could not be merged with what is there",
    }
    if why not in words:
        return BackendError(f"cannot copy {what!r}: {why}{f': {before}' if before else ''}")
    kind = NotFound if why in ("no folder", "not there") else SpecError
    return kind(f"cannot copy {what!r}: {words[why]}")


# --- to a process ---


def _upload(
    api: Api, scope: Scope, place: ContainerRef, source: str, target: RemotePath, tell: Progress
) -> None:
    tree = archive.Outgoing(source)
    parent, _ = _split(target.path)
    base = "" if Path(source).name in ("", "..") or source.endswith("/.") else Path(source).name
    wanted = _plain(target.path.rstrip("/") or "/")
    if target.path.endswith("/"):
        wanted, parent = f"{wanted}/", f"{wanted}/"
    words = [
        wanted, base, _plain(parent), "folder" if tree.is_folder else "file", str(tree.size),
        f".symphony-{secrets.token_hex(6)}", f"{tree.mode:o}",
    ]  # fmt: skip
    script = ["sh", "-c", _RECEIVE, "sh", *_TOOLS_TO_RECEIVE, "--", *words]
    with exec.connect(api, scope, place, script, stdin=True) as channels:
        output = _Output(channels, place, str(target), lambda _done, _of: None)
        output.until((b"\n" + _READY,))
        output.read(len(_READY))
        for data, done in _counted(tree.stream()):
            channels.send(exec_stream.STDIN, data)
            tell(done, tree.size)
            output.poll()
        output.answer_within = STALLED + tree.size / SLOWEST
        said = output.until(tuple(f"\n\n{tool}\n".encode() for tool in archive.TOOLS))
        try:
            _compare(tree.digests, said, str(target))
        except BackendError:
            channels.send(exec_stream.STDIN, b"drop\n")
            with contextlib.suppress(BackendError):  # when it is told, nothing is left there
                output.finish()
            raise
        channels.send(exec_stream.STDIN, b"keep\n")
        output.finish()


def _counted(pieces: Iterator[bytes]) -> Iterator[tuple[bytes, int]]:
    done = 0
    for piece in pieces:
        done += len(piece)
        yield piece, done


def _compare(digests: Digests, said: bytes, what: str) -> None:
    """Compare what was read with what was written. Raises `BackendError` for a difference."""
    listed, _, tool = said.rstrip(b"\n").rpartition(b"\n")
    if tool.decode(errors="replace") not in archive.TOOLS:
        raise Unreachable(
            f"the connection was lost while {what!r} was compared with what it was copied from"
        )
    wrong = digests.missing_in(listed, tool.decode())
    if wrong is not None:
        raise BackendError(
            f"cannot copy {what!r}: {wrong!r} differs from what was copied; was it written meanwhile? copy it again"
        )


# --- paths ---


def _split(path: str) -> tuple[str, str]:
    """The folder and the name in it; ``.`` as the name where all of the folder is meant."""
    whole = path.rstrip("/") or "/"
    folder, name = posixpath.split(whole)
    if name in ("", ".", ".."):
        return _plain(whole), "."
    return _plain(folder or "."), name


def _plain(path: str) -> str:
    """A path that no tool takes for an option."""
    return path if path.startswith(("/", "./")) or path == "." else f"./{path}"
