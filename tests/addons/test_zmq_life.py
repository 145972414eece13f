"""Test the life cycle of the ZeroMQ classes: late servers, closing, program exit and forks."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import zmq

from symphony.addons.zmq import (
    ZmqAddressError,
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
    sockets,
)
from symphony.support.install_hints import install_command

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
    """Run a Python program. If it is still running after the test, kill it."""
    started: list[subprocess.Popen[str]] = []

    def run(text: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-c", text, *arguments]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def output_of(program: Callable[..., subprocess.Popen[str]], text: str, *arguments: str) -> str:
    """Run a program that must exit with code 0 and print no error. Return its output."""
    process = program(text, *arguments)
    output, errors = process.communicate(timeout=LONG)
    assert (process.returncode, errors) == (0, "")
    return output


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def free_address() -> str:
    with zmq.Context() as own, own.socket(zmq.REP) as holder:
        holder.bind("tcp://127.0.0.1:*")
        return str(holder.last_endpoint.decode())


# --- servers that start late or are killed ---


def test_server_that_starts_after_the_request(program: Any) -> None:
    address = free_address()
    with ZmqClient(address=address, timeout=LONG) as client, ThreadPoolExecutor(1) as pool:
        reply = pool.submit(client.request, b"early")
        read_line(program(SERVER, address))
        assert reply.result(LONG) == b"ylrae"


def test_puller_and_publisher_that_start_late() -> None:
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


def test_server_that_is_killed_and_restarted(program: Any) -> None:
    server = program(SERVER, "tcp://127.0.0.1:0")
    address = read_line(server)
    with ZmqClient(address=address, timeout=0.5, retries=60) as client:
        for _ in range(3):
            assert client.request(b"abc") == b"cba"
            server.kill()
            server.wait()
            with pytest.raises(ZmqTimeoutError), ZmqClient(address=address, timeout=0.05) as once:
                once.request(b"no server")
            server = program(SERVER, address)
            read_line(server)
        assert client.request(b"abc") == b"cba"


def test_server_survives_client_that_closes_before_the_reply() -> None:
    with ZmqServer(port=0, timeout=LONG) as server:
        gone = ZmqClient(address=server.address)
        with ThreadPoolExecutor(1) as pool:
            reply = pool.submit(gone.request, b"question")
            assert server.recv() == b"question"
            gone.close()
            with pytest.raises(ZmqClosedError):
                reply.result(LONG)
        server.send(b"too late")
        server.start_loop(bytes)
        with ZmqClient(address=server.address, timeout=LONG) as client:
            assert client.request(b"next") == b"next"


def test_interrupted_request_does_not_affect_the_next(program: Any) -> None:
    text = """
import signal, threading
from symphony.addons.zmq import ZmqClient, ZmqServer
signal.signal(signal.SIGINT, signal.default_int_handler)
server = ZmqServer(port=0)
client = ZmqClient(address=server.address)
def interrupt():
    # The server has received the request, so the client is waiting for the reply.
    assert server.recv() == b"first"
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
thread = threading.Thread(target=interrupt)
try:
    thread.start()
    client.request(b"first")
except KeyboardInterrupt:
    print("interrupted", flush=True)
