"""The queue of launches that wait for GPUs: real leases, and launches that only take them."""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from symphony.errors import LaunchFailed
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.resources import gpu_queue
from symphony.supervised.resources.gpus import (
    GpusBusy,
    assign_gpus,
    check_number_of_gpus,
    check_total_of_gpus,
)
from symphony.supervised.resources.leases import GpuLeases

TIMEOUT = 30.0


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_queue, "CHECK_INTERVAL_SECONDS", 0.005)


@pytest.fixture
def devices() -> list[str]:
    """Names of two GPUs that no other test uses."""
    prefix = uuid.uuid4().hex[:8]
    return [f"{prefix}-{number}" for number in range(2)]


def specs(*counts: int) -> list[ProcessSpec]:
    return [
        ProcessSpec(name=f"p{index}", argv=("c",), cwd="/", gpus=count)
        for index, count in enumerate(counts)
    ]


@dataclass
class Launch:
    """A launch that needs some GPUs of ``devices``, in a thread of its own."""

    devices: list[str]
    needed: int
    reasons: queue.Queue[str] = field(default_factory=queue.Queue)
    leases: queue.Queue[GpuLeases] = field(default_factory=queue.Queue)

    def start(self) -> Launch:
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def _run(self) -> None:
        free = GpuLeases(self.devices)
        found = gpu_queue.launch_in_turn(free, self.needed, self._lease, self.reasons.put)
        self.leases.put(found)

    def _lease(self) -> GpuLeases:
        leases = GpuLeases(self.devices)
        if leases.lease(self.needed) is None:
            raise GpusBusy("busy")
        return leases


def test_launches_wait_in_the_order_in_which_they_began(devices: list[str]) -> None:
    running = GpuLeases(devices)
    running.lease(1)
    large = Launch(devices, 2).start()
    assert large.reasons.get(timeout=TIMEOUT) == "waiting for 2 GPUs: 1 of 2 are free"
    # It would fit, but the other launch has begun before.
    small = Launch(devices, 1).start()
    reason = small.reasons.get(timeout=TIMEOUT)
    assert reason == "waiting for 1 GPU: 1 launch is before this one"
    running.release()
    launched = large.leases.get(timeout=TIMEOUT)
    assert small.reasons.get(timeout=TIMEOUT) == "waiting for 1 GPU: 0 of 2 are free"
    launched.release()
    small.leases.get(timeout=TIMEOUT).release()


def test_launch_that_others_have_overtaken_is_repeated(devices: list[str]) -> None:
    launches = 0

    def launch() -> str:
        nonlocal launches
        launches += 1
        if launches == 1:
            raise GpusBusy("another program was faster")
        return "launched"

    reasons: list[str] = []
    found = gpu_queue.launch_in_turn(GpuLeases(devices), 2, launch, reasons.append)
    assert (found, launches) == ("launched", 2)


def test_another_error_ends_the_wait_and_leaves_no_ticket(devices: list[str]) -> None:
    def fail() -> str:
        raise LaunchFailed("the port is in use")

    with pytest.raises(LaunchFailed, match="the port is in use"):
        gpu_queue.launch_in_turn(GpuLeases(devices), 1, fail, print)
    reasons: list[str] = []
    assert gpu_queue.launch_in_turn(GpuLeases(devices), 1, lambda: "launched", reasons.append)
    assert reasons == []


@pytest.mark.parametrize("assign", [assign_gpus, lambda *given: check_number_of_gpus(*given, ())])
def test_error_says_whether_waiting_helps(
    devices: list[str], assign: Callable[[list[ProcessSpec], GpuLeases], object]
) -> None:
    busy = GpuLeases(devices)
    busy.lease(1)
    with pytest.raises(GpusBusy, match="to wait for them, launch with queue"):
        assign(specs(1, 1), GpuLeases(devices))
    with pytest.raises(
        LaunchFailed, match=r"^the processes request 3 GPUs together, but"
    ) as caught:
        assign(specs(2, 1), GpuLeases(devices))
    assert not isinstance(caught.value, GpusBusy)
    busy.release()


def test_launch_that_can_never_fit_is_refused(devices: list[str]) -> None:
    busy = GpuLeases(devices)
    busy.lease(2)
    check_total_of_gpus(specs(1, 0, 1), GpuLeases(devices))
    with pytest.raises(LaunchFailed, match="'p1' requests 3 GPUs, but this machine has only 2;"):
        check_total_of_gpus(specs(1, 3), GpuLeases(devices))
    with pytest.raises(LaunchFailed, match="request 3 GPUs together, but this machine has only 2;"):
        check_total_of_gpus(specs(1, 1, 1), GpuLeases(devices))
    with pytest.raises(LaunchFailed, match="no GPU is visible on this machine"):
        check_total_of_gpus(specs(1), GpuLeases([]))
    busy.release()
