"""Directories that other users can change or replace are not used."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony import Cluster, SpecError
from symphony.commandline.parsing import completion_cache
from symphony.supervised.record import directory
from symphony.support.directories.private import check, create
from symphony.support.directories.state_home import check_state_directory, create_state_directory

ANOTHER_USER = 12345

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change an owner")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory that only this user can change."""
    path = tmp_path / "home" / "state" / "local"
    create(path)
    return path


def problem(path: Path) -> str | None:
    try:
        check(path, "state directory", "fix it")
    except SpecError as exc:
        message = str(exc)
        start, end = f"the state directory {path} is not used, because ", "; fix it"
        assert message.startswith(start)
        assert message.endswith(end)
        return message.removeprefix(start).removesuffix(end)
    return None


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_parents_are_private_whatever_the_umask_is(tmp_path: Path, umask: int) -> None:
    previous = os.umask(umask)
    try:
        create(tmp_path / "a" / "b" / "c")
        create(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(previous)
    assert {mode(tmp_path / part) for part in ("a", "a/b", "a/b/c")} == {0o700}


def test_private_directory_can_be_used(state: Path, tmp_path: Path) -> None:
    assert problem(state) is None
    assert problem(state / "missing") is None
    (tmp_path / "link").symlink_to("home/../home/state")
    assert problem(tmp_path / "link" / "local") is None
    (tmp_path / "home").chmod(0o1777)
    assert problem(state) is None, "the sticky bit protects the directories of a parent"


@pytest.mark.parametrize(
    ("changed", "changed_mode", "fix"),
    [("home", 0o777, "+t"), ("home/state/local", 0o1777, "go-w")],
)
def test_directory_that_other_users_may_write_to(
    state: Path, tmp_path: Path, changed: str, changed_mode: int, fix: str
) -> None:
    (tmp_path / changed).chmod(changed_mode)
    (tmp_path / "link").symlink_to(state)
    expected = (
        f"other users may write to {tmp_path / changed} "
        f"(to change this, run: chmod {fix} {tmp_path / changed})"
    )
    assert problem(state) == problem(tmp_path / "link") == expected


@as_root
def test_members_of_a_group_are_other_users(state: Path) -> None:
    state.chmod(0o770)
    assert problem(state) is None, "the group has the name of the user and no other members"
    os.chown(state, -1, ANOTHER_USER)
    assert problem(state) == (
        f"members of group {ANOTHER_USER} may write to {state} "
        f"(to change this, run: chmod go-w {state}; "
        f"if you trust them, set SYMPHONY_TRUSTED_GROUPS={ANOTHER_USER})"
    )


@as_root
def test_members_of_a_trusted_group_may_write_to_the_directories(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, group in ((tmp_path / "home", 0), (state, ANOTHER_USER)):
        os.chown(path, -1, group)
        path.chmod(0o2775)
    monkeypatch.setenv("SYMPHONY_TRUSTED_GROUPS", f"root, {ANOTHER_USER}")
    assert problem(state) is None
    monkeypatch.setenv("SYMPHONY_TRUSTED_GROUPS", "root")
    assert problem(state)
    state.chmod(0o2777)
    monkeypatch.setenv("SYMPHONY_TRUSTED_GROUPS", str(ANOTHER_USER))
    assert str(problem(state)).startswith("other users may write")


@as_root
def test_fix_for_a_directory_that_a_group_shares(state: Path, tmp_path: Path) -> None:
    """The members can still create files after the fix, but cannot replace the directory."""
    shared = tmp_path / "home"
    os.chown(shared, -1, ANOTHER_USER)
    shared.chmod(0o2775)
    found = str(problem(state))
    assert found.startswith(f"members of group {ANOTHER_USER} may write to {shared} ")
    command = found.partition("to change this, run: ")[2].partition(";")[0]
    subprocess.run(command.split(), check=True)
    assert mode(shared) == 0o3775
    assert problem(state) is None


@as_root
@pytest.mark.parametrize("changed", ["home", "home/state/local", "link"])
def test_directory_or_link_of_another_user(state: Path, tmp_path: Path, changed: str) -> None:
    (tmp_path / "link").symlink_to(state)
    os.chown(tmp_path / changed, ANOTHER_USER, -1, follow_symlinks=False)
    assert problem(tmp_path / "link") == (
        f"{tmp_path / changed} belongs to user {ANOTHER_USER}, who can change its contents"
    )


@as_root
def test_state_in_the_home_directory_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is the situation of a program that runs with ``sudo -E``."""
    run = tmp_path / "symphony" / "local" / "rl"
    create(run)
    (run / "lock").touch()
    os.chown(tmp_path, ANOTHER_USER, -1)
    monkeypatch.delenv("SYMPHONY_STATE_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = Cluster.new("local")
    experiment = cluster.new_experiment("new")
    experiment.new_process("p", command="true")
    message = (
        f"the state directory {run.parent} is not used, because {tmp_path} belongs to user "
        f"{ANOTHER_USER}, who can change its contents; use a directory of your own, for example "
        "with SYMPHONY_STATE_DIR, or with sudo -H if you use sudo"
    )
    for use in (
        cluster.list_experiments,
        lambda: cluster.delete("rl"),
        lambda: cluster.launch(experiment),
        lambda: cluster.describe_experiment("rl"),
    ):
        with pytest.raises(SpecError) as error:
            use()
        assert str(error.value) == message
    assert os.listdir(run.parent) == ["rl"]


@contextlib.contextmanager
def another_user() -> Iterator[None]:
    os.seteuid(ANOTHER_USER)
    try:
        yield
    finally:
        os.seteuid(0)


@as_root
def test_state_directory_that_cannot_be_created() -> None:
    """A container with ``--user`` often has HOME=/, for example."""
    with another_user(), pytest.raises(SpecError, match="^the state directory /missing/local can"):
        create_state_directory(Path("/missing/local"))


def test_home_directory_of_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOME", "SYMPHONY_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: ANOTHER_USER)
    with pytest.raises(SpecError, match="home directory of user 12345 is unknown; set HOME"):
        Cluster.new("local")


@as_root
@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_directory_to_which_only_another_user_has_access(mode: int) -> None:
    """A user finds the experiments of root, for example, only if SYMPHONY_STATE_DIR names them."""
    with tempfile.TemporaryDirectory() as parent:
        state = Path(parent, "local")
        state.mkdir()
        check_state_directory(state)
        for path in (Path(parent), state):
            path.chmod(mode)
        unreachable = parent if mode == 0o700 else state
        with another_user():
            with pytest.raises(SpecError) as error:
                check_state_directory(state)
            check_state_directory(Path("/tmp/missing"))
    assert str(error.value).startswith(
        f"the state directory {state} is not used, because {unreachable} belongs to user root, and "
        "only this user has access to it; use a directory of your own"
    )


@as_root
def test_state_directory_that_another_user_creates_first(tmp_path: Path) -> None:
    root = tmp_path / "local"
    root.mkdir()
    os.chown(root, ANOTHER_USER, -1)
    with pytest.raises(SpecError, match="belongs to user"), directory.staging_directory(root, "e"):
        pass
    assert os.listdir(root) == []


def test_cached_names_of_another_user_are_neither_read_nor_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert completion_cache.cached_names(["key"], lambda: ["old"]) == ["old"]
    (tmp_path / "cache").chmod(0o777)
    assert completion_cache.cached_names(["key"], lambda: ["new"]) == ["new"]
    completion_cache.clear_cached_names()
    (tmp_path / "cache").chmod(0o700)
    assert completion_cache.cached_names(["key"], lambda: ["new"]) == ["old"]