thread.join()
server.send(b"too late")
server.start_loop(bytes)
assert client.request(b"second", timeout=30) == b"second"
print("done", flush=True)
"""
    assert output_of(program, text) == "interrupted\ndone\n"


# --- closing ---


@pytest.mark.parametrize(
    ("kind", "wait"),
    [
        (ZmqPull, lambda peer: peer.recv()),
        (ZmqSub, lambda peer: peer.recv()),
        (ZmqServer, lambda peer: peer.recv()),
        (ZmqReceiver, lambda peer: peer.recv()),
        (ZmqClient, lambda peer: peer.request(b"x")),
        (ZmqSender, lambda peer: peer.send(b"x")),
        (ZmqPush, lambda peer: [peer.send(b"x") for _ in range(10)]),
    ],
)
def test_close_in_another_thread_ends_a_waiting_call(kind: Any, wait: Callable[[Any], Any]) -> None:
    peer = kind(port=0, bind=True, hwm=1, linger=0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, peer)
        while not peer._busy:
            time.sleep(0.001)
        peer.close()
        with pytest.raises(ZmqClosedError):
            waiting.result(LONG)
    assert peer.wait_closed(LONG)
    peer.close()  # Closing twice has no effect.
    with pytest.raises(ZmqClosedError, match=f"this {kind.__name__} was closed"):
        wait(peer)
    assert "closed" in repr(peer)


@pytest.mark.parametrize(
    ("kind", "loop", "result"),
    [
        (ZmqServer, lambda peer: peer.start_loop(bytes, blocking=True), None),
        (ZmqPull, list, []),
    ],
)
def test_close_in_another_thread_finishes_a_loop(
    kind: Any, loop: Callable[[Any], Any], result: object
) -> None:
    peer = kind(port=0)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(loop, peer)
        while not peer._busy:
            time.sleep(0.001)
        peer.close()
        assert running.result(LONG) == result
    assert peer.wait_closed(LONG)


def test_port_is_free_after_close() -> None:
    with ZmqServer(port=0) as server:
        address = server.address
    for _ in range(20):
        with ZmqServer(address=address) as again:
            assert again.address == address


def test_close_at_any_moment() -> None:
    """Neither a hang nor a crash follows if another thread is sending or receiving."""
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
        for peer in (push, pull):
            peer.close()
        for thread in threads:
            thread.join(LONG)
            assert not thread.is_alive()


def test_deleted_object_is_closed_with_a_warning() -> None:
    with pytest.warns(ResourceWarning, match=r"ZmqPull\('127.0.0.1:0', .*\) was not closed"):
        ZmqPull(port=0)


# --- exit of the program ---


def test_last_messages_are_sent_before_exit(program: Any) -> None:
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
        "a = ZmqServer(port=0); a.start_loop(bytes)\n"
        "b = ZmqClient(address=a.address); b.request(b'x')",
        "a = ZmqPull(port=0); threading.Thread(target=a.recv, daemon=True).start()\n"
        "while not a._busy: time.sleep(0.001)",
        "a = ZmqPush(address='tcp://127.0.0.1:1', linger=0.2); a.send(b'never arrives')",
        "a = ZmqClient(address='tcp://127.0.0.1:1', timeout=0.01)\n"
        "try: a.request(b'')\nexcept TimeoutError: pass",
        "a = ZmqServer(port=0); a.start_loop(lambda _: time.sleep(60))\n"
        "b = ZmqPush(address=a.address)",
        "a = ZmqPub(port=0); a.send('topic', b'x'); raise SystemExit(0)",
    ],
)
def test_program_exits_with_open_sockets(program: Any, text: str) -> None:
    imports = "import threading, time\nfrom symphony.addons.zmq import *"
    assert output_of(program, f"{imports}\n{text}") == ""


def test_exit_waits_for_linger(program: Any) -> None:
    text = """
import time
from symphony.addons.zmq import ZmqPush
push = ZmqPush(address="tcp://127.0.0.1:1", linger=0.3)
push.send(b"never arrives")
print(push._socket.linger, time.monotonic(), flush=True)
"""
    process = program(text)
    linger, began = read_line(process).split()
    assert linger == "300"
    process.communicate(timeout=LONG)
    assert process.returncode == 0
    assert time.monotonic() - float(began) > 0.25


def test_forked_child_has_its_own_context(program: Any) -> None:
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
    output, errors = process.communicate(timeout=LONG)
    assert (output, process.returncode) == ("done\n", 0), errors


def test_missing_pyzmq_is_reported(program: Any) -> None:
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
    assert output_of(program, text) == (
        f"ZmqClient needs the package 'pyzmq'; install it with: {install_command('zmq')}\n"
    )


def test_package_import_does_not_import_pyzmq(program: Any) -> None:
    text = """
import sys, symphony.addons.zmq
assert symphony.addons.zmq.ZmqTimeoutError
print("zmq" in sys.modules)
"""
    assert output_of(program, text) == "False\n"


def test_subscriber_has_no_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions that were not delivered must not delay the exit of the program."""
    seen = []
    monkeypatch.setattr(sockets, "_attach", lambda socket, *_: seen.append(socket.linger))
    for kind in (ZmqSub, ZmqPush):
        kind(address="tcp://127.0.0.1:1", linger=3).close()
    assert seen == [0, 3000]


# --- child processes ---

