"""How the ZeroMQ classes begin and end: late servers, dead ones, closing by other threads, the end of a program."""

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
        running.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
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
import signal, threading
from symphony.addons.zmq import ZmqClient, ZmqServer
signal.signal(signal.SIGINT, signal.default_int_handler)
server = ZmqServer(port=0)
client = ZmqClient(address=server.address)
def interrupt():
    # The question is there, so who asks waits for the answer.
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
def test_who_waits_is_told_at_once_that_another_thread_closed(
    kind: Any, wait: Callable[[Any], Any]
) -> None:
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
    end.close()
    thread.join(LONG)
    assert not thread.is_alive()
    assert end.wait_closed(LONG)
    iterated_or_loop = over in ([[]], [None])
    assert iterated_or_loop or isinstance(over[0], ZmqClosedError)
    end.close()  # again does nothing
    with pytest.raises(ZmqClosedError, match=f"this {kind.__name__} was closed"):
        end.request(b"") if kind is ZmqClient else end.send(b"") if hasattr(
            end, "_request_frames"
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
    with pytest.warns(ResourceWarning, match=r"ZmqPull\('127.0.0.1:0', .*\) was not closed"):
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
        "end = ZmqPull(port=0); threading.Thread(target=end.recv, daemon=True).start()\n"
        "while not end._busy: time.sleep(0.001)",
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
print(push._socket.linger, time.monotonic(), flush=True)
"""
    process = program(text)
    linger, began = line(process).split()
    assert linger == "300"
    process.communicate(timeout=LONG)
    assert process.returncode == 0
    assert time.monotonic() - float(began) > 0.25


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
        "ZmqClient needs the package 'pyzmq'; install the extra: pip install 'symphony-launcher[zmq]'\n",
        "",
    )


def test_importing_the_package_imports_no_zmq(program: Any) -> None:
    text = "import sys, symphony.addons.zmq as z; assert z.ZmqTimeoutError; print('zmq' in sys.modules)"
    assert program(text).communicate(timeout=LONG) == ("False\n", "")


def test_a_subscriber_whose_publisher_has_gone_has_nothing_to_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its subscriptions are on their way to nobody: they do not hold up the end of the program."""
    from symphony.addons.zmq import sockets

    seen = []
    monkeypatch.setattr(sockets, "_attach", lambda socket, *_: seen.append(socket.linger))
    for kind in (ZmqSub, ZmqPush):
        kind(address="tcp://127.0.0.1:1", linger=3).close()
    assert seen == [0, 3000]


# --- children ---

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

def by_a_grandchild(address, word):
    child = multiprocessing.get_context(sys.argv[1]).Process(target=send, args=(address, word))
    child.start()
    child.join()

def after_the_end(say, *words):
    # In a thread that goes on when the child's function has returned.
    def later():
        body = multiprocessing.process.BaseProcess.run.__code__
        def runs(frame):
            return frame is not None and (frame.f_code is body or runs(frame.f_back))
        while runs(sys._current_frames()[threading.main_thread().ident]):
            time.sleep(0.001)
        say(*words)
    threading.Thread(target=later).start()

def by_a_thread(address, word):
    after_the_end(send, address, word)

def by_a_thread_that_goes_on(address, word):
    global kept
    kept = ZmqPush(address=address, serializer="str")
    after_the_end(kept.send, word)

def by_an_idle_executor(address, word):
    from concurrent.futures import ThreadPoolExecutor
    global kept
    kept = ThreadPoolExecutor(1)  # whose thread ends when the child does
    kept.submit(leave_open, address, word).result()

WAYS = send, leave_open, by_a_grandchild, by_a_thread, by_a_thread_that_goes_on, by_an_idle_executor

if __name__ == "__main__":
    with ZmqPull(port=0, serializer="str", timeout=60) as pull:
        import multiprocessing
        context = multiprocessing.get_context(sys.argv[1])
        for way in WAYS:
            child = context.Process(target=way, args=(pull.address, way.__name__))
            child.start()
            child.join()
            print(pull.recv(), child.exitcode, flush=True)
        print("done")
else:
    import multiprocessing
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_what_a_child_of_multiprocessing_said_last_arrives(method: str, tmp_path: Path) -> None:
    (tmp_path / "children.py").write_text(CHILDREN)
    command = [sys.executable, str(tmp_path / "children.py"), method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    *ways, last = done.stdout.splitlines()
    assert (len(ways), last) == (6, "done"), done.stderr
    assert all(way.endswith(" 0") for way in ways)


def test_a_child_that_talks_to_nobody_ends_after_linger(tmp_path: Path) -> None:
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


def test_opening_a_socket_imports_no_multiprocessing(program: Any) -> None:
    text = """
import sys
from symphony.addons.zmq import ZmqPull
with ZmqPull(port=0):
    print([name for name in sys.modules if name.startswith("multiprocessing")])
"""
    assert program(text).communicate(timeout=LONG) == ("[]\n", "")


def test_what_was_opened_before_a_fork_is_the_parents(program: Any) -> None:
    text = """
import asyncio, os, sys, warnings
from symphony.addons.zmq import *
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork while other threads run
looping, server = ZmqServer(port=0), ZmqServer(port=0)
looping.start_loop(bytes)
client = ZmqClient(address=looping.address)
asking = ZmqPush(address="tcp://127.0.0.1:1", linger=0)
pull, sub = ZmqPull(port=0), ZmqSub(address="tcp://127.0.0.1:1")
pub, receiver, sender = ZmqPub(port=0), ZmqReceiver(port=0), ZmqSender(address="tcp://127.0.0.1:1", linger=0)
later = AsyncZmqServer(port=0)
assert client.request(b"parent") == b"parent"
calls = [
    lambda: client.request(b""), lambda: client.request(b"", timeout=1), looping.recv, server.recv,
    lambda: server.send(b""), lambda: server.start_loop(bytes), pull.recv, lambda: list(pull), sub.recv,
    lambda: sub.subscribe("a"), lambda: pub.send("a", b""), receiver.recv, lambda: sender.send(b""),
    lambda: asking.send(b""), lambda: asyncio.run(later.recv()), lambda: asyncio.run(later.send(b"")),
]
child = os.fork()
if not child:
    for number, call in enumerate(calls):
        try:
            call()
        except ZmqOrderError as exc:
            if "was opened before the fork and belongs to the parent; open another one" not in str(exc):
                print(number, exc)
        else:
            print(number, "was done")
    for end in (looping, server, client, asking, pull, sub, pub, receiver, sender, later):
        end.close()
        if not (end.closed and end.wait_closed(0)):
            print("open", end)
    looping.stop()
    with ZmqClient(address=looping.address, timeout=30) as own:
        print(own.request(b"child"), looping.join(0), flush=True)
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
with ZmqPush(address=pull.address) as push:
    push.send(b"to the parent")
print(client.request(b"parent"), pull.recv(timeout=30))
"""
    said, errors = program(text).communicate(timeout=LONG)
    assert said == "b'child' True\n7\nb'parent' b'to the parent'\n", errors


def test_a_child_is_forked_while_another_thread_is_in_a_call(program: Any) -> None:
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
    assert program(text).communicate(timeout=LONG) == ("True\nTrue\n", "")


# --- ipc ---


@pytest.mark.parametrize("kind", [ZmqServer, ZmqPull])
@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_an_ipc_address_in_use_is_told_and_its_owner_unharmed(
    kind: Any, abstract: bool, tmp_path: Path
) -> None:
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


def test_an_ipc_address_whose_owner_was_killed_is_taken_over(program: Any, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/s"
    first = program(SERVER, address)
    line(first)
    first.kill()
    first.wait()
    assert (tmp_path / "s").exists()
    with ZmqServer(address=address) as server, ZmqClient(address=address, timeout=LONG) as client:
        server.start_loop(bytes)
        assert client.request(b"x") == b"x"


def test_an_ipc_client_that_binds_has_its_address_again_after_a_timeout(tmp_path: Path) -> None:
    with ZmqClient(address=f"ipc://{tmp_path}/s", bind=True) as client:
        for _ in range(5):
            with pytest.raises(ZmqTimeoutError):
                client.request(b"anybody?", timeout=0.01)
        with ZmqServer(address=client.address, bind=False) as server:
            server.start_loop(bytes)
            assert client.request(b"now", timeout=LONG) == b"now"


# --- long waits ---


@pytest.mark.parametrize("timeout", [3e6, 1e10, 1e308])
def test_a_timeout_of_weeks_waits(timeout: float) -> None:
    with ZmqServer(port=0, timeout=timeout) as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.recv)
        while not server._busy:
            time.sleep(0.001)
        time.sleep(2 * sockets.FIRST_WAIT_SECONDS)  # by now it waits in rounds
        with (
            ZmqClient(address=server.address, timeout=timeout) as client,
            ThreadPoolExecutor(1) as other,
        ):
            reply = other.submit(client.request, b"x")
            assert asked.result(LONG) == b"x"
            server.send(b"y")
            assert reply.result(LONG) == b"y"
        assert server.join(timeout)


def test_a_wait_of_several_rounds_is_as_long_as_it_is_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "LONGEST", 20)
    with ZmqPull(port=0) as pull:
        began = time.monotonic()
        with pytest.raises(ZmqTimeoutError, match=r"no message came in 0\.15 s"):
            pull.recv(timeout=0.15)
        assert time.monotonic() - began >= 0.15


def test_linger_none_is_for_ever(program: Any) -> None:
    address = free_address()
    text = """
import sys
from symphony.addons.zmq import ZmqPush
with ZmqPush(address=sys.argv[1], linger=None) as push:
    push.send(b"waits")
    print(push._socket.linger, flush=True)
"""
    process = program(text, address)
    assert line(process) == "-1"
    with ZmqPull(address=address, timeout=LONG) as pull:
        assert pull.recv() == b"waits"
    assert process.communicate(timeout=LONG) == ("", "")
