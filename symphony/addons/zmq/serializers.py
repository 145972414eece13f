"""Converting messages to bytes and back, with a named serializer or a pair of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symphony.addons.zmq.errors import ZmqMessageError, ZmqOptionError, exception_text
from symphony.errors import PluginError, shown
from symphony.support.names import did_you_mean

Dumps = Callable[[Any], bytes]
Loads = Callable[[bytes], Any]
Serializer = str | tuple[Dumps, Loads] | None
Codec = tuple[Dumps | None, Loads | None]


def codec(serializer: Serializer) -> Codec:
    """Return the functions that write and read messages with ``serializer``. If ``serializer`` is
    None, messages are bytes, and both functions are None.

    If the serializer cannot write or read a message, the functions raise `ZmqMessageError` with the
    original error as its cause. Reading a ``"pickle"`` message can run arbitrary code from the
    sender, so use ``"pickle"`` only with trusted senders.
    """
    if serializer is None:
        return None, None
    if isinstance(serializer, str):
        if serializer not in _BY_NAME:
            known = ", ".join(map(repr, _BY_NAME))
            raise ZmqOptionError(
                f"unknown serializer {shown(serializer)}{did_you_mean(serializer, _BY_NAME)}; "
                f"the serializers are None, {known}"
            )
        name, (dumps, loads) = serializer, _BY_NAME[serializer]()
    else:
        name, (dumps, loads) = "given", _pair(serializer)
    return _writing(dumps, name), _reading(loads, name)


def _pair(serializer: object) -> tuple[Dumps, Loads]:
    if (
        isinstance(serializer, (tuple, list))
        and len(serializer) == 2
        and all(map(callable, serializer))
    ):
        return serializer[0], serializer[1]
    raise ZmqOptionError(
        "a serializer must be a name or a pair of functions (dumps, loads), "
        f"not {shown(serializer)}"
    )


def _writing(dumps: Dumps, name: str) -> Dumps:
    def write(message: Any) -> bytes:
        try:
            return dumps(message)
        except Exception as exc:
            raise ZmqMessageError(
                f"the {name} serializer cannot write a message of type "
                f"{type(message).__name__}: {exception_text(exc)}"
            ) from exc

    return write


def _reading(loads: Loads, name: str) -> Loads:
    def read(data: bytes) -> Any:
        try:
            return loads(data)
        except Exception as exc:
            raise ZmqMessageError(
                f"the {name} serializer cannot read a message of {len(data)} bytes: "
                f"{exception_text(exc)}; both sides must use the same serializer"
            ) from exc

    return read


def _str() -> tuple[Dumps, Loads]:
    return str.encode, bytes.decode


def _json() -> tuple[Dumps, Loads]:
    import json

    encode, decode = json.JSONEncoder(separators=(",", ":")).encode, json.JSONDecoder().decode
    return lambda message: encode(message).encode(), lambda data: decode(data.decode())


def _msgpack() -> tuple[Dumps, Loads]:
    import functools

    try:
        import msgpack  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise PluginError(
            "the serializer 'msgpack' needs the package 'msgpack'; "
            "install it with: pip install msgpack"
        ) from None
    # By default, msgpack writes maps whose keys are neither strings nor bytes, but refuses to read
    # them.
    return msgpack.packb, functools.partial(msgpack.unpackb, strict_map_key=False)


def _pickle() -> tuple[Dumps, Loads]:
    import functools
    import pickle

    return functools.partial(pickle.dumps, protocol=pickle.HIGHEST_PROTOCOL), pickle.loads


_BY_NAME: dict[str, Callable[[], tuple[Dumps, Loads]]] = {
    "str": _str,
    "json": _json,
    "msgpack": _msgpack,
    "pickle": _pickle,
}
