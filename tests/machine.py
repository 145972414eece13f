"""Fixtures for tests of what runs on this machine alike, on local processes and in tmux."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony import Cluster


@pytest.fixture
def tmux_sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the sockets of tmux servers, which end with the test. Its path is short: a socket's may have some
    100 characters. Without tmux the test is skipped, and fails in CI."""
    if shutil.which("tmux") is None:
        say = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        say("NOT TESTED IN TMUX: there is no tmux; install it (Debian: apt install tmux)")
    folder = tempfile.mkdtemp(prefix="sy-", dir="/tmp")
    monkeypatch.setenv("TMUX_TMPDIR", folder)
    monkeypatch.delenv("TMUX", raising=False)
    yield Path(folder)
    for socket in Path(folder).glob("tmux-*/*"):
        subprocess.run(["tmux", "-S", str(socket), "kill-server"], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)  # a server that is ending removes its socket itself


@pytest.fixture(params=["local", "tmux"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Each backend of this machine, with a state directory of its own; what is left in it is deleted."""
    options = {}
    if request.param == "tmux":
        request.getfixturevalue("tmux_sockets")
        options = {"server_name": "test"}
    cluster = Cluster.new(request.param, state_dir=str(tmp_path / "state"), **options)
    yield cluster
    for name in cluster.list_experiments():
        cluster.delete(name)
