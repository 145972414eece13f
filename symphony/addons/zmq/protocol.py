"""The wire format of messages. Other programs can also use it with plain ZeroMQ sockets.

| | frames |
| --- | --- |
| a request, a reply, a message to a puller | the message |
| an error reply | the error's text in UTF-8, and `ERROR` |
| a publication | the topic in UTF-8, and the message |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from symphony.addons.zmq.errors import (
    ZmqMessageError,
    ZmqOptionError,
    ZmqRemoteError,
    exception_text,
)
from symphony.addons.zmq.serializers import Dumps, Loads
from symphony.errors import shown

ERROR = b"symphony-error"


def not_bytes_error(data: object, dumps: Dumps | None) -> ZmqMessageError:
    """Return the error for ``data``, a message or a result of ``dumps`` that is not contiguous
    bytes.
    """
    kind = type(data).__name__
    try:
        memoryview(data)  # type: ignore[arg-type]
    except TypeError:
        if dumps is not None:
            return ZmqMessageError(
                f"the dumps function of the serializer returned {kind}, not bytes; let it return "
                "bytes"
            )
    else:
        return ZmqMessageError(
            f"a message must be contiguous bytes, and this {kind} is not; send bytes(...) of it"
        )
    return ZmqMessageError(
        f"without a serializer, a message must be bytes, not {kind}; "
        "give both sides serializer='str', 'json', 'msgpack', or a pair of functions"
    )


def parse_request(frames: Sequence[bytes], loads: Loads | None) -> Any:
    """Return the request that ``frames`` contain. Raises `ZmqMessageError` if it cannot be read."""
    if len(frames) != 1:
        raise ZmqMessageError(f"a request must have one frame, not {len(frames)}")
    return frames[0] if loads is None else loads(frames[0])


def parse_reply(frames: Sequence[bytes], loads: Loads | None) -> Any:
    """Return the reply that ``frames`` contain. Raises `ZmqRemoteError` if the reply is an error,
    and `ZmqMessageError` if the reply cannot be read.
    """
    if len(frames) == 1:
        return frames[0] if loads is None else loads(frames[0])
    if len(frames) == 2 and frames[1] == ERROR:
        raise ZmqRemoteError(frames[0].decode(errors="replace"))
    raise ZmqMessageError(f"a reply must have one frame, not {len(frames)}")


def error_reply(exc: BaseException | str) -> list[bytes]:
    """Return the frames of an error reply."""
    if isinstance(exc, str):
        text = exc
    else:
        message = exception_text(exc)
        text = type(exc).__name__
        if message:
            text += f": {message}"
    return [text.encode(errors="replace"), ERROR]


def error_text(text: object) -> str:
    """Validate the text of an error reply, and return it."""
    if not isinstance(text, str):
        raise ZmqOptionError(f"the text of an error must be text, not {shown(text)}")
    return text


def publication_frames(topic: object, message: Any, dumps: Dumps | None) -> tuple[bytes, Any]:
    """Return the frames of a publication. Raises `ZmqMessageError` if the message cannot be
    serialized or is not bytes, and `ZmqOptionError` if the topic is invalid.
    """
    data = message if dumps is None else dumps(message)
    if type(data) is not bytes:
        try:
            contiguous = memoryview(data).contiguous
        except TypeError as exc:
            raise not_bytes_error(data, dumps) from exc
        if not contiguous:  # ZeroMQ would reject the message only after sending the topic.
            raise not_bytes_error(data, dumps)
    return encode_topic(topic), data


def parse_publication(frames: Sequence[bytes], loads: Loads | None) -> tuple[str, Any]:
    """Return the topic and the message of a publication. Raises `ZmqMessageError` if they cannot
    be read.
    """
    if len(frames) != 2:
        raise ZmqMessageError(
            f"a publication must have two frames, topic and message, not {len(frames)}"
        )
    topic, data = frames
    return topic.decode(errors="replace"), data if loads is None else loads(data)


def encode_topic(topic: object) -> bytes:
    """Return a topic encoded in UTF-8. Raises `ZmqOptionError` if the topic is invalid."""
    if not isinstance(topic, str):
        raise ZmqOptionError(f"a topic must be text, not {shown(topic)}")
    try:
        return topic.encode()
    except UnicodeEncodeError as exc:
        raise ZmqOptionError(
            f"topic {shown(topic)} cannot be encoded in UTF-8: {exc.reason}"
        ) from exc


def encode_topics(topics: object) -> list[bytes]:
    """Return a list of one or several topics, each encoded in UTF-8. Raises `ZmqOptionError` if a
    topic is invalid.
    """
    if isinstance(topics, str):
        return [encode_topic(topics)]
    if isinstance(topics, (bytes, bytearray)) or not isinstance(topics, Iterable):
        raise ZmqOptionError(f"topics must be text or several texts, not {shown(topics)}")
    return [encode_topic(topic) for topic in topics]
