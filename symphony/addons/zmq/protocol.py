"""The format of messages on the wire, so that programs with bare ZeroMQ can exchange them. Pure.

| | frames |
| --- | --- |
| a request, a reply, a message to a puller | the message |
| a reply that is an error | its text in UTF-8, and `ERROR` |
| a publication | the topic in UTF-8, and the message |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from symphony.addons.zmq.errors import ZmqMessageError, ZmqOptionError, ZmqRemoteError, told
from symphony.addons.zmq.serializers import Dumps, Loads

ERROR = b"symphony-error"


def not_bytes(data: object, dumps: Dumps | None) -> ZmqMessageError:
    """Return the error for a message, or for the result of ``dumps``, that is not bytes."""
    kind = type(data).__name__
    try:
        memoryview(data)  # type: ignore[arg-type]
    except TypeError:
        if dumps is not None:
            return ZmqMessageError(
                f"the given serializer made {kind} of a message, not bytes; let its dumps return bytes"
            )
    else:
        return ZmqMessageError(
            f"a message is bytes in one piece, and this {kind} is not; send bytes(...) of it"
        )
    return ZmqMessageError(
        f"without a serializer a message is bytes, not {kind}; "
        "give both sides serializer='str', 'json', 'msgpack', or a pair of functions"
    )


def request_of(frames: Sequence[bytes], loads: Loads | None) -> Any:
    """Return the request in the frames. Raises `ZmqMessageError`."""
    if len(frames) != 1:
        raise ZmqMessageError(f"a request has one frame, and this has {len(frames)}")
    return frames[0] if loads is None else loads(frames[0])


def reply_of(frames: Sequence[bytes], loads: Loads | None) -> Any:
    """Return the reply in the frames. Raises `ZmqRemoteError` if it is an error, and
    `ZmqMessageError`.
    """
    if len(frames) == 1:
        return frames[0] if loads is None else loads(frames[0])
    if len(frames) == 2 and frames[1] == ERROR:
        raise ZmqRemoteError(frames[0].decode(errors="replace"))
    raise ZmqMessageError(f"a reply has one frame, and this has {len(frames)}")


def failure_of(exc: BaseException | str) -> list[bytes]:
    """Return the frames of a reply that is an error."""
    text = exc if isinstance(exc, str) else ": ".join(filter(None, (type(exc).__name__, told(exc))))
    return [text.encode(errors="replace"), ERROR]


def publication(topic: object, message: Any, dumps: Dumps | None) -> tuple[bytes, Any]:
    """Return the frames of a publication. Raises `ZmqMessageError`."""
    data = message if dumps is None else dumps(message)
    if type(data) is not bytes:
        try:
            whole = memoryview(data).contiguous
        except TypeError as exc:
            raise not_bytes(data, dumps) from exc
        if not whole:  # ZeroMQ would refuse the message only after the topic was sent.
            raise not_bytes(data, dumps)
    return encoded(topic), data


def published(frames: Sequence[bytes], loads: Loads | None) -> tuple[str, Any]:
    """Return the topic and the message in the frames of a publication. Raises `ZmqMessageError`."""
    if len(frames) != 2:
        raise ZmqMessageError(
            f"what is published has two frames, topic and message, and this has {len(frames)}"
        )
    topic, data = frames
    return topic.decode(errors="replace"), data if loads is None else loads(data)


def encoded(topic: object) -> bytes:
    """Return a topic as bytes. Raises `ZmqOptionError`."""
    if not isinstance(topic, str):
        raise ZmqOptionError(f"a topic is text, not {topic!r}")
    try:
        return topic.encode()
    except UnicodeEncodeError as exc:
        raise ZmqOptionError(f"topic {topic!r} has no form in UTF-8: {exc.reason}") from exc


def encoded_topics(topics: object) -> list[bytes]:
    """Return one or several topics as bytes."""
    if isinstance(topics, str):
        return [encoded(topics)]
    if isinstance(topics, (bytes, bytearray)) or not isinstance(topics, Iterable):
        raise ZmqOptionError(f"topics is text, or several texts, not {topics!r}")
    return [encoded(topic) for topic in topics]
