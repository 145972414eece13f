"""A whole third-party backend, installed from its own package and driven through `Cluster.new`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STORY = """
import json, sys
from symphony import Cluster, NotFound
folder, = sys.argv[1:]
cluster = Cluster.new("inline", folder=folder)
exp = cluster.new_experiment("story")
exp.new_process("first", cmd="echo $SYMPH_DATA_ADDR").binds("data")
group = exp.new_process_group("team")
group.new_process("second", command=sys.executable, args=["-c", "raise SystemExit(3)"])
exp.add_process(__import__("symphony").Process("third", command="no-such-program"))
cluster.launch(exp)
try:
    cluster.describe_experiment("stry")
except NotFound as exc:
    near = str(exc)
print(json.dumps({
    "listed": cluster.list_experiments(),
    "status": cluster.describe_experiment("story").to_dict(),
    "near": near,
    "modules": [name for name in sys.modules if name.startswith("symphony_")],
}))
"""

LATER = """
import json, sys
from symphony import Cluster
folder, = sys.argv[1:]
cluster = Cluster.new("Foreground", folder=folder)
status = cluster.wait("story", timeout=1)
said = {
    "exit_code": status.exit_code,
    "log": cluster.get_log("story", "first"),
    "merged": [(line.process, line.text) for line in cluster.iter_logs("story", follow=True)],
}
cluster.delete("story")
cluster.delete("story")
print(json.dumps({**said, "listed": cluster.list_experiments()}))
"""


def run(code: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, timeout=60, capture_output=True
    )
    return json.loads(done.stdout)


def test_it_launches_lists_describes_waits_logs_and_deletes(example: Path, tmp_path: Path) -> None:
    story = run(STORY, str(tmp_path / "state"))
    assert story["listed"] == ["story"]
    ends = {
        process["name"]: (process["state"], process["exit_code"])
        for process in story["status"]["processes"]
    }
    assert ends == {"first": ("succeeded", 0), "second": ("failed", 3), "third": ("failed", None)}
    assert [process["group"] for process in story["status"]["processes"]] == [None, "team", None]
    assert "no-such-program" in story["status"]["processes"][2]["reason"]
    assert "did you mean 'story'" in story["near"]
    assert sorted(story["modules"]) == [
        "symphony_inline", "symphony_inline.cluster", "symphony_inline.plugin", "symphony_inline.render",
    ]  # fmt: skip
    later = run(LATER, str(tmp_path / "state"))
    assert later == {
        "exit_code": 3,
        "log": "127.0.0.1:7000\n",
        "merged": [["first", "127.0.0.1:7000"]],
        "listed": [],
    }


def test_a_dry_run_runs_nothing_and_lists_what_is_ignored(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from symphony import Cluster

    cluster = Cluster.new("inline", folder=tmp_path / "state")
    exp = cluster.new_experiment("story")
    exp.new_process("first", cmd=f"touch {tmp_path / 'ran'}").resource_limit(gpu=1).add_label(
        "team", "red"
    )
    manifest = cluster.launch(exp, dry_run=True)
    assert capsys.readouterr().out == str(manifest)
    assert [item.setting for item in manifest.ignored] == ["resource_limit.gpu", "labels"]
    assert list(tmp_path.iterdir()) == []


def test_what_runs_is_seen_from_outside_and_a_dead_launcher_is_not_covered_up(
    example: Path, tmp_path: Path
) -> None:
    from symphony import AlreadyExists, BackendError, Cluster, State

    code = """
import sys
from symphony import Cluster
cluster = Cluster.new("inline", folder=sys.argv[1])
exp = cluster.new_experiment("story")
exp.new_process("first", command=[sys.executable, "-uc", "import os, time; print(os.getpid()); time.sleep(100)"])
exp.new_process("second", cmd="true")
cluster.launch(exp)
"""
    state = tmp_path / "state"
    launcher = subprocess.Popen([sys.executable, "-c", code, str(state)], start_new_session=True)
    cluster = Cluster.new("inline", folder=state)
    try:
        pid = _first_line(state / "story" / "first.log", launcher)
        assert [process.state for process in cluster.describe_experiment("story")] == [
            State.RUNNING,
            State.PENDING,
        ]
        with pytest.raises(AlreadyExists, match="story"):
            cluster.launch(_one("story"))
        with pytest.raises(BackendError, match="foreground"):
            cluster.delete("story")
        with pytest.raises(TimeoutError, match="story"):
            cluster.wait("story", timeout=0.0)
    finally:
        launcher.kill()
        launcher.wait()
        _kill(int(pid))
    status = cluster.describe_experiment("story")
    assert [process.state for process in status] == [State.UNKNOWN, State.UNKNOWN]
    assert status.exit_code == 1
    cluster.delete("story")
    assert cluster.list_experiments() == []


def _one(name: str) -> Any:
    from symphony import Experiment

    experiment = Experiment(name)
    experiment.new_process("only", cmd="true")
    return experiment


def _first_line(log: Path, launcher: subprocess.Popen[bytes]) -> str:
    import time

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and launcher.poll() is None:
        text = log.read_text() if log.exists() else ""
        if text.endswith("\n"):
            return text
        time.sleep(0.01)
    raise AssertionError("the process never spoke")


def _kill(pid: int) -> None:
    import os
    import signal

    os.kill(pid, signal.SIGKILL)
