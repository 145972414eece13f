"""How the ZeroMQ classes begin and end: late servers, dead ones, closing by other threads, the end of a program."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import zmq

from symphony.addons.zmq import (
    ZmqClient,
    ZmqClosedError,
    ZmqPub,
    ZmqPull,
    ZmqPush,
    ZmqReceiver,
    ZmqSender,
    ZmqServer,
    ZmqSub,
    ZmqTimeoutError,
)

LONG = 30.0

SERVER = """
import sys
from symphony.addons.zmq import ZmqServer
server = ZmqServer(address=sys.argv[1])
print(server.address, flush=True)
server.start_loop(lambda message: message[::-1], blocking=True)
"""


@pytest.fixture
def program() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Runs a program, which is killed when the test ends if it still runs then."""
    running: list[subprocess.Popen[str]] = []

    def run(text: str, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-c", text, *words]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return running[-1]

    yield run
    for process in running:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def free_address() -> str:
    with zmq.Context() as own, own.socket(zmq.REP) as holder:
        holder.bind("tcp://127.0.0.1:*")
        return str(holder.last_endpoint.decode())


# --- servers that come and go ---


def test_a_server_that_starts_late(program: Any) -> None:
    address = free_address()
    with ZmqClient(address=address, timeout=LONG) as client, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.request, b"early")
        line(program(SERVER, address))
        assert asked.result(LONG) == b"ylrae"


def test_a_puller_and_a_publisher_that_start_late() -> None:
    address, other = free_address(), free_address()
    with ZmqPush(address=address, timeout=LONG) as push, ZmqSub(address=other, timeout=LONG) as sub:
        push.send(b"early")
        with ZmqPull(address=address, timeout=LONG) as pull, ZmqPub(address=other) as pub:
            assert pull.recv() == b"early"
            while True:
                pub.send("t", b"x")
                try:
                    assert sub.recv(timeout=0.02) == ("t", b"x")
                    break
                except ZmqTimeoutError:
                    continue


def test_a_server_that_dies_and_comes_back(program: Any) -> None:
    server = program(SERVER, "tcp://127.0.0.1:0")
    address = line(server)
    with ZmqClient(address=address, timeout=0.5, retries=60) as client:
        for _ in range(3):
            assert client.request(b"abc") == b"cba"
            server.kill()
            server.wait()
            with pytest.raises(ZmqTimeoutError), ZmqClient(address=address, timeout=0.05) as once:
                once.request(b"nobody")
            server = program(SERVER, address)
            line(server)
        assert client.request(b"abc") == b"cba"


def test_a_client_that_dies_while_it_is_answered_does_not_stop_the_server() -> None:
    with ZmqServer(port=0, timeout=LONG) as server:
        gone = ZmqClient(address=server.address)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(gone.request, b"question")
            assert server.recv() == b"question"
            gone.close()
            with pytest.raises(ZmqClosedError):
                asked.result(LONG)
        server.send(b"to nobody")
        server.start_loop(bytes)
        with ZmqClient(address=server.address, timeout=LONG) as client:
            assert client.request(b"next") == b"next"


def test_an_interrupted_request_does_not_spoil_the_next(program: Any) -> None:
    text = """
import signal, sys
from symphony.addons.zmq import ZmqClient, ZmqServer
server = ZmqServer(port=0)
client = ZmqClient(address=server.address)
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    client.request(b"first")
except KeyboardInterrupt:
    print("interrupted", flush=True)
assert server.recv() == b"first"
server.send(b"too late")
server.start_loop(bytes)
assert client.request(b"second", timeout=30) == b"second"
print("done", flush=True)
"""
    process = program(text)
    said, errors = process.communicate(timeout=LONG)
    assert (said, errors, process.returncode) == ("interrupted\ndone\n", "", 0)


# --- closing ---


@pytest.mark.parametrize(
    ("kind", "wait"),
    [
        (ZmqPull, lambda end: end.recv()),
        (ZmqSub, lambda end: end.recv()),
        (ZmqServer, lambda end: end.recv()),
        (ZmqServer, lambda end: end.start_loop(bytes, blocking=True)),
        (ZmqReceiver, lambda end: end.recv()),
        (ZmqClient, lambda end: end.request(b"x")),
        (ZmqSender, lambda end: end.send(b"x")),
        (ZmqPush, lambda end: [end.send(b"x") for _ in range(10)]),
        (ZmqPull, list),
    ],
)
def test_who_waits_is_told_at_once_that_another_thread_closed(kind: Any, wait: Callable[[Any], Any]) -> None:
    end = kind(port=0, bind=True, hwm=1, linger=0)
    over: list[Any] = []

    def run() -> None:
        try:
            over.append(wait(end))
        except ZmqClosedError as exc:
            over.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    while not end._busy:
        time.sleep(0.001)
    began = time.monotonic()
    end.close()
    thread.join(LONG)
    assert time.monotonic() - began < LONG / 2
    assert end.wait_closed(LONG)
    iterated_or_loop = over in ([[]], [None])
    assert iterated_or_loop or isinstance(over[0], ZmqClosedError)
    end.close()  # again does nothing
    with pytest.raises(ZmqClosedError, match=f"this {kind.__name__} was closed"):
        end.request(b"") if kind is ZmqClient else end.send(b"") if hasattr(
            end, "_ask"
        ) or kind is ZmqPush else end.recv()
    assert "closed" in repr(end)


