"""Copy files and directories from and to a process's container, as a tar stream over exec.

A copy is written to a staging directory next to its target. Both sides compute a checksum, and the
copy is only moved to the target if the checksums are equal: of the stream that comes from a
container, or of the files that were unpacked in a container. The container needs a shell, tar,
find, cksum and common file utilities such as mv.
"""

from __future__ import annotations

import posixpath
import re
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.cluster.remote_path import RemotePath, parse_transfer
from symphony.errors import BackendError, NotFound, SpecError, Unreachable
from symphony_kube.access import exec
from symphony_kube.access.checksum import Checksum
from symphony_kube.access.exec_stream import ExecStream
from symphony_kube.access.tar_stream import IncomingArchive, IncompleteArchive, OutgoingArchive
from symphony_kube.api.errors import one_line
from symphony_kube.api.streams import channels
from symphony_kube.state.pod_status import ContainerRef
from symphony_kube.status.find_pod import running_container

if TYPE_CHECKING:
    from symphony.cluster import Progress
    from symphony_kube.api.kube_experiment import KubeExperiment

# Every script begins with this preamble. A script that fails writes a line with this prefix to
# standard error, because Kubernetes may never report the exit code of a command that has not read
# all its input.
_FAILURE_PREFIX = "symphony: "
# A script that sends a stream writes its checksum in a line with this prefix to standard error.
_CHECKSUM_PREFIX = "symphony-checksum: "
_PREAMBLE = f"""\
clean() {{ :; }}
fail() {{ clean; printf '{_FAILURE_PREFIX}%s\\n' "$1" >&2; exit 1; }}
for tool in "$@"; do
    [ "$tool" = -- ] && break
    command -v "$tool" >/dev/null 2>&1 || fail "needs $tool"
done
while [ "$1" != -- ]; do shift; done; shift
"""
# This script writes a file, or the contents of a directory, to standard output as a tar stream. If
# the path that the user gives is a link, the script follows the link. It preserves all other links.
# The checksum of the stream is written to standard error. The command tee cannot open the standard
# output of the container by its path if the user of the container does not own it, but it can open
# the pipe to cksum. Kubernetes sends each write separately, so dd makes fewer and larger writes.
_SEND = (
    _PREAMBLE
    + f"""\
cd -- "$1" 2>/dev/null || fail "no directory"
[ -e "$2" ] || fail "not found"
options=-chf
if [ -d "$2" ]; then
    cd -- "$2" || fail "cannot be read"
    options=-cf
    set -- . .
fi
state() {{ find -H "$1" -type f -exec stat -L -c '%n %s %y' {{}} + | cksum; }}
before=$(state "$2")
exec 4>&1
{{ tar "$options" - "$2" || fail "it could not be packed"; }} |
    {{ tee /dev/fd/3 | dd ibs=65536 obs=65536 2>/dev/null >&4; }} 3>&1 |
    cksum |
    {{ read -r sum size _; printf '{_CHECKSUM_PREFIX}%s %s\\n' "$sum" "$size" >&2; }}
[ "$(state "$2")" = "$before" ] || fail "changed"
"""
)
# This script prints "ready" when it can receive input. It then unpacks a tar stream until the end
# of the input, and moves the files to the target if their contents have the checksum that the
# stream contains. Some versions of tar do not read the end of the stream. GNU tar writes files much
# faster if it reads larger blocks. Other versions ignore the variable.
_READY = b"ready\n"
_RECEIVE = (
    _PREAMBLE
    + """\
target=$1 base=$2 parent=$3 kind=$4 tmp=$5 mode=$6
if [ -d "$target" ]; then parent=$target; [ "$base" ] && target=$target/$base; fi
[ -d "$parent" ] || fail "no directory"
if [ "$kind" = file ]; then [ -d "$target" ] && fail "is a directory"
elif [ -e "$target" ] && [ ! -d "$target" ]; then fail "is a file"; fi
tmp=$parent/$tmp
mkdir -m 700 "$tmp" || fail "its directory is not writable"
clean() { chmod -R u+rwx "$tmp" 2>/dev/null; rm -rf "$tmp" 2>/dev/null; }
trap clean EXIT
trap 'fail "the copy was interrupted in the container"' HUP INT TERM
trap 'exit 1' PIPE
echo ready
{ TAR_OPTIONS=-b128 tar -xpf - -C "$tmp" >&2 && cat >/dev/null; } ||
    fail "it could not be unpacked"
received=$(cd "$tmp" && xargs -0 cat <files | cksum)
[ "$received" = "$(cat "$tmp/checksum")" ] || fail "differs"
if [ ! -d "$target" ]; then
    mv -f "$tmp/it" "$target" && chmod "$mode" "$target" ||
        fail "it could not be moved to its target"
    exit
fi
cd "$tmp/it" || fail "it could not be moved to its target"
case $target in /*) ;; *) target=$OLDPWD/$target;; esac
find . -type d -exec sh -c 'for d; do [ -d "$0/$d" ] || mkdir "$0/$d" || exit 1
done' "$target" {} + || fail "cannot be merged"
find . ! -type d -exec sh -c 'for f; do [ -d "$0/$f" ] && [ ! -L "$0/$f" ] && exit 3
mv -f "$f" "$0/$f" || exit 1; done' "$target" {} + || fail "cannot be merged"
"""
)
_FAILURE_LINE = re.compile(rb"^%s(.*)\n" % _FAILURE_PREFIX.encode(), re.MULTILINE)
_CHECKSUM_LINE = re.compile(rb"^%s(.*)\n" % _CHECKSUM_PREFIX.encode(), re.MULTILINE)
_MAX_ERROR_BYTES = 1 << 16
# A copy fails if the container accepts no data for this long.
STALL_SECONDS = 120.0
# The lowest speed at which a container is expected to unpack files.
MIN_BYTES_PER_SECOND = 10e6
# The end of a container's output can be lost, although the command succeeded. Therefore, a copy
# from a process is tried again. kubectl has the option --retries for this case.
_TRIES = 3

