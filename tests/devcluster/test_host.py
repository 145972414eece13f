import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from devcluster import cgroups, engine, host, network, paths
from machines.console import RequirementError


def test_user_must_be_root():
    with pytest.raises(RequirementError, match="only root"):
        host.check_user(1000)
    host.check_user(0)


@pytest.mark.parametrize(
    ("release", "machine", "message"),
    [
        (
            {"ID": "ubuntu", "VERSION_ID": "24.04", "PRETTY_NAME": "Ubuntu 24.04"},
            "x86_64",
            "Ubuntu",
        ),
        ({"ID": "debian", "VERSION_ID": "13"}, "x86_64", "not Debian 12"),
        ({}, "x86_64", "not Debian 12"),
        ({"ID": "debian", "VERSION_ID": "12"}, "aarch64", "not x86_64"),
    ],
)
def test_other_systems_are_rejected_with_kind_as_alternative(release, machine, message):
    with pytest.raises(RequirementError, match=message) as caught:
        host.check_system(release, machine)
    assert "kind" in str(caught.value)
    host.check_system({"ID": "debian", "VERSION_ID": "12"}, "x86_64")


def test_other_container_runtimes_are_rejected():
    with pytest.raises(RequirementError, match=r"dockerd \(pid 7\) already runs"):
        host.check_other_runtimes([(1, "init"), (7, "dockerd")])
    host.check_other_runtimes([(1, "init"), (8, "containerd-log-viewer")])


def test_kernel_without_overlay_is_rejected():
    with pytest.raises(RequirementError, match="no overlay"):
        host.check_filesystems("nodev\tsysfs\n\text4\n")
    host.check_filesystems("nodev\toverlay\n\text4\n")


def test_full_disk_is_rejected(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=3 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(RequirementError, match=r"3\.0 GiB are free"):
        host.check_free_space(tmp_path / "not/yet/there", needed=4)
    host.check_free_space(tmp_path, needed=2)


def test_missing_program_is_reported_with_its_package(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "ip" else name)
    with pytest.raises(RequirementError, match="apt-get install iproute2"):
        host.check_tools()


def test_machine_without_controllers_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "MOUNTS", tmp_path)
    with pytest.raises(RequirementError, match="no cgroup controller blkio, cpu"):
        cgroups.check()
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io pids\n")
    with pytest.raises(RequirementError, match="no cgroup controller memory in"):
        cgroups.check()


def test_directories_of_cgroup_v1_are_in_every_hierarchy(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "MOUNTS", tmp_path)
    for name in cgroups.NEEDED:
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    for setting in ("cpuset.cpus", "cpuset.mems"):
        (tmp_path / "cpuset" / setting).write_text("0-1\n")
    cgroups.check()
    cgroups.make("/symphony-devcluster/node1")
    made = {path.parent.parent.name for path in tmp_path.glob("*/symphony-devcluster/node1")}
    assert made == set(cgroups.NEEDED)
    copied = tmp_path / "cpuset/symphony-devcluster/node1/cpuset.cpus"
    assert copied.read_text() == "0-1\n"


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        ("cpuset cpu io memory pids rdma misc", "+cpu +cpuset +io +memory +pids"),
        # The kubelet exits if the kernel has hugetlb and the directory of its node lacks it.
        ("cpuset cpu io memory hugetlb pids rdma", "+cpu +cpuset +io +memory +pids +hugetlb"),
    ],
)
def test_directories_of_cgroup_v2_can_use_the_controllers(
    available, expected, tmp_path, monkeypatch
):
    monkeypatch.setattr(cgroups, "MOUNTS", tmp_path)
    (tmp_path / "cgroup.controllers").write_text(f"{available}\n")
    (tmp_path / "cgroup.procs").touch()
    cgroups.check()
    cgroups.make("/symphony-devcluster/node1")
    assert (tmp_path / "symphony-devcluster/node1").is_dir()
    for directory in (tmp_path, tmp_path / "symphony-devcluster"):
        enabled = (directory / "cgroup.subtree_control").read_text()
        assert enabled == expected
    assert cgroups.existing() == [tmp_path / "symphony-devcluster"]


