"""What the ZeroMQ classes raise, beside `NotFound` for a service that the environment does not have.

    ZmqError (a SymphonyError)
    ├── ZmqOptionError (also a ValueError)      a keyword that cannot be used
    │   └── ZmqAddressError                     an address that is malformed, in use or of another machine
    ├── ZmqOrderError (also a ValueError)       a call out of turn: recv and send alternate; one thread at a time;
    │                                           nothing that was opened before a fork is used after it
    ├── ZmqMessageError (also a ValueError)     a message that the serializer cannot write or read
    ├── ZmqTimeoutError (also a TimeoutError)   nothing came, or could be sent, in time
    ├── ZmqRemoteError                          the server's handler failed; the text is its error
    └── ZmqClosedError                          the object was closed

All of them can be caught at once as `ZmqError`.
"""

from __future__ import annotations

from symphony.errors import SymphonyError


class ZmqError(SymphonyError):
    """The root of what the ZeroMQ classes raise on purpose."""


class ZmqOptionError(ZmqError, ValueError):
    """A keyword that cannot be used."""


class ZmqAddressError(ZmqOptionError):
    """An address that is malformed, in use, or of another machine."""


class ZmqOrderError(ZmqError, ValueError):
    """A call out of turn: a server's recv and send alternate, and no object is used by two threads at once.

    Nor is one that was opened before a fork used after it.
    """


class ZmqMessageError(ZmqError, ValueError):
    """A message that the serializer cannot write or read."""


class ZmqTimeoutError(ZmqError, TimeoutError):
    """Nothing came, or could be sent, in time."""


class ZmqRemoteError(ZmqError):
    """The server answered with an error; the text is the server's."""


class ZmqClosedError(ZmqError):
    """The object was closed, here or by another thread."""


def told(exc: BaseException) -> str:
    """What an exception says of itself; nothing where it fails even at that."""
    try:
        return str(exc)
    except Exception:
        return ""
