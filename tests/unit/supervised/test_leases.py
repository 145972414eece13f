"""Leases of ports and GPUs: one holder at a time on the whole machine, for as long as it runs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.errors import LaunchFailed
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.resources.gpus import assign_gpus
from symphony.supervised.resources.leases import (
    GpuLeases,
    PortLeases,
    better_port,
    close_port_sockets,
    held_resource,
    take_lease,
    visible_gpus,
)

TakeLease = Callable[[str], "int | None"]


@pytest.fixture
def take() -> TakeLease:
    """A function that takes leases with names that no other test uses."""
    prefix = uuid.uuid4().hex
    return lambda name: take_lease("test", f"{prefix}/{name}")


def test_lease_has_one_holder_and_is_not_inherited_by_programs(take: TakeLease) -> None:
    first = take("a")
    assert first is not None
    assert os.get_inheritable(first) is False
    assert take("a") is None
    other = take("b")
    assert other is not None
    os.close(first)
    again = take("a")
    assert again is not None
    os.close(again)
    os.close(other)


def close_connection(server: socket.socket) -> int:
    """Return the port of a server, which has had a connection that the server closed first."""
    port: int = server.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as client:
        accepted, _ = server.accept()
        # The side that closes first keeps the state of the connection.
        accepted.close()
        client.recv(1)
    return port


def test_a_port_with_closed_connections_is_avoided_unless_it_is_leased() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = close_connection(server)
        with PortLeases() as leases:
            # The port is in use, which is another reason.
            assert not leases.avoid(port)
    with PortLeases() as leases:
        assert leases.avoid(port)
        assert leases.reserve(port) is None
        assert not leases.avoid(port)
    with socket.create_server(("127.0.0.1", 0)) as server:
        unused = server.getsockname()[1]
    with PortLeases() as leases:
        assert not leases.avoid(unused)


def test_a_better_port_is_one_that_each_server_can_bind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        first = close_connection(server)
    with socket.create_server(("127.0.0.1", 0)) as server:
        second = close_connection(server)
        with PortLeases() as leases:
            assert leases.reserve(first) is None
            # The program that has reserved a port holds it until its server starts.
            assert better_port(leases, first, (1, 65535)) is None
            os.close(leases.holds.pop(first))
            # The only other port is in use.
            assert better_port(leases, first, (second, second)) is None
    with PortLeases() as leases:
        assert leases.reserve(first) is None
        os.close(leases.holds.pop(first))
        # The only other port has closed connections, too.
        assert better_port(leases, first, (second, second)) is None
        better = better_port(leases, first, (20000, 29999))
        assert better is not None
        assert better in leases.holds
        os.close(leases.holds.pop(better))
        assert better_port(leases, better, (20000, 29999)) is None


HOLDER = """
import os, sys
from symphony.supervised.resources.leases import take_lease
held = take_lease("test", sys.argv[1])
os.write(1, b"held\\n" if held is not None else b"refused\\n")
sys.stdin.read()
"""


@contextlib.contextmanager
def holder(name: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A process that takes a lease and keeps it until it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
        process.kill()


def test_lease_is_released_when_its_holder_is_killed() -> None:
    name = uuid.uuid4().hex
    with holder(name) as (outcome, process):
        assert outcome == "held"
        assert take_lease("test", name) is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        released = take_lease("test", name)
        assert released is not None
        with holder(name) as (outcome, _):
            assert outcome == "refused"
        os.close(released)


def test_lease_passes_to_a_child_with_its_descriptor() -> None:
    name = uuid.uuid4().hex
    lease = take_lease("test", name)
    assert lease is not None
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[lease])
    os.close(lease)
    assert take_lease("test", name) is None
    assert child.stdin is not None
    child.stdin.close()
    child.wait()
    released = take_lease("test", name)
    assert released is not None
    os.close(released)


# --- ports ---


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def server(port: int, *, reuse: bool) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def test_held_port_accepts_only_servers_that_reuse_addresses() -> None:
    port = free_port()
    with PortLeases() as ports:
        assert ports.reserve(port) is None
        assert ports.holds.keys() == ports.leases.keys() == {port}
        with pytest.raises(OSError, match="in use"):
            server(port, reuse=False)
        with server(port, reuse=True), socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
    with server(port, reuse=False):
        pass


def test_port_of_another_launch_is_refused() -> None:
    port = free_port()
    with PortLeases() as one, PortLeases() as other:
        assert one.reserve(port) is None
        assert other.reserve(port) == "is reserved by another running experiment"
        assert other.leases == other.holds == {}
    with PortLeases() as later:
        assert later.reserve(port) is None


def test_port_in_use_is_refused_with_its_process() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with PortLeases() as ports:
            assert (ports.reserve(port) or "").startswith(f"is in use by pid {os.getpid()} (")
            assert ports.leases == ports.holds == {}
    with PortLeases() as ports:
        assert ports.reserve(port) is None


def test_end_of_the_block_closes_every_descriptor() -> None:
    before = set(os.listdir("/dev/fd"))
    with PortLeases() as ports:
        for port in {free_port() for _ in range(3)}:
            ports.reserve(port)
    # Another test may close a descriptor of its own in the meantime.
    assert set(os.listdir("/dev/fd")) <= before


# --- GPUs ---


@pytest.fixture
def devices() -> list[str]:
    """Names of devices that no other test leases."""
    prefix = uuid.uuid4().hex[:8]
    return [f"GPU-{prefix}-{number}" for number in range(3)]


def test_each_device_is_leased_once(devices: list[str]) -> None:
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


def test_spellings_of_a_device_number_are_one_device() -> None:
    number = str(10_000_000 + os.getpid())  # no machine and no other test has this device
    with (
        GpuLeases([number]) as one,
        GpuLeases([f"00{number}", f" {number} ", f"0{number}"]) as other,
    ):
        assert other.devices == (number,)
        assert one.lease(1) == [number]
        assert other.count_free() == 0
        assert other.lease(1) is None


def specs(*counts: int) -> list[ProcessSpec]:
    return [
        ProcessSpec(name=f"p{index}", argv=("c",), cwd="/", gpus=count)
        for index, count in enumerate(counts)
    ]


def visible(devices: str) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": devices, "HIP_VISIBLE_DEVICES": devices}


def test_processes_receive_their_devices(devices: list[str]) -> None:
    with GpuLeases(devices) as leased:
        assigned, kept = assign_gpus(specs(1, 0, 2), leased)
        assert [spec.env for spec in assigned] == [
            visible(devices[0]),
            {},
            visible(f"{devices[1]},{devices[2]}"),
        ]
        assert {name: len(found) for name, found in kept.items()} == {"p0": 1, "p2": 2}
        descriptors = {descriptor for found in kept.values() for descriptor in found}
        assert descriptors == set(leased.leases.values())


def test_too_few_devices_are_refused(devices: list[str]) -> None:
    with GpuLeases([]) as none, pytest.raises(LaunchFailed) as refusal:
        assign_gpus(specs(1), none)
    assert str(refusal.value) == (
        "process 'p0' requests 1 GPU, but no GPU is visible on this machine; "
        "lower resource_limit(gpu=)"
    )
    with GpuLeases(devices) as one, GpuLeases(devices) as other:
        one.lease(2)
        with pytest.raises(LaunchFailed) as refusal:
            assign_gpus(specs(2), other)
    assert str(refusal.value) == (
        "process 'p0' requests 2 GPUs, but only 1 of 3 are free; "
        "running experiments have leased the others; to wait for them, launch with queue"
    )


@pytest.mark.parametrize(
    ("variable", "files", "visible"),
    [
        (None, ["nvidia1", "nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm"], ["0", "1", "10"]),
        (None, [], []),
        ("2,0", ["nvidia0"], ["2", "0"]),
        (" GPU-a , GPU-b ", [], ["GPU-a", "GPU-b"]),
        ("00,1, 007", [], ["0", "1", "7"]),
        ("GPU-01,1,01", [], ["GPU-01", "1"]),
        ("", ["nvidia0"], []),
        ("-1", ["nvidia0"], []),
    ],
)
def test_visible_gpus(variable: str | None, files: list[str], visible: list[str]) -> None:
    environ = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    assert visible_gpus(environ, files, Path("/nonexistent")) == visible


def test_visible_amd_gpus(tmp_path: Path) -> None:
    for node, identifier in enumerate(("0", "51470", "4660")):
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "gpu_id").write_text(f"{identifier}\n")
    assert visible_gpus({}, ["kfd"], tmp_path) == ["0", "1"]
    assert visible_gpus({}, ["nvidia3"], tmp_path) == ["3"]
    assert visible_gpus({"HIP_VISIBLE_DEVICES": "1"}, [], tmp_path) == ["1"]
    assert (
        visible_gpus({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": ""}, [], tmp_path) == []
    )


@given(st.lists(st.integers(0, 3), max_size=4))
def test_devices_are_leased_once_and_all_released(counts: list[int]) -> None:
    devices = [f"GPU-{uuid.uuid4().hex[:8]}" for _ in range(3)]
    with GpuLeases(devices) as leased:
        batches = [leased.lease(count) for count in counts]
        out = [device for batch in batches if batch for device in batch]
        assert len(set(out)) == len(out) == len(leased.leases)
    with GpuLeases(devices) as later:
        assert later.count_free() == 3


def test_held_resources_are_found_by_their_descriptors(tmp_path):
    # The name of a GPU can contain slashes.
    device = f"MIG-{uuid.uuid4()}/1/2"
    file = os.open(tmp_path / "file", os.O_CREAT)
    with socket.socket() as hold:
        hold.bind(("0.0.0.0", 0))
        port = hold.getsockname()[1]
        gpu = take_lease("gpu", device)
        before = len(os.listdir("/proc/self/fd"))
        take_lease("port", str(port))
        found = [held_resource(number) for number in (file, hold.fileno(), gpu)]
        assert found == [None, ("hold", str(port)), ("gpu", device)]
        os.close(gpu)
        close_port_sockets(port)
        assert len(os.listdir("/proc/self/fd")) == before - 2
        hold.detach()
    os.close(file)
