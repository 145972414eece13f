"""Test the build context: it equals its sources at each build, and nothing else is changed."""

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
from symphony.model.experiment.images import ContextEntry
from symphony.model.limits import MAX_DIRECTORY_LEVELS
from tests.file_trees import nested_directories


def collect(temp: Path, *, force: bool = False, **paths: Path) -> BuildContext:
    entries = [
        ContextEntry(name=name, path=str(path), force_update=force) for name, path in paths.items()
    ]
    with build_context(entries, temp) as done:
        return done


def tree(directory: Path) -> dict[str, str]:
    """Return for each path the content of the file, the target of the link, or ``/``."""
    found = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_dir():
            found[name] = "/"
        else:
            found[name] = path.read_text()
    return found


def write(directory: Path, **files: str) -> Path:
    """Write files by name, with ``__`` for a slash and ``_dot_`` for a dot."""
    for name, text in files.items():
        path = directory / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source", a="1", b__c="2")


@pytest.fixture
def temp(tmp_path: Path) -> Path:
    return tmp_path / "temp"


@pytest.fixture
def other_filesystem(tmp_path: Path) -> Iterator[Path]:
    """Return a directory on another file system, to which hard links are impossible."""
    device = tmp_path.stat().st_dev
    parents = [path for path in ("/dev/shm", "/var/tmp") if Path(path).stat().st_dev != device]
    if not parents:
        pytest.skip("neither /dev/shm nor /var/tmp is a separate file system")
    directory = Path(tempfile.mkdtemp(dir=parents[0]))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(params=["links", "copies"])
