"""Messages as they stand on the wire, so that programs with bare ZeroMQ can talk to these. Pure.

| | frames |
| --- | --- |
| a request, a reply, a message to a puller | the message |
| a reply that is an error | its text in UTF-8, and `ERROR` |
| a publication | the topic in UTF-8, and the message |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from symphony.addons.zmq.errors import ZmqMessageError, ZmqOptionError, ZmqRemoteError
from symphony.addons.zmq.serializers import Dumps, Loads

ERROR = b"symphony-error"


def not_bytes(message: object) -> ZmqMessageError:
    """The error for a message of which no serializer made bytes."""
    return ZmqMessageError(
        f"without a serializer a message is bytes, not {type(message).__name__}; "
        "give both sides serializer='str', 'json', 'msgpack', or a pair of functions"
    )


def request_of(frames: Sequence[bytes], loads: Loads | None) -> Any:
    """The request that frames hold. Raises `ZmqMessageError`."""
    if len(frames) != 1:
        raise ZmqMessageError(f"a request has one frame, and this has {len(frames)}")
    return frames[0] if loads is None else loads(frames[0])


def reply_of(frames: Sequence[bytes], loads: Loads | None) -> Any:
    """The reply that frames hold. Raises `ZmqRemoteError` where it is an error, and `ZmqMessageError`."""
    if len(frames) == 1:
        return frames[0] if loads is None else loads(frames[0])
    if len(frames) == 2 and frames[1] == ERROR:
        raise ZmqRemoteError(frames[0].decode(errors="replace"))
    raise ZmqMessageError(f"a reply has one frame, and this has {len(frames)}")


def failure_of(exc: BaseException | str) -> list[bytes]:
    """The frames of a reply that is an error."""
    text = exc if isinstance(exc, str) else f"{type(exc).__name__}: {exc}"
    return [text.encode(errors="replace"), ERROR]


def publication(topic: object, message: Any, dumps: Dumps | None) -> tuple[bytes, Any]:
    """The frames of a publication. Raises `ZmqMessageError`."""
    data = message if dumps is None else dumps(message)
    if type(data) is not bytes:
        try:
            memoryview(data)
        except TypeError as exc:
            raise not_bytes(message) from exc
    return encoded(topic), data


def published(frames: Sequence[bytes], loads: Loads | None) -> tuple[str, Any]:
    """The topic and the message that the frames of a publication hold. Raises `ZmqMessageError`."""
    if len(frames) != 2:
        raise ZmqMessageError(f"what is published has two frames, topic and message, and this has {len(frames)}")
    topic, data = frames
    return topic.decode(errors="replace"), data if loads is None else loads(data)


def encoded(topic: object) -> bytes:
    """A topic as it stands on the wire."""
    if not isinstance(topic, str):
        raise ZmqOptionError(f"a topic is text, not {topic!r}")
    return topic.encode()


def encoded_topics(topics: str | Iterable[str]) -> list[bytes]:
    """One or several topics as they stand on the wire."""
    return [encoded(topic) for topic in ([topics] if isinstance(topics, str) else topics)]
