"""A place for tests of the configuration: a home, a project and a working directory of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from symphony.config import SymphonyConfig
from symphony.config.finding import FILE_VARIABLE, VARIABLES


@dataclass
class Surroundings:
    """``work`` is the working directory, below ``home``."""

    home: Path
    work: Path
    monkeypatch: pytest.MonkeyPatch

    @property
    def project_file(self) -> Path:
        return self.work / ".symphony.yml"

    def project(self, text: str) -> None:
        self.project_file.write_text(text)

    def user(self, text: str) -> None:
        folder = self.home / ".config" / "symphony"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yml").write_text(text)

    def named(self, text: str) -> None:
        path = self.home / "named.yml"
        path.write_text(text)
        self.monkeypatch.setenv(FILE_VARIABLE, str(path))


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    for variable in (*VARIABLES, FILE_VARIABLE, "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    work = tmp_path / "home" / "project"
    work.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(work)
    SymphonyConfig().reset()
    yield Surroundings(home=tmp_path / "home", work=work, monkeypatch=monkeypatch)
    SymphonyConfig().reset()
