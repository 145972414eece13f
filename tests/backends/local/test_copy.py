"""Copying to and from the directories of processes: names, modes, links and errors."""

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from symphony.errors import NotFound, SpecError
from symphony.model.limits import MAX_DIRECTORY_LEVELS
from symphony.supervised.access import copy
from tests import file_trees

from .conftest import python


@pytest.fixture
def home(tmp_path) -> Path:
    """The working directory of the processes."""
    directory = tmp_path / "home"
    directory.mkdir()
    return directory


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """The working directory of the caller."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def cp(cluster, experiment, home, here):
    """A function that copies to and from an experiment that has ended."""
    python(experiment, "worker", "pass", start_dir=str(home))
    python(experiment.new_process_group("team"), "other", "pass", start_dir=str(home))
    cluster.launch(experiment)
    cluster.wait("exp", timeout=60)
    return lambda source, target, **options: cluster.transfer_file(
        "exp", str(source), str(target), **options
    )


def tree(directory):
    """Return the mode, the modification time (not of directories) and the content of each path."""
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        if path.is_symlink():
            kind = os.readlink(path)
        else:
            kind = None if path.is_dir() else path.read_bytes()
        when = None if kind is None else status.st_mtime_ns
        found[str(path.relative_to(directory))] = (stat.S_IMODE(status.st_mode), when, kind)
    return found


@pytest.fixture
def sample(here):
    """A directory with unusual names, modes and times."""
    directory = file_trees.create_tree(here / "sample", [*file_trees.UNUSUAL_NAMES, "a:b"])
    (directory / "old").write_text("old")
    os.utime(directory / "old", (1, 1))
    (directory / "closed").mkdir()
    (directory / "closed" / "inner").mkdir()
    (directory / "closed" / "inner").chmod(0o500)
    (directory / "closed").chmod(0o500)
    return directory


def test_directory_is_the_same_after_a_round_trip(cp, sample, home, here):
    cp("sample", "team/other:copied")
    assert tree(home / "copied") == tree(sample)
    cp("worker:copied", "back")
    assert tree(here / "back") == tree(sample)
    assert sorted(os.listdir(home)) == ["copied"]
    assert sorted(os.listdir(here)) == ["back", "sample"]


def test_copy_from_a_running_process(cluster, experiment, home, here):
    program = (
        "import os, time; os.mkdir('out'); open('out/model.pt', 'w').write('weights');"
        "print('saved'); time.sleep(1000)"
    )
    python(experiment, "learner", program, start_dir=str(home)).ready(log="saved")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=60, until="ready")
    cluster.transfer_file("exp", "learner:out/model.pt", ".")
    assert (here / "model.pt").read_text() == "weights"


def test_directory_is_merged_into_an_existing_one(cp, home, here):
    (here / "a" / "deep").mkdir(parents=True)
    (here / "a" / "one").write_text("1")
    (here / "a" / "deep" / "new").write_text("n")
    (home / "into" / "a" / "deep").mkdir(parents=True)
    (home / "into" / "a" / "one").write_text("old")
    (home / "into" / "a" / "deep" / "kept").write_text("k")
    (home / "into" / "a").chmod(0o711)
    cp("a", "worker:into/")
    assert sorted(path for path in tree(home / "into")) == [
        "a",
        "a/deep",
        "a/deep/kept",
        "a/deep/new",
        "a/one",
    ]
    assert (home / "into" / "a" / "one").read_text() == "1"
    assert stat.S_IMODE((home / "into" / "a").stat().st_mode) == 0o711
    cp("a/.", f"worker:{home}/into")
    assert (home / "into" / "one").read_text() == "1"
    cp("worker:into/a", ".")
    assert (here / "a" / "deep" / "kept").read_text() == "k"
    cp("worker:", "everything")
    assert (here / "everything" / "into" / "a" / "one").read_text() == "1"
    assert sorted(os.listdir(home)) == ["into"]


def test_file_replaces_another_file(cp, home, here):
    (here / "new").write_text("new")
    (home / "file").write_text("old")
    (home / "latest").symlink_to("file")
    cp("new", "worker:file")
    cp("worker:latest", "latest")  # a named link is followed
    assert ((here / "latest").read_text(), (here / "latest").is_symlink()) == ("new", False)
    (here / "mine").write_text("mine")
    cp("mine", "worker:latest")  # a replaced link is not followed
    assert ((home / "latest").read_text(), (home / "file").read_text()) == ("mine", "new")


def test_special_bits_and_sockets_are_not_copied(cp, home, here):
    (home / "out").mkdir()
    (home / "out" / "tool").touch()
    (home / "out" / "tool").chmod(0o4755)
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(home / "out")  # the path of a socket is short
        listener.bind("socket")
        os.chdir(here)
        cp("worker:out", ".")
    assert stat.S_IMODE((here / "out" / "tool").stat().st_mode) == 0o755
    assert os.listdir(here / "out") == ["tool"]


REFUSED = [
    ("worker:no/such", ".", NotFound, "no such file or directory: /.*no/such"),
    ("worker:file/.", ".", NotFound, r"no such file or directory: /.*/file"),
    ("no", "worker:x", NotFound, "'no': no such file or directory: no"),
    ("mine", "worker:no/such/x", NotFound, "no such directory: /.*/no/such"),
    ("mine", "worker:new/", NotFound, "no such directory: /.*/new"),
    ("worker:file", "no/x", NotFound, "no such directory: no"),
    ("worker:file", "mine/", NotFound, "no such directory: mine"),
    ("directory", "worker:file", SpecError, "a directory cannot replace a file"),
    ("mine", "worker:", SpecError, "a file cannot replace a directory"),
    ("worker:file", "{home}/file", SpecError, "they are the same file"),
    ("worker:file", "linked", SpecError, "they are the same file"),
    ("worker:mine", "{home}", SpecError, "they are the same directory"),
    ("worker:.", "{home}/copy", SpecError, "a directory cannot be copied into itself"),
    ("worker:mine", "{home}/mine/deep", SpecError, "a directory cannot be copied into itself"),
    ("worker:x", "other:y", SpecError, "both paths in processes"),
    ("a", "b", SpecError, "both local paths"),
    ("wroker:x", ".", NotFound, "did you mean 'worker'"),
    ("crew/other:x", ".", NotFound, "in group 'team'"),
    ("worker:/dev/zero", "x", SpecError, "neither a file nor a directory"),
    ("worker:file", "/dev/null", SpecError, "neither a file nor a directory"),
]


def test_refused_copies_change_nothing(cp, home, here):
    (here / "mine").write_text("whole")
    (here / "directory" / "inner").mkdir(parents=True)
    (home / "file").write_text("theirs")
    (home / "mine" / "deep").mkdir(parents=True)
    (here / "linked").symlink_to(home / "file")
    before = tree(here), tree(home)
    for source, target, error, message in REFUSED:
        for dry_run in (True, False):
            with pytest.raises(error, match=message) as raised:
                cp(source, target.format(home=home), dry_run=dry_run)
            assert "\n" not in str(raised.value)
        assert (tree(here), tree(home)) == before, (source, target)
    assert not Path("/dev/null").is_file()


def test_nested_directories_have_a_limit(tmp_path):
    def paths(target):
        source = str(tmp_path / "source")
        return copy.CopyPath(text=source, path=source), copy.CopyPath(text=target, path=target)

    deepest = file_trees.nested_directories(tmp_path / "source", MAX_DIRECTORY_LEVELS)
    copy.copy(*paths(str(tmp_path / "first")))
    (deepest / "d").mkdir()
    with pytest.raises(SpecError, match="directories are nested more than 200 levels deep"):
        copy.copy(*paths(str(tmp_path / "second")))
    assert sorted(os.listdir(tmp_path)) == ["first", "source"]


def test_dry_run_copies_nothing(cp, home, here):
    (home / "file").write_text("theirs")
    cp("worker:file", "copy", dry_run=True)
    assert os.listdir(here) == []


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda directory: os.mkfifo(directory / "z-pipe"),
            "z-pipe': it is neither a file, a directory nor a link",
        ),
        (
            lambda directory: (directory / "z-in-the-way").mkdir(),
            "a directory cannot replace a file",
        ),
        (lambda directory: (directory / "z-full").touch(), "a file cannot replace a directory"),
    ],
    ids=["pipe", "file-in-the-way", "directory-in-the-way"],
)
def test_error_in_the_middle_changes_nothing(cp, home, here, spoil, message):
    """Even the first file by name is not copied."""
    (home / "out" / "deep").mkdir(parents=True)
    (home / "out" / "deep" / "first").write_text("new")
    spoil(home / "out")
    (here / "out" / "deep").mkdir(parents=True)
    (here / "out" / "deep" / "first").write_text("old")
    (here / "out" / "z-in-the-way").write_text("old")
    (here / "out" / "z-full").mkdir()
    before = tree(here)
    with pytest.raises(SpecError, match=message):
        cp("worker:out", ".")
    assert tree(here) == before


def test_interrupted_copy_leaves_nothing(cp, home, here, monkeypatch):
    (home / "out").mkdir()
    (home / "out" / "closed").mkdir(mode=0o500)
    for name in ("one", "two"):
        (home / "out" / name).touch()

    def interrupted(source, target):
        shutil.copy2(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(copy, "_copy_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cp("worker:out", ".")
    with pytest.raises(KeyboardInterrupt):
        cp("worker:out/one", ".")
    assert os.listdir(here) == []


ATTEMPT = """
import sys
from symphony import Cluster
try:
    Cluster.new("local", state_dir=sys.argv[1]).transfer_file("exp", *sys.argv[2:])
