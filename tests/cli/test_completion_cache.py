"""The cache of completed names, for a cluster that answers slowly."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from symphony.commandline import SymphonyParser
from symphony.commandline.parsing import completion_cache, dispatch
from tests.cli.conftest import TIMEOUT, Program

BACKEND = '''"""A copy of the local backend that records each request and counts as slow."""

from pathlib import Path

from symphony.hookspecs import BackendInfo, Option, hookimpl
from symphony_local.cluster import LocalCluster

HERE = Path(__file__).parent


@hookimpl
def symphony_backend():
    where = Option(name="state_dir", flags=("--where",), help="where", where=True)
    return BackendInfo(
        name="far", summary="far", load="far:Far", place="far:place", options=(where,)
    )


def place(options):
    return [str(options.get("state_dir")), (HERE / "moved").exists()]


class Far(LocalCluster):
    def list_experiments(self):
        with (HERE / "requests").open("a") as file:
            file.write("list ")
        if (HERE / "unreachable").exists():
            raise OSError("the cluster does not answer")
        return super().list_experiments()

    def describe_experiment(self, name):
        with (HERE / "requests").open("a") as file:
            file.write("describe ")
        return super().describe_experiment(name)
'''
SCRIPT = """
from symphony.commandline import SymphonyParser

class Mine(SymphonyParser):
    def create_cluster(self):
        return super().create_cluster()

Mine().main()
"""


class FarCluster:
    """A program that uses the slow backend, which is installed in its working directory."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.directory = program.directory
        self.cache = program.directory / "cache" / "symphony" / "names"
        program.env["SYMPHONY_BACKEND"] = "far"
        info = self.directory / "far-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: far\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[symphony.backends]\nfar = far\n")
        (self.directory / "far.py").write_text(BACKEND)
        program.launch("rl", {"learner": "true", "actor": "true"})

    def complete(self, *words: str) -> tuple[list[str], str]:
        """Return the completions, and the requests that the cluster received."""
        requests = self.directory / "requests"
        requests.write_text("")
        found = self.program.ok("__complete", *words).split()
        return found, requests.read_text().strip()

    def expire_cache(self) -> None:
        then = time.time() - completion_cache.MAX_AGE_SECONDS - 1
        for file in self.cache.iterdir():
            os.utime(file, (then, then))


@pytest.fixture
def far(program: Program) -> Iterator[FarCluster]:
    yield FarCluster(program)
    program.env["SYMPHONY_BACKEND"] = "local"


def test_a_recent_answer_is_used_again(far: FarCluster) -> None:
    # The local backend has an experiment of the same name, so that of the cluster is looked up too.
    assert far.complete("ps", "r") == (["rl"], "list")
    assert far.complete("ps", "r") == (["rl"], "")
    assert far.complete("delete", "x") == ([], "")
    assert far.complete("logs", "rl", "") == (["learner", "actor"], "list describe")
    assert far.complete("logs", "rl", "a") == (["actor"], "")
    # The names of another kind are another request.
    assert far.complete("cp", "rl", "a") == (["actor:", ":files"], "list describe")
    assert far.cache.stat().st_mode & 0o777 == 0o700


def test_old_answers_are_deleted(far: FarCluster) -> None:
    far.complete("ps", "r")
    far.expire_cache()
    (old,) = far.cache.iterdir()
    assert far.complete("logs", "rl", "l") == (["learner"], "list describe")
    assert not old.exists()
    assert far.complete("ps", "r") == (["rl"], "list")


def test_launch_and_delete_clear_the_cache(far: FarCluster) -> None:
    assert far.complete("ps", "r") == (["rl"], "list")
    far.program.launch("rl-2", {"learner": "true"})
    assert far.complete("ps", "r") == (["rl", "rl-2"], "list")
    far.program.ok("delete", "-f", "rl")
    assert far.complete("ps", "r") == (["rl-2"], "list")


def test_another_location_has_other_names(far: FarCluster) -> None:
    assert far.complete("ps", "r") == (["rl"], "list")
    assert far.complete("--where", str(far.directory / "other"), "ps", "r") == ([], "list")
    (far.directory / "moved").touch()
    assert far.complete("ps", "r") == (["rl"], "list")


def test_an_unreachable_cluster_completes_nothing(far: FarCluster) -> None:
    far.complete("ps", "r")
    far.expire_cache()
    (far.directory / "unreachable").touch()
    assert far.program("__complete", "ps", "r").stdout == ""


@pytest.mark.parametrize("content", ["", "{}", "\0"])
def test_a_damaged_file_is_ignored(far: FarCluster, content: str) -> None:
    far.complete("ps", "r")
    (file,) = far.cache.iterdir()
    file.write_text(content)
    assert far.complete("ps", "r") == (["rl"], "list")
    assert far.complete("ps", "r") == (["rl"], "")


def test_without_a_writable_cache_the_cluster_is_asked(far: FarCluster) -> None:
    (far.directory / "cache").write_text("a file")
    assert far.complete("ps", "r") == (["rl"], "list")
    assert far.complete("ps", "r") == (["rl"], "list")


def test_a_local_cluster_is_not_cached(program: Program) -> None:
    program.launch("rl", {"learner": "true"})
    assert program.ok("__complete", "ps", "r").split() == ["rl"]
    assert not (program.directory / "cache").exists()


def test_the_cluster_of_a_subclass_is_not_cached(far: FarCluster) -> None:
    """Only the subclass knows the location of its cluster."""
    script = far.directory / "mine.py"
    script.write_text(SCRIPT)
    done = far.program("__complete", "ps", "r", script=script)
    assert (done.stdout, done.stderr) == ("rl\n", "")
    assert not far.cache.exists()


def test_a_slow_completion_is_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Slow(SymphonyParser):
        def create_cluster(self):  # type: ignore[no-untyped-def]
            time.sleep(TIMEOUT)

    monkeypatch.setattr(dispatch, "COMPLETION_TIMEOUT_SECONDS", 0.05)
    with pytest.raises(SystemExit) as exited:
        Slow().run(["__complete", "ps", ""])
    assert (exited.value.code, capsys.readouterr().out) == (1, "")
