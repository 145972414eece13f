"""A reader of a followed log whose server does not have the previous log at once."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest

from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import Scope
from symphony_kube.logs import follow
from symphony_kube.logs.lines import LogPosition
from symphony_kube.logs.sources import LogSource, iter_log_chunks
from symphony_kube.state.pod_status import ContainerRef

SCOPE = Scope(experiment="e", namespace="n", shared=True)
REF = ContainerRef(process="p", unit="p", pod="e-p", uid="u", restarts=1, has_log=True)
PREVIOUS, CURRENT = LogSource(ref=REF, previous=True), LogSource(ref=REF)


def line(second: int) -> bytes:
    return f"2024-01-01T00:00:{second:02}.000000000Z line {second}\n".encode()


class Stream:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def chunks(self) -> Iterator[bytes]:
        yield self._content

    def close(self) -> None:
        """Do nothing, because the content is complete."""


class Node:
    """A server with the two logs of a container.

    The first requests for the previous log are answered with the statuses ``faults``. ``requests``
    contains "previous" and "current".
    """

    def __init__(self, *faults: int, previous: bytes = line(1), current: bytes = line(2)) -> None:
        self.requests: list[str] = []
        self._faults = list(faults)
        self._logs = {"previous": previous, "current": current}

    def open_stream(self, _: str, *, query: dict[str, Any], **__: object) -> Stream:
        name = "previous" if query["previous"] else "current"
        self.requests.append(name)
        if name == "previous" and self._faults:
            raise ApiError("no previous log", status=self._faults.pop(0))
        return Stream(self._logs[name])


def read(
    node: Node, *sources: LogSource, position: LogPosition | None = None, follows: bool = False
) -> tuple[list[bytes], Any]:
    """Return the lines that a reader puts into its queue, and its error."""
    events: queue.Queue[Any] = queue.Queue()

    def put(event: object) -> bool:
        events.put(event)
        return True

    place = LogPosition() if position is None else position
    reader = follow._LogReader(
        KubeExperiment(node, SCOPE), place, list(sources), put, is_final=not follows, follow=follows
    )
    reader.start()
    lines: list[bytes] = []
    while True:
        event = events.get(timeout=30)
        if isinstance(event, follow._ReaderFinished):
            return lines, event.error
        lines += event.lines


def texts(*seconds: int) -> list[bytes]:
    return [line(second).rstrip() for second in seconds]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PREVIOUS_PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize("follows", [False, True])
def test_the_previous_log_is_requested_again(status: int, follows: bool) -> None:
    node = Node(status)
    assert read(node, PREVIOUS, CURRENT, follows=follows) == (texts(1, 2), None)
    assert node.requests == ["previous", "previous", "current"]


def test_the_current_log_is_read_if_there_is_no_previous_one() -> None:
    node = Node(*[404] * 9)
    assert read(node, PREVIOUS, CURRENT) == (texts(2), None)
    assert node.requests == ["previous"] * follow.PREVIOUS_TRIES + ["current"]


def test_another_error_is_reported() -> None:
    lines, error = read(Node(500), PREVIOUS, CURRENT)
    assert lines == []
    assert error.status == 500


def test_the_previous_log_that_a_restart_in_the_meantime_requires_is_requested_again() -> None:
    """The lines of the current log show that the container was restarted."""
    position = LogPosition()
    position.remember(texts(1))
    node = Node(400, previous=line(1) + line(2), current=line(3))
    lines, error = read(node, CURRENT, position=position, follows=True)
    assert (sorted(lines), error) == (texts(2, 3), None)
    assert node.requests == ["current", "previous", "previous"]


# --- the log so far ---


class Chunks(Stream):
    """A log that arrives in chunks. ``sent`` is the number of chunks that were requested."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks
        self.sent = 0

    def chunks(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.sent += 1
            yield chunk


class ChunkNode(Node):
    """A server whose logs arrive in the given chunks."""

    def __init__(self, *chunks: bytes) -> None:
        super().__init__()
        self.stream = Chunks(*chunks)

    def open_stream(self, path: str, *, query: dict[str, Any], **_: object) -> Stream:
        super().open_stream(path, query=query)
        return self.stream


def chunks_of(node: Node, source: LogSource = CURRENT) -> Iterator[bytes]:
    return iter_log_chunks(KubeExperiment(node, SCOPE), source)


def test_large_log_is_read_in_chunks() -> None:
    node = ChunkNode(b"a" * 10, b"b" * 2000, b"c" * 2000, b"d")
    chunks = chunks_of(node)
    assert next(chunks) == b"a" * 10 + b"b" * 2000
    assert node.stream.sent == 2
    assert list(chunks) == [b"c" * 2000, b"d"]


def test_message_about_a_missing_log_is_not_its_content() -> None:
    message = b"unable to retrieve container logs for containerd://4e653d"
    assert list(chunks_of(ChunkNode(message[:9], message[9:]))) == []
    assert list(chunks_of(ChunkNode(b"one\n", b"two"))) == [b"one\ntwo"]
    assert list(chunks_of(ChunkNode())) == []
    assert list(chunks_of(Node(404), PREVIOUS)) == []
