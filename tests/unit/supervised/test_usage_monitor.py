"""The samples that a supervisor takes for the record of a run and for clients."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from symphony.archive.archived_usage import USAGE_FILE, read_usage
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.serving import record_usage
from symphony.supervised.supervisor.serving.record_usage import UsageMonitor
from symphony.usage import ExperimentUsage, ProcessUsage


class Samples:
    """The samples of a monitor, and the number of times that it has taken one."""

    def __init__(self) -> None:
        self.count = 0
        self.name = "worker"
        self.after: Callable[[], None] = lambda: None

    def take(self, on_sample: Callable[[ExperimentUsage], None]) -> None:
        self.count += 1
        usage = ProcessUsage(process=self.name, cpu=0.5)
        on_sample(ExperimentUsage(at=float(self.count), processes=(usage,)))
        self.after()


@pytest.fixture
def samples() -> Samples:
    return Samples()


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    errors: list[Exception] = []
    previous = signal.set_wakeup_fd(-1)
    loop = EventLoop(errors.append)
    yield loop
    signal.set_wakeup_fd(previous)
    for resource in (loop._epoll, loop._wake_read, loop._wake_write):
        resource.close()
    assert errors == []


@pytest.fixture
def monitor(
    loop: EventLoop, samples: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> UsageMonitor:
    monkeypatch.setattr(record_usage, "INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(record_usage, "FIRST_INTERVAL_SECONDS", 0.01)
    return UsageMonitor(loop, RunDirectory(tmp_path), samples.take)


def connect(monitor: UsageMonitor) -> socket.socket:
    client, server = socket.socketpair()
    server.setblocking(False)
    monitor.join(server)
    return client


def run_until_idle(monitor: UsageMonitor, loop: EventLoop) -> None:
    """Run the loop until the monitor takes no more samples."""

    def stop_if_idle() -> None:
        if monitor._is_sampling:
            loop.after(0.005, stop_if_idle)
        else:
            loop.stop()

    stop_if_idle()
    loop.run()


def test_samples_are_taken_while_a_client_is_connected(
    monitor: UsageMonitor, loop: EventLoop, samples: Samples, tmp_path: Path
) -> None:
    assert samples.count == 0
    client = connect(monitor)
    samples.after = lambda: client.close() if samples.count == 3 else None
    run_until_idle(monitor, loop)
    assert samples.count == 3
    assert not (tmp_path / USAGE_FILE).exists()


def test_client_that_does_not_read_misses_samples_and_receives_complete_lines(
    monitor: UsageMonitor, loop: EventLoop, samples: Samples
) -> None:
    samples.name = "x" * (1 << 20)  # more than the buffers contain
    client = connect(monitor)
    received = b""

    def read() -> None:
        nonlocal received
        if samples.count < 5:
            loop.after(0.01, read)
            return
        client.setblocking(False)
        try:
            while received.count(b"\n") < 2:
                received += client.recv(1 << 20)
        except BlockingIOError:
            loop.after(0.001, read)
            return
        client.close()

    read()
    run_until_idle(monitor, loop)
    first, second = map(json.loads, received.splitlines()[:2])
    assert first["processes"][0]["process"] == samples.name
    assert (first["at"], second["at"] > 4) == (2.0, True)


def test_samples_are_recorded_until_the_disk_is_full_and_again_afterwards(
    monitor: UsageMonitor, loop: EventLoop, samples: Samples, tmp_path: Path
) -> None:
    path = tmp_path / USAGE_FILE

    def step() -> None:
        if samples.count == 3:
            path.rename(tmp_path / "aside")
            path.mkdir()  # the file cannot be opened
        elif samples.count == 5:
            path.rmdir()
            (tmp_path / "aside").rename(path)
        elif samples.count == 7:
            monitor.set_recording(False)

    samples.after = step
    monitor.set_recording(True)
    run_until_idle(monitor, loop)
    # The first sample is not used, because its CPU use is unknown.
    assert [sample.at for sample in read_usage(tmp_path).samples] == [2, 3, 6, 7]
    assert samples.count == 7
