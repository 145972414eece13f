"""Copying from and to the folders of processes: every kind of name, modes, links, and what is refused."""

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
from symphony.host import copy
from tests import awkward

from .conftest import python


@pytest.fixture
def home(tmp_path) -> Path:
    """The folder of the processes."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """Where the copying is asked for."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def cp(cluster, experiment, home, here):
    """Copying from and to an experiment that has ended."""
    python(experiment, "worker", "pass", start_dir=str(home))
    python(experiment.new_process_group("team"), "other", "pass", start_dir=str(home))
    cluster.launch(experiment)
    cluster.wait("exp", timeout=60)
    return lambda source, target, **options: cluster.transfer_file(
        "exp", str(source), str(target), **options
    )


def tree(folder):
    """Everything below a folder: its mode, the time of what is no folder, and its content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        told = path.lstat()
        kind = (
            os.readlink(path) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
        )
        when = None if kind is None else told.st_mtime_ns
        found[str(path.relative_to(folder))] = (stat.S_IMODE(told.st_mode), when, kind)
    return found


@pytest.fixture
def sample(here):
    """A folder with all that is awkward."""
    folder = awkward.sample(here / "sample", [*awkward.ODD, "a:b"])
    (folder / "old").write_text("old")
    os.utime(folder / "old", (1, 1))
    (folder / "closed").mkdir()
    (folder / "closed" / "inner").mkdir()
    (folder / "closed" / "inner").chmod(0o500)
    (folder / "closed").chmod(0o500)
    return folder


def test_a_folder_there_and_back_is_the_same(cp, sample, home, here):
    cp("sample", "team/other:copied")
    assert tree(home / "copied") == tree(sample)
    cp("worker:copied", "back")
    assert tree(here / "back") == tree(sample)
    assert sorted(os.listdir(home)) == ["copied"]
    assert sorted(os.listdir(here)) == ["back", "sample"]


def test_a_process_that_runs_is_copied_from_while_it_writes(cluster, experiment, home, here):
    program = "import os, time; os.mkdir('out'); open('out/model.pt', 'w').write('weights'); print('saved'); time.sleep(1000)"
    python(experiment, "learner", program, start_dir=str(home)).ready(log="saved")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=60, until="ready")
    cluster.transfer_file("exp", "learner:out/model.pt", ".")
    assert (here / "model.pt").read_text() == "weights"


def test_into_a_folder_under_its_name_and_into_its_content(cp, home, here):
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


def test_a_file_takes_the_place_of_another_at_once(cp, home, here):
    (here / "new").write_text("new")
    (home / "file").write_text("old")
    (home / "latest").symlink_to("file")
    cp("new", "worker:file")
    cp("worker:latest", "latest")  # a link that is named is followed
    assert ((here / "latest").read_text(), (here / "latest").is_symlink()) == ("new", False)
    (here / "mine").write_text("mine")
    cp("mine", "worker:latest")  # and one that is replaced is not
    assert ((home / "latest").read_text(), (home / "file").read_text()) == ("mine", "new")


def test_special_bits_and_sockets_stay_behind(cp, home, here):
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


@pytest.mark.parametrize(
    ("source", "target", "error", "said"),
    [
        ("worker:no/such", ".", NotFound, "no such file or directory: /.*no/such"),
        ("worker:file/.", ".", NotFound, r"no such file or directory: /.*/file"),
        ("no", "worker:x", NotFound, "'no': no such file or directory: no"),
        ("mine", "worker:no/such/x", NotFound, "no such directory: /.*/no/such"),
        ("mine", "worker:new/", NotFound, "no such directory: /.*/new"),
        ("worker:file", "no/x", NotFound, "no such directory: no"),
        ("worker:file", "mine/", NotFound, "no such directory: mine"),
        ("folder", "worker:file", SpecError, "a directory cannot replace a file"),
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
    ],
)
def test_what_cannot_be_copied_is_one_line_and_leaves_all(
    cp, home, here, source, target, error, said
):
    (here / "mine").write_text("whole")
    (here / "folder" / "inner").mkdir(parents=True)
    (home / "file").write_text("theirs")
    (home / "mine" / "deep").mkdir(parents=True)
    (here / "linked").symlink_to(home / "file")
    before = tree(here), tree(home)
    for dry_run in (True, False):
        with pytest.raises(error, match=said) as raised:
            cp(source, target.format(home=home), dry_run=dry_run)
        assert "\n" not in str(raised.value)
    assert (tree(here), tree(home)) == before
    assert not Path("/dev/null").is_file()


def test_a_dry_run_of_what_can_be_copied_copies_nothing(cp, home, here):
    (home / "file").write_text("theirs")
    cp("worker:file", "copy", dry_run=True)
    assert os.listdir(here) == []


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda folder: os.mkfifo(folder / "z-pipe"),
            "z-pipe': it is neither a file, a directory nor a link",
        ),
        (
            lambda folder: (folder / "z-in-the-way").mkdir(),
            "a directory cannot replace a file",
        ),
        (lambda folder: (folder / "z-full").touch(), "a file cannot replace a directory"),
    ],
    ids=["pipe", "file-in-the-way", "folder-in-the-way"],
)
def test_nothing_is_half_made(cp, home, here, spoil, said):
    """What comes first by name is not there either."""
    (home / "out" / "deep").mkdir(parents=True)
    (home / "out" / "deep" / "first").write_text("new")
    spoil(home / "out")
    (here / "out" / "deep").mkdir(parents=True)
    (here / "out" / "deep" / "first").write_text("old")
    (here / "out" / "z-in-the-way").write_text("old")
    (here / "out" / "z-full").mkdir()
    before = tree(here)
    with pytest.raises(SpecError, match=said):
        cp("worker:out", ".")
    assert tree(here) == before


def test_an_interrupted_copy_leaves_nothing(cp, home, here, monkeypatch):
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


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
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
    ],
)
def test_what_this_user_may_not(cp, state, home, here, source, target, said):
    for folder in (home / "out" / "hidden", home / "tree" / "deep", here / "tree" / "deep"):
        folder.mkdir(parents=True)
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
        words = [*without_rights(), sys.executable, "-c", ATTEMPT, str(state), source, target]
        done = subprocess.run(
            words, cwd=here, capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        for path in modes:
            path.chmod(0o755)
    assert (done.stderr, done.stdout.count("\n")) == ("", 1)
    assert re.search(said, done.stdout), done.stdout
    assert {path: kind for path, (_, _, kind) in tree(here).items()} == before


def without_rights():
    """The words before a command with which root, too, may only do what the modes of files say."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip(
            "NOT TESTED: root may do everything, and there is no setpriv (util-linux) to take that away"
        )
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
