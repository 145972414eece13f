"""Validating the keyword arguments that every class accepts, and collecting them in one record,
without I/O.
"""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict, TypeVar

from symphony.addons.zmq.endpoint import SocketAddress, find
from symphony.addons.zmq.errors import ZmqOptionError
from symphony.addons.zmq.serializers import Dumps, Loads, Serializer, codec
from symphony.errors import shown
from symphony.support.names import did_you_mean, join_names

LINGER_SECONDS = 5.0
# ZeroMQ stores message counts, and times in milliseconds, as 32-bit integers.
LARGEST_INT = 2**31 - 1

Number = TypeVar("Number", int, float)


class Options(TypedDict, total=False):
    """The keyword arguments that every class accepts; see `docs/howto/messaging.md`."""

    service: str | None
    address: str | None
    host: str | None
    port: int | None
    bind: bool | None
    serializer: Serializer
    timeout: float | None
    hwm: int | None
    linger: float | None


class OwnTimeout(enum.Enum):
    """The default value of a method's ``timeout`` argument. It selects the object's timeout."""

    OWN_TIMEOUT = enum.auto()


OWN_TIMEOUT = OwnTimeout.OWN_TIMEOUT
Timeout = float | None | OwnTimeout


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The validated options for a socket. ``timeout`` and ``linger`` are in seconds, and ``hwm`` is
    the maximum number of queued messages, or None for ZeroMQ's default.

    If ``timeout`` or ``linger`` is None, there is no time limit.
    """

    place: SocketAddress
    timeout: float | None
    hwm: int | None
    linger: float | None
    dumps: Dumps | None
    loads: Loads | None


def setup(
    class_name: str,
    binds: bool,
    options: Options,
    own: Iterable[str],
    *,
    all_replicas: bool = False,
) -> Setup:
    """Validate the keyword arguments ``options`` of the class ``class_name``, and return them as a
    `Setup`.

    ``binds`` is the default value of ``bind``, and ``own`` contains the names of the class's
    additional keyword arguments. If ``all_replicas`` is true, a socket that connects to a
    replicated service connects to all replicas.

    Raises `ZmqOptionError` if an option is invalid, and `NotFound` if the environment does not
    contain the service.
    """
    known = [*Options.__annotations__, *own]
    for key in options:
        if key not in Options.__annotations__:
            hint = did_you_mean(key, known) or f"; its keywords are {join_names(known, limit=20)}"
            raise ZmqOptionError(f"{class_name} has no keyword {key!r}{hint}")
    bind = options.get("bind")
    if bind is not None and not isinstance(bind, bool):
        raise ZmqOptionError(f"bind must be True or False, not {shown(bind)}")
    dumps, loads = codec(options.get("serializer"))
    return Setup(
        place=find(
            bind=binds if bind is None else bind,
            service=options.get("service"),
            address=options.get("address"),
            host=options.get("host"),
            port=options.get("port"),
            environ=os.environ,
            all_replicas=all_replicas,
        ),
        timeout=seconds(options.get("timeout"), "timeout"),
        hwm=_hwm(options.get("hwm")),
        linger=_linger(options.get("linger", LINGER_SECONDS)),
        dumps=dumps,
        loads=loads,
    )


def seconds(value: object, what: str) -> float | None:
    """Validate ``value`` as None or a non-negative number of seconds, and return it."""
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 <= value <= sys.float_info.max
    ):
        raise ZmqOptionError(
            f"{what} must be a number of seconds of at least 0, not {shown(value)}"
        )
    return float(value)


def whole_number(value: object, what: str) -> int:
    """Validate ``value`` as a non-negative integer, and return it."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ZmqOptionError(f"{what} must be a whole number of at least 0, not {shown(value)}")
    return value


def _hwm(value: object) -> int | None:
    if value is None:
        return None
    return _at_most(LARGEST_INT, whole_number(value, "hwm"), "hwm")


def _linger(value: object) -> float | None:
    linger = seconds(value, "linger")
    if linger is None:
        return None
    return _at_most(LARGEST_INT // 1000, linger, "linger", "; None means no limit")


def _at_most(most: int, value: Number, what: str, hint: str = "") -> Number:
    if value > most:
        raise ZmqOptionError(f"{what} must be at most {most}, not {shown(value)}{hint}")
    return value