_TOOLS = ("tar", "find", "cksum")
_TOOLS_TO_SEND = (*_TOOLS, "tee", "stat", "dd")
_TOOLS_TO_RECEIVE = (*_TOOLS, "xargs", "cat", "mv", "rm", "mkdir", "chmod")


def transfer(
    experiment: KubeExperiment, source: str, target: str, *, progress: Progress | None = None
) -> None:
    """Copy a file or a directory.

    Either ``source`` or ``target`` is ``process:path`` or ``group/process:path``. The rules are
    those of ``cp -r``: if the target is an existing directory, the source is copied into it under
    its own name, and ``directory/.`` means the contents of a directory. Existing directories are
    merged, and existing files are replaced. Modes and links are preserved. Raises `NotFound` if the
    process is not running, or if the source or the target directory does not exist. Raises
    `SpecError` if the copy is not possible, and `BackendError` if the copy fails or differs from
    the source.
    """
    report: Progress = progress or _no_progress
    remote_source, remote_target = parse_transfer(source, target)
    if remote_source is not None:
        ref = running_container(experiment, remote_source.process, remote_source.group)
        _download(experiment, ref, remote_source, target, report)
    elif remote_target is not None:
        ref = running_container(experiment, remote_target.process, remote_target.group)
        _upload(experiment, ref, source, remote_target, report)


def dry_run(experiment: KubeExperiment, source: str, target: str) -> None:
    """Check the arguments for `transfer` as far as possible without accessing the container."""
    remote_source, remote_target = parse_transfer(source, target)
    remote = remote_source or remote_target
    if remote is not None:
        running_container(experiment, remote.process, remote.group)
    if remote_source is not None:
        _local_target(remote_source, target)
    else:
        OutgoingArchive(source)


def _no_progress(_done: int, _total: int | None) -> None:
    """Report no progress."""


# --- from a process ---


def _local_target(source: RemotePath, target: str) -> Path:
    """Return the local path that a copy will have. Raises `NotFound` if its parent directory does
    not exist.
    """
    _, name = _split(source.path)
    path = Path(target)
    into_directory = path.is_dir() and name != "."
    destination = path / name if into_directory else path
    if target.endswith("/") and not path.is_dir():
        raise NotFound(f"there is no local directory {str(path)!r}")
    if not destination.parent.is_dir():
        raise NotFound(f"there is no local directory {str(destination.parent)!r}")
    return destination


def _download(
    experiment: KubeExperiment,
    ref: ContainerRef,
    source: RemotePath,
    target: str,
    report: Progress,
) -> None:
    for number in range(1, _TRIES + 1):
        try:
            _try_download(experiment, ref, source, target, report)
            return
        except IncompleteArchive:
            if number == _TRIES:
                raise


