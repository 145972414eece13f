"""Leases: one holder at a time on the whole machine, for as long as it lives; and held ports that can be bound over."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.errors import LaunchFailed
from symphony.host.processes.spec import ProcessSpec
from symphony.host.resources import leases
from symphony.host.resources.gpus import assign_gpus
from symphony.host.resources.leases import GpuLeases, PortLeases, take_lease, visible_gpus

Take = Callable[[str], "int | None"]


@pytest.fixture(params=["abstract", "file"])
def take_named(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> Take:
    """Either way of leasing, with names of this test's own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = uuid.uuid4().hex
    if request.param == "abstract" and not sys.platform.startswith("linux"):
        pytest.skip("no abstract sockets here")
    function = leases._bind_abstract_socket if request.param == "abstract" else leases._lock_file
    return lambda name: function(f"{own}/{name}")


def test_a_lease_is_taken_once(take_named: Take) -> None:
    first = take_named("a")
    assert first is not None
    assert take_named("a") is None
    other = take_named("b")
    assert other is not None
    os.close(first)
    again = take_named("a")
    assert again is not None
    os.close(again)
    os.close(other)


def test_a_lease_does_not_pass_to_a_program_that_is_started(take_named: Take) -> None:
    lease = take_named("a")
    assert lease is not None
    assert os.get_inheritable(lease) is False
    os.close(lease)


HOLDER = """
import os, sys
from symphony.host.resources.leases import take_lease
held = take_lease("test", sys.argv[1])
os.write(1, b"held\\n" if held is not None else b"refused\\n")
sys.stdin.read()
"""


@contextlib.contextmanager
def holder(name: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Another process that takes a lease and keeps it until it is killed or told to end."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
        process.kill()


def test_a_lease_of_another_process_is_freed_when_its_holder_is_killed() -> None:
    name = uuid.uuid4().hex
    with holder(name) as (said, process):
        assert said == "held"
        assert take_lease("test", name) is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        freed = take_lease("test", name)
        assert freed is not None
        with holder(name) as (said, _):
            assert said == "refused"
        os.close(freed)


def test_a_lease_passes_to_a_child_with_its_descriptor() -> None:
    name = uuid.uuid4().hex
    lease = take_lease("test", name)
    assert lease is not None
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[lease])
    os.close(lease)
    assert take_lease("test", name) is None
    assert child.stdin is not None
    child.stdin.close()
    child.wait()
    freed = take_lease("test", name)
    assert freed is not None
    os.close(freed)


# --- ports ---


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def bound(port: int, *, reuse: bool) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
    try:
        server.bind(("127.0.0.1", port))
        server.listen()
    except OSError:
        server.close()
        raise
    return server


def test_a_held_port_keeps_others_off_and_lets_servers_that_reuse_addresses_bind_over() -> None:
    port = free_port()
    with PortLeases() as ports:
        assert ports.reserve(port) is None
        assert ports.holds.keys() == ports.leases.keys() == {port}
        with pytest.raises(OSError, match="in use"):
            bound(port, reuse=False)
        with bound(port, reuse=True), socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
    with bound(port, reuse=False):
        pass


def test_a_port_of_another_launch_is_promised() -> None:
    port = free_port()
    with PortLeases() as one, PortLeases() as other:
        assert one.reserve(port) is None
        assert other.reserve(port) == "is reserved by another running experiment"
        assert other.leases == other.holds == {}
    with PortLeases() as later:
        assert later.reserve(port) is None


def test_a_port_in_use_is_refused_with_its_user_and_leaves_no_lease() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with PortLeases() as ports:
            assert (ports.reserve(port) or "").startswith(f"is in use by pid {os.getpid()} (")
            assert ports.leases == ports.holds == {}
    with PortLeases() as ports:
        assert ports.reserve(port) is None


def test_letting_go_closes_every_descriptor() -> None:
    before = set(os.listdir("/dev/fd"))
    with PortLeases() as ports:
        for port in {free_port() for _ in range(3)}:
            ports.reserve(port)
    assert set(os.listdir("/dev/fd")) <= before  # one of an earlier test may be closed meanwhile


