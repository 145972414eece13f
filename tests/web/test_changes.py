from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.types import Message

from symphony.events import EventKind, ExperimentEvent
from symphony.log_blocks import LogBlock
from symphony.status import ExperimentStatus, ProcessStatus, State
from symphony.usage import ExperimentUsage, ProcessUsage
from symphony.views.experiment_model import EventSeen, Gone, StatusSeen, UsageSeen
from symphony.views.web.channels import Channel, Channels, ExperimentChannel, OutputChannel
from symphony.views.web.stream import MIN_INTERVAL_SECONDS, Stream, Viewing
from symphony.views.web.unseen_changes import (
    MAX_LINES,
    Position,
    experiment_changes,
    output_changes,
    parse_positions,
)

Loop = asyncio.AbstractEventLoop
UNUSED: Any = None


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def _status(created: float = 1.0, **states: State) -> StatusSeen:
    processes = tuple(ProcessStatus(name=name, state=state) for name, state in states.items())
    return StatusSeen(
        ExperimentStatus(name="rl", backend="local", processes=processes, created=created)
    )


def _event(text: str) -> EventSeen:
    return EventSeen(ExperimentEvent(at=1.0, kind=EventKind.CHANGED, text=text), reading=1)


def _names(message: dict[str, Any] | None) -> list[str]:
    return [process["name"] for process in (message or {}).get("processes", [])]


def test_a_viewer_receives_only_what_it_has_not_seen(loop: Loop) -> None:
    channel = ExperimentChannel(loop, UNUSED, "rl")
    channel._update(_status(a=State.RUNNING, b=State.RUNNING))
    channel._update(_event("one"))
    first, seen = experiment_changes(channel, Position())
    assert first is not None
    assert (first["reset"], _names(first), len(first["events"])) == (True, ["a", "b"], 1)
    assert experiment_changes(channel, seen) == (None, seen)
    channel._update(_status(a=State.RUNNING, b=State.FAILED))
    channel._update(_event("two"))
    second, seen = experiment_changes(channel, seen)
    assert second is not None
    assert (second["reset"], _names(second)) == (False, ["b"])
    assert [event["text"] for event in second["events"]] == ["two"]
    usage = ProcessUsage(process="a", cpu=0.5)
    channel._update(UsageSeen(ExperimentUsage(at=2.0, processes=(usage,))))
    third, _ = experiment_changes(channel, seen)
    assert third is not None
    assert third["usage"][0][:2] == ["a", 0.5]
    assert "processes" not in third


def test_a_viewer_of_another_run_or_server_begins_anew(loop: Loop) -> None:
    channel = ExperimentChannel(loop, UNUSED, "rl")
    channel._update(_status(a=State.RUNNING))
    _, seen = experiment_changes(channel, Position())
    other = ExperimentChannel(loop, UNUSED, "rl")
    other._update(_status(b=State.RUNNING))
    message, _ = experiment_changes(other, seen)
    assert message is not None
    assert (message["reset"], _names(message)) == (True, ["b"])
    channel._update(Gone("deleted"))
    message, seen = experiment_changes(channel, seen)
    assert message is not None
    assert (message["reset"], message["experiment"]["gone"]) == (False, "deleted")
    channel._update(_status(created=2.0, c=State.RUNNING))
    message, _ = experiment_changes(channel, seen)
    assert message is not None
    assert (message["reset"], _names(message)) == (True, ["c"])


def test_positions_survive_the_way_to_the_browser_and_back() -> None:
    text = "ab12.1.2.3~cd34.0.1.9"
    assert str(parse_positions(text)) == text
    for damaged in ("", "x", "~", "a.b.c.d~", "a.1.2~b.1.2.3", "ab.1.2.3~cd.1.2.x"):
        assert parse_positions(damaged) == parse_positions("")


