"""Fixtures for tests that run on local processes and in tmux."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony import Cluster

# Numbers of Linux: CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, and the version of the structures.
_CAPABILITIES_TO_ACCESS_ALL_FILES = 1 << 1 | 1 << 2
_CAPABILITY_VERSION_3 = 0x20080522


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilitySets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


@pytest.fixture
def permissions_apply_to_root() -> Iterator[None]:
    """The modes of files apply to this process, even if it runs as root."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    sets = (_CapabilitySets * 2)()
    assert libc.capget(ctypes.byref(header), sets) == 0
    before = sets[0].effective
    sets[0].effective = before & ~_CAPABILITIES_TO_ACCESS_ALL_FILES
    assert libc.capset(ctypes.byref(header), sets) == 0
    yield
    sets[0].effective = before
    assert libc.capset(ctypes.byref(header), sets) == 0


@contextlib.contextmanager
def socket_directory() -> Iterator[Path]:
    """A directory for the sockets of tmux servers, which are killed afterwards.

    The path of a socket may have about 100 characters, so that of the directory is short. Without
    tmux the test is skipped, or fails in CI.
    """
    if shutil.which("tmux") is None:
        report = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        report("NOT TESTED IN TMUX: there is no tmux; install it (Debian: apt install tmux)")
    directory = tempfile.mkdtemp(prefix="sy-", dir="/tmp")
    try:
        yield Path(directory)
    finally:
        for socket in Path(directory).glob("tmux-*/*"):
            command = ["tmux", "-S", str(socket), "kill-server"]
            subprocess.run(command, check=False, capture_output=True)
        shutil.rmtree(directory, ignore_errors=True)  # an exiting server removes its socket itself


@pytest.fixture
def tmux_sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory in which this process and its children find the sockets of tmux servers."""
    with socket_directory() as directory:
        monkeypatch.setenv("TMUX_TMPDIR", str(directory))
        monkeypatch.delenv("TMUX", raising=False)
        yield directory


@pytest.fixture(params=["local", "tmux"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of each backend of this machine, with its own state directory."""
    options = {}
    if request.param == "tmux":
        request.getfixturevalue("tmux_sockets")
        options = {"server_name": "test"}
    cluster = Cluster.new(request.param, state_dir=str(tmp_path / "state"), **options)
    yield cluster
    for name in cluster.list_experiments():
        cluster.delete(name, at_once=True)
