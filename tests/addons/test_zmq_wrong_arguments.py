"""Every method of an open socket with values of the wrong type."""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
from typing import Any

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

import symphony.addons.zmq as module
from symphony import SymphonyError
from tests.unit.test_wrong_arguments import VALUES

CLASSES = [
    getattr(module, name)
    for name in module.__all__
    if not name.endswith(("Error", "Puller", "Pusher"))
]
VALID = {"message": b"x", "reply": b"x", "text": "x", "topic": "a", "handler": lambda _: b"x"}
WRONG_OPTIONS: dict[str, Any] = {
    "serializer": 5,
    "timeout": "1",
    "linger": -1,
    "hwm": "x",
    "bind": 1,
    "host": 5,
    "retries": "x",
    "topics": 5,
}


NUMBERS = itertools.count()


def methods(cls: type[Any]) -> list[str]:
    names = [name for name, _ in inspect.getmembers(cls, inspect.isfunction) if name[0] != "_"]
    names.remove("disown")  # It leaves the socket to the parent process.
    return names


def has_no_limit(name: str, value: object) -> bool:
    """Return whether a call with this value is valid and can wait indefinitely."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return name == "timeout" and (value is None or (is_number and value > 0.01))  # type: ignore[operator]


def open_sockets() -> int:
    sockets = (item for item in gc.get_objects() if isinstance(item, zmq.Socket))
    return sum(not socket.closed for socket in sockets)


async def call(cls: type[Any], name: str, arguments: dict[str, Any]) -> None:
    # No peer is connected, so calls without an error time out immediately.
    # An address can be used again only when ZeroMQ has closed the previous socket.
    socket = cls(address=f"inproc://wrong-{next(NUMBERS)}", bind=True, timeout=0, linger=0)
    try:
        result = getattr(socket, name)(**arguments)
        if inspect.isawaitable(result):
            await result
    finally:
        socket.close()
        if isinstance(socket, module.ZmqServer):
            socket.join()


@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_wrong_arguments_of_an_open_socket_are_refused(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(CLASSES))
    name = data.draw(st.sampled_from(methods(cls)))
    parameters = list(inspect.signature(getattr(cls, name)).parameters.values())[1:]
    arguments = {item.name: VALID[item.name] for item in parameters if item.name in VALID}
    if parameters:
        changed = data.draw(st.sampled_from([item.name for item in parameters]))
        value = data.draw(VALUES)
        # A handler that is valid would run until the socket is closed.
        if changed == "handler" and callable(value):
            value = None
        if has_no_limit(changed, value):
            value = "x"
        arguments[changed] = value
    if name in ("serve", "start_loop") and arguments.get("handler") is VALID["handler"]:
        arguments["handler"] = None
    if name == "wait_closed" and "timeout" not in arguments:
        arguments["timeout"] = 0
    try:
        asyncio.run(call(cls, name, arguments))
    except SymphonyError as exc:
        error = str(exc)
    else:
        error = "one line"
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_refused_constructor_leaves_no_open_socket(cls: type[Any]) -> None:
    async def create(options: dict[str, Any]) -> None:
        with pytest.raises(SymphonyError):
            cls(**options)

    before = open_sockets()
    valid: dict[str, Any] = {"address": "ipc:///missing/directory/socket", "bind": True}
    for wrong in ({}, *({name: value} for name, value in WRONG_OPTIONS.items())):
        asyncio.run(create({**valid, **wrong}))
    assert open_sockets() == before