CHILDREN = """
from symphony.addons.zmq import ZmqClient, ZmqPull, ZmqPush, ZmqServer
import sys, threading, time

def send(address, word):
    with ZmqPush(address=address, serializer="str") as push:
        push.send(word)

def leave_open(address, word):
    global kept
    kept = ZmqPush(address=address, serializer="str")
    kept.send(word)

def send_from_grandchild(address, word):
    child = multiprocessing.get_context(sys.argv[1]).Process(target=send, args=(address, word))
    child.start()
    child.join()

def call_after_return(function, *arguments):
    # Call the function in a thread after the target of the child has returned.
    def wait_and_call():
        body = multiprocessing.process.BaseProcess.run.__code__
        def is_running(frame):
            return frame is not None and (frame.f_code is body or is_running(frame.f_back))
        while is_running(sys._current_frames()[threading.main_thread().ident]):
            time.sleep(0.001)
        function(*arguments)
    threading.Thread(target=wait_and_call).start()

def send_from_thread(address, word):
    call_after_return(send, address, word)

def send_from_thread_with_open_socket(address, word):
    global kept
    kept = ZmqPush(address=address, serializer="str")
    call_after_return(kept.send, word)

def send_from_idle_executor(address, word):
    from concurrent.futures import ThreadPoolExecutor
    global kept
    kept = ThreadPoolExecutor(1)  # Its thread finishes when the child exits.
    kept.submit(leave_open, address, word).result()

TARGETS = [
    send, leave_open, send_from_grandchild, send_from_thread,
    send_from_thread_with_open_socket, send_from_idle_executor,
]

if __name__ == "__main__":
    with ZmqPull(port=0, serializer="str", timeout=60) as pull:
        import multiprocessing
        context = multiprocessing.get_context(sys.argv[1])
        for target in TARGETS:
            child = context.Process(target=target, args=(pull.address, target.__name__))
            child.start()
            child.join()
            print(pull.recv(), child.exitcode, flush=True)
        print("done")
else:
    import multiprocessing
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_last_message_of_multiprocessing_child_is_sent(method: str, tmp_path: Path) -> None:
    (tmp_path / "children.py").write_text(CHILDREN)
    command = [sys.executable, str(tmp_path / "children.py"), method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    *targets, last = done.stdout.splitlines()
    assert (len(targets), last) == (6, "done"), done.stderr
    assert all(target.endswith(" 0") for target in targets)


def test_multiprocessing_child_waits_for_linger(tmp_path: Path) -> None:
    text = """
import multiprocessing, time
from symphony.addons.zmq import ZmqPush
def send():
    with ZmqPush(address="tcp://127.0.0.1:1", linger=0.3) as push:
        push.send(b"never arrives")
        print(push._socket.linger, flush=True)
child = multiprocessing.get_context("fork").Process(target=send)
began = time.monotonic()
child.start()
child.join()
print(child.exitcode, 0.3 <= time.monotonic() - began)
"""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=LONG, check=False
    )
    assert done.stdout == "300\n0 True\n", done.stderr


@pytest.mark.without_coverage
def test_opening_a_socket_does_not_import_multiprocessing(program: Any) -> None:
    text = """
import sys
from symphony.addons.zmq import ZmqPull
with ZmqPull(port=0):
    print([name for name in sys.modules if name.startswith("multiprocessing")])
"""
    assert output_of(program, text) == "[]\n"


def test_sockets_of_the_parent_are_rejected_in_a_forked_child(program: Any) -> None:
    text = """
import asyncio, os, sys, warnings
from symphony.addons.zmq import *
warnings.simplefilter("ignore", DeprecationWarning)  # Forking while other threads run.
looping, server = ZmqServer(port=0), ZmqServer(port=0)
looping.start_loop(bytes)
client = ZmqClient(address=looping.address)
push = ZmqPush(address="tcp://127.0.0.1:1", linger=0)
pull, sub = ZmqPull(port=0), ZmqSub(address="tcp://127.0.0.1:1")
pub, receiver = ZmqPub(port=0), ZmqReceiver(port=0)
sender = ZmqSender(address="tcp://127.0.0.1:1", linger=0)
aserver = AsyncZmqServer(port=0)
message = "was opened before the fork and belongs to the parent; open another one"
assert client.request(b"parent") == b"parent"
calls = [
    lambda: client.request(b""), looping.recv, server.recv, lambda: server.send(b""),
    lambda: server.start_loop(bytes), pull.recv, lambda: list(pull), sub.recv,
    lambda: sub.subscribe("a"), lambda: pub.send("a", b""), receiver.recv,
    lambda: sender.send(b""), lambda: push.send(b""),
    lambda: asyncio.run(aserver.recv()), lambda: asyncio.run(aserver.send(b"")),
]
child = os.fork()
if not child:
    for number, call in enumerate(calls):
        try:
            call()
        except ZmqOrderError as exc:
            if message not in str(exc):
                print(number, exc)
        else:
            print(number, "raised nothing")
    for peer in (looping, server, client, push, pull, sub, pub, receiver, sender, aserver):
        peer.close()
        if not (peer.closed and peer.wait_closed(0)):
            print("open", peer)
    looping.stop()
    with ZmqClient(address=looping.address, timeout=30) as own:
        print(own.request(b"child"), looping.join(0), flush=True)
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
with ZmqPush(address=pull.address) as other:
    other.send(b"to the parent")
