"""The exceptions that the ZeroMQ classes raise. These classes also raise `NotFound` if no
environment variable contains the service's address or, if the service is encrypted, its keys.

    ZmqError (a SymphonyError)
    ├── ZmqOptionError (also a ValueError)      an argument is invalid
    │   └── ZmqAddressError                     an address is malformed or cannot be used
    ├── ZmqOrderError (also a ValueError)       a call was made out of order
    ├── ZmqMessageError (also a ValueError)     a message cannot be written or read
    ├── ZmqTimeoutError (also a TimeoutError)   nothing was received, or could be sent, in time
    ├── ZmqRemoteError                          the server replied with an error
    └── ZmqClosedError                          the object was closed

Catch `ZmqError` to handle all ZeroMQ exceptions.
"""

from __future__ import annotations

from symphony.errors import SymphonyError


class ZmqError(SymphonyError):
    """The base class of the exceptions in this module."""


class ZmqOptionError(ZmqError, ValueError):
    """An argument has an invalid value, or there is no keyword argument with the given name."""


class ZmqAddressError(ZmqOptionError):
    """An address is malformed, or a socket cannot be bound or connected to it, for example, because
    it is in use or belongs to another machine. This error is also raised if no address, or more
    than one, is specified.
    """


class ZmqOrderError(ZmqError, ValueError):
    """A call was made out of order. A server must call `recv` and `send` alternately, and two
    threads must not use the same object at the same time.

    This error is also raised if an object that was opened before a fork is used in the child.
    """


class ZmqMessageError(ZmqError, ValueError):
    """A message cannot be converted to bytes, or a received message cannot be read."""


class ZmqTimeoutError(ZmqError, TimeoutError):
    """No message was received in time, or a message could not be sent in time."""


class ZmqRemoteError(ZmqError):
    """The server replied with an error. The message of this exception comes from the server."""


class ZmqClosedError(ZmqError):
    """The object has been closed, by this thread or by another."""


def exception_text(exc: BaseException) -> str:
    """Return the message of an exception, or an empty string if its ``__str__`` method fails."""
    try:
        return str(exc)
    except Exception:
        return ""
