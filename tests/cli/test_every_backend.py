"""The command line on both backends of this machine; the tests of the kube backend have the same on a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Program
from tests.cli.scenarios import Scenarios, driven


class TestLocal(Scenarios):
    backend = "local"

    @pytest.fixture(scope="class")
    @classmethod
    def cli(cls, tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Program]:
        yield from driven(tmp_path_factory.mktemp("local"), cache)


class TestTmux(Scenarios):
    backend = "tmux"

    @pytest.fixture(scope="class")
    @classmethod
    def cli(
        cls, tmp_path_factory: pytest.TempPathFactory, cache: Path, sockets: Path
    ) -> Iterator[Program]:
        folder = tmp_path_factory.mktemp("tmux")
        yield from driven(folder, cache, SYMPHONY_BACKEND="tmux", TMUX_TMPDIR=str(sockets), TMUX="")

    @pytest.fixture(scope="class")
    @classmethod
    def sockets(cls) -> Iterator[Path]:
        """A folder for the sockets of tmux servers, which end with it."""
        if shutil.which("tmux") is None:
            say = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
            say("NOT TESTED IN TMUX: there is no tmux; install it (Debian: apt install tmux)")
        with tempfile.TemporaryDirectory(
            prefix="sy-", dir="/tmp"
        ) as folder:  # a socket's path is short
            yield Path(folder)
            for socket in Path(folder).glob("tmux-*/*"):
                subprocess.run(
                    ["tmux", "-S", str(socket), "kill-server"], check=False, capture_output=True
                )
