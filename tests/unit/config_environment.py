"""A home directory, a project and a working directory for tests of the configuration."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from symphony.config import SymphonyConfig, trust
from symphony.config.locations import FILE_VARIABLE, VARIABLES
from symphony.errors import SymphonyError


@dataclass
class ConfigEnvironment:
    """The directories of a test. ``work`` is the working directory, below ``home``."""

    home: Path
    work: Path
    monkeypatch: pytest.MonkeyPatch

    @property
    def project_file(self) -> Path:
        return self.work / ".symphony.yml"

    def write_project(self, text: str, *, trusted: bool = True) -> None:
        """Write the project file, and trust it if it is valid."""
        self.project_file.write_text(text)
        if trusted:
            with contextlib.suppress(SymphonyError):
                trust.trust(self.project_file, os.environ)

    def write_user(self, text: str) -> None:
        directory = self.home / ".config" / "symphony"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.yml").write_text(text)

    def write_named(self, text: str) -> None:
        path = self.home / "named.yml"
        path.write_text(text)
        self.monkeypatch.setenv(FILE_VARIABLE, str(path))


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfigEnvironment]:
    for variable in (*VARIABLES, FILE_VARIABLE, "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    home = tmp_path / "home"
    work = home / "project"
    work.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(work)
    SymphonyConfig().reset()
    yield ConfigEnvironment(home=home, work=work, monkeypatch=monkeypatch)
    SymphonyConfig().reset()
