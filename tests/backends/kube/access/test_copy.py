"""Copies from and to containers: names, modes, links, large files, and refused copies."""

import hashlib
import os
import stat

import pytest

from symphony.errors import BackendError, NotFound, SpecError, Unreachable
from symphony_kube.access import copy
from symphony_kube.access.copy import transfer
from symphony_kube.access.tar_stream import OutgoingArchive
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.streams import channels
from tests import file_trees
from tests.backends.kube.module_experiment import FOREVER, launched


@pytest.fixture(scope="module")
def worker(kube_session):
    def build(exp):
        group = exp.new_process_group("team")
        for name in ("worker", "other"):
            group.new_process(name, command=["python3", "-u", "-c", FOREVER], start_dir="/tmp")
        group.termination_grace_period(0).mount_shared_memory("4Mi")

    with launched(kube_session, build) as (cluster, name):
        cluster.wait(name, timeout=60, until="ready")
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


def snapshot(directory):
    """Return type, mode and content of everything in a directory."""
    found = {}
    for path in sorted(directory.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            found[str(path.relative_to(directory))] = ("link", os.readlink(path))
        elif path.is_dir():
            found[str(path.relative_to(directory))] = ("directory", mode)
        else:
            found[str(path.relative_to(directory))] = (
                hashlib.sha256(path.read_bytes()).hexdigest(),
                mode,
            )
    return found


@pytest.fixture
def sample(tmp_path):
    """Return a directory with unusual names, modes and links."""
    directory = file_trees.create_tree(
        tmp_path / "sample", [*file_trees.UNUSUAL_NAMES, "end\n", "checked"]
    )
    (directory / "binary").write_bytes(os.urandom(300_000))
    (directory / "closed").mkdir(mode=0o500)
    (directory / ("long" * 50)).mkdir()
    (directory / ("long" * 50) / ("name" * 40)).write_text("deep")
    return directory


def test_directory_is_the_same_after_upload_and_download(worker, sample, tmp_path):
    worker.cp(sample, "team/worker:copied")
    worker.cp("worker:copied", tmp_path / "back")
    assert snapshot(tmp_path / "back") == snapshot(sample)
    assert worker.sh("ls -A /tmp | grep -c symphony- || true").strip() == "0"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_existing_directories_are_merged_and_files_replaced(worker, tmp_path):
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
    (tmp_path / "new").write_text("new")
    worker.sh("echo old > /tmp/file; ln -sf file /tmp/latest")
    worker.cp(tmp_path / "new", "worker:file")
    worker.cp("worker:latest", tmp_path / "latest")
    assert (tmp_path / "latest").read_text() == "new"
    assert not (tmp_path / "latest").is_symlink()
    worker.cp("other:/etc/hostname", tmp_path)
    assert (tmp_path / "hostname").read_text().strip()


def test_large_file_with_progress(worker, tmp_path):
    (tmp_path / "big").write_bytes(os.urandom(1 << 20) * 8)
    seen = []
    scope = worker.cluster.scope(worker.name)
    transfer(
        KubeExperiment(worker.cluster.api, scope),
        str(tmp_path / "big"),
        "worker:big",
        progress=lambda *now: seen.append(now),
    )
    worker.cp("worker:big", tmp_path / "back")
    worker.sh("rm /tmp/big")
    digests = [hashlib.sha256((tmp_path / name).read_bytes()).digest() for name in ("big", "back")]
    assert digests[0] == digests[1]
    assert seen[-1][0] == seen[-1][1] > 8 << 20


def test_copy_is_repeated_if_the_end_of_the_archive_is_lost(worker, tmp_path, monkeypatch):
    lost, losses = [], 2
    take = copy._ScriptOutput._take

    def lose_the_end(output, channel, data):
        if channel == channels.STDOUT and len(lost) < losses:
            data = data[: (1 << 10) - output._received_bytes]
            if not data:
                return
        if channel == channels.STATUS and output._received_bytes == 1 << 10:
            lost.append(output)
        take(output, channel, data)

    monkeypatch.setattr(copy._ScriptOutput, "_take", lose_the_end)
    worker.sh("head -c 100000 /dev/zero >/tmp/zeros")
    worker.cp("worker:zeros", tmp_path / "zeros")
    assert (tmp_path / "zeros").read_bytes() == bytes(100_000)
    (tmp_path / "zeros").unlink()
    lost.clear()
    losses = 3
    with pytest.raises(BackendError, match="the received archive is damaged: unexpected end"):
        worker.cp("worker:zeros", tmp_path / "zeros")
    assert list(tmp_path.iterdir()) == []


REFUSED = [
    ("worker:no/such", "{tmp}", NotFound, "no such directory"),
    ("worker:no-such", "{tmp}", NotFound, "no such file"),
    ("{tmp}/no", "worker:x", NotFound, "No such file"),
    ("{tmp}/file", "worker:/no/such/x", NotFound, "no such directory"),
    ("{tmp}/file", "worker:new/", NotFound, "no such directory"),
    ("worker:/etc/hostname", "{tmp}/no/x", NotFound, "no local directory"),
    ("worker:/etc/hostname", "{tmp}/file/", NotFound, "no local directory"),
    ("{tmp}", "worker:/etc/hostname", SpecError, "a directory cannot replace a file"),
    ("worker:/etc", "{tmp}/file", SpecError, "a directory cannot replace a file"),
    ("worker:/dev/zero", "{tmp}/x", SpecError, "neither a file"),
    ("/dev/null", "worker:x", SpecError, "neither a file"),
    ("{tmp}/file", "worker:/proc/x", BackendError, "cannot copy"),
]


REFUSED_AT_ONCE = [
    ("/no/such/dir/", NotFound, "there is no such directory in 'worker'"),
    ("/etc/hostname/x", NotFound, "there is no such directory"),
    ("/proc/", BackendError, "its directory is not writable: mkdir: .*/proc/"),
    ("/sys/x", BackendError, "its directory is not writable: mkdir: .*Read-only"),
]


def test_refused_copy_leaves_no_files(worker, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("whole")
    before = sorted(os.listdir(tmp_path))
    for source, target, error, message in REFUSED:
        with pytest.raises(error, match=message) as raised:
            worker.cp(source.format(tmp=tmp_path), target.format(tmp=tmp_path))
        assert "\n" not in str(raised.value)
        assert sorted(os.listdir(tmp_path)) == before
        assert (tmp_path / "file").read_text() == "whole"

    # A large file is refused before all of it has been sent.
    (tmp_path / "file").write_bytes(os.urandom(2_000_000))
    for target, error, message in REFUSED_AT_ONCE:
        with pytest.raises(error, match=message):
            worker.cp(tmp_path / "file", f"worker:{target}")

    with (tmp_path / "file").open("wb") as file:
        file.truncate(6 << 20)
    with pytest.raises(BackendError, match="it could not be unpacked: tar: it: "):
        worker.cp(tmp_path / "file", "worker:/dev/shm/")  # has 4 MiB
    assert worker.sh("ls -A /dev/shm") == ""

    monkeypatch.setattr(copy, "_TOOLS_TO_SEND", ("tar", "no-such-tool"))
    with pytest.raises(SpecError, match="the image of 'worker' has no no-such-tool"):
        worker.cp("worker:/etc/hostname", tmp_path)


def test_stalled_copy_is_aborted(worker, tmp_path, monkeypatch):
    monkeypatch.setattr(copy, "STALL_SECONDS", 0.5)
    monkeypatch.setattr("symphony_kube.access.exec_stream.PING_INTERVAL_SECONDS", 0.2)
    monkeypatch.setattr(copy, "_RECEIVE", "echo ready; exec sleep 20")
    for size, problem in (
        # The connection buffers some data, so the limit depends on how much of it was sent.
        (20 << 20, r"(accepted no data|sent no answer) for (0\.5|2\.6) s"),
        (3, r"sent no answer for 0\.5 s"),
    ):
        (tmp_path / "file").write_bytes(bytes(size))
        with pytest.raises(Unreachable, match=f"the container {problem}"):
            worker.cp(tmp_path / "file", "worker:x")


def test_damaged_upload_is_discarded(worker, tmp_path, monkeypatch):
    """It lacks its end, or differs from its source, or its source becomes shorter meanwhile."""
    (tmp_path / "file").write_bytes(bytes(2000))
    all_parts = OutgoingArchive._parts
    for parts, problem in (
        (1, "it could not be unpacked: tar: Unexpected EOF"),
        # Neither the checksum nor the end is sent, which tar does not notice.
        (-2, "the copy differs from its source"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(
                OutgoingArchive,
                "_parts",
                lambda archive, parts=parts: [*all_parts(archive)][:parts],
            )
            with pytest.raises(BackendError, match=problem):
                worker.cp(tmp_path / "file", "worker:never")
    with monkeypatch.context() as patch:
        patch.setattr(copy.Checksum, "text", lambda _: "1 5")
        with pytest.raises(BackendError, match="differs from its source"):
            worker.cp(tmp_path / "file", "worker:never")
    size = 20 << 20
    (tmp_path / "file").write_bytes(bytes(size))
    cluster = worker.cluster
    with pytest.raises(BackendError, match="it became shorter while it was copied"):
        transfer(
            KubeExperiment(cluster.api, cluster.scope(worker.name)),
            str(tmp_path / "file"),
            "worker:never",
            progress=lambda *_: os.truncate(tmp_path / "file", size // 2),
        )
    # The container notices that the connection was closed.
    worker.sh('until [ -z "$(ls -A /tmp | grep symphony-)" ]; do sleep 0.1; done; [ ! -e never ]')


def test_damaged_download_is_discarded(worker, tmp_path, monkeypatch):
    """It differs from its source, or its source changes meanwhile."""
    with monkeypatch.context() as patch:
        patch.setattr(copy.Checksum, "text", lambda _: "1 5")
        with pytest.raises(BackendError, match="a part of the data was lost"):
            worker.cp("worker:/etc/hostname", tmp_path / "never")
    # This container has a tar that does not notice the change.
    changing = copy._SEND.replace("exec 4>&1", "exec 4>&1; echo more >>growing")
    monkeypatch.setattr(copy, "_SEND", changing)
    worker.sh("echo first >growing")
    with pytest.raises(BackendError, match="it was changed during the copy; copy it again"):
        worker.cp("worker:growing", tmp_path)
    assert os.listdir(tmp_path) == []