def temps(request: pytest.FixtureRequest, temp: Path) -> Path:
    """Return a directory in which hard links are possible, then one in which they are not."""
    if request.param == "links":
        return temp
    directory: Path = request.getfixturevalue("other_filesystem")
    return directory


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat all files as old enough, so that the test need not wait until they are."""
    monkeypatch.setattr(sync_context, "SETTLED_SECONDS", -60)


# --- content ---


def test_files_and_directories_are_collected_under_their_names(
    tmp_path: Path, source: Path, temp: Path
) -> None:
    other = write(tmp_path / "other", f="3")
    done = collect(temp, app=source, lib=source / "b", one=other / "f")
    assert tree(done.directory) == {
        "app": "/",
        "app/a": "1",
        "app/b": "/",
        "app/b/c": "2",
        "lib": "/",
        "lib/c": "2",
        "one": "3",
    }
    assert (done.files, done.linked, done.copied) == (4, 4, 0)
    assert done.directory.parent == temp / DIRECTORY_NAME
    assert (done.directory / "app/a").samefile(source / "a")


def test_nested_directories_have_a_limit(tmp_path: Path, temp: Path) -> None:
    deepest = nested_directories(tmp_path / "source", MAX_DIRECTORY_LEVELS)
    collect(temp, deep=tmp_path / "source")
    (deepest / "d").mkdir()
    with pytest.raises(SpecError, match="directories are nested more than 200 levels deep"):
        collect(temp, deep=tmp_path / "source")


def test_context_without_entries_is_empty(temp: Path) -> None:
    assert tree(collect(temp).directory) == {}


def test_files_are_copied_across_file_systems(source: Path, other_filesystem: Path) -> None:
    (source / "a").chmod(0o751)
    done = collect(other_filesystem, app=source)
    assert (done.files, done.linked, done.copied) == (2, 0, 2)
    assert tree(done.directory / "app") == tree(source)
    assert stat.S_IMODE((done.directory / "app/a").stat().st_mode) == 0o751


def test_symbolic_links_are_kept(tmp_path: Path, source: Path, temps: Path) -> None:
    (source / "up").symlink_to("../nowhere")
    (source / "directory").symlink_to("b")
    (tmp_path / "link").symlink_to(source)
    shown = tree(collect(temps, app=tmp_path / "link").directory)
    assert (shown["app"], shown["app/up"], shown["app/directory"]) == ("/", "-> ../nowhere", "-> b")
    (source / "up").unlink()
    (source / "up").symlink_to("a")
    assert tree(collect(temps, app=source).directory)["app/up"] == "-> a"


def test_modes_of_directories_are_kept(source: Path, temps: Path) -> None:
    (source / "b").chmod(0o555)
    for _ in range(2):
        done = collect(temps, app=source)
        assert stat.S_IMODE((done.directory / "app/b").stat().st_mode) == 0o555
        assert stat.S_IMODE((source / "b").stat().st_mode) == 0o555
    (source / "b").chmod(0o755)
    shutil.rmtree(source / "b")
    assert tree(collect(temps, app=source).directory) == {"app": "/", "app/a": "1"}


def test_pipes_are_skipped(source: Path, temp: Path) -> None:
    os.mkfifo(source / "pipe")
    assert "app/pipe" not in tree(collect(temp, app=source).directory)


def test_dockerignore_applies_to_its_own_entry(tmp_path: Path, source: Path, temps: Path) -> None:
    write(source, _dot_dockerignore="*\n!b/**/keep\n", b__d__e__keep="k", b__d__x="x", z__y="y")
    other = write(tmp_path / "other", a="1")
    shown = tree(collect(temps, app=source, other=other).directory)
    assert shown == {
        "app": "/",
        "app/b": "/",
        "app/b/d": "/",
        "app/b/d/e": "/",
        "app/b/d/e/keep": "k",
        "other": "/",
        "other/a": "1",
    }
    (source / ".dockerignore").write_text("b\n")
    included = {"app", "app/.dockerignore", "app/a", "app/z", "app/z/y"}
    assert set(tree(collect(temps, app=source).directory)) == included


def test_dockerignore_with_windows_line_ends(source: Path, temp: Path) -> None:
    (source / ".dockerignore").write_bytes(b"\xef\xbb\xbfa\r\n.dockerignore\r\n")
    assert set(tree(collect(temp, app=source).directory)) == {"app", "app/b", "app/b/c"}


def test_invalid_dockerignore_is_reported_with_its_line(source: Path, temp: Path) -> None:
    write(source, _dot_dockerignore="a\n[\n")
    with pytest.raises(SpecError, match=r"source/\.dockerignore:2: '\[' is not a valid pattern"):
        collect(temp, app=source)


def test_context_does_not_contain_itself(source: Path) -> None:
    write(source, temp__mine="m")
    expected = {"app", "app/a", "app/b", "app/b/c", "app/temp", "app/temp/mine"}
    for _ in range(2):
        done = collect(source / "temp", app=source)
        assert set(tree(done.directory)) == expected
    with pytest.raises(SpecError, match="is inside the directory in which the context is"):
        collect(source / "temp", app=done.directory / "app")


# --- repeated builds ---


def change_in_place(path: Path) -> None:
    path.write_text("new")


def replace(path: Path) -> None:
    fresh = path.with_name("fresh")
    fresh.write_text("new")
    fresh.replace(path)


def replace_with_the_same_times(path: Path) -> None:
    """Keep the size and the modification time, which then do not show the change."""
    info = path.stat()
    path.write_text("!")
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


CHANGES = [change_in_place, replace, replace_with_the_same_times]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changed_file_is_updated(source: Path, temps: Path, change: object) -> None:
    before = collect(temps, app=source)
    assert tree(before.directory / "app") == tree(source)
    change(source / "a")  # type: ignore[operator]
    after = collect(temps, app=source)
    assert tree(after.directory / "app") == tree(source)
    assert (source / "a").read_text() in {"new", "!"}


@pytest.mark.usefixtures("settled")
def test_unchanged_files_are_kept(source: Path, temps: Path) -> None:
    first, second = collect(temps, app=source), collect(temps, app=source)
    assert (first.linked + first.copied, second.linked, second.copied, second.files) == (2, 0, 0, 2)
    (source / "a").write_text("other")
    third = collect(temps, app=source)
    assert tree(third.directory / "app") == tree(source)
    assert third.copied == (1 if first.copied else 0)


def test_recently_changed_file_is_copied_again(
    source: Path, other_filesystem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_context, "SETTLED_SECONDS", 3600)
    collect(other_filesystem, app=source)
    assert collect(other_filesystem, app=source).copied == 2


@pytest.mark.usefixtures("settled")
def test_change_with_restored_times_is_detected(source: Path, other_filesystem: Path) -> None:
    collect(other_filesystem, app=source)
    before = (source / "a").stat().st_ctime_ns
    # The clock of the file system may be coarse: repeat until the change time differs.
    while (source / "a").stat().st_ctime_ns == before:
        replace_with_the_same_times(source / "a")
    assert tree(collect(other_filesystem, app=source).directory / "app")["a"] == "!"


@pytest.mark.usefixtures("settled")
def test_modified_copy_is_replaced(source: Path, other_filesystem: Path) -> None:
    done = collect(other_filesystem, app=source)
    replace(done.directory / "app/a")
    assert tree(collect(other_filesystem, app=source).directory / "app") == tree(source)


@pytest.mark.usefixtures("settled")
def test_force_update_collects_all_files_again(source: Path, temps: Path) -> None:
    collect(temps, app=source)
    done = collect(temps, app=source, force=True)
    assert done.linked + done.copied == 2
    assert tree(done.directory / "app") == tree(source)


def test_removed_files_are_removed_from_the_context(
    tmp_path: Path, source: Path, temps: Path
) -> None:
    other = write(tmp_path / "other", f="3")
    collect(temps, app=source, other=other)
    (source / "a").unlink()
    assert tree(collect(temps, app=source).directory) == {"app": "/", "app/b": "/", "app/b/c": "2"}
    assert tree(other) == {"f": "3"}
    assert tree(collect(temps).directory) == {}


def test_type_of_a_path_can_change(source: Path, temps: Path) -> None:
    unrelated = write(source.parent / "unrelated", f="p")
    collect(temps, app=source)
    (source / "a").unlink()
    (source / "a").mkdir()
    write(source, a__x="x")
    shutil.rmtree(source / "b")
    (source / "b").symlink_to(unrelated)
    shown = tree(collect(temps, app=source).directory)
    assert (shown["app/a/x"], shown["app/b"]) == ("x", f"-> {unrelated}")
    (source / "b").unlink()
    (source / "b").write_text("file")
    assert tree(collect(temps, app=source).directory)["app/b"] == "file"
    assert tree(unrelated) == {"f": "p"}


def test_source_of_an_entry_can_change(tmp_path: Path, source: Path, temps: Path) -> None:
    collect(temps, app=source / "a")
    assert tree(collect(temps, app=source / "b/c").directory) == {"app": "2"}
    assert tree(collect(temps, app=source).directory / "app") == tree(source)
    assert tree(source) == {"a": "1", "b": "/", "b/c": "2"}


# --- concurrent changes ---


def test_scan_ignores_files_that_disappear(tmp_path: Path, source: Path) -> None:
    (tmp_path / "own").mkdir()
    found = scan_entry(ContextEntry(name="app", path=str(source)), tmp_path / "own")
    assert [next(found)[0], next(found)[0], next(found)[0]] == ["app", "app/a", "app/b"]
    shutil.rmtree(source)
    assert list(found) == []


def test_sync_ignores_files_that_disappear(tmp_path: Path, source: Path) -> None:
    (source / "link").symlink_to("a")
    (tmp_path / "own").mkdir()
    found = dict(scan_entry(ContextEntry(name="app", path=str(source)), tmp_path / "own"))
    shutil.rmtree(source)
    (tmp_path / "target").mkdir()
    sync = sync_context.ContextSync(tmp_path / "target", {})
    sync.fill(found)
    assert tree(tmp_path / "target") == {"app": "/", "app/b": "/"}
    assert sync.files == 0


def test_directories_that_appear_and_disappear(source: Path, temps: Path) -> None:
    finished = threading.Event()

    def create_and_remove() -> None:
        while not finished.is_set():
            write(source, x__y__z="x")
            shutil.rmtree(source / "x")

    thread = threading.Thread(target=create_and_remove)
    thread.start()
    try:
        for _ in range(40):
            context = collect(temps, app=source).directory
            # Only names: the content of a linked file may disappear before it is read.
            found = {str(path.relative_to(context)) for path in context.rglob("*")}
            assert {"app", "app/a", "app/b", "app/b/c"} <= found
    finally:
        finished.set()
        thread.join()


# --- protection of other directories ---


def test_foreign_directory_is_rejected_and_not_changed(source: Path, temp: Path) -> None:
    write(temp / DIRECTORY_NAME, unrelated="p")
    with pytest.raises(
        SpecError, match=rf"{DIRECTORY_NAME} was not created by symphony \(it has no {MARKER}\)"
    ):
        collect(temp, app=source)
    assert tree(temp) == {DIRECTORY_NAME: "/", f"{DIRECTORY_NAME}/unrelated": "p"}
    write(temp / DIRECTORY_NAME, **{MARKER: "something else"})
    with pytest.raises(SpecError, match="was not created by symphony"):
        collect(temp, app=source)


def test_empty_directory_is_used(source: Path, temp: Path) -> None:
    (temp / DIRECTORY_NAME).mkdir(parents=True)
    assert tree(collect(temp, app=source).directory / "app") == tree(source)


@pytest.mark.parametrize(
    "path", [DIRECTORY_NAME, f"{DIRECTORY_NAME}/context", f"{DIRECTORY_NAME}/{MARKER}"]
)
def test_symbolic_link_is_not_followed(tmp_path: Path, source: Path, temp: Path, path: str) -> None:
    collect(temp, app=source)
    unrelated = write(tmp_path / "unrelated", f="p")
    moved = (temp / path).rename(tmp_path / "moved")
    (temp / path).symlink_to(moved if path.endswith(MARKER) else unrelated)
    with pytest.raises(SpecError, match="is not a directory|was not created by symphony"):
        collect(temp, app=source)
    assert tree(unrelated) == {"f": "p"}


def test_only_the_context_directory_is_cleaned(source: Path, temp: Path) -> None:
    write(temp, app__mine="m", other="o")
    before = tree(temp)
    collect(temp, app=source)
    collect(temp)
    after = tree(temp)
    assert {name: after[name] for name in after if not name.startswith(DIRECTORY_NAME)} == before


def test_linked_file_is_not_written(source: Path, temp: Path) -> None:
    before = (source / "a").stat()
    done = collect(temp, app=source)
    collect(temp, app=source / "b/c")
    assert (source / "a").read_text() == "1"
    after = (source / "a").stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert after.st_nlink == 1
    assert done.linked == 2


def test_directory_is_locked_during_a_build(source: Path, temp: Path) -> None:
    entry = ContextEntry(name="app", path=str(source))
    with build_context([entry], temp) as first:
        with pytest.raises(
            BackendError, match="another build uses .*: wait until it has finished, or give another"
        ):
            collect(temp, app=source)
        assert tree(first.directory / "app") == tree(source)
    assert tree(collect(temp, app=source).directory / "app") == tree(source)


# --- errors ---


def test_missing_entry_is_reported_with_its_siblings(source: Path, temp: Path) -> None:
    with pytest.raises(
        SpecError,
        match=r"context entry 'app': no file or directory .*/source/aa; did you mean 'a'\?",
    ):
        collect(temp, app=source / "aa")
    with pytest.raises(
        SpecError, match=r"no file or directory .*/source/xyz; its directory has: a, b$"
    ):
        collect(temp, app=source / "xyz")
    with pytest.raises(SpecError, match=r"no file or directory .*/nowhere/x$"):
        collect(temp, app=source / "nowhere/x")
    with pytest.raises(SpecError, match="no file or directory"):
        collect(temp, app=source / "a/below-a-file")


def test_special_file_is_rejected_as_entry(temp: Path) -> None:
    with pytest.raises(
        SpecError, match="context entry 'null': /dev/null is neither a file nor a directory"
    ):
        collect(temp, null=Path("/dev/null"))


def test_unusable_temp_directory_is_reported(source: Path) -> None:
    with pytest.raises(
        BackendError, match="the build context in .* cannot be created: .*: Not a directory"
    ):
        collect(source / "a" / "temp", app=source)


COLLECT = """
import sys
from pathlib import Path
from symphony.addons.docker.context import build_context
from symphony.model.experiment.images import ContextEntry
from symphony.model.limits import MAX_DIRECTORY_LEVELS
from tests.file_trees import nested_directories
entry = ContextEntry(name="app", path=sys.argv[1], force_update=False)
try:
    with build_context([entry], Path(sys.argv[2])):
        print("read")
except Exception as exc:
    print(type(exc).__name__, exc)
"""
# Root can read every file, unless it drops these capabilities.
UNPRIVILEGED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def test_unreadable_entry_is_reported(source: Path, temp: Path) -> None:
    (source / "b").chmod(0)
    command = [sys.executable, "-c", COLLECT, str(source), str(temp)]
    if os.geteuid() == 0:
        command = [*UNPRIVILEGED, *command]
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    finally:
        (source / "b").chmod(0o755)
    error = f"context entry 'app' cannot be read: {source}/b: Permission denied"
    assert output == f"BackendError {error}\n"
