"""Code that is sent to a waiting init container of a real Pod."""

from __future__ import annotations

import os
from typing import Any

import pytest

from symphony import Cluster, Experiment, Unreachable
from symphony.code.pack import pack
from symphony.model.settings.code import CodeSource
from symphony_kube.access import exec_stream, send_code
from symphony_kube.api.labels import MANIFEST
from symphony_kube.render.file_objects import code_volumes
from symphony_kube.render.file_objects.code_volumes import mounted_code
from symphony_kube.state.control_state import decode_manifest

from .conftest import wait_until

PROGRAM = """
import os, pathlib, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print(len(pathlib.Path("data.bin").read_bytes()), pathlib.Path.cwd(), flush=True)
signal.pause()
"""
DATA_BYTES = 3_000_000


def test_an_interrupted_transfer_leaves_no_code_that_starts(
    kube_cluster: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_volumes, "SMALL_CODE_BYTES", DATA_BYTES // 2)
    project = tmp_path / "project"
    project.mkdir()
    (project / "main.py").write_text(PROGRAM)
    (project / "data.bin").write_bytes(os.urandom(DATA_BYTES))
    cluster = Cluster.new(
        "kube", kubeconfig=kube_cluster.kubeconfig, namespace=kube_cluster.namespace
    )
    send, transfer = exec_stream.ExecStream.send, send_code._transfer
    states: list[str] = []

    def send_half(stream: exec_stream.ExecStream, channel: int, data: Any) -> None:
        sent[0] += len(data)
        if sent[0] > DATA_BYTES // 2:
            raise Unreachable("the connection to the container was lost: it was killed")
        send(stream, channel, data)

    def transfer_half_first(*arguments: Any) -> None:
        sent[0] = 0
        if not states:
            monkeypatch.setattr(exec_stream.ExecStream, "send", send_half)
        else:
            monkeypatch.setattr(exec_stream.ExecStream, "send", send)
        states.append(cluster.describe_process("sent", "p").state.value)
        transfer(*arguments)

    sent = [0]
    monkeypatch.setattr(send_code, "_transfer", transfer_half_first)
    experiment = Experiment("sent", code=project)
    process = experiment.new_process("p", container_image=kube_cluster.image, command="python3")
    process.args = ["-u", "main.py"]
    process.termination_grace_period(0)
    try:
        manifest = cluster.launch(experiment)
        assert not [item for item in manifest if item["kind"] == "Secret"]
        # After the first transfer, the container still waits for the whole archive.
        assert states == ["pending", "pending"]
        cluster.wait("sent", until="started", timeout=60)
        cluster.wait("sent", until="ready", timeout=60)
        found = cluster.exec_command("sent", "p", ["sh", "-c", "ls -A /symphony/code"])
        assert found.stdout.split() == ["data.bin", "main.py"]
        # A process without a readiness test is ready as soon as its container runs.
        wait_until(lambda: f"{DATA_BYTES} /symphony/code" in cluster.get_log("sent", "p"))
    finally:
        cluster.delete("sent")


EDITED = """
import pathlib, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print(pathlib.Path("text").read_text(), flush=True)
signal.pause()
"""


def test_edits_reach_the_running_container_which_restarts_the_program(
    kube_cluster: Any, tmp_path: Any
) -> None:
    (tmp_path / "main.py").write_text(EDITED)
    cluster: Any = Cluster.new(
        "kube",
        kubeconfig=kube_cluster.kubeconfig,
        namespace=kube_cluster.namespace,
        image=kube_cluster.image,
    )

    def run(text: str) -> tuple[str, str]:
        """Run an edit, and return the text of the change and the notes."""
        (tmp_path / "text").write_text(text)
        experiment = Experiment("synced", code={"path": tmp_path, "sync": True})
        process = experiment.new_process("p", command=["python3", "-u", "main.py"])
        process.termination_grace_period(1)
        changes = cluster.up(experiment)
        cluster.wait("synced", until="ready", timeout=60)
        lines = cluster.iter_logs("synced", ["p"], follow=True)
        assert next(line.text for line in lines if line.text == text) == text
        return str(changes), "".join(changes.notes)

    try:
        run("first")
        pod = cluster.describe_process("synced", "p")
        changes, note = run("second")
        assert "; restarted in place\n" in changes
        assert note == ""
        assert cluster.describe_process("synced", "p") == pod
        # A signal reaches the program, and not only the shell.
        cluster.signal_processes("synced", ["p"], "STOP")
        read = "read -r p </symphony/unpacked/program; grep State /proc/$p/status"
        assert "stopped" in cluster.exec_command("synced", "p", ["sh", "-c", read]).stdout
        # A Pod that is created later has the latest code, too.
        path = f"/api/v1/namespaces/{kube_cluster.namespace}/pods/synced-p"
        body = cluster.api.call("GET", path)
        manifest = decode_manifest(body["metadata"]["annotations"][MANIFEST])
        assert mounted_code(manifest) == {
            pack(tmp_path, CodeSource(path=".")).snapshot.short_digest
        }
        assert mounted_code(manifest) != mounted_code(body)
        # The shell that restarts the program is not found.
        remove = ["rm", "/symphony/unpacked/program"]
        assert cluster.exec_command("synced", "p", remove).exit_code == 0
        _, note = run("third")
        assert note.startswith("the Pod of p was replaced, because the container did not accept it")
        assert cluster.get_log("synced", "p").split() == ["first", "second", "third"]
    finally:
        cluster.delete("synced")