def _try_download(
    experiment: KubeExperiment,
    ref: ContainerRef,
    source: RemotePath,
    target: str,
    report: Progress,
) -> None:
    directory, name = _split(source.path)
    arguments = [*_TOOLS_TO_SEND, "--", directory, _not_an_option(name)]
    script = ["sh", "-c", _SEND, "sh", *arguments]
    with IncomingArchive(_local_target(source, target)) as archive:
        with exec.open_exec(experiment, ref, script) as stream:
            output = _ScriptOutput(stream, ref, str(source), report)
            archive.unpack(output)
            output.finish()
            output.compare_checksum()
        archive.commit()


class _ScriptOutput:
    """The standard output of a script, as a readable stream.

    Every method raises an error if the script has failed.
    """

    def __init__(
        self, stream: ExecStream, ref: ContainerRef, path: str, report: Progress = _no_progress
    ) -> None:
        self._stream = stream
        self._ref = ref
        self._path = path
        self._report = report
        self._unread = bytearray()
        self._errors = bytearray()
        self._checksum = Checksum()
        self._status: bytes | None = None
        self._received_bytes = 0
        self._unsent_bytes = 0
        self._last_progress = time.monotonic()
        # How long the script can be silent after it has received its input, in seconds. None means
        # that there is no limit.
        self.answer_seconds: float | None = None

    def read(self, size: int = -1) -> bytes:
        """Return ``size`` bytes, or fewer at the end of the output."""
        while size < 0 or len(self._unread) < size:
            if not self._receive_more():
                break
        length = len(self._unread) if size < 0 else size
        with memoryview(self._unread) as view:
            data = bytes(view[:length])
        del self._unread[:length]
        return data

    def compare_checksum(self) -> None:
        """Compare the checksum of the output with that in the messages of the script.

        Raises IncompleteArchive if they differ, because the end of the output can be lost.
        """
        line = _CHECKSUM_LINE.search(self._errors)
        if line is None or line[1].decode(errors="replace") != self._checksum.text():
            raise self._end_was_lost()

    def _end_was_lost(self) -> IncompleteArchive:
        return IncompleteArchive(
            f"cannot copy {self._path!r}: a part of the data was lost; copy it again"
        )

    def read_until(self, line: bytes) -> bytes:
        """Wait until the last line of the unread output is ``line``. Return the output without
        consuming it.
        """
        ending = b"\n" + line
        while not (b"\n" + self._unread[-len(ending) :]).endswith(ending):
            if not self._receive_more():
                self.finish()
                break
        return bytes(self._unread)

    def send_pending(self) -> None:
        """Send queued data and receive output. Wait only if too much data is queued."""
        self._exchange(None if self._stream.full else 0.0)
        if self._status is not None or self._stream.closed:
            self.finish()

    def finish(self) -> None:
        """Discard the output until the script exits."""
        while self._receive_more():
            self._unread.clear()
        code = exec.check_exit(exec.parse_exit(self._status), self._ref, ["sh"])
        if code:
            raise self._failure()

    def _receive_more(self) -> bool:
        """Wait for more output. Return False if the script has exited."""
        if self._status is not None or self._stream.closed:
            return False
        self._exchange(None)
        return True

    def _exchange(self, timeout: float | None) -> None:
        """Send and receive data. Raises `Unreachable` if there has been no progress for too
        long.
        """
        messages, _ = self._stream.exchange(timeout)
        for channel, data in messages:
            self._take(channel, data)
        if _FAILURE_LINE.search(self._errors):
            raise self._failure()
        now = time.monotonic()
        unsent_bytes = self._stream.unsent_bytes
        limit = STALL_SECONDS if unsent_bytes else self.answer_seconds
        progressed = bool(messages) or unsent_bytes < self._unsent_bytes
        self._unsent_bytes = unsent_bytes
        if progressed or limit is None:
            self._last_progress = now
        elif now > self._last_progress + limit:
            problem = "accepted no data" if unsent_bytes else "sent no answer"
            raise Unreachable(
                f"cannot copy {self._path!r}: the container {problem} for {limit:.3g} s; "
                "copy it again"
            )

    def _take(self, channel: int, data: bytes) -> None:
        if channel == channels.STDOUT:
            self._unread += data
            self._checksum.update(data)
            self._received_bytes += len(data)
            self._report(self._received_bytes, None)
        elif channel == channels.STDERR:
            self._errors += data[:_MAX_ERROR_BYTES]
        elif channel == channels.STATUS:
            self._status = data

    def _failure(self) -> BackendError | NotFound | SpecError:
        return _script_failure(bytes(self._errors), self._path, self._ref)


