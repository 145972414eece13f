"""Send code that is too large for Secrets to the init containers that wait for it.

While a command creates Pods, a thread finds those that wait, and sends the archive over exec. The
container accepts it only as a whole; see `symphony_kube.render.file_objects.code_volumes`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from symphony.code.snapshot import CodeArchive
from symphony.code.take_snapshots import code_progress
from symphony.errors import BackendError, Unreachable
from symphony_kube.access import exec
from symphony_kube.api.errors import one_line
from symphony_kube.api.listing import list_all, reduced
from symphony_kube.api.resources import collection_path
from symphony_kube.api.streams import channels
from symphony_kube.render.file_objects.code_volumes import (
    DIGEST_VARIABLE,
    RECEIVE_SCRIPT,
    TARGET_PATH,
    WAIT_SECONDS,
)
from symphony_kube.state.pod_status import ContainerRef

if TYPE_CHECKING:
    from symphony_kube.access.exec_stream import ExecStream
    from symphony_kube.api.kube_experiment import KubeExperiment

Object = Mapping[str, Any]

POLL_SECONDS = 0.5
# The transfer fails if the container accepts no data for this long.
STALL_SECONDS = 60.0
_ATTEMPTS = 5
_PARALLEL = 4
_MESSAGE_BYTES = 1 << 18
_MAX_ERROR_BYTES = 1 << 12


@contextlib.contextmanager
def sending(experiment: KubeExperiment, archives: Iterable[CodeArchive]) -> Iterator[CodeSender]:
    """Send code to the Pods that wait for it while the block runs.

    At the end of the block, wait until all Pods have received their code. Raises `BackendError` if
    one of them does not receive it.
    """
    sender = CodeSender(experiment, archives)
    try:
        yield sender
        sender.finish()
    finally:
        sender.stop()


class CodeSender:
    """Sends archives that are too large for Secrets."""

    def __init__(self, experiment: KubeExperiment, archives: Iterable[CodeArchive]) -> None:
        self._experiment = experiment
        self._archives = {archive.snapshot.short_digest: archive for archive in archives}
        self._progress = _Progress()
        self._work: dict[tuple[str, str], Future[None]] = {}
        self._pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="code")
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="send-code")
        self._thread.start()

    def finish(self) -> None:
        """Wait until all Pods that exist have received their code. Raises `BackendError`."""
        self._join_thread()
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            waiting = self._serve()
            for work in list(self._work.values()):
                work.result()
            if not waiting:
                return
            if time.monotonic() > deadline:
                raise BackendError(
                    f"the code was not sent within {WAIT_SECONDS} s, because Pods have not "
                    f"started: {', '.join(waiting)}; see their reasons, and run up again"
                )
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Stop sending. Transfers that have begun are interrupted."""
        self._join_thread()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _join_thread(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            # If the error remains, `finish` raises it.
            with contextlib.suppress(BackendError):
                self._serve()

    def _serve(self) -> list[str]:
        """Send to the containers that wait. Return the Pods whose containers are not running."""
        path = collection_path("Pod", self._experiment.namespace)
        query = {"labelSelector": self._experiment.scope.present_selector}
        pods = list_all(self._experiment.api, path, reduced, query=query).items
        waiting = []
        for pod in pods:
            if "deletionTimestamp" in pod["metadata"] or pod["status"].get("phase") != "Pending":
                continue
            for name, digest in _receivers(pod):
                state = _state_of(pod, name)
                if "running" in state:
                    self._send_once(pod["metadata"], name, digest)
                elif "terminated" not in state and digest in self._archives:
                    waiting.append(pod["metadata"]["name"])
        return waiting

    def _send_once(self, metadata: Object, container: str, digest: str) -> None:
        key = (metadata["uid"], container)
        if key in self._work or digest not in self._archives:
            return
        ref = ContainerRef(process=container, unit="", pod=metadata["name"], uid=metadata["uid"])
        archive = self._archives[digest]
        self._progress.expect(len(archive.data))
        self._work[key] = self._pool.submit(self._send, ref, archive)

    def _send(self, ref: ContainerRef, archive: CodeArchive) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                _transfer(self._experiment, ref, archive.data, self._progress)
            except Unreachable as exc:
                # The container removes an incomplete archive.
                if attempt == _ATTEMPTS:
                    raise BackendError(f"the code cannot be sent to Pod {ref.pod}: {exc}") from exc
                self._progress.expect(len(archive.data))
                time.sleep(POLL_SECONDS * attempt)
            else:
                return


class _Progress:
    """The progress of all transfers together. Several threads use it."""

    def __init__(self) -> None:
        self._show = code_progress()
        self._lock = threading.Lock()
        self._done = self._total = 0

    def expect(self, size: int) -> None:
        """Count the bytes of another transfer."""
        with self._lock:
            self._total += size

    def add(self, size: int) -> None:
        """Count bytes that were sent."""
        with self._lock:
            self._done += size
            self._show("sent", self._done, self._total)


def _receivers(pod: Object) -> Iterator[tuple[str, str]]:
    """Yield the name of each init container that waits for code, and the digest of the code."""
    for container in pod["spec"].get("initContainers") or ():
        for variable in container.get("env") or ():
            if variable["name"] == DIGEST_VARIABLE:
                yield container["name"], variable["value"]


def _state_of(pod: Object, container: str) -> Object:
    for status in pod["status"].get("initContainerStatuses") or ():
        if status["name"] == container:
            state: Object = status.get("state") or {}
            return state
    return {}


def _transfer(
    experiment: KubeExperiment, ref: ContainerRef, data: bytes, progress: _Progress
) -> None:
    """Send an archive to a container. Raises `Unreachable` if the transfer was interrupted."""
    argv = ["/bin/sh", "-c", RECEIVE_SCRIPT, "/bin/sh", TARGET_PATH, str(len(data))]
    run_with_data(experiment, ref, argv, data, on_sent=progress.add)


def run_with_data(
    experiment: KubeExperiment,
    ref: ContainerRef,
    argv: Sequence[str],
    data: bytes,
    *,
    on_sent: Callable[[int], None] | None = None,
    stall: float = STALL_SECONDS,
) -> None:
    """Run a script in a container, which receives ``data``.

    Raises `Unreachable` if the transfer was interrupted, if the script fails, or if nothing happens
    for ``stall`` seconds.
    """
    with exec.open_exec(experiment, ref, argv, stdin=True) as stream:
        output = _Output(stall)
        view = memoryview(data)
        for start in range(0, len(view), _MESSAGE_BYTES):
            message = view[start : start + _MESSAGE_BYTES]
            stream.send(channels.STDIN, message)
            if on_sent is not None:
                on_sent(len(message))
            while stream.full and not output.is_done(stream):
                output.exchange(stream)
        while not output.is_done(stream):
            output.exchange(stream)
        code = exec.check_exit(exec.parse_exit(output.status), ref, argv)
    if code:
        reason = one_line(output.errors.decode(errors="replace")) or f"exit code {code}"
        raise Unreachable(f"the container did not accept it: {reason}")


class _Output:
    """The report of a script: its status, and its error messages."""

    def __init__(self, stall: float) -> None:
        self.status: bytes | None = None
        self.errors = b""
        self._stall = stall
        self._unsent = 0
        self._last_progress = time.monotonic()

    def is_done(self, stream: ExecStream) -> bool:
        """Return whether the script has exited."""
        return self.status is not None or stream.closed

    def exchange(self, stream: ExecStream) -> None:
        """Send and receive data. Raises `Unreachable` if there is no progress."""
        messages, _ = stream.exchange(1.0)
        for channel, content in messages:
            if channel == channels.STATUS:
                self.status = content
            elif channel == channels.STDERR:
                self.errors = (self.errors + content)[:_MAX_ERROR_BYTES]
        now = time.monotonic()
        if messages or stream.unsent_bytes != self._unsent:
            self._last_progress = now
        elif now > self._last_progress + self._stall:
            raise Unreachable(f"the container accepted no data for {self._stall:g} s")
        self._unsent = stream.unsent_bytes
