"""Gathering a context: that it holds what the sources hold, at each build, and that nothing else is touched."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony import BackendError, SpecError
from symphony.addons.docker import sync_context
from symphony.addons.docker.context import DIRECTORY_NAME, MARKER, BuildContext, build_context
from symphony.addons.docker.scan import scan_entry
from symphony.model.images import ContextEntry


def gather(temp: Path, *, force: bool = False, **paths: Path) -> BuildContext:
    entries = [
        ContextEntry(name=name, path=str(path), force_update=force) for name, path in paths.items()
    ]
    with build_context(entries, temp) as done:
        return done


def tree(folder: Path) -> dict[str, str]:
    """By path: a file's content, ``/`` of a folder, where a link leads."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = (
            f"-> {path.readlink()}"
            if path.is_symlink()
            else "/"
            if path.is_dir()
            else path.read_text()
        )
    return found


def write(folder: Path, **files: str) -> Path:
    """Files by name, ``__`` for a slash and ``_dot_`` for a dot."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source", a="1", b__c="2")


@pytest.fixture
def temp(tmp_path: Path) -> Path:
    return tmp_path / "temp"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system, to which there are no hard links."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    if folder.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is no file system of its own")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["links", "copies"])
def temps(request: pytest.FixtureRequest, temp: Path) -> Path:
    """Where links can be made, and where they cannot."""
    return temp if request.param == "links" else request.getfixturevalue("elsewhere")


# --- what is gathered ---


def test_files_and_folders_from_anywhere_are_gathered_under_their_names(
    tmp_path: Path, source: Path, temp: Path
) -> None:
    other = write(tmp_path / "other", f="3")
    done = gather(temp, app=source, lib=source / "b", one=other / "f")
    assert tree(done.folder) == {
        "app": "/", "app/a": "1", "app/b": "/", "app/b/c": "2", "lib": "/", "lib/c": "2", "one": "3",
    }  # fmt: skip
    assert (done.files, done.linked, done.copied) == (4, 4, 0)
    assert done.folder.parent == temp / DIRECTORY_NAME
    assert (done.folder / "app/a").samefile(source / "a")


def test_a_context_of_nothing_is_an_empty_folder(temp: Path) -> None:
    assert tree(gather(temp).folder) == {}


def test_files_are_copied_to_another_file_system(source: Path, elsewhere: Path) -> None:
    (source / "a").chmod(0o751)
    done = gather(elsewhere, app=source)
    assert (done.files, done.linked, done.copied) == (2, 0, 2)
    assert tree(done.folder / "app") == tree(source)
    assert stat.S_IMODE((done.folder / "app/a").stat().st_mode) == 0o751


def test_symbolic_links_stay_what_they_are_and_an_entry_may_be_one(
    tmp_path: Path, source: Path, temps: Path
) -> None:
    (source / "up").symlink_to("../nowhere")
    (source / "folder").symlink_to("b")
    (tmp_path / "link").symlink_to(source)
    shown = tree(gather(temps, app=tmp_path / "link").folder)
    assert (shown["app"], shown["app/up"], shown["app/folder"]) == ("/", "-> ../nowhere", "-> b")
    (source / "up").unlink()
    (source / "up").symlink_to("a")
    assert tree(gather(temps, app=source).folder)["app/up"] == "-> a"


def test_modes_of_folders_are_kept_even_where_nothing_can_be_written(
    source: Path, temps: Path
) -> None:
    (source / "b").chmod(0o555)
    for _ in range(2):
        done = gather(temps, app=source)
        assert stat.S_IMODE((done.folder / "app/b").stat().st_mode) == 0o555
        assert stat.S_IMODE((source / "b").stat().st_mode) == 0o555
    (source / "b").chmod(0o755)
    shutil.rmtree(source / "b")
    assert tree(gather(temps, app=source).folder) == {"app": "/", "app/a": "1"}


def test_sockets_and_pipes_are_passed_over(source: Path, temp: Path) -> None:
    os.mkfifo(source / "pipe")
    assert "app/pipe" not in tree(gather(temp, app=source).folder)


def test_a_dockerignore_holds_for_its_own_folder(tmp_path: Path, source: Path, temps: Path) -> None:
    write(source, _dot_dockerignore="*\n!b/**/keep\n", b__d__e__keep="k", b__d__x="x", z__y="y")
    other = write(tmp_path / "other", a="1")
    shown = tree(gather(temps, app=source, other=other).folder)
    assert shown == {
        "app": "/", "app/b": "/", "app/b/d": "/", "app/b/d/e": "/", "app/b/d/e/keep": "k", "other": "/", "other/a": "1",
    }  # fmt: skip
    (source / ".dockerignore").write_text("b\n")
    assert set(tree(gather(temps, app=source).folder)) == {
        "app",
        "app/.dockerignore",
        "app/a",
        "app/z",
        "app/z/y",
    }


def test_a_dockerignore_may_be_one_of_windows(source: Path, temp: Path) -> None:
    (source / ".dockerignore").write_bytes(b"\xef\xbb\xbfa\r\n.dockerignore\r\n")
    assert set(tree(gather(temp, app=source).folder)) == {"app", "app/b", "app/b/c"}


def test_a_wrong_dockerignore_is_told_with_its_line(source: Path, temp: Path) -> None:
    write(source, _dot_dockerignore="a\n[\n")
    with pytest.raises(SpecError, match=r"source/\.dockerignore:2: '\[' is not a valid pattern"):
        gather(temp, app=source)


def test_the_folder_that_it_is_gathered_in_is_no_part_of_it(source: Path) -> None:
    write(source, temp__mine="m")
    for _ in range(2):
        done = gather(source / "temp", app=source)
        assert set(tree(done.folder)) == {
            "app",
            "app/a",
            "app/b",
            "app/b/c",
            "app/temp",
            "app/temp/mine",
        }
    with pytest.raises(SpecError, match="is inside the directory in which the context is"):
        gather(source / "temp", app=done.folder / "app")


# --- at each build ---


def change_in_place(path: Path) -> None:
    path.write_text("new")


def replace(path: Path) -> None:
    fresh = path.with_name("fresh")
    fresh.write_text("new")
    fresh.replace(path)


def replace_with_the_same_times(path: Path) -> None:
    """The same size and time of writing as before: a look at these alone would see no change."""
    info = path.stat()
    path.write_text("!")
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


CHANGES = [change_in_place, replace, replace_with_the_same_times]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_changed_is_right_at_the_next_build(source: Path, temps: Path, change: object) -> None:
    before = gather(temps, app=source)
    assert tree(before.folder / "app") == tree(source)
    change(source / "a")  # type: ignore[operator]
    after = gather(temps, app=source)
    assert tree(after.folder / "app") == tree(source)
    assert (source / "a").read_text() in {"new", "!"}


def test_what_has_not_changed_is_kept(
    source: Path, temps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sync_context, "SETTLED_SECONDS", -60
    )  # or the test would have to wait until its files are old
    first, second = gather(temps, app=source), gather(temps, app=source)
    assert (first.linked + first.copied, second.linked, second.copied, second.files) == (2, 0, 0, 2)
    (source / "a").write_text("other")
    third = gather(temps, app=source)
    assert tree(third.folder / "app") == tree(source)
    assert third.copied == (1 if first.copied else 0)


def test_a_copy_of_a_young_file_is_made_again_since_its_times_may_not_tell(
    source: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_context, "SETTLED_SECONDS", 3600)
    gather(elsewhere, app=source)
    assert gather(elsewhere, app=source).copied == 2


def test_a_change_that_hides_its_time_is_seen(
    source: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_context, "SETTLED_SECONDS", -60)
    gather(elsewhere, app=source)
    before = (source / "a").stat().st_ctime_ns
    while (
        source / "a"
    ).stat().st_ctime_ns == before:  # until the clock of the file system has moved on
        replace_with_the_same_times(source / "a")
    assert tree(gather(elsewhere, app=source).folder / "app")["a"] == "!"


def test_a_copy_that_somebody_wrote_to_is_made_again(
    source: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_context, "SETTLED_SECONDS", -60)
    done = gather(elsewhere, app=source)
    replace(done.folder / "app/a")
    assert tree(gather(elsewhere, app=source).folder / "app") == tree(source)


def test_an_entry_may_be_gathered_anew_each_time(
    source: Path, temps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_context, "SETTLED_SECONDS", -60)
    gather(temps, app=source)
    done = gather(temps, app=source, force=True)
    assert done.linked + done.copied == 2
    assert tree(done.folder / "app") == tree(source)


def test_what_was_removed_disappears(tmp_path: Path, source: Path, temps: Path) -> None:
    other = write(tmp_path / "other", f="3")
    gather(temps, app=source, other=other)
    (source / "a").unlink()
    assert tree(gather(temps, app=source).folder) == {"app": "/", "app/b": "/", "app/b/c": "2"}
    assert tree(other) == {"f": "3"}
    assert tree(gather(temps).folder) == {}


def test_a_thing_may_become_another_kind_of_thing(source: Path, temps: Path) -> None:
    precious = write(source.parent / "precious", f="p")
    gather(temps, app=source)
    (source / "a").unlink()
    (source / "a").mkdir()
    write(source, a__x="x")
    shutil.rmtree(source / "b")
    (source / "b").symlink_to(precious)
    shown = tree(gather(temps, app=source).folder)
    assert (shown["app/a/x"], shown["app/b"]) == ("x", f"-> {precious}")
    (source / "b").unlink()
    (source / "b").write_text("file")
    assert tree(gather(temps, app=source).folder)["app/b"] == "file"
    assert tree(precious) == {"f": "p"}


def test_a_file_under_a_name_may_come_from_another_place(
    tmp_path: Path, source: Path, temps: Path
) -> None:
    gather(temps, app=source / "a")
    assert tree(gather(temps, app=source / "b/c").folder) == {"app": "2"}
    assert tree(gather(temps, app=source).folder) == {
        "app": "/",
        "app/a": "1",
        "app/b": "/",
        "app/b/c": "2",
    }
    assert tree(source) == {"a": "1", "b": "/", "b/c": "2"}


# --- what vanishes ---


def test_what_vanishes_while_it_is_looked_at_is_not_there(tmp_path: Path, source: Path) -> None:
    (tmp_path / "own").mkdir()
    found = scan_entry(ContextEntry(name="app", path=str(source)), tmp_path / "own")
    assert [next(found)[0], next(found)[0], next(found)[0]] == ["app", "app/a", "app/b"]
    shutil.rmtree(source)
    assert list(found) == []


def test_what_vanishes_before_it_is_copied_is_left_out(tmp_path: Path, source: Path) -> None:
    (source / "link").symlink_to("a")
    (tmp_path / "own").mkdir()
    found = dict(scan_entry(ContextEntry(name="app", path=str(source)), tmp_path / "own"))
    shutil.rmtree(source)
    (tmp_path / "target").mkdir()
    work = sync_context.ContextSync(tmp_path / "target", {})
    work.fill(found)
    assert tree(tmp_path / "target") == {"app": "/", "app/b": "/"}
    assert work.files == 0


def test_folders_that_come_and_go_all_the_time_do_no_harm(source: Path, temps: Path) -> None:
    done = threading.Event()

    def restless() -> None:
        while not done.is_set():
            write(source, come__and__go="x")
            shutil.rmtree(source / "come")

    thread = threading.Thread(target=restless)
    thread.start()
    try:
        for _ in range(40):
            shown = tree_of_a_changing_folder(gather(temps, app=source).folder)
            assert {"app", "app/a", "app/b", "app/b/c"} <= shown
    finally:
        done.set()
        thread.join()


def tree_of_a_changing_folder(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# --- our own folder, and nobody else's ---


def test_a_folder_that_is_not_ours_is_refused_and_left_alone(source: Path, temp: Path) -> None:
    write(temp / DIRECTORY_NAME, precious="p")
    with pytest.raises(
        SpecError, match=rf"{DIRECTORY_NAME} was not created by symphony \(it has no {MARKER}\)"
    ):
        gather(temp, app=source)
    assert tree(temp) == {DIRECTORY_NAME: "/", f"{DIRECTORY_NAME}/precious": "p"}
    write(temp / DIRECTORY_NAME, **{MARKER: "something else"})
    with pytest.raises(SpecError, match="was not created by symphony"):
        gather(temp, app=source)


def test_an_empty_folder_becomes_ours(source: Path, temp: Path) -> None:
    (temp / DIRECTORY_NAME).mkdir(parents=True)
    assert tree(gather(temp, app=source).folder / "app") == tree(source)


@pytest.mark.parametrize(
    "place", [DIRECTORY_NAME, f"{DIRECTORY_NAME}/context", f"{DIRECTORY_NAME}/{MARKER}"]
)
def test_a_link_in_its_place_is_not_followed(
    tmp_path: Path, source: Path, temp: Path, place: str
) -> None:
    gather(temp, app=source)
    precious = write(tmp_path / "precious", f="p")
    moved = (temp / place).rename(tmp_path / "moved")
    (temp / place).symlink_to(moved if place.endswith(MARKER) else precious)
    with pytest.raises(SpecError, match="is not a directory|was not created by symphony"):
        gather(temp, app=source)
    assert tree(precious) == {"f": "p"}


def test_only_our_sub_folder_is_cleaned(source: Path, temp: Path) -> None:
    write(temp, app__mine="m", other="o")
    gather(temp, app=source)
    gather(temp)
    assert {name: text for name, text in tree(temp).items() if not name.startswith(DIRECTORY_NAME)} == {
        "app": "/", "app/mine": "m", "other": "o",
    }  # fmt: skip


def test_a_link_is_never_written_to(source: Path, temp: Path) -> None:
    before = (source / "a").stat()
    done = gather(temp, app=source)
    gather(temp, app=source / "b/c")
    assert (source / "a").read_text() == "1"
    after = (source / "a").stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_nlink) == (
        before.st_mode,
        before.st_mtime_ns,
        1,
    )
    assert done.linked == 2


def test_two_builds_do_not_share_a_folder_at_once(source: Path, temp: Path) -> None:
    entry = ContextEntry(name="app", path=str(source))
    with build_context([entry], temp) as first:
        with pytest.raises(
            BackendError, match="another build uses .*: wait until it has finished, or give another"
        ):
            gather(temp, app=source)
        assert tree(first.folder / "app") == tree(source)
    assert tree(gather(temp, app=source).folder / "app") == tree(source)


# --- what is wrong ---


def test_an_entry_that_is_not_there_is_told_with_what_is_beside_it(
    source: Path, temp: Path
) -> None:
    with pytest.raises(
        SpecError,
        match=r"context entry 'app': no file or directory .*/source/aa; did you mean 'a'\?",
    ):
        gather(temp, app=source / "aa")
    with pytest.raises(
        SpecError, match=r"no file or directory .*/source/xyz; its directory has: a, b$"
    ):
        gather(temp, app=source / "xyz")
    with pytest.raises(SpecError, match=r"no file or directory .*/nowhere/x$"):
        gather(temp, app=source / "nowhere/x")
    with pytest.raises(SpecError, match="no file or directory"):
        gather(temp, app=source / "a/below-a-file")


def test_an_entry_that_is_neither_file_nor_folder_is_refused(temp: Path) -> None:
    with pytest.raises(
        SpecError, match="context entry 'null': /dev/null is neither a file nor a directory"
    ):
        gather(temp, null=Path("/dev/null"))


def test_a_temp_directory_that_cannot_be_made_is_told(source: Path) -> None:
    with pytest.raises(
        BackendError, match="the build context in .* cannot be created: .*: Not a directory"
    ):
        gather(source / "a" / "temp", app=source)


GATHER = """
import sys
from pathlib import Path
from symphony.addons.docker.context import build_context
from symphony.model.images import ContextEntry
try:
    with build_context([ContextEntry(name="app", path=sys.argv[1], force_update=False)], Path(sys.argv[2])):
        print("read")
except Exception as exc:
    print(type(exc).__name__, exc)
"""
# Root reads everything, unless it lets that go.
AS_ANYBODY = (
    ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
)


def test_what_cannot_be_read_is_told(source: Path, temp: Path) -> None:
    (source / "b").chmod(0)
    try:
        command = [*AS_ANYBODY, sys.executable, "-c", GATHER, str(source), str(temp)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    finally:
        (source / "b").chmod(0o755)
    assert (
        said == f"BackendError context entry 'app' cannot be read: {source}/b: Permission denied\n"
    )
