"""ZeroMQ sockets for experiments. A socket that is created with a service's name works in the same
way on every backend.

| | binds | connects |
| --- | --- | --- |
| requests and replies | `ZmqServer` | `ZmqClient` |
| distributed work | `ZmqPull` | `ZmqPush` |
| topics | `ZmqPub` | `ZmqSub` |
| acknowledged messages | `ZmqReceiver` | `ZmqSender` |

`AsyncZmqClient` and the other asynchronous classes are for asyncio. Each class is imported when it
is first used. The socket classes require pyzmq.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

from symphony.support.lazy_imports import import_when_used

if TYPE_CHECKING:
    from symphony.addons.zmq.aio import (
        AsyncZmqClient,
        AsyncZmqPub,
        AsyncZmqPull,
        AsyncZmqPush,
        AsyncZmqServer,
        AsyncZmqSub,
    )
    from symphony.addons.zmq.client import ZmqClient, ZmqSender
    from symphony.addons.zmq.errors import (
        ZmqAddressError,
        ZmqClosedError,
        ZmqError,
        ZmqMessageError,
        ZmqOptionError,
        ZmqOrderError,
        ZmqRemoteError,
        ZmqTimeoutError,
    )
    from symphony.addons.zmq.pipeline import ZmqPull, ZmqPush
    from symphony.addons.zmq.pipeline import ZmqPull as ZmqPuller
    from symphony.addons.zmq.pipeline import ZmqPush as ZmqPusher
    from symphony.addons.zmq.server import ZmqReceiver, ZmqServer
    from symphony.addons.zmq.topics import ZmqPub, ZmqSub

_HOMES = {
    "aio": (
        "AsyncZmqClient",
        "AsyncZmqPub",
        "AsyncZmqPull",
        "AsyncZmqPush",
        "AsyncZmqServer",
        "AsyncZmqSub",
    ),
    "server": ("ZmqReceiver", "ZmqServer"),
    "client": ("ZmqClient", "ZmqSender"),
    "errors": (
        "ZmqAddressError",
        "ZmqClosedError",
        "ZmqError",
        "ZmqMessageError",
        "ZmqOptionError",
        "ZmqOrderError",
        "ZmqRemoteError",
        "ZmqTimeoutError",
    ),
    "pipeline": ("ZmqPull", "ZmqPush"),
    "topics": ("ZmqPub", "ZmqSub"),
}

__all__ = [
    "AsyncZmqClient",
    "AsyncZmqPub",
    "AsyncZmqPull",
    "AsyncZmqPush",
    "AsyncZmqServer",
    "AsyncZmqSub",
    "ZmqAddressError",
    "ZmqClient",
    "ZmqClosedError",
    "ZmqError",
    "ZmqMessageError",
    "ZmqOptionError",
    "ZmqOrderError",
    "ZmqPub",
    "ZmqPull",
    "ZmqPuller",
    "ZmqPush",
    "ZmqPusher",
    "ZmqReceiver",
    "ZmqRemoteError",
    "ZmqSender",
    "ZmqServer",
    "ZmqSub",
    "ZmqTimeoutError",
]


def _load(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(f"symphony.addons.zmq.{module}"), name)
    except ModuleNotFoundError as exc:
        if exc.name != "zmq":
            raise
        from symphony.errors import PluginError
        from symphony.support.install_hints import install_command

        raise PluginError(
            f"{name} needs the package 'pyzmq'; install it with: {install_command('zmq')}"
        ) from exc


_LOADERS = {
    name: partial(_load, module, name) for module, names in _HOMES.items() for name in names
}
_LOADERS["ZmqPuller"] = _LOADERS["ZmqPull"]
_LOADERS["ZmqPusher"] = _LOADERS["ZmqPush"]

__getattr__, __dir__ = import_when_used(__name__, _LOADERS)