def test_a_port_is_free_again_after_closing() -> None:
    with ZmqServer(port=0) as server:
        address = server.address
    for _ in range(20):
        with ZmqServer(address=address) as again:
            assert again.address == address


def test_closing_in_the_middle_of_a_storm() -> None:
    """Closers and callers meet at every possible moment; nothing hangs and nothing crashes."""
    for _ in range(100):
        pull = ZmqPull(port=0)
        push = ZmqPush(address=pull.address, linger=0)

        def pushing(push: ZmqPush = push) -> None:
            with contextlib.suppress(ZmqClosedError):
                while True:
                    push.send(b"x")

        threads = [threading.Thread(target=pushing), threading.Thread(target=list, args=(pull,))]
        for thread in threads:
            thread.start()
        for end in (push, pull):
            end.close()
        for thread in threads:
            thread.join(LONG)
            assert not thread.is_alive()


def test_what_is_forgotten_is_closed_and_told() -> None:
    with pytest.warns(ResourceWarning, match=r"ZmqPull\('127.0.0.1:0', .*\) was never closed"):
        ZmqPull(port=0)


# --- the end of a program ---


def test_a_program_that_ends_sends_what_it_said_last(program: Any) -> None:
    with ZmqPull(port=0, timeout=LONG) as pull:
        text = """
import sys
from symphony.addons.zmq import ZmqPush
push = ZmqPush(address=sys.argv[1])
for number in range(500):
    push.send(b"%d" % number * 1000)
"""
        process = program(text, pull.address)
        assert [pull.recv() for _ in range(500)] == [b"%d" % number * 1000 for number in range(500)]
        assert process.communicate(timeout=LONG) == ("", "")
        assert process.returncode == 0


@pytest.mark.parametrize(
    "text",
    [
        "end = ZmqServer(port=0); end.start_loop(bytes)",
        "end = ZmqServer(port=0); end.start_loop(bytes); c = ZmqClient(address=end.address); c.request(b'x')",
        "end = ZmqPull(port=0); threading.Thread(target=end.recv, daemon=True).start(); time.sleep(0.05)",
        "end = ZmqPush(address='tcp://127.0.0.1:1', linger=0.2); end.send(b'never arrives')",
        "end = ZmqClient(address='tcp://127.0.0.1:1', timeout=0.01)\ntry: end.request(b'')\nexcept TimeoutError: pass",
        "end = ZmqServer(port=0); end.start_loop(lambda _: time.sleep(60)); c = ZmqPush(address=end.address)",
        "end = ZmqPub(port=0); end.send('topic', b'x'); raise SystemExit(0)",
    ],
)
def test_a_program_that_closes_nothing_ends(program: Any, text: str) -> None:
    process = program(f"import threading, time\nfrom symphony.addons.zmq import *\n{text}")
    said, errors = process.communicate(timeout=LONG)
    assert (said, errors, process.returncode) == ("", "", 0)


def test_the_end_of_a_program_waits_no_longer_than_linger(program: Any) -> None:
    text = """
import time
from symphony.addons.zmq import ZmqPush
push = ZmqPush(address="tcp://127.0.0.1:1", linger=0.3)
push.send(b"never arrives")
print(time.monotonic(), flush=True)
"""
    process = program(text)
    began = float(line(process))
    process.communicate(timeout=LONG)
    assert 0.25 < time.monotonic() - began < 5


def test_a_forked_child_has_a_context_of_its_own(program: Any) -> None:
    text = """
import os, sys
from symphony.addons.zmq import ZmqClient, ZmqServer
server = ZmqServer(port=0)
server.start_loop(bytes)
with ZmqClient(address=server.address, timeout=30) as client:
    assert client.request(b"parent") == b"parent"
child = os.fork()
if not child:
    with ZmqClient(address=server.address, timeout=30) as client:
        assert client.request(b"child") == b"child"
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
with ZmqClient(address=server.address, timeout=30) as client:
    assert client.request(b"parent") == b"parent"
print("done")
"""
    process = program(text)
    said, errors = process.communicate(timeout=LONG)
    assert (said, process.returncode) == ("done\n", 0), errors


def test_without_pyzmq_it_is_told_what_to_install(program: Any) -> None:
    text = """
import sys
sys.modules["zmq"] = None
import symphony.addons.zmq
from symphony import PluginError
try:
    from symphony.addons.zmq import ZmqClient
except PluginError as exc:
    print(exc)
"""
    said, errors = program(text).communicate(timeout=LONG)
    assert (said, errors) == (
        "ZmqClient needs the package 'pyzmq'; install it with: pip install 'symphony-launcher[zmq]'\n",
        "",
    )


def test_importing_the_package_imports_no_zmq(program: Any) -> None:
    text = "import sys, symphony.addons.zmq as z; assert z.ZmqTimeoutError; print('zmq' in sys.modules)"
    assert program(text).communicate(timeout=LONG) == ("False\n", "")


def test_a_subscriber_whose_publisher_has_gone_has_nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its subscriptions are on their way to nobody: they do not hold up the end of the program."""
    from symphony.addons.zmq import sockets

    seen = []
    monkeypatch.setattr(sockets, "_attach", lambda socket, *_: seen.append(socket.linger))
    for kind in (ZmqSub, ZmqPush):
        kind(address="tcp://127.0.0.1:1", linger=3).close()
    assert seen == [0, 3000]