def test_cgroup_v2_directory_with_processes_is_explained(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "MOUNTS", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").mkdir()  # cannot be written
    with pytest.raises(RequirementError, match=r"cannot enable .*: move the processes of its"):
        cgroups.make("/symphony-devcluster/node1")


@pytest.fixture
def cgroup_v2(monkeypatch):
    """A directory of the host's cgroup v2, with one of its controllers, as the root of the tool."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    found = [Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"]
    available = (found[0] / "cgroup.controllers").read_text().split() if found else []
    if not available or not os.access(found[0], os.W_OK):
        pytest.skip("no directories can be created in a cgroup v2 with controllers")
    enabled = found[0] / "cgroup.subtree_control"
    before = enabled.read_text().split()
    controller = next(iter(before or available))
    enabled.write_text(f"+{controller}")
    directory = found[0] / f"symphony-test-{os.getpid()}"
    directory.mkdir()
    monkeypatch.setattr(cgroups, "MOUNTS", directory)
    monkeypatch.setattr(cgroups, "NEEDED_V2", (controller,))
    yield directory
    directory.rmdir()
    if controller not in before:
        # Another process that runs this test may still use the controller.
        with contextlib.suppress(OSError):
            enabled.write_text(f"-{controller}")


def process_in(directory):
    """Start a process in a control group. It ends when its input is closed."""
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    (directory / "cgroup.procs").write_text(str(process.pid))
    return process


def test_directories_in_the_cgroup_v2_of_this_machine(cgroup_v2, monkeypatch):
    cgroups.check()
    with monkeypatch.context() as patch:
        patch.setattr(cgroups, "NEEDED_V2", ("no-such-controller",))
        with pytest.raises(RequirementError, match="no cgroup controller no-such-controller in"):
            cgroups.check()
        with pytest.raises(RequirementError, match="cannot enable the controllers no-such-contr"):
            cgroups.make("/symphony-devcluster/node1")
    cgroups.make("/symphony-devcluster/node1")
    cgroups.make("/symphony-devcluster/node1")
    node = cgroup_v2 / "symphony-devcluster/node1"
    assert (node / "cgroup.controllers").read_text().split() == list(cgroups.NEEDED_V2)
    process = process_in(node)
    assert cgroups.existing() == [cgroup_v2 / "symphony-devcluster"]
    process.stdin.close()
    cgroups.remove()
    assert cgroups.existing() == []
    assert process.wait() == 0


def test_a_process_in_a_directory_of_cgroup_v2_prevents_controllers_below_it(cgroup_v2):
    process = process_in(cgroup_v2)
    with pytest.raises(RequirementError, match=r"busy\): move the processes of its cgroup.procs"):
        cgroups.make("/symphony-devcluster/node1")
    process.stdin.close()
    assert process.wait() == 0


def test_port_in_use_is_rejected(monkeypatch):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setattr(engine, "REGISTRY_PORT", other.getsockname()[1])
        with pytest.raises(RequirementError, match="is in use"):
            engine.check_port()
    engine.check_port()


@pytest.mark.parametrize(
    ("route", "collides"),
    [
        ({"dst": "default", "dev": "eth0"}, False),
        ({"dst": "192.0.2.0/24", "dev": "eth0"}, False),
        ({"dst": "10.243.0.0/24", "dev": network.BRIDGE}, False),
        ({"dst": "10.0.0.0/8", "dev": "vpn0"}, True),
        ({"dst": "10.244.3.7", "dev": "eth0"}, True),
        ({"dst": "10.96.0.0/12", "dev": "docker0"}, True),
    ],
)
def test_overlapping_routes_are_found(route, collides):
    assert bool(network.collisions([route], network.IPV4)) is collides


@pytest.mark.parametrize(
    ("route", "collides"),
    [
        ({"dst": "default", "dev": "eth0"}, False),
        ({"dst": "fd00::/64", "dev": "eth0"}, False),
        ({"dst": "fd00:244:0:2::/64", "dev": "eth0"}, True),
    ],
)
def test_overlapping_routes_of_ipv6_are_found(route, collides):
    assert bool(network.collisions([route], network.IPV6)) is collides


@pytest.mark.parametrize(
    ("addresses", "machine", "pods"),
    [
        (network.IPV4, "10.243.0.12", "10.244.2.0/24"),
        (network.IPV6, "fd00:243::c", "fd00:244:0:2::/64"),
    ],
)
def test_each_node_has_addresses_of_its_own(addresses, machine, pods):
    assert (addresses.machine(2), addresses.pods(2)) == (machine, pods)


def test_directories_follow_the_xdg_specification(tmp_path):
    found = paths.find({"XDG_CACHE_HOME": "/big/cache", "XDG_STATE_HOME": "relative"}, tmp_path)
    assert str(found.cache) == "/big/cache/symphony/devcluster"
    assert found.state == tmp_path / ".local/state/symphony/devcluster"


@pytest.mark.parametrize("directory", ["/var/lib/x", "/run/x", "/a b", "/a:b", "/a,b"])
def test_unusable_directories_are_rejected(directory, tmp_path):
    with pytest.raises(RequirementError, match="XDG_STATE_HOME"):
        paths.find({"XDG_STATE_HOME": directory}, tmp_path)


def test_long_socket_path_is_rejected(tmp_path):
    with pytest.raises(RequirementError, match="too long for a socket"):
        engine.docker_socket(tmp_path / ("x" * 90))