print(client.request(b"parent"), pull.recv(timeout=30))
"""
    output, errors = program(text).communicate(timeout=LONG)
    assert output == "b'child' True\n7\nb'parent' b'to the parent'\n", errors


def test_fork_while_another_thread_is_in_a_call(program: Any) -> None:
    text = """
import os, sys, threading, time, warnings
from symphony.addons.zmq import ZmqOrderError, ZmqPull
warnings.simplefilter("ignore", DeprecationWarning)
pull = ZmqPull(port=0)
thread = threading.Thread(target=list, args=(pull,))
thread.start()
while not pull._busy:
    time.sleep(0.001)
child = os.fork()
if not child:
    try:
        pull.recv()
    except ZmqOrderError as exc:
        print("before the fork" in str(exc), flush=True)
    pull.close()
    os._exit(0)
os.waitpid(child, 0)
print(thread.is_alive())
pull.close()
thread.join()
"""
    assert output_of(program, text) == "True\nTrue\n"


# --- ipc ---


@pytest.mark.parametrize("kind", [ZmqServer, ZmqPull])
@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_ipc_address_in_use_is_rejected(kind: Any, abstract: bool, tmp_path: Path) -> None:
    address = f"ipc://@{tmp_path.name}-{kind.__name__}" if abstract else f"ipc://{tmp_path}/s"
    with ZmqServer(address=address) as server:
        server.start_loop(bytes)
        with pytest.raises(
            ZmqAddressError,
            match="the address is in use; stop the program that uses it, or choose another add",
        ):
            kind(address=address)
        with ZmqClient(address=address, timeout=LONG) as client:
            assert client.request(b"x") == b"x"
    with ZmqServer(address=address) as again, ZmqClient(address=address, timeout=LONG) as client:
        again.start_loop(bytes)
        assert client.request(b"y") == b"y"


def test_ipc_address_of_killed_server_can_be_bound(program: Any, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/s"
    first = program(SERVER, address)
    read_line(first)
    first.kill()
    first.wait()
    assert (tmp_path / "s").exists()
    with ZmqServer(address=address) as server, ZmqClient(address=address, timeout=LONG) as client:
        server.start_loop(bytes)
        assert client.request(b"x") == b"x"


def test_ipc_client_keeps_its_address_after_a_timeout(tmp_path: Path) -> None:
    with ZmqClient(address=f"ipc://{tmp_path}/s", bind=True) as client:
        for _ in range(5):
            with pytest.raises(ZmqTimeoutError):
                client.request(b"hello", timeout=0.01)
        with ZmqServer(address=client.address, bind=False) as server:
            server.start_loop(bytes)
            assert client.request(b"now", timeout=LONG) == b"now"


# --- long timeouts ---


@pytest.mark.parametrize("timeout", [3e6, 1e10, 1e308])
def test_long_timeout(timeout: float) -> None:
    with ZmqServer(port=0, timeout=timeout) as server, ThreadPoolExecutor(1) as pool:
        request = pool.submit(server.recv)
        while not server._busy:
            time.sleep(0.001)
        time.sleep(2 * sockets.FIRST_WAIT_SECONDS)  # The call enters its second wait.
        with (
            ZmqClient(address=server.address, timeout=timeout) as client,
            ThreadPoolExecutor(1) as other,
        ):
            reply = other.submit(client.request, b"x")
            assert request.result(LONG) == b"x"
            server.send(b"y")
            assert reply.result(LONG) == b"y"
        assert server.join(timeout)


def test_wait_in_several_rounds_lasts_for_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "LONGEST_WAIT_MS", 20)
    with ZmqPull(port=0) as pull:
        began = time.monotonic()
        with pytest.raises(ZmqTimeoutError, match=r"no message came in 0\.15 s"):
            pull.recv(timeout=0.15)
        assert time.monotonic() - began >= 0.15


def test_linger_none_waits_without_limit(program: Any) -> None:
    address = free_address()
    text = """
import sys
from symphony.addons.zmq import ZmqPush
with ZmqPush(address=sys.argv[1], linger=None) as push:
    push.send(b"waits")
    print(push._socket.linger, flush=True)
"""
    process = program(text, address)
    assert read_line(process) == "-1"
    with ZmqPull(address=address, timeout=LONG) as pull:
        assert pull.recv() == b"waits"
    assert process.communicate(timeout=LONG) == ("", "")
