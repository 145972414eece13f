"""Copying from and to containers: every kind of name, modes, links, big files, and what is refused."""

import hashlib
import os
import stat

import pytest

from symphony.errors import BackendError, NotFound, SpecError, Unreachable
from symphony_kube.access.copy import transfer
from tests import awkward

from .using import FOREVER, launched, python, until_succeeded


@pytest.fixture(scope="module")
def worker(kube_session):
    def build(exp):
        group = exp.new_process_group("team")
        for name in ("worker", "other"):
            group.new_process(name, command=["python3", "-u", "-c", FOREVER], start_dir="/tmp")
        group.termination_grace_period(0)
        python(exp, "ended", "pass")

    with launched(kube_session, build) as (cluster, name):
        cluster.wait(name, timeout=60, until="ready")
        until_succeeded(cluster, name, "ended")
        yield Worker(cluster, name)


class Worker:
    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name

    def cp(self, source, target):
        self.cluster.transfer_file(self.name, str(source), str(target))

    def sh(self, line):
        done = self.cluster.exec_command(self.name, "worker", ["sh", "-c", line])
        assert done.exit_code == 0, done.stderr
        return done.stdout


def tree(folder):
    """Everything below a folder: what it is, its mode, and its content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            found[str(path.relative_to(folder))] = ("link", os.readlink(path))
        elif path.is_dir():
            found[str(path.relative_to(folder))] = ("folder", mode)
        else:
            found[str(path.relative_to(folder))] = (
                hashlib.sha256(path.read_bytes()).hexdigest(),
                mode,
            )
    return found


@pytest.fixture
def sample(tmp_path):
    """A folder with all that is awkward."""
    folder = awkward.sample(tmp_path / "sample", [*awkward.ODD, "end\n", "sha256sum"])
    (folder / "binary").write_bytes(os.urandom(300_000))
    (folder / "closed").mkdir(mode=0o500)
    (folder / ("long" * 50)).mkdir()
    (folder / ("long" * 50) / ("name" * 40)).write_text("deep")
    return folder


def test_a_folder_there_and_back_is_the_same(worker, sample, tmp_path):
    worker.cp(sample, "team/worker:copied")
    worker.cp("worker:copied", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(sample)
    assert worker.sh("ls -A /tmp | grep -c symphony- || true").strip() == "0"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_into_a_folder_under_its_name_and_into_its_content(worker, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one").write_text("1")
    worker.sh("mkdir -p /tmp/into/a && echo old > /tmp/into/a/one && echo kept > /tmp/into/a/two")
    worker.cp(tmp_path / "a", "worker:/tmp/into/")
    assert worker.sh("cd /tmp/into; ls; cat a/one a/two").split() == ["a", "1kept"]
    worker.cp(f"{tmp_path}/a/.", "worker:/tmp/into")
    assert worker.sh("cat /tmp/into/one") == "1"
    (tmp_path / "here" / "a").mkdir(parents=True)
    (tmp_path / "here" / "a" / "three").write_text("3")
    worker.cp("worker:into/a", tmp_path / "here")
    assert sorted(path.name for path in (tmp_path / "here" / "a").iterdir()) == [
        "one",
        "three",
        "two",
    ]
    worker.cp("worker:into/a/.", tmp_path / "here")
    assert (tmp_path / "here" / "two").read_text() == "kept\n"


def test_a_file_takes_the_place_of_another_at_once(worker, tmp_path):
    (tmp_path / "new").write_text("new")
    worker.sh("echo old > /tmp/file; ln -sf file /tmp/latest")
    worker.cp(tmp_path / "new", "worker:file")
    worker.cp("worker:latest", tmp_path / "latest")  # a link that is named is followed
    assert (tmp_path / "latest").read_text() == "new"
    assert not (tmp_path / "latest").is_symlink()
    worker.cp("other:/etc/hostname", tmp_path)
    assert (tmp_path / "hostname").read_text().strip()


def test_a_big_file_streams(worker, tmp_path):
    (tmp_path / "big").write_bytes(os.urandom(1 << 20) * 100)
    seen = []
    scope = worker.cluster.scope(worker.name)
    transfer(
        worker.cluster.api,
        scope,
        str(tmp_path / "big"),
        "worker:big",
        progress=lambda *now: seen.append(now),
    )
    worker.cp("worker:big", tmp_path / "back")
    worker.sh("rm /tmp/big")
    digests = [hashlib.sha256((tmp_path / name).read_bytes()).digest() for name in ("big", "back")]
    assert digests[0] == digests[1]
    assert seen[-1][0] == seen[-1][1] > 100 << 20


@pytest.mark.parametrize(
    ("source", "target", "error", "said"),
    [
        ("worker:no/such", "{tmp}", NotFound, "no such directory"),
        ("worker:no-such", "{tmp}", NotFound, "no such file"),
        ("{tmp}/no", "worker:x", NotFound, "No such file"),
        ("{tmp}/file", "worker:/no/such/x", NotFound, "no such directory"),
        ("{tmp}/file", "worker:new/", NotFound, "no such directory"),
        ("worker:/etc/hostname", "{tmp}/no/x", NotFound, "no local directory"),
        ("worker:/etc/hostname", "{tmp}/file/", NotFound, "no local directory"),
        ("{tmp}", "worker:/etc/hostname", SpecError, "a directory cannot replace a file"),
        ("worker:/etc", "{tmp}/file", SpecError, "a directory cannot replace a file"),
        ("worker:x", "other:y", SpecError, "both paths in processes"),
        ("{tmp}/a", "{tmp}/b", SpecError, "both local paths"),
        ("wroker:x", "{tmp}", NotFound, "did you mean 'worker'"),
        ("crew/worker:x", "{tmp}", NotFound, "in group 'team'"),
        ("ended:x", "{tmp}", NotFound, "is not running"),
        ("worker:/dev/zero", "{tmp}/x", SpecError, "neither a file"),
        ("/dev/null", "worker:x", SpecError, "neither a file"),
        ("{tmp}/file", "worker:/proc/x", BackendError, "cannot copy"),
    ],
)
def test_what_cannot_be_copied_is_one_line_and_leaves_nothing(
    worker, tmp_path, source, target, error, said
):
    (tmp_path / "file").write_text("whole")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(error, match=said) as raised:
        worker.cp(source.format(tmp=tmp_path), target.format(tmp=tmp_path))
    assert "\n" not in str(raised.value)
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "file").read_text() == "whole"


@pytest.mark.parametrize(
    ("target", "error", "said"),
    [
        ("/no/such/dir/", NotFound, "there is no such directory in 'worker'"),
        ("/etc/hostname/x", NotFound, "there is no such directory"),
        ("/proc/", BackendError, "its directory is not writable: mkdir: .*/proc/"),
        ("/sys/x", BackendError, "its directory is not writable: mkdir: .*Read-only"),
    ],
)
def test_more_than_any_buffer_holds_is_refused_at_once_as_well(
    worker, tmp_path, target, error, said
):
    (tmp_path / "file").write_bytes(os.urandom(2_000_000))
    with pytest.raises(error, match=said):  # and not, in the end, that nothing was taken there
        worker.cp(tmp_path / "file", f"worker:{target}")


def test_a_disk_that_becomes_full_is_told_and_nothing_is_left_there(worker, tmp_path):
    with (tmp_path / "file").open("wb") as file:
        file.truncate(80 << 20)
    with pytest.raises(BackendError, match="it could not be unpacked: tar: it: "):
        worker.cp(tmp_path / "file", "worker:/dev/shm/")  # of 64 MiB
    assert worker.sh("ls -A /dev/shm") == ""


def test_a_script_that_says_nothing_and_takes_nothing_is_given_up(worker, tmp_path, monkeypatch):
    monkeypatch.setattr("symphony_kube.access.copy.STALL_SECONDS", 0.5)
    monkeypatch.setattr("symphony_kube.access.exec_stream.PING_INTERVAL_SECONDS", 0.2)
    monkeypatch.setattr("symphony_kube.access.copy._RECEIVE", "echo ready; exec sleep 20")
    (tmp_path / "file").write_bytes(os.urandom(20 << 20))
    # Whatever lies between takes some of it, and more the slower this machine is.
    with pytest.raises(
        Unreachable, match=r"the container (accepted no data|sent no answer) for (0\.5|2\.6) s"
    ):
        worker.cp(tmp_path / "file", "worker:x")


def test_a_script_that_is_silent_when_it_has_all_is_given_up(worker, tmp_path, monkeypatch):
    monkeypatch.setattr("symphony_kube.access.copy.STALL_SECONDS", 0.5)
    monkeypatch.setattr("symphony_kube.access.exec_stream.PING_INTERVAL_SECONDS", 0.2)
    monkeypatch.setattr("symphony_kube.access.copy._RECEIVE", "echo ready; exec sleep 20")
    (tmp_path / "file").write_text("all")
    with pytest.raises(Unreachable, match=r"sent no answer for 0\.5 s"):
        worker.cp(tmp_path / "file", "worker:x")


def test_a_missing_tool_is_named(worker, tmp_path, monkeypatch):
    monkeypatch.setattr("symphony_kube.access.copy._TOOLS", ("tar", "no-such-tool"))
    with pytest.raises(SpecError, match="the image of 'worker' has no no-such-tool"):
        worker.cp("worker:/etc/hostname", tmp_path)


def test_a_difference_is_seen_and_nothing_kept(worker, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("whole")
    monkeypatch.setattr(
        "symphony_kube.access.archive._FileDigests.hex",
        lambda self: {"sha256sum": "0" * 64, "md5sum": "0" * 32},
    )
    with pytest.raises(BackendError, match="differs from its source"):
        worker.cp(tmp_path / "file", "worker:never")
    with pytest.raises(BackendError, match="differs from its source"):
        worker.cp("worker:/etc/hostname", tmp_path / "never")
    assert worker.sh("ls -A /tmp | grep -e never -e symphony- || true") == ""
    assert os.listdir(tmp_path) == ["file"]
