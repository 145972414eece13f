"""The exceptions of the ZeroMQ classes. These classes also raise `NotFound` if the environment does
not contain a service.

    ZmqError (a SymphonyError)
    ├── ZmqOptionError (also a ValueError)      a keyword has an invalid value
    │   └── ZmqAddressError                     an address is malformed, in use or remote
    ├── ZmqOrderError (also a ValueError)       a call was made out of order
    ├── ZmqMessageError (also a ValueError)     the serializer cannot write or read a message
    ├── ZmqTimeoutError (also a TimeoutError)   nothing was received, or could be sent, in time
    ├── ZmqRemoteError                          the server replied with an error
    └── ZmqClosedError                          the object was closed

Catch `ZmqError` to handle all ZeroMQ exceptions.
"""

from __future__ import annotations

from symphony.errors import SymphonyError


class ZmqError(SymphonyError):
    """The base class of all exceptions that the ZeroMQ classes raise deliberately."""


class ZmqOptionError(ZmqError, ValueError):
    """A keyword argument has an invalid value."""


class ZmqAddressError(ZmqOptionError):
    """An address is malformed, in use, or belongs to another machine."""


class ZmqOrderError(ZmqError, ValueError):
    """A call was made out of order. A server must alternate between recv and send, and two threads
    must not use one object at the same time.

    This error is also raised if an object that was opened before a fork is used in the child.
    """


class ZmqMessageError(ZmqError, ValueError):
    """The serializer cannot write or read a message."""


class ZmqTimeoutError(ZmqError, TimeoutError):
    """No message was received, or a message could not be sent, in time."""


class ZmqRemoteError(ZmqError):
    """The server replied with an error. The text of this exception comes from the server."""


class ZmqClosedError(ZmqError):
    """The object was closed by this thread or by another thread."""


def exception_text(exc: BaseException) -> str:
    """Return the text of an exception, or an empty string if its ``__str__`` method fails."""
    try:
        return str(exc)
    except Exception:
        return ""