# --- GPUs ---


@pytest.fixture
def devices() -> list[str]:
    """Names of devices that no other test leases."""
    own = uuid.uuid4().hex[:8]
    return [f"GPU-{own}-{number}" for number in range(3)]


def test_devices_are_given_out_once(devices: list[str]) -> None:
    with GpuLeases(devices) as one, GpuLeases(devices) as other:
        assert one.lease(1) == devices[:1]
        assert one.lease(1) == devices[1:2]
        assert other.count_free() == 1
        assert other.lease(2) is None, "all or nothing"
        assert other.leases == {}
        assert other.lease(1) == devices[2:]
        assert one.lease(1) is None
        assert one.lease(0) == []
    with GpuLeases(devices) as later:
        assert later.count_free() == 3
        assert later.lease(3) == devices


def test_a_device_is_one_however_its_number_is_written() -> None:
    number = str(10_000_000 + os.getpid())  # that no machine has, and no test beside this one
    with (
        GpuLeases([number]) as one,
        GpuLeases([f"00{number}", f" {number} ", f"0{number}"]) as other,
    ):
        assert other.devices == (number,)
        assert one.lease(1) == [number]
        assert other.count_free() == 0
        assert other.lease(1) is None


def specs(*wanted: int) -> list[ProcessSpec]:
    return [
        ProcessSpec(name=f"p{index}", argv=("c",), cwd="/", gpus=count)
        for index, count in enumerate(wanted)
    ]


def test_who_asked_for_devices_is_told_which(devices: list[str]) -> None:
    with GpuLeases(devices) as leased:
        given, kept = assign_gpus(specs(1, 0, 2), leased)
        assert [item.env for item in given] == [
            {"CUDA_VISIBLE_DEVICES": devices[0]}, {}, {"CUDA_VISIBLE_DEVICES": f"{devices[1]},{devices[2]}"},
        ]  # fmt: skip
        assert {name: len(found) for name, found in kept.items()} == {"p0": 1, "p2": 2}
        assert {descriptor for found in kept.values() for descriptor in found} == set(
            leased.leases.values()
        )


def test_too_few_devices_are_told_clearly(devices: list[str]) -> None:
    with (
        GpuLeases([]) as none,
        pytest.raises(LaunchFailed, match="'p0' requests 1 GPU, but no GPU is visible"),
    ):
        assign_gpus(specs(1), none)
    with GpuLeases(devices) as one, GpuLeases(devices) as other:
        one.lease(2)
        with pytest.raises(
            LaunchFailed,
            match="'p0' requests 2 GPUs, but only 1 of 3 are free; running experiments have leased",
        ):
            assign_gpus(specs(2), other)


@pytest.mark.parametrize(
    ("environ", "found", "visible"),
    [
        (
            {},
            ["nvidia1", "nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm", "null"],
            ["0", "1", "10"],
        ),
        ({}, [], []),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, ["nvidia0"], ["2", "0"]),
        ({"CUDA_VISIBLE_DEVICES": " GPU-a , GPU-b "}, [], ["GPU-a", "GPU-b"]),
        ({"CUDA_VISIBLE_DEVICES": "00,1, 007"}, [], ["0", "1", "7"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-01,1,01"}, [], ["GPU-01", "1"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, ["nvidia0"], []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, ["nvidia0"], []),
    ],
)
def test_visible_gpus(environ: dict[str, str], found: list[str], visible: list[str]) -> None:
    assert visible_gpus(environ, found) == visible


@given(st.lists(st.integers(0, 3), max_size=4))
def test_devices_are_all_given_back(wanted: list[int]) -> None:
    devices = [f"GPU-{uuid.uuid4().hex[:8]}" for _ in range(3)]
    with GpuLeases(devices) as leased:
        given = [leased.lease(count) for count in wanted]
        out = [device for taken in given if taken for device in taken]
        assert len(set(out)) == len(out) == len(leased.leases)
    with GpuLeases(devices) as later:
        assert later.count_free() == 3
