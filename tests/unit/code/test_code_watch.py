"""Waiting for edits of code, in real directories."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from symphony import Experiment, PluginError
from symphony.code.wait_for_edits import FileWatcher
from symphony.commandline.commands.experiment_file import watching

# An edit is noticed much earlier.
TIMEOUT = 30.0


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    (directory / "out").mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=directory, check=True)
    (directory / ".gitignore").write_text("*.log\n/out/\n")
    (directory / "main.py").write_text("first")
    return directory


@pytest.fixture
def watcher(project: Path) -> Iterator[FileWatcher]:
    experiment = Experiment("e", code=project)
    experiment.new_process("p", command="c")
    watcher = FileWatcher()
    watcher.follow([project.parent / "e.yml"], experiment)
    yield watcher
    watcher.close()


def changed(watcher: FileWatcher) -> list[str]:
    return [Path(path).name for path in watcher.wait(TIMEOUT)]


def test_only_files_of_the_code_and_the_given_files_count(
    project: Path, watcher: FileWatcher
) -> None:
    assert watcher.count == 3
    (project / "train.log").write_text("ignored")
    (project / "out" / "model").write_text("ignored")
    (project.parent / "other").write_text("not in the code")
    assert watcher.wait(0.5) == []
    (project / "main.py").write_text("second")
    assert changed(watcher) == ["main.py"]
    (project.parent / "e.yml").write_text("name: e")
    assert changed(watcher) == ["e.yml"]
    # An editor replaces a file by another one.
    (project / "other").write_text("third!")
    (project / "other").rename(project / "main.py")
    assert changed(watcher)[0] == "main.py"


def test_new_directories_and_removed_files_are_noticed(project: Path, watcher: FileWatcher) -> None:
    directory = project / "package" / "inner"
    directory.mkdir(parents=True)
    # git lists no empty directory. The watcher follows it nevertheless.
    assert watcher.wait(0.5) == []
    (directory / "new.py").write_text("x")
    assert changed(watcher) == ["new.py"]
    (directory / "new.py").write_text("xy")
    assert changed(watcher) == ["new.py"]
    (directory / "new.py").unlink()
    assert changed(watcher) == ["new.py"]
    (project / ".gitignore").write_text("main.py\n")
    assert set(changed(watcher)) >= {".gitignore", "main.py"}


def test_edits_behind_a_link_to_the_code_are_noticed_after_the_link_has_changed(
    tmp_path: Path,
) -> None:
    for release in ("1", "2"):
        (tmp_path / release).mkdir()
        (tmp_path / release / "main.py").write_text(f"release {release}")
    link = tmp_path / "current"
    link.symlink_to("1")
    experiment = Experiment("e", code=link)
    experiment.new_process("p", command="c")
    watcher = FileWatcher()
    watcher.follow([], experiment)
    link.with_name("next").symlink_to("2")
    link.with_name("next").rename(link)
    assert changed(watcher) == ["main.py"]
    assert watcher.wait(0.5) == []
    (tmp_path / "2" / "main.py").write_text("edited")
    assert changed(watcher) == ["main.py"]
    watcher.close()


def test_an_edit_before_the_files_are_replaced_is_reported(
    project: Path, watcher: FileWatcher
) -> None:
    (project / "main.py").write_text("second")
    watcher.follow([project / "e.py"])
    assert "main.py" in changed(watcher)


def test_a_missing_library_is_an_error_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(PluginError, match=r"'watchfiles'; install it with: pip install .*watch\]"):
        FileWatcher()


def test_a_file_that_changes_after_each_restart_delays_the_next_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Watched:
        def __init__(self) -> None:
            self.delays: list[float] = []

        def wait(self, seconds: float) -> list[str]:
            self.delays.append(round(seconds))
            return ["/other"]

    watched: Any = Watched()
    repeated = watching.RepeatedChanges()
    found = []
    for _ in range(6):
        found.append(repeated.wait(watched, ["/log"]))
        repeated.note_update()
    # The fifth and the sixth change wait, until another file changes.
    assert found == [["/log"]] * 4 + [["/log", "/other"]] * 2
    assert watched.delays == [2, 4]
    assert "/log changed again right after 4 restarts, so the next one waits for 2 s; if the " in (
        capsys.readouterr().err
    )
    assert repeated.delay_after(["/other"]) == 0
    monkeypatch.setattr(watching, "REPETITION_SECONDS", -1.0)
    assert [repeated.delay_after(["/log"]) for _ in range(6)] == [0.0] * 6
