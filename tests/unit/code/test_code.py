"""Snapshots of code: which files belong to them, their archives and their digests."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from symphony import BackendError, Experiment, SpecError
from symphony.code import listing, tar
from symphony.code import pack as packing
from symphony.code.listing import list_files
from symphony.code.pack import pack, unpack
from symphony.code.take_snapshots import packing_once, take_snapshots
from symphony.model.settings.code import CodeSource
from tests.file_trees import UNUSUAL_NAMES, create_tree

HERE = CodeSource(path=".")


def git(directory: Path, *arguments: str) -> None:
    options = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    command = ["git", *options, *arguments]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)


def write(directory: Path, *names: str, text: str = "x") -> None:
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def listed(directory: Path, **patterns: tuple[str, ...]) -> list[str]:
    return [file.path for file in list_files(directory, CodeSource(path=".", **patterns))]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    git(directory, "init", "-q")
    write(directory, ".gitignore", text="*.log\n/out/\n")
    write(directory, "main.py", "deleted.py", "lib/a.py", "lib/b.txt", "lib/__pycache__/kept.pyc")
    git(directory, "add", ".")
    git(directory, "commit", "-qm", "first")
    (directory / "deleted.py").unlink()
    write(directory, "new.py", "a.log", "out/x", ".venv/lib/y.py", "lib/node_modules/z.js")
    write(directory, "lib/.a.py.swp", "main.py~", "#main.py#")
    return directory


TRACKED = [".gitignore", "lib/__pycache__/kept.pyc", "lib/a.py", "lib/b.txt", "main.py"]


@pytest.mark.parametrize(
    ("ignore", "patterns", "expected"),
    [
        ("", {}, [*TRACKED, "new.py"]),
        ("*.py\n", {}, [".gitignore", "lib/__pycache__/kept.pyc", "lib/b.txt"]),
        ("/*.py # no comment\n/main.py\n", {}, [*TRACKED[:-1], "new.py"]),
        ("lib/\nmain.py/\n", {}, [".gitignore", "main.py", "new.py"]),
        ("# comment\n\n", {"exclude": ("lib/*.py", "new.py")}, [*TRACKED[:2], *TRACKED[3:]]),
        ("", {"include": ("lib", "/new.py")}, [*TRACKED[1:4], "new.py"]),
        ("lib", {"exclude": ("!lib/a.py",)}, [".gitignore", "lib/a.py", "main.py", "new.py"]),
        ("", {"exclude": ("!a.log",)}, [".gitignore", "a.log", *TRACKED[1:], "new.py"]),
        ("!out\n", {"include": ("out",)}, ["out/x"]),
    ],
)
def test_the_code_in_a_repository_is_what_git_tracks_or_does_not_ignore(
    repository: Path, ignore: str, patterns: dict[str, tuple[str, ...]], expected: list[str]
) -> None:
    write(repository, ".symphonyignore", text=f"{ignore}\n/.symphonyignore\n")
    assert listed(repository, **patterns) == expected


def test_submodules_and_other_repositories_below_belong_to_the_code(
    repository: Path, tmp_path: Path
) -> None:
    module = tmp_path / "module"
    module.mkdir()
    git(module, "init", "-q")
    write(module, ".gitignore", text="*.tmp")
    write(module, "m.py")
    git(module, "add", ".")
    git(module, "commit", "-qm", "first")
    git(repository, "submodule", "add", "-q", str(module), "sub")
    write(repository, "sub/new.py", "sub/a.tmp")
    shutil.copytree(module, repository / "clone")
    found = [name for name in listed(repository) if name.startswith(("sub", "clone"))]
    modules = ["clone/.gitignore", "clone/m.py", "sub/.gitignore", "sub/m.py", "sub/new.py"]
    assert found == modules
    # A submodule that is not checked out is an empty directory.
    shutil.rmtree(repository / "sub")
    (repository / "sub").mkdir()
    assert not [name for name in listed(repository) if name.startswith("sub")]


def test_a_directory_of_a_repository_has_only_its_own_files(repository: Path) -> None:
    assert listed(repository / "lib") == ["__pycache__/kept.pyc", "a.py", "b.txt"]


def test_files_behind_a_link_that_replaces_a_directory_are_omitted(repository: Path) -> None:
    outside = repository.parent / "outside"
    write(outside, "a.py", "b.txt")
    shutil.rmtree(repository / "lib")
    (repository / "lib").symlink_to(outside)
    assert listed(repository) == [".gitignore", "lib", "main.py", "new.py"]


def test_paths_of_the_index_that_lead_out_of_the_repository_are_omitted(repository: Path) -> None:
    write(repository.parent, "secret")
    # git refuses to add such a path, so the path in the index has the same length and is replaced.
    write(repository, "xx/secret")
    git(repository, "add", "xx/secret")
    index = repository / ".git" / "index"
    content = index.read_bytes()[:-20].replace(b"xx/secret", b"../secret")
    index.write_bytes(content + hashlib.sha1(content, usedforsecurity=False).digest())
    assert b"../secret" in index.read_bytes()
    assert "../secret" not in listed(repository)


@pytest.mark.parametrize(
    ("create", "problem"),
    [
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.symlink_to("/etc/passwd"), "leads outside the directory"),
        (lambda path: path.mkdir(), "is not a regular file"),
    ],
    ids=["pipe", "link", "directory"],
)
def test_unusual_ignore_files_are_refused(
    tmp_path: Path, create: Callable[[Path], object], problem: str
) -> None:
    write(tmp_path, "main.py")
    create(tmp_path / ".symphonyignore")
    with pytest.raises(SpecError, match=problem):
        listed(tmp_path)


def test_the_ignore_file_can_be_a_link_inside_the_directory(tmp_path: Path) -> None:
    write(tmp_path, "main.py", "a.log")
    write(tmp_path, "ignored", text="*.log\nignored\n")
    (tmp_path / ".symphonyignore").symlink_to("ignored")
    assert listed(tmp_path) == [".symphonyignore", "main.py"]


def test_outside_git_everything_but_waste_belongs_to_the_code(tmp_path: Path) -> None:
    write(tmp_path, "main.py", "a/.hidden", "a/__pycache__/x.pyc", ".venv/x", "env/pyvenv.cfg")
    write(tmp_path, "env/lib/x.py", "node_modules/x.js", "data/x.bin", "data/keep.bin", ".#x.py")
    write(tmp_path, ".symphonyignore", text="data/\n!keep.bin\n")
    os.mkfifo(tmp_path / "pipe")
    assert listed(tmp_path) == [".symphonyignore", "a/.hidden", "data/keep.bin", "main.py"]


def test_an_archive_has_the_names_modes_links_and_contents_of_the_files(tmp_path: Path) -> None:
    source = create_tree(tmp_path / "project", (*UNUSUAL_NAMES, "n" * 130))
    write(source, "d/" * 60 + "deep")
    long_link = source / "long-link"
    long_link.symlink_to("t" * 150)
    with open(os.fsencode(source) + b"/latin-\xe9", "w") as file:
        file.write("latin")
    archive = pack(source, HERE)
    target = tmp_path / "target"
    target.mkdir()
    subprocess.run(["tar", "-xzof", "-", "-C", target], input=archive.data, check=True)
    unpack(archive, tmp_path / "unpacked")
    for copy in (target, tmp_path / "unpacked"):
        difference = subprocess.run(
            ["diff", "-r", "--no-dereference", "--exclude=empty", source, copy],
            capture_output=True,
            text=True,
        )
        assert difference.stdout == ""
        assert (copy / "program").stat().st_mode & 0o777 == 0o755
        assert (copy / "nothing").stat().st_mode & 0o777 == 0o644
    assert archive.snapshot.files == len(list_files(source, HERE))


def test_the_digest_depends_only_on_names_modes_and_contents(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write(first, "a.py", "b/c.py")
    write(second, "b/c.py", "a.py")
    os.utime(second / "a.py", (0, 0))
    (second / "b/c.py").chmod(0o600)
    assert pack(first, HERE).data == pack(second, HERE).data
    digests = {pack(first, HERE).snapshot.digest}
    changes: list[Callable[[], object]] = [
        lambda: (second / "a.py").chmod(0o755),
        lambda: (second / "a.py").rename(second / "z.py"),
        lambda: write(second, "z.py", text="y"),
        lambda: (second / "link").symlink_to("z.py"),
    ]
    for change in changes:
        change()
        digests.add(pack(second, HERE).snapshot.digest)
    assert len(digests) == 1 + len(changes)


def test_an_archive_can_be_used_instead_of_the_directory(tmp_path: Path) -> None:
    write(tmp_path, "project/a.py", "project/b/c.py")
    archive = pack(tmp_path / "project", HERE)
    path = tmp_path / "code.tar.gz"
    path.write_bytes(archive.data)
    again = pack(path, HERE)
    assert again.data == archive.data
    assert again.snapshot.digest == archive.snapshot.digest
    assert (again.snapshot.files, again.snapshot.size) == (2, 2)
    for damaged in (archive.data[:-20], archive.data[:-8] + b"\0" * 8, b"text"):
        path.write_bytes(damaged)
        with pytest.raises(SpecError, match=r"code\.tar\.gz is not the archive of a snapshot"):
            pack(path, HERE)


def test_an_archive_cannot_leave_its_directory(tmp_path: Path) -> None:
    for name, link in ((b"../a", b""), (b"b/a", b""), (b"link/a", b"/tmp")):
        content = tar.member(b"link", tar.LINK, 0o777, link=link) if link else b""
        content += tar.member(name, tar.FILE, 0o644, b"x") + tar.END
        path = tmp_path / "code.tar.gz"
        path.write_bytes(gzip.compress(content))
        with pytest.raises(BackendError, match="contains an unexpected path"):
            unpack(pack(path, HERE), tmp_path / "target")
        assert not (tmp_path / "target").exists()


def test_a_file_that_changes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "project/a.py")
    read, times = packing._read, 1

    def read_and_change(descriptor: int, size: int) -> bytes:
        nonlocal times
        content = read(descriptor, size)
        times -= 1
        if times >= 0:
            write(tmp_path, "project/a.py", text="longer" * (times + 1))
        return content

    monkeypatch.setattr(packing, "_read", read_and_change)
    archive = pack(tmp_path / "project", HERE)
    unpack(archive, tmp_path / "copy")
    assert (tmp_path / "copy/a.py").read_text() == "longer"
    times = 1000
    with pytest.raises(BackendError, match=r"a\.py changes while it is read; stop the program"):
        pack(tmp_path / "project", HERE)


def test_a_file_that_disappears_is_omitted(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "b/c.py")
    files = list_files(tmp_path, HERE)
    (tmp_path / "b/c.py").unlink()
    archive = packing._pack_files(files, tmp_path)
    assert archive.snapshot.files == 1


def test_the_root_of_the_file_system_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    for path in (Path("/"), tmp_path / "link"):
        with pytest.raises(SpecError, match="is the root of the file system; set code to the"):
            pack(path, HERE)


def test_too_many_files_are_refused_while_they_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_CODE_FILES", 2)
    write(tmp_path, "a", "b")
    assert listed(tmp_path) == ["a", "b"]
    write(tmp_path, "c")
    with pytest.raises(SpecError, match="has more than 2 files; set code to the directory of"):
        listed(tmp_path)


def test_too_large_code_is_refused_with_the_largest_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MAX_CODE_BYTES", 3000)
    for number in range(12):
        write(tmp_path, f"f-{number}", text="x" * (200 + number * 100))
    with pytest.raises(SpecError) as raised:
        pack(tmp_path, HERE)
    message = str(raised.value)
    assert "has 8.8 KiB in 12 files, and the limit is 2.9 KiB" in message
    assert f"exclude files in {tmp_path / '.symphonyignore'}" in message
    assert message.index("'f-11' (1.3 KiB)") < message.index("'f-2' (400 B)")
    assert "'f-1' " not in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("path", "exclude", "message"),
    [
        ("missing", (), "there is no directory .*missing; set path to the project"),
        ("project/a.py", (), r"there is no directory .*a\.py"),
        ("project", ("*",), "has no files, or all of them are ignored"),
        ("project", ("[",), r"exclude:1: '\*\*/\[' is not a valid pattern"),
    ],
)
def test_unusable_code_is_refused_with_one_line(
    tmp_path: Path, path: str, exclude: tuple[str, ...], message: str
) -> None:
    write(tmp_path, "project/a.py")
    with pytest.raises(SpecError, match=message) as raised:
        pack(tmp_path / path, CodeSource(path=path, exclude=exclude))
    assert "\n" not in str(raised.value)


def test_code_is_inherited_and_packed_once(tmp_path: Path) -> None:
    write(tmp_path, "a/x.py", "b/x.py")
    experiment = Experiment("e", code="a")
    experiment.base_dir = tmp_path
    group = experiment.new_process_group("g")
    group.code({"path": "b"})
    experiment.new_process("own", command="c")
    experiment.new_process("none", command="c").code(False)
    group.new_process("inherits", command="c")
    group.new_process("other", command="c").code("a")
    archives = take_snapshots(experiment)
    sources = {name: Path(item.snapshot.source).name for name, item in archives.items()}
    assert sources == {"own": "a", "inherits": "b", "other": "a"}
    assert archives["own"] is archives["other"]


def test_a_command_packs_code_once_and_reports_the_progress_if_it_is_large(tmp_path: Path) -> None:
    experiment = Experiment("e", code=tmp_path)
    experiment.new_process("p", command="c")
    (tmp_path / "large").write_bytes(bytes(9 << 20))
    reports: list[tuple[str, int, int]] = []
    with packing_once(lambda *report: reports.append(report)):
        first = take_snapshots(experiment)["p"]
        write(tmp_path, "other")
        with packing_once():
            assert take_snapshots(experiment)["p"] is first
    assert set(reports) == {("packed", 9 << 20, 9 << 20)}
    reports.clear()
    assert take_snapshots(experiment)["p"].snapshot.files == 2
    assert not reports
