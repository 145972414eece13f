"""Completion of the names of a cluster that takes long to tell them: what it told just now is not asked again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony.commandline import SymphonyParser
from symphony.commandline.parsing import completion_cache, dispatch
from tests.cli.conftest import PATIENT, TIMEOUT, Program

BACKEND = '''"""A backend as far away as one likes: the local one, which notes how often it is asked."""

from pathlib import Path

from symphony.hookspecs import BackendInfo, Option, hookimpl
from symphony_local.cluster import LocalCluster

HERE = Path(__file__).parent


@hookimpl
def symphony_backend():
    where = Option(name="state_dir", flags=("--where",), help="where", where=True)
    return BackendInfo(name="far", summary="far", load="far:Far", place="far:place", options=(where,))


def place(options):
    return [str(options.get("state_dir")), (HERE / "moved").exists()]


class Far(LocalCluster):
    def list_experiments(self):
        with (HERE / "asked").open("a") as file:
            file.write("!")
        if (HERE / "away").exists():
            raise OSError("nobody is there")
        return super().list_experiments()

    def describe_experiment(self, name):
        with (HERE / "asked").open("a") as file:
            file.write("?")
        return super().describe_experiment(name)
'''


class Far:
    """A program whose backend is far away, as a distribution in a folder that Python finds."""

    def __init__(self, program: Program, folder: Path) -> None:
        self.program = program
        self.folder = folder
        self.files = program.folder / "cache" / "symphony" / "names"
        program.complete_slowly()
        program.env.update(SYMPHONY_BACKEND="far", PYTHONPATH=str(folder))
        info = folder / "far-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: far\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[symphony.backends]\nfar = far\n")
        (folder / "far.py").write_text(BACKEND)
        (folder / "asked").touch()

    def tab(self, *words: str) -> tuple[list[str], str]:
        """What completion finds, and what the cluster was asked for it; however slow this machine is."""
        for file in self.files.iterdir() if self.files.is_dir() else ():
            os.utime(file, (time.time() + 3600, time.time() + 3600))
        (self.folder / "asked").write_text("")
        found = self.program.ok("__complete", *words).split()
        return found, (self.folder / "asked").read_text()

    def aged(self, heard: float = 0.0) -> None:
        """Let the one thing that is remembered be older: asked for a minute ago, and heard so long ago."""
        (file,) = self.files.iterdir()
        content = json.loads(file.read_text())
        file.write_text(json.dumps({**content, "heard": content["heard"] - heard}))
        os.utime(file, (time.time() - 60, time.time() - 60))


@pytest.fixture
def far(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    yield Far(program, tmp_path_factory.mktemp("far"))
    program.env["SYMPHONY_BACKEND"] = "local"


def test_what_was_told_just_now_is_not_asked_again(far: Far) -> None:
    far.program.launched("rl", {"learner": "true", "actor": "true"})
    assert far.tab("ps", "r") == (["rl"], "!")
    assert far.tab("ps", "r") == (["rl"], "")
    assert far.tab("delete", "x") == ([], "")
    assert far.tab("logs", "rl", "") == (["learner", "actor"], "?")
    assert far.tab("logs", "rl", "a") == (["actor"], "")
    assert far.tab("cp", "rl", "a") == (
        ["actor:", ":files"],
        "?",
    )  # other words, and so a question of its own
    assert {oct(path.stat().st_mode & 0o777) for path in [far.files]} == {"0o700"}


def test_what_was_told_before_is_offered_at_once_and_asked_anew_behind(far: Far) -> None:
    far.program.launched("rl", {"learner": "true"})
    assert far.tab("ps", "r") == (["rl"], "!")
    kept = far.program.folder / "kept"
    far.files.rename(kept)
    far.program.launched("rl-2", {"learner": "true"})
    kept.rename(far.files)
    far.aged()
    (file,) = far.files.iterdir()
    assert far.program.ok("__complete", "ps", "r").split() == ["rl"]
    end = time.monotonic() + TIMEOUT
    while "rl-2" not in file.read_text():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert far.tab("ps", "r") == (["rl", "rl-2"], "")


def test_what_was_told_long_ago_is_asked_and_dropped(far: Far) -> None:
    far.program.launched("rl", {"learner": "true"})
    far.tab("ps", "r")
    far.aged(heard=completion_cache.MAX_AGE_SECONDS + 1)
    assert far.tab("ps", "r") == (["rl"], "!")
    (file,) = far.files.iterdir()
    os.utime(file, (0, 0))
    far.program.ok("__complete", "logs", "rl", "")
    assert file not in far.files.iterdir()
    assert len(list(far.files.iterdir())) == 1


def test_a_launch_and_a_deletion_make_it_forget(far: Far) -> None:
    far.program.launched("rl", {"learner": "true"})
    assert far.tab("ps", "r") == (["rl"], "!")
    far.program.launched("rl-2", {"learner": "true"})
    assert far.tab("ps", "r") == (["rl", "rl-2"], "!")
    far.program.ok("delete", "-f", "rl")
    assert far.tab("ps", "r") == (["rl-2"], "!")


def test_another_place_has_other_names(far: Far) -> None:
    far.program.launched("rl", {"learner": "true"})
    assert far.tab("ps", "r") == (["rl"], "!")
    assert far.tab("--where", str(far.folder / "elsewhere"), "ps", "r") == ([], "!")
    (far.folder / "moved").touch()
    assert far.tab("ps", "r") == (["rl"], "!")


def test_who_cannot_be_reached_is_remembered_no_longer(far: Far) -> None:
    far.program.launched("rl", {"learner": "true"})
    far.tab("ps", "r")
    far.aged(heard=completion_cache.MAX_AGE_SECONDS + 1)
    (far.folder / "away").touch()
    assert far.program("__complete", "ps", "r").stdout.strip() == ""
    assert list(far.files.iterdir()) == []


@pytest.mark.parametrize(
    "content", ["", "[]", '{"heard": "x", "names": []}', '{"heard": 1e300, "names": []}', "\0"]
)
def test_a_broken_file_is_as_none(far: Far, content: str) -> None:
    far.program.launched("rl", {"learner": "true"})
    far.tab("ps", "r")
    (file,) = far.files.iterdir()
    file.write_text(content)
    assert far.tab("ps", "r") == (["rl"], "!")
    assert far.tab("ps", "r") == (["rl"], "")


def test_a_cache_that_cannot_be_written_is_none(far: Far) -> None:
    far.program.launched("rl", {"learner": "true"})
    (far.program.folder / "cache").write_text("a file")
    assert far.tab("ps", "r") == (["rl"], "!")
    assert far.tab("ps", "r") == (["rl"], "!")


def test_a_near_cluster_is_always_asked(program: Program) -> None:
    program.launched("rl", {"learner": "true"})
    assert program.ok("__complete", "ps", "r").split() == ["rl"]
    assert not (program.folder / "cache").exists()


def test_a_script_with_a_cluster_of_its_own_is_always_asked(far: Far) -> None:
    """Nobody but that script knows where its experiments are."""
    far.program.launched("rl", {"learner": "true"})
    script = far.folder / "mine.py"
    script.write_text(MINE)
    for _ in range(2):
        (far.folder / "asked").write_text("")
        argv = [sys.executable, script, "__complete", "ps", "r"]
        done = subprocess.run(
            argv, env=far.program.env, capture_output=True, text=True, timeout=TIMEOUT, check=True
        )
        assert (done.stdout, done.stderr, (far.folder / "asked").read_text()) == ("rl\n", "", "!")


MINE = f"""
{PATIENT}
from symphony.commandline import SymphonyParser

class Mine(SymphonyParser):
    def create_cluster(self):
        return super().create_cluster()

Mine().main()
"""


def test_a_shell_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Slow(SymphonyParser):
        def create_cluster(self):  # type: ignore[no-untyped-def]
            while True:
                time.sleep(TIMEOUT)

    monkeypatch.setattr(dispatch, "COMPLETION_TIMEOUT_SECONDS", 0.05)
    with pytest.raises(SystemExit) as ended:
        Slow().run(["__complete", "ps", ""])
    assert (ended.value.code, capsys.readouterr().out) == (1, "")
