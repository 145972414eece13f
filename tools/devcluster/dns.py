"""The cluster's DNS server. It answers every query with current data from the API server, so a new
Service is visible at once.

Nothing is cached: `<service>.<namespace>.svc.cluster.local` is looked up for every query. A
Service's name resolves to the Service's address. The name of a headless Service resolves to the
addresses of its ready Pods. A ready Pod with a host name also has a name of its own, a subdomain of
the headless Service's name. Only A records (RFC 1035) and AAAA records (RFC 3596)
are served, and no name outside svc.cluster.local exists.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from devcluster import api
from devcluster.api import Object

DOMAIN = ("svc", "cluster", "local")
TTL = 1  # Resolvers may cache answers for only this number of seconds.

_A, _AAAA, _ANY, _IN = 1, 28, 255, 1
_NO_ERROR, _BROKEN, _SERVER_FAILURE, _NO_SUCH_NAME, _NOT_IMPLEMENTED = 0, 1, 2, 3, 4

# A resolver takes a name's labels and returns the name's addresses, or None if the name does not
# exist.
Resolver = Callable[[tuple[str, ...]], list[str] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One query: its labels in lower case, its type, and the bytes that the answer repeats."""

    labels: tuple[str, ...]
    type: int
    raw: bytes


def answer(message: bytes, resolve: Resolver) -> bytes | None:
    """Return the answer to a DNS message, or None if the message must not be answered."""
    if len(message) < 12 or message[2] & 0x80:  # The message is too short, or is itself an answer.
        return None
    if (message[2] >> 3) & 0xF:
        return _reply(message, _NOT_IMPLEMENTED, b"", [])
    try:
        question = parse(message)
    except (IndexError, ValueError, struct.error):
        return _reply(message, _BROKEN, b"", [])
    try:
        addresses = resolve(question.labels)
    except (OSError, api.ApiError) as exc:
        print(f"{'.'.join(question.labels)}: {exc}", file=sys.stderr, flush=True)
        return _reply(message, _SERVER_FAILURE, question.raw, [])
    if addresses is None:
        return _reply(message, _NO_SUCH_NAME, question.raw, [])
    wanted = [address for address in addresses if question.type in (_type_of(address), _ANY)]
    return _reply(message, _NO_ERROR, question.raw, wanted)


def _type_of(address: str) -> int:
    """Return the type of the record that contains an address."""
    return _AAAA if ":" in address else _A


def parse(message: bytes) -> Question:
    """Return the query in a DNS message.

    Raises ValueError, IndexError or struct.error if the message is malformed.
    """
    labels = []
    at = 12
    while length := message[at]:
        if length > 63:
            raise ValueError("a compressed name in a question")
        labels.append(message[at + 1 : at + 1 + length].decode("ascii").lower())
        at += 1 + length
    (kind, _) = struct.unpack_from("!HH", message, at + 1)
    return Question(labels=tuple(labels), type=kind, raw=message[12 : at + 5])


def _reply(message: bytes, code: int, question: bytes, addresses: list[str]) -> bytes:
    # The flags mark an authoritative response and announce that recursion is available.
    flags = 0x8400 | (message[2] & 0x01) << 8 | 0x0080 | code
    header = message[:2] + struct.pack("!HHHHH", flags, bool(question), len(addresses), 0, 0)
    records = b"".join(_record(address) for address in addresses)
    return header + question + records


def _record(address: str) -> bytes:
    """Return the record of an address, with the name of the question."""
    packed = ip_address(address).packed
    header = struct.pack("!HHHIH", 0xC00C, _type_of(address), _IN, TTL, len(packed))
    return header + packed


def lookup(labels: tuple[str, ...], find: Callable[[str], Object | None]) -> list[str] | None:
    """Return the addresses of a name below the cluster's domain, or None if the name does not
    exist.

    `find` returns the API object at a path, or None if there is none.
    """
    if labels[-3:] != DOMAIN or len(labels) not in (5, 6):
        return None
    *host, service, namespace = labels[:-3]
    base = f"/api/v1/namespaces/{namespace}"
    found = find(f"{base}/services/{service}")
    if found is None:
        return None
    address = found["spec"].get("clusterIP", "None")
    if address != "None":
        return None if host else [address]
    endpoints = find(f"{base}/endpoints/{service}") or {}
    pods = [
        pod for subset in endpoints.get("subsets") or [] for pod in subset.get("addresses") or []
    ]
    if host:
        pods = [pod for pod in pods if pod.get("hostname") == host[0]]
    return [pod["ip"] for pod in pods] or (None if host else [])


class _Threads(threading.local):
    """Each thread's API client. A connection can serve only one thread at a time."""

    client: api.Client | None = None


def serve(address: str, kubeconfig: Path) -> None:
    """Start threads that answer queries on UDP and TCP port 53 of `address`.

    The threads run until the process is killed.
    """
    threads = _Threads()

    def find(path: str) -> Object | None:
        client = threads.client = threads.client or api.connect(kubeconfig)
        try:
            return client.find(path)
        # The server may have closed the kept-alive connection since the last query.
        except OSError:
            return client.find(path)

    def resolve(labels: tuple[str, ...]) -> list[str] | None:
        return lookup(labels, find)

    class Udp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            message, sock = self.request
            if reply := answer(message, resolve):
                sock.sendto(reply if len(reply) <= 512 else _truncated(reply), self.client_address)

    class Tcp(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while len(size := self.rfile.read(2)) == 2:
                reply = answer(self.rfile.read(int.from_bytes(size, "big")), resolve)
                if reply is None:
                    return
                self.wfile.write(len(reply).to_bytes(2, "big") + reply)

    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    class UdpServer(socketserver.UDPServer):
        address_family = family

    class TcpServer(socketserver.ThreadingTCPServer):
        address_family = family

    udp = UdpServer((address, 53), Udp)
    tcp = TcpServer((address, 53), Tcp)
    tcp.daemon_threads = True
    threading.Thread(target=tcp.serve_forever, daemon=True).start()
    workers = [threading.Thread(target=_work, args=[udp]) for _ in range(8)]
    for worker in workers:
        worker.start()


def _truncated(reply: bytes) -> bytes:
    """Return only the header of `reply`, with the flag that makes the client retry over TCP."""
    return reply[:2] + bytes([reply[2] | 0x02, reply[3]]) + bytes(8)


def _work(server: socketserver.UDPServer) -> None:
    """Answer UDP queries in this thread until the process is killed.

    The thread's client keeps a connection to the API server open.
    """
    while True:
        message, client = server.socket.recvfrom(4096)
        try:
            server.finish_request((message, server.socket), client)
        except Exception as exc:  # A malformed packet must not terminate the thread.
            print(f"question from {client}: {exc!r}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
