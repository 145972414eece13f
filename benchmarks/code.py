"""Measure how long it takes to pack code, and to run an edit on Kubernetes.

    python benchmarks/code.py [--quick] [--json]

The first figure is the time to pack 10,000 files, in comparison with ``git archive`` and zstd, or
xz if zstd is not installed. The next figures are the times between an edit of a project of 500 KB
that ``up --watch`` follows and the first line of the restarted program, in a new Pod and in place.
The peer deletes and creates the same Pod with kubectl. The last figure is the processor time of
``up --watch`` without edits, beside that of the command watchfiles. All figures but the first need
kubectl, and the cluster in KUBECONFIG or the devcluster. SYMPHONY_TEST_IMAGE is an image with
Python on its nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from _kube import kubeconfig, kubectl
from _pairs import (
    Figure,
    Options,
    at_most,
    at_most_seconds_more,
    at_most_times,
    in_turns,
    main,
    timed,
)

from symphony import Cluster, Experiment
from symphony.code.pack import pack
from symphony.model.settings.code import CodeSource

SOURCES = Path(__file__).resolve().parents[1] / "symphony"
IMAGE = os.environ.get("SYMPHONY_TEST_IMAGE", "symphony-test:devcluster")
FILES = 10_000
FILE_BYTES = 1700
PROJECT_BYTES = 500_000
# A thousandth of a processor.
IDLE_MILLISECONDS = 60
MAIN = "import time; print({text!r}, flush=True); time.sleep(1000)\n"


def write_project(directory: Path, files: int) -> None:
    """Write files with parts of symphony's own sources, and commit them."""
    text = "".join(path.read_text() for path in sorted(SOURCES.rglob("*.py")))
    for number in range(files):
        path = directory / f"package_{number % 100}" / f"module_{number}.py"
        path.parent.mkdir(exist_ok=True)
        start = number * 37 % (len(text) - FILE_BYTES)
        path.write_text(text[start : start + FILE_BYTES])
    commit = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all"]
    for command in (["git", "init", "-q"], ["git", "add", "."], commit):
        subprocess.run(command, cwd=directory, check=True)