def _script_failure(
    errors: bytes, path: str, ref: ContainerRef
) -> BackendError | NotFound | SpecError:
    """Return the exception for a failed script, based on what it wrote to standard error."""
    line = _FAILURE_LINE.search(errors)
    if line is None:
        text = one_line(errors.decode(errors="replace"))
        return BackendError(f"cannot copy {path!r}: {text or 'the copy was interrupted'}")
    failure = line[1].decode(errors="replace")
    if failure.startswith("needs "):
        tool = failure.removeprefix("needs ")
        return SpecError(f"cannot copy {path!r}: the image of {ref.process!r} has no {tool}")
    not_found = {
        "no directory": f"there is no such directory in {ref.process!r}",
        "not found": f"there is no such file or directory in {ref.process!r}",
    }
    if failure in not_found:
        return NotFound(f"cannot copy {path!r}: {not_found[failure]}")
    conflicts = {
        "is a directory": "a file cannot replace a directory",
        "is a file": "a directory cannot replace a file",
        "cannot be merged": "it cannot be merged with the existing directory",
    }
    if failure in conflicts:
        return SpecError(f"cannot copy {path!r}: {conflicts[failure]}")
    if failure == "changed":
        return BackendError(f"cannot copy {path!r}: it was changed during the copy; copy it again")
    tool_message = one_line(errors[: line.start()].decode(errors="replace"))
    details = f": {tool_message}" if tool_message else ""
    if failure == "differs":
        problem = f"the copy differs from its source{details}"
        return BackendError(f"cannot copy {path!r}: {problem}; copy it again")
    return BackendError(f"cannot copy {path!r}: {failure}{details}")


# --- to a process ---


def _upload(
    experiment: KubeExperiment,
    ref: ContainerRef,
    source: str,
    target: RemotePath,
    report: Progress,
) -> None:
    archive = OutgoingArchive(source)
    script = _receive_script(archive, source, target)
    with exec.open_exec(experiment, ref, script, stdin=True) as stream:
        output = _ScriptOutput(stream, ref, str(target))
        output.read_until(_READY)
        output.read(len(_READY))

        sent_bytes = 0
        for data in archive.stream():
            stream.send(channels.STDIN, data)
            sent_bytes += len(data)
            report(sent_bytes, archive.size)
            output.send_pending()
        stream.close_channel(channels.STDIN)
        output.answer_seconds = STALL_SECONDS + archive.size / MIN_BYTES_PER_SECOND
        output.finish()


def _receive_script(archive: OutgoingArchive, source: str, target: RemotePath) -> list[str]:
    """Return the command to run in the container to receive an archive."""
    source_name = Path(source).name
    if source_name == ".." or source.endswith("/."):
        source_name = ""  # Copy the contents of the directory.
    target_path = _not_an_option(target.path.rstrip("/") or "/")
    parent, _ = _split(target.path)
    if target.path.endswith("/"):  # The target must be an existing directory.
        target_path = parent = f"{target_path}/"
    arguments = [
        target_path,
        source_name,
        _not_an_option(parent),
        "directory" if archive.is_directory else "file",
        f".symphony-{secrets.token_hex(6)}",
        f"{archive.mode:o}",
    ]
    return ["sh", "-c", _RECEIVE, "sh", *_TOOLS_TO_RECEIVE, "--", *arguments]


# --- paths ---


def _split(path: str) -> tuple[str, str]:
    """Split a path into a directory and a name in it. The name ``.`` means the whole directory."""
    whole = path.rstrip("/") or "/"
    directory, name = posixpath.split(whole)
    if name in ("", ".", ".."):
        return _not_an_option(whole), "."
    return _not_an_option(directory or "."), name


def _not_an_option(path: str) -> str:
    """Return an equivalent path that no program can interpret as an option."""
    if path == "." or path.startswith(("/", "./")):
        return path
    return f"./{path}"