def test_a_viewer_that_was_away_reads_only_the_last_lines(loop: Loop) -> None:
    channel = OutputChannel(loop, UNUSED, "rl", (), 1000)
    channel._add(LogBlock("a", "first\n"))
    _, seen = output_changes(channel, Position(), 1000)
    count = 5 * MAX_LINES
    channel._add(LogBlock("a", "".join(f"{number}\n" for number in range(count))))
    message, seen = output_changes(channel, seen, 1000)
    assert message is not None
    assert (len(message["lines"]), message["skipped"]) == (MAX_LINES, count - MAX_LINES)
    assert message["lines"][-1][-1] == str(count - 1)
    # Long lines count by their size.
    channel._add(LogBlock("a", ("x" * 10_000 + "\n") * 200))
    message, seen = output_changes(channel, seen, 1000)
    assert message is not None
    assert len(json.dumps(message)) < 600_000
    assert len(message["lines"]) + message["skipped"] == 200
    # A line that is still being written is sent again until its end.
    for text in ("10 %", "\r20 %"):
        channel._add(LogBlock("a", text))
        message, seen = output_changes(channel, seen, 1000)
        assert message is not None
    assert (message["lines"], message["begun"]) == ([], [["a", None, 0, "10 %\r20 %"]])
    channel._add(None)
    message, seen = output_changes(channel, seen, 1000)
    assert message is not None
    assert [row[-1] for row in message["lines"]] == ["10 %\r20 %"]
    assert (message["begun"], message["ended"]) == ([], True)
    assert output_changes(channel, seen, 1000) == (None, seen)


def test_a_slow_viewer_is_not_queued_for() -> None:
    """While a message is being sent, many changes happen. The next message has only the last."""

    async def watch() -> list[dict[str, Any]]:
        viewing = Viewing(UNUSED, UNUSED)
        channel = ExperimentChannel(asyncio.get_running_loop(), UNUSED, "rl")
        channel.open = lambda: None  # type: ignore[method-assign]
        viewing.channels.open_channels["experiment", "local", "rl"] = channel
        viewing.find_cluster = lambda _: UNUSED
        channel._update(_status(a=State.PENDING))
        received: list[dict[str, Any]] = []
        is_sending, may_continue = asyncio.Event(), asyncio.Event()

        async def send(message: Message) -> None:
            text = message.get("body", b"").decode()
            if "data: " in text:
                received.append(json.loads(text.partition("data: ")[2]))
                is_sending.set()
                await may_continue.wait()

        gone = asyncio.Event()

        async def receive() -> Message:
            await gone.wait()
            return {"type": "http.disconnect"}

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "headers": [],
            "query_string": b"backend=local&experiment=rl",
        }
        task = asyncio.create_task(Stream(viewing)(scope, receive, send))
        await is_sending.wait()
        for number in range(1000):
            state = State.RUNNING if number % 2 else State.PENDING
            channel._update(_status(a=state))
        is_sending.clear()
        may_continue.set()
        continued = asyncio.get_running_loop().time()
        await is_sending.wait()
        assert asyncio.get_running_loop().time() - continued >= MIN_INTERVAL_SECONDS
        gone.set()
        await task
        assert channel.viewers == 0
        return received

    first, second = asyncio.run(watch())
    assert first["processes"][0]["state"] == "pending"
    assert second["processes"][0]["state"] == "running"


class _Counted(Channel):
    def __init__(self, loop: Loop, log: list[str], *, is_over: bool = True) -> None:
        super().__init__(loop)
        self._log = log
        self._is_over = is_over

    def open(self) -> None:
        self._log.append("open")

    def rest(self) -> bool:
        self._log.append("rest")
        return self._is_over


def test_viewers_share_a_channel_that_rests_after_the_last_one() -> None:
    async def view(*, is_over: bool) -> tuple[list[str], bool]:
        loop = asyncio.get_running_loop()
        log: list[str] = []
        channels = Channels(linger_seconds=0.0)

        def create() -> Channel:
            return _Counted(loop, log, is_over=is_over)

        with channels.viewing(("rl",), create) as first:
            with channels.viewing(("rl",), create) as second:
                assert first is second
        # The next viewer comes before the channel rests.
        with channels.viewing(("rl",), create) as second:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert "rest" not in log
        while "rest" not in log:
            await asyncio.sleep(0)
        with channels.viewing(("rl",), create) as third:
            return list(log), third is first

    assert asyncio.run(view(is_over=True)) == (["open", "open", "open", "rest", "open"], False)
    assert asyncio.run(view(is_over=False)) == (["open", "open", "open", "rest", "open"], True)
