"""A third party's backend that is derived from `Cluster`, installed from its own package."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from symphony import AlreadyExists, BackendError, Cluster, Experiment, State

# These programs run in other processes, so that the tests use the backend as a user does.
LAUNCH = """
import json, sys
from symphony import Cluster, NotFound
cluster = Cluster.new("inline", directory=sys.argv[1])
experiment = cluster.new_experiment("example")
experiment.new_process("first", cmd="echo $SYMPH_DATA_ADDR").binds("data")
group = experiment.new_process_group("team")
group.new_process("second", command=sys.executable, args=["-c", "raise SystemExit(3)"])
experiment.new_process("third", command="no-such-program")
cluster.launch(experiment)
try:
    cluster.describe_experiment("exmple")
except NotFound as exc:
    error = str(exc)
print(json.dumps({
    "listed": cluster.list_experiments(),
    "status": cluster.describe_experiment("example").to_dict(),
    "error": error,
    "modules": [name for name in sys.modules if name.startswith("symphony_")],
}))
"""

READ_AND_DELETE = """
import json, sys
from symphony import Cluster
cluster = Cluster.new("Foreground", directory=sys.argv[1])
status = cluster.wait("example", timeout=1)
result = {
    "exit_code": status.exit_code,
    "log": cluster.get_log("example", "first"),
    "lines": [(line.process, line.text) for line in cluster.iter_logs("example", follow=True)],
}
cluster.delete("example")
cluster.delete("example")
print(json.dumps({**result, "listed": cluster.list_experiments()}))
"""

LAUNCH_FOREVER = """
import sys
from symphony import Cluster
cluster = Cluster.new("inline", directory=sys.argv[1])
experiment = cluster.new_experiment("example")
program = "import os, time; print(os.getpid()); time.sleep(100)"
experiment.new_process("first", command=[sys.executable, "-uc", program])
experiment.new_process("second", cmd="true")
cluster.launch(experiment)
"""


def run(code: str, *arguments: str) -> Any:
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, timeout=60, capture_output=True
    )
    return json.loads(result.stdout)


def test_launch_describe_logs_and_delete(example: Path, tmp_path: Path) -> None:
    launched = run(LAUNCH, str(tmp_path / "state"))
    assert launched["listed"] == ["example"]
    processes = launched["status"]["processes"]
    assert [
        (process["group"], process["name"], process["state"], process["exit_code"])
        for process in processes
    ] == [
        (None, "first", "succeeded", 0),
        ("team", "second", "failed", 3),
        (None, "third", "failed", None),
    ]
    assert "no-such-program" in processes[2]["reason"]
    assert "did you mean 'example'" in launched["error"]
    modules = ["", ".cluster", ".plugin", ".render"]
    assert sorted(launched["modules"]) == [f"symphony_inline{module}" for module in modules]
    assert run(READ_AND_DELETE, str(tmp_path / "state")) == {
        "exit_code": 3,
        "log": "127.0.0.1:7000\n",
        "lines": [["first", "127.0.0.1:7000"]],
        "listed": [],
    }


def test_a_dry_run_starts_no_process_and_lists_ignored_settings(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster.new("inline", directory=tmp_path / "state")
    experiment = cluster.new_experiment("example")
    process = experiment.new_process("first", cmd=f"touch {tmp_path / 'ran'}")
    process.resource_limit(gpu=1).add_label("team", "red")
    manifest = cluster.launch(experiment, dry_run=True)
    assert capsys.readouterr().out == str(manifest)
    assert [item.setting for item in manifest.ignored] == ["resource_limit.gpu", "labels"]
    assert list(tmp_path.iterdir()) == []


def test_a_running_experiment_and_its_status_after_the_launcher_is_killed(
    example: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCH_FOREVER, str(state)], start_new_session=True
    )
    cluster = Cluster.new("inline", directory=state)
    again = Experiment("example")
    again.new_process("only", cmd="true")
    try:
        pid = int(_first_line(state / "example" / "first.log", launcher))
        states = [process.state for process in cluster.describe_experiment("example")]
        assert states == [State.RUNNING, State.PENDING]
        with pytest.raises(AlreadyExists, match="example"):
            cluster.launch(again)
        with pytest.raises(BackendError, match="foreground"):
            cluster.delete("example")
        with pytest.raises(TimeoutError, match="example"):
            cluster.wait("example", timeout=0.0)
    finally:
        launcher.kill()
        launcher.wait()
    os.kill(pid, signal.SIGKILL)
    status = cluster.describe_experiment("example")
    assert [process.state for process in status] == [State.UNKNOWN, State.UNKNOWN]
    assert status.exit_code == 1
    cluster.delete("example")
    assert cluster.list_experiments() == []


def _first_line(log: Path, launcher: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and launcher.poll() is None:
        text = log.read_text() if log.exists() else ""
        if text.endswith("\n"):
            return text
        time.sleep(0.01)
    raise AssertionError("the process wrote no line")