except Exception as exc:
    print(type(exc).__name__, exc)
"""


WITHOUT_PERMISSION = [
    ("worker:secret", "x", r"SpecError cannot copy '.*/home/secret': Permission denied"),
    ("worker:out", "x", r"SpecError cannot copy '.*/home/out/hidden': Permission denied"),
    ("worker:out", "tree", r"SpecError cannot copy '.*/home/out/hidden': Permission denied"),
    (
        "worker:file",
        "shut",
        r"SpecError cannot copy to 'shut': this user may not write to shut",
    ),
    ("worker:tree", ".", r"SpecError cannot copy to '.': this user may not write to tree/deep"),
    ("worker:file", "blind/x", r"SpecError cannot copy .*'blind"),
]


def test_missing_permissions_are_reported(cp, state, home, here):
    for directory in (home / "out" / "hidden", home / "tree" / "deep", here / "tree" / "deep"):
        directory.mkdir(parents=True)
    for name in ("file", "secret", "tree/deep/new", "tree/a"):
        (home / name).touch()
    modes = {home / "secret": 0, home / "out" / "hidden": 0, here / "tree" / "deep": 0o555}
    for name, mode in (("shut", 0o555), ("blind", 0)):
        (here / name).mkdir()
        modes[here / name] = mode
    before = {path: kind for path, (_, _, kind) in tree(here).items()}
    for path, mode in modes.items():
        path.chmod(mode)
    try:
        attempts = [
            (attempt(state, here, source, target), source, target, message)
            for source, target, message in WITHOUT_PERMISSION
        ]
    finally:
        for path in modes:
            path.chmod(0o755)
    for done, source, target, message in attempts:
        assert (done.stderr, done.stdout.count("\n")) == ("", 1), (source, target)
        assert re.search(message, done.stdout), done.stdout
    assert {path: kind for path, (_, _, kind) in tree(here).items()} == before


def attempt(state, here, source, target):
    """Copy in a process without rights, and return its result."""
    words = [*without_rights(), sys.executable, "-c", ATTEMPT, str(state), source, target]
    return subprocess.run(words, cwd=here, capture_output=True, text=True, timeout=60, check=False)


def without_rights():
    """Return a command prefix that makes root respect the modes of files."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("NOT TESTED: root ignores file modes, and there is no setpriv (util-linux)")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
