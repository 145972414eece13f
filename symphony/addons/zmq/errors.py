"""The exceptions of the ZeroMQ classes. They also raise `NotFound` if the environment does not have
a service.

    ZmqError (a SymphonyError)
    ├── ZmqOptionError (also a ValueError)      a keyword that cannot be used
    │   └── ZmqAddressError                     an address that is malformed, in use or of another machine
    ├── ZmqOrderError (also a ValueError)       a call out of turn: recv and send alternate; one thread at a time;
    │                                           nothing that was opened before a fork is used after it
    ├── ZmqMessageError (also a ValueError)     a message that the serializer cannot write or read
    ├── ZmqTimeoutError (also a TimeoutError)   nothing came, or could be sent, in time
    ├── ZmqRemoteError                          the server's handler failed; the text is its error
    └── ZmqClosedError                          the object was closed

Catch `ZmqError` to catch all of them.
"""

from __future__ import annotations

from symphony.errors import SymphonyError


class ZmqError(SymphonyError):
    """The base class of all exceptions that the ZeroMQ classes raise deliberately."""


class ZmqOptionError(ZmqError, ValueError):
    """A keyword has an invalid value."""


class ZmqAddressError(ZmqOptionError):
    """An address is malformed, in use, or belongs to another machine."""


class ZmqOrderError(ZmqError, ValueError):
    """A call was made out of order: a server alternates recv and send, and two threads must not use
    one object at the same time.

    It is also raised if an object is used in a forked child and was opened before the fork.
    """


class ZmqMessageError(ZmqError, ValueError):
    """The serializer cannot write or read a message."""


class ZmqTimeoutError(ZmqError, TimeoutError):
    """Nothing was received, or could be sent, in time."""


class ZmqRemoteError(ZmqError):
    """The server replied with an error. The text is that of the server."""


class ZmqClosedError(ZmqError):
    """The object was closed, by this thread or by another one."""


def told(exc: BaseException) -> str:
    """Return the text of an exception, or nothing if its ``__str__`` fails."""
    try:
        return str(exc)
    except Exception:
        return ""
