"""The TCP sockets that listen in this network namespace, as the kernel lists them; see proc(5).

The connections of psutil also contain the process of each socket, which takes much longer to find.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from symphony.support.data_classes import dataclass

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
# TCP_LISTEN in the file include/net/tcp_states.h of the kernel.
_LISTEN = "0A"
_WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """A TCP socket that accepts connections to ``port`` of ``address``.

    ``inode`` identifies the socket among the open files of processes.
    """

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int
    inode: int

    @property
    def text(self) -> str:
        """The address and the port, such as ``127.0.0.1:7000`` or ``[::1]:7000``."""
        host = f"[{self.address}]" if self.address.version == 6 else str(self.address)
        return f"{host}:{self.port}"


def listening_sockets(port: int) -> list[ListeningSocket]:
    """Return the sockets that listen on a port of any address of this machine.

    Return an empty list if the kernel does not list them.
    """
    found = []
    for table in _TABLES:
        with contextlib.suppress(OSError, ValueError, IndexError):
            found += list(_read_table(table, port))
    return found


def _read_table(table: Path, port: int) -> Iterator[ListeningSocket]:
    suffix = f":{port:04X}"
    with table.open(encoding="ascii") as file:
        for line in file:
            fields = line.split()
            if fields[3] == _LISTEN and fields[1].endswith(suffix):
                address = _decode_address(fields[1].partition(":")[0])
                yield ListeningSocket(address, port, int(fields[9]))


def _decode_address(digits: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address of which each 32-bit word is written in the byte order of the machine."""
    data = bytes.fromhex(digits)
    if sys.byteorder == "little":
        words = [data[start : start + _WORD_BYTES] for start in range(0, len(data), _WORD_BYTES)]
        data = b"".join(word[::-1] for word in words)
    return ipaddress.ip_address(data)


def is_of_this_machine(host: str) -> bool:
    """Return whether a host name or address is one of this machine.

    A name that cannot be resolved is not. An address belongs to this machine if a socket can be
    bound to it.
    """
    with contextlib.suppress(OSError):
        for family, kind, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with contextlib.suppress(OSError), socket.socket(family, kind) as test:
                test.bind(address)
                return True
    return False
