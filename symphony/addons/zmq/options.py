"""The keywords that every class takes, checked and put into one record. Pure."""

from __future__ import annotations

import enum
import math
import os
from dataclasses import dataclass
from typing import TypedDict

from symphony.addons.zmq.errors import ZmqOptionError
from symphony.addons.zmq.places import Place, find
from symphony.addons.zmq.serializers import Dumps, Loads, Serializer, codec
from symphony.names import listing, near

LINGER = 5.0


class Options(TypedDict, total=False):
    """The keywords; `docs/messaging.md` tells of each."""

    service: str | None
    address: str | None
    host: str | None
    port: int | None
    bind: bool | None
    serializer: Serializer
    timeout: float | None
    hwm: int | None
    linger: float


class Usual(enum.Enum):
    """The value of a call's ``timeout=`` that means the object's own."""

    USUAL = enum.auto()


USUAL = Usual.USUAL
Timeout = float | None | Usual


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a socket is opened with. ``timeout`` and ``linger`` are in seconds, ``hwm`` is in messages."""

    place: Place
    timeout: float | None
    hwm: int | None
    linger: float
    dumps: Dumps | None
    loads: Loads | None


def setup(who: str, binds: bool, options: Options) -> Setup:
    """The keywords given to the class ``who``, which binds unless they say otherwise. Raises `ZmqOptionError`."""
    for key in options:
        if key not in Options.__annotations__:
            hint = near(key, Options.__annotations__) or f"; it knows {listing(Options.__annotations__, limit=20)}"
            raise ZmqOptionError(f"{who} knows no {key!r}{hint}")
    bind = options.get("bind")
    if bind is not None and not isinstance(bind, bool):
        raise ZmqOptionError(f"bind is True or False, not {bind!r}")
    dumps, loads = codec(options.get("serializer"))
    return Setup(
        place=find(
            bind=binds if bind is None else bind,
            service=options.get("service"),
            address=options.get("address"),
            host=options.get("host"),
            port=options.get("port"),
            environ=os.environ,
        ),
        timeout=seconds(options.get("timeout"), "timeout"),
        hwm=None if options.get("hwm") is None else whole(options.get("hwm"), "hwm"),
        linger=seconds(options.get("linger", LINGER), "linger") or 0.0,
        dumps=dumps,
        loads=loads,
    )


def seconds(value: object, what: str) -> float | None:
    """A number of seconds of at least 0, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ZmqOptionError(f"{what} is a number of seconds of at least 0, not {value!r}")
    return float(value)


def whole(value: object, what: str) -> int:
    """A whole number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ZmqOptionError(f"{what} is a whole number of at least 0, not {value!r}")
    return value
