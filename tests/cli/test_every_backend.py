"""The scenarios on the backends of this machine; tests/backends/kube runs them on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Program
from tests.cli.scenarios import SAME_ON_ALL_BACKENDS, Scenarios, program_for_backend
from tests.machine import socket_directory


class TestLocal(Scenarios):
    backend = "local"

    @pytest.fixture(scope="class")
    @classmethod
    def cli(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
        yield from program_for_backend(tmp_path_factory.mktemp("local"))


class TmuxScenarios(Scenarios):
    backend = "tmux"
    attached_text = "[watched] 0:shell"
    detach_keys = ("C-b", "d")

    @pytest.fixture(scope="class")
    @classmethod
    def cli(cls, tmp_path_factory: pytest.TempPathFactory, sockets: Path) -> Iterator[Program]:
        env = {"SYMPHONY_BACKEND": "tmux", "TMUX_TMPDIR": str(sockets), "TMUX": ""}
        yield from program_for_backend(tmp_path_factory.mktemp("tmux"), **env)

    @pytest.fixture(scope="class")
    @classmethod
    def sockets(cls) -> Iterator[Path]:
        with socket_directory() as directory:
            yield directory


class TestTmux(TmuxScenarios):
    pass


# top shows the terminal of a process, which belongs to tmux.
for _name in set(SAME_ON_ALL_BACKENDS) - {"test_top_shows_and_controls_an_experiment"}:
    setattr(TestTmux, _name, None)


@pytest.mark.long
class TestAllOnTmux(TmuxScenarios):
    pass
