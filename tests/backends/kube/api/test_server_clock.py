"""The clock of the API server, and experiments on machines whose own clock is wrong."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
import time
from datetime import datetime, timezone
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from symphony.commandline.parser import SymphonyParser
from symphony_kube.api import server_clock
from symphony_kube.api.server_clock import ServerClock
from tests.backends.kube.conftest import write_kubeconfig
from tests.patched_python import patched_python

NOW = 1_800_000_000.5
# Sets the clock of a process.
FAST_CLOCK = "import time; correct = time.time; time.time = lambda: correct() + 150"

# With a clock that is 150 seconds fast, `first` would have exceeded its timeout at once.
EXPERIMENT = """
name: {name}
processes:
  first:
    ready: {{log: ^up, timeout: 100}}
    command: [python3, -c, {server}]
  second:
    starts_after: first
    command: [python3, -c, "print('started')"]
"""
SERVER = """
import time
time.sleep(2)
print("up", flush=True)
time.sleep(4)
"""


@pytest.fixture
def kube_cluster(local_pods_cluster: Any) -> Any:
    return local_pods_cluster


def clock(monkeypatch: pytest.MonkeyPatch, *dates: tuple[str | None, float, float]) -> ServerClock:
    monkeypatch.setattr(server_clock.time, "time", lambda: NOW)
    made = ServerClock()
    for date, sent, received in dates:
        made.note(date, sent=sent, received=received)
    return made


def date(offset: float) -> str:
    return formatdate(int(NOW + offset), usegmt=True)


@pytest.mark.parametrize(
    ("dates", "expected"),
    [
        pytest.param([], 0, id="no-response"),
        pytest.param([(None, NOW, NOW)], 0, id="no-date"),
        pytest.param([("yesterday", NOW, NOW)], 0, id="invalid-date"),
        pytest.param([(date(0), NOW, NOW + 0.1)], 0, id="correct"),
        pytest.param([(date(0), NOW - 300, NOW)], 0, id="slow-response"),
        pytest.param([(date(-120), NOW, NOW)], -119.5, id="fast"),
        pytest.param([(date(120), NOW, NOW)], 119.5, id="slow"),
        pytest.param([(date(120), NOW - 60, NOW), (date(125), NOW, NOW)], 124.5, id="narrowed"),
        pytest.param([(date(120), NOW, NOW), (date(0), NOW, NOW)], 0, id="set-in-the-meantime"),
    ],
)
def test_time_of_the_server(
    monkeypatch: pytest.MonkeyPatch, dates: list[Any], expected: float
) -> None:
    assert clock(monkeypatch, *dates).now() == pytest.approx(NOW + expected)


class WrongClock(http.server.BaseHTTPRequestHandler):
    """An API server with one running Pod, whose clock is two minutes ahead of this machine's."""

    offset = 120.0

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        items = [self.pod()] if path.endswith("/pods") else []
        body = json.dumps({"items": items, "metadata": {"resourceVersion": "1"}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(time.time() + self.offset, usegmt=True)

    def pod(self) -> dict[str, Any]:
        started = datetime.fromtimestamp(time.time() + self.offset - 60, timezone.utc)
        at = started.strftime("%Y-%m-%dT%H:%M:%SZ")
        state = {"name": "w", "ready": True, "restartCount": 0}
        label = {"symphony/experiment": "e", "symphony/unit": "w"}
        metadata = {"name": "w", "namespace": "e", "uid": "1", "labels": label}
        return {
            "metadata": {**metadata, "creationTimestamp": at},
            "spec": {"nodeName": "n", "containers": [{"name": "w"}]},
            "status": {
                "phase": "Running",
                "containerStatuses": [{**state, "state": {"running": {"startedAt": at}}}],
            },
        }

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("words", [("ps", "e"), ("ls",)])
def test_ages_are_those_of_the_clock_of_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), WrongClock) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        path = write_kubeconfig(tmp_path / "k", f"http://127.0.0.1:{server.server_port}")
        try:
            options = ["-b", "kube", "--kubeconfig", str(path), "--namespace", "e"]
            assert SymphonyParser(prog="symphony").run([*words, *options]) == 0
        finally:
            server.shutdown()
    title, row, *_ = capsys.readouterr().out.splitlines()
    age = row[title.index("AGE") - 2 :].split()[0]
    assert age in ("1m", "1m1s", "1m2s", "1m3s")


def test_timeouts_are_kept_although_the_local_clock_is_wrong(
    kube_cluster: Any, shared: Any, name: str, tmp_path: Path
) -> None:
    python = patched_python(tmp_path / "python", FAST_CLOCK)
    file = tmp_path / "experiment.yml"
    file.write_text(EXPERIMENT.format(name=name, server=json.dumps(SERVER)))
    options = ["--kubeconfig", str(kube_cluster.kubeconfig), "--namespace", kube_cluster.namespace]

    def symphony(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, "-m", "symphony", *words, "-b", "kube", *options],
            capture_output=True,
            text=True,
        )

    launched = symphony("launch", str(file), "--image", kube_cluster.image)
    assert launched.returncode == 0, launched.stderr
    waited = symphony("wait", name, "--timeout", "60")
    assert (waited.returncode, waited.stdout) == (0, f"{name} succeeded: 2 succeeded\n")