def packing(options: Options, scratch: Path) -> Figure:
    """Return the figure about packing."""
    directory = scratch / "many"
    directory.mkdir()
    count = options.pick(FILES, FILES // 10)
    write_project(directory, count)
    compress = "zstd" if shutil.which("zstd") else "xz"
    command = f"git archive HEAD | {compress} -3 -c >{scratch / 'archive'}"
    ours, peer = in_turns(
        options.pick(9, 3),
        lambda: timed(lambda: pack(directory, CodeSource(path="."))),
        lambda: timed(lambda: subprocess.run(command, shell=True, cwd=directory, check=True)),
    )
    name = f"git archive | {compress} -3"
    return at_most_times(f"packing {count} files", ours, peer, 1.5, peer_name=name)


class Edits:
    """Edits of a project that runs on Kubernetes while ``up --watch`` follows it.

    With ``sync``, the program is restarted in place. Otherwise, its Pod is replaced.
    """

    def __init__(self, config: Path, scratch: Path, *, sync: bool) -> None:
        self.name = f"symphony-bench-{secrets.token_hex(3)}"
        self._directory = scratch / self.name
        self._directory.mkdir()
        write_project(self._directory, PROJECT_BYTES // FILE_BYTES)
        self._edit_count = 0
        self._edit()
        self._options = ["-b", "kube", "--kubeconfig", str(config), "--image", IMAGE]
        self.cluster = Cluster.new("kube", kubeconfig=config, image=IMAGE)
        process = {"command": ["python3", "main.py"], "termination_grace_period": 0}
        described = {
            "name": self.name,
            "code": {"path": self.name, "sync": sync},
            "processes": {"main": process},
        }
        self.file = scratch / f"{self.name}.json"
        self.file.write_text(json.dumps(described))
        self.pid = 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Launch the project and follow its files inside the block, and delete it afterwards."""
        command = [sys.executable, "-m", "symphony", "up", str(self.file), "--watch"]
        with subprocess.Popen(
            [*command, *self._options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as watch:
            self.pid = watch.pid
            try:
                if not any("watching" in line for line in watch.stderr or ()):
                    raise SystemExit("up --watch has exited")
                self.cluster.wait(self.name, until="ready", timeout=300)
                yield
            finally:
                watch.terminate()
                self.cluster.delete(self.name)

    def seconds_to_first_line(self) -> float:
        """Return the time from an edit to the first line of the restarted program."""

        def edit_and_wait() -> None:
            text = self._edit()
            while text not in self.cluster.get_log(self.name, "main", tail=1):
                time.sleep(0.05)

        return timed(edit_and_wait)

    def _edit(self) -> str:
        self._edit_count += 1
        text = f"edit {self._edit_count}"
        (self._directory / "main.py").write_text(MAIN.format(text=text))
        return text


class Peer:
    """A copy of a Pod of symphony, and of the Secret with its code, that kubectl creates."""

    def __init__(self, config: Path, scratch: Path, edits: Edits) -> None:
        self._kubectl = [kubectl(), f"--kubeconfig={config}", f"--namespace={edits.name}"]
        experiment = Experiment.load_file(edits.file)
        objects = list(edits.cluster.manifest(experiment))
        (pod,) = (item for item in objects if item["kind"] == "Pod")
        (secret,) = (item for item in objects if item["kind"] == "Secret")
        self._pod = scratch / "pod.json"
        copy = {**secret, "metadata": {"name": "peer-code"}}
        self._pod.write_text(json.dumps(copy))
        self._output("create", "-f", str(self._pod))
        body = json.dumps({**pod, "metadata": {"name": "peer"}})
        self._pod.write_text(body.replace(secret["metadata"]["name"], "peer-code"))
        self._output("create", "-f", str(self._pod))

    def seconds_to_first_line(self) -> float:
        """Return the time to delete and create the same Pod, until its first line."""

        def replace() -> None:
            self._output("delete", "pod", "peer")
            self._output("create", "-f", str(self._pod))
            while not self._output("logs", "peer", check=False):
                time.sleep(0.05)

        return timed(replace)

    def _output(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(
            [*self._kubectl, *command], check=check, capture_output=True, text=True
        )
        return done.stdout


def idle_milliseconds(pid: int, seconds: float) -> float:
    """Return the processor time that a process takes in a minute, in milliseconds."""

    before = used_milliseconds(pid)
    time.sleep(seconds)
    return (used_milliseconds(pid) - before) * 60 / seconds


def used_milliseconds(pid: int) -> float:
    """Return the processor time that the threads of a process have taken.

    The times that psutil returns are multiples of 10 ms.
    """
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in threads) / 1e6


def idling(options: Options, scratch: Path, edits: Edits) -> Figure:
    """Return the figure about the command that waits for an edit."""
    seconds = options.pick(60, 10)
    command = [sys.executable, "-m", "watchfiles", "true", str(scratch / edits.name)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as peer:
        time.sleep(3)
        try:
            ours, theirs = in_turns(
                options.pick(2, 1),
                lambda: idle_milliseconds(edits.pid, seconds),
                lambda: idle_milliseconds(peer.pid, seconds),
            )
        finally:
            peer.terminate()
    return at_most(
        "processor time of an idle up --watch",
        "ms a minute",
        ours,
        IDLE_MILLISECONDS,
        peer=theirs,
        peer_name="watchfiles",
    )


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures for packing, for edits on Kubernetes, and for waiting."""
    with tempfile.TemporaryDirectory() as name:
        scratch, config = Path(name), kubeconfig()
        yield packing(options, scratch)
        replaced = Edits(config, scratch, sync=False)
        synced = Edits(config, scratch, sync=True)
        with replaced.watched(), synced.watched():
            peer = Peer(config, scratch, replaced)
            ours, in_place, theirs = in_turns(
                options.pick(6, 2),
                replaced.seconds_to_first_line,
                synced.seconds_to_first_line,
                peer.seconds_to_first_line,
            )
            for what, samples in (("edit", ours), ("edit with sync", in_place)):
                yield at_most_seconds_more(
                    f"{what} to the first line",
                    samples,
                    theirs,
                    2.0,
                    peer_name="kubectl delete, create",
                )
            yield idling(options, scratch, replaced)


if __name__ == "__main__":
    main(__doc__, measure)
