"""The scenarios on the backends of this machine; tests/backends/kube runs them on a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Program
from tests.cli.scenarios import Scenarios, program_for_backend


class TestLocal(Scenarios):
    backend = "local"

    @pytest.fixture(scope="class")
    @classmethod
    def cli(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
        yield from program_for_backend(tmp_path_factory.mktemp("local"))


class TestTmux(Scenarios):
    backend = "tmux"

    @pytest.fixture(scope="class")
    @classmethod
    def cli(cls, tmp_path_factory: pytest.TempPathFactory, sockets: Path) -> Iterator[Program]:
        env = {"SYMPHONY_BACKEND": "tmux", "TMUX_TMPDIR": str(sockets), "TMUX": ""}
        yield from program_for_backend(tmp_path_factory.mktemp("tmux"), **env)

    @pytest.fixture(scope="class")
    @classmethod
    def sockets(cls) -> Iterator[Path]:
        """A directory for the sockets of tmux servers. The servers are stopped afterwards."""
        if shutil.which("tmux") is None:
            report = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
            report(
                "tmux is not installed, so nothing was tested in tmux (Debian: apt install tmux)"
            )
        # The path of a socket must be short.
        with tempfile.TemporaryDirectory(prefix="sy-", dir="/tmp") as directory:
            yield Path(directory)
            for socket in Path(directory).glob("tmux-*/*"):
                subprocess.run(
                    ["tmux", "-S", str(socket), "kill-server"], check=False, capture_output=True
                )
