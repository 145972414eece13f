"""Measure how long it takes to pack code, and to run an edit on Kubernetes.

    python benchmarks/code.py [--quick] [--json]

The first figure is the time to pack 10,000 files, in comparison with ``git archive`` and zstd, or
xz if zstd is not installed. The second figure is the time between an edit of a project of 500 KB
and the first line of the restarted process. The peer deletes and creates the same Pod with kubectl.
The second figure needs kubectl, and the cluster in KUBECONFIG or the devcluster.
SYMPHONY_TEST_IMAGE is an image with Python on its nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from _kube import kubeconfig, kubectl
from _pairs import (
    Figure,
    Options,
    at_most_seconds_more,
    at_most_times,
    in_turns,
    main,
    timed,
)

from symphony import Cluster, Experiment
from symphony.code.pack import pack
from symphony.model.code import CodeSource

SOURCES = Path(__file__).resolve().parents[1] / "symphony"
IMAGE = os.environ.get("SYMPHONY_TEST_IMAGE", "symphony-test:devcluster")
FILES = 10_000
FILE_BYTES = 1700
PROJECT_BYTES = 500_000
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
    """Edits of a project that runs on Kubernetes, with symphony and with kubectl."""

    def __init__(self, config: Path, scratch: Path) -> None:
        self._directory = scratch / "project"
        self._directory.mkdir()
        write_project(self._directory, PROJECT_BYTES // FILE_BYTES)
        self._name = f"symphony-bench-{secrets.token_hex(3)}"
        self._cluster = Cluster.new("kube", kubeconfig=config, image=IMAGE)
        self._kubectl = [kubectl(), f"--kubeconfig={config}", f"--namespace={self._name}"]
        self._count = 0
        self._pod = scratch / "pod.json"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Launch the project, and delete it afterwards."""
        self._edit()
        self._cluster.up(self._experiment())
        self._cluster.wait(self._name, until="ready", timeout=300)
        self._create_peer()
        try:
            yield
        finally:
            self._cluster.delete(self._name)

    def _create_peer(self) -> None:
        """Create a copy of the Pod, and of the Secret with its code."""
        objects = list(self._cluster.manifest(self._experiment()))
        (pod,) = (item for item in objects if item["kind"] == "Pod")
        (secret,) = (item for item in objects if item["kind"] == "Secret")
        peer = {**secret, "metadata": {"name": "peer-code"}}
        self._pod.write_text(json.dumps(peer))
        self._output("create", "-f", str(self._pod))
        body = {**pod, "metadata": {"name": "peer"}}
        self._pod.write_text(json.dumps(body).replace(secret["metadata"]["name"], "peer-code"))
        self._output("create", "-f", str(self._pod))

    def symphony(self) -> float:
        """Return the time from an edit to the first line of the restarted process."""
        text = self._edit()

        def update() -> None:
            self._cluster.up(self._experiment())
            while text not in self._cluster.get_log(self._name, "main", tail=1):
                time.sleep(0.05)

        return timed(update)

    def kubectl(self) -> float:
        """Return the time to delete and create the same Pod, until its first line."""

        def replace() -> None:
            self._output("delete", "pod", "peer")
            self._output("create", "-f", str(self._pod))
            while not self._output("logs", "peer", check=False):
                time.sleep(0.05)

        return timed(replace)

    def _edit(self) -> str:
        self._count += 1
        text = f"edit {self._count}"
        (self._directory / "main.py").write_text(MAIN.format(text=text))
        return text

    def _experiment(self) -> Experiment:
        experiment = Experiment(self._name, code=self._directory)
        process = experiment.new_process("main", command=["python3", "main.py"])
        process.termination_grace_period(0)
        return experiment

    def _output(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(
            [*self._kubectl, *command], check=check, capture_output=True, text=True
        )
        return done.stdout


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures for packing and for an edit on Kubernetes."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        yield packing(options, scratch)
        edits = Edits(kubeconfig(), scratch)
        with edits.running():
            ours, peer = in_turns(options.pick(5, 2), edits.symphony, edits.kubectl)
        yield at_most_seconds_more(
            "edit to the first line", ours, peer, 2.0, peer_name="kubectl delete, create"
        )


if __name__ == "__main__":
    main(__doc__, measure)
