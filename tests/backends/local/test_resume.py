"""Experiments with the option ``resume``, after a reboot of the machine."""

import json
import os
import signal
import subprocess
import sys

import pytest

from symphony.cluster import Cluster
from symphony.commandline.commands.set_up.install import unit_text
from symphony.plan.state import fold
from symphony.status import State
from symphony.supervised.record.directory import find
from symphony.supervised.record.event_file import EventReader
from symphony.testing.contract import until
from symphony_tmux.tmux_commands import socket_path
from tests.supervision import kill, kill_supervision, wait_pid

FOREVER = "exec sleep 1000"


@pytest.fixture(params=["local", "tmux"])
def cluster(request, tmp_path, monkeypatch, tmux_sockets):
    """A cluster whose experiments are deleted at the end."""
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path))
    cluster = Cluster.new(request.param)
    yield cluster
    for name in cluster.list_experiments():
        cluster.delete(name)


def described(cluster, name, **options):
    experiment = cluster.new_experiment(name, **options)
    experiment.new_process("db", cmd=FOREVER)
    experiment.new_process("app", cmd=FOREVER).starts_after("db", "started")
    experiment.new_process("stopped", cmd=FOREVER)
    return experiment


def find_run(cluster, name):
    run = find(cluster._root, name)
    assert run is not None
    return run


def reboot(cluster, *names):
    """Kill everything of experiments, and let their records be those of an earlier boot."""
    runs = [find_run(cluster, name) for name in names]
    pids = []
    for name in names:
        pids += [process.pid for process in cluster.describe_experiment(name) if process.pid]
    for run in runs:
        if run.supervisor() is not None:
            kill_supervision(run)
    for pid in pids:
        kill(pid)
    if cluster.backend == "tmux":
        server = socket_path(cluster._server_name)
        subprocess.run(["tmux", "-S", server, "kill-server"], check=False, capture_output=True)
    for run in runs:
        record = run.path / "supervisor.json"
        record.write_text(json.dumps({**json.loads(record.read_bytes()), "boot": "another"}))


def events(cluster, name):
    return EventReader(find_run(cluster, name).events).read_new()


def resume(*options):
    """Run the command of the unit."""
    line = next(line for line in unit_text().splitlines() if line.startswith("ExecStart="))
    words = [word.strip('"') for word in line.partition("=")[2].split(" ")]
    assert words[1:] == ["-m", "symphony", "resume"]
    return subprocess.run([*words, *options], capture_output=True, text=True, timeout=60)


def test_marked_experiment_starts_again_after_a_reboot(cluster):
    cluster.launch(described(cluster, "marked", resume=True))
    cluster.launch(described(cluster, "other"))
    for name in ("marked", "other"):
        until(cluster, name, lambda now: all(item.state is State.RUNNING for item in now))
        cluster.stop_processes(name, ["stopped"])
    # The experiments share a server of tmux.
    reboot(cluster, "marked", "other")
    assert resume("--dry-run").stdout == f"would resume marked on {cluster.backend}\n"
    done = resume()
    assert (done.returncode, done.stdout) == (0, f"resumed marked on {cluster.backend}\n")
    db, app, stopped = until(cluster, "marked", lambda now: now.processes[1].state is State.RUNNING)
    assert (db.state, db.restarts, app.restarts) == (State.RUNNING, 1, 1)
    assert stopped.stopped
    assert app.started >= db.started
    note = cluster.describe_experiment("marked").note
    assert note.endswith("was restarted once, the last time because the machine was restarted")
    # Nothing was started twice, and there is nothing left to resume.
    again = resume()
    assert (again.returncode, again.stdout) == (0, "no experiment was interrupted by a reboot\n")
    assert all(
        item.state is State.UNKNOWN for item in cluster.describe_experiment("other").processes[:2]
    )
    cluster.stop("marked")
    assert cluster.describe_experiment("marked").ended


def test_shutdown_does_not_end_a_marked_experiment(cluster):
    cluster.launch(described(cluster, "marked", resume=True))
    cluster.launch(described(cluster, "other"))
    ended = {}
    for name in ("marked", "other"):
        until(cluster, name, lambda now: all(item.state is State.RUNNING for item in now))
        supervisor = find_run(cluster, name).supervisor().pid
        handle = os.pidfd_open(supervisor)
        # systemd sends this signal to all programs when the machine shuts down.
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        wait_pid(handle)
        ended[name] = fold([], events(cluster, name)).finished
        record = find_run(cluster, name).path / "supervisor.json"
        record.write_text(json.dumps({**json.loads(record.read_bytes()), "boot": "another"}))
    assert ended == {"marked": False, "other": True}
    assert resume().stdout == f"resumed marked on {cluster.backend}\n"
    until(cluster, "marked", lambda now: all(item.state is State.RUNNING for item in now))


def test_experiment_that_a_user_stops_does_not_start_again(cluster):
    cluster.launch(described(cluster, "marked", resume=True))
    until(cluster, "marked", lambda now: all(item.state is State.RUNNING for item in now))
    cluster.stop("marked")
    record = find_run(cluster, "marked").path / "supervisor.json"
    record.write_text(json.dumps({**json.loads(record.read_bytes()), "boot": "another"}))
    assert resume().stdout == "no experiment was interrupted by a reboot\n"
    assert all(item.stopped for item in cluster.describe_experiment("marked"))


def test_unit_is_valid_and_is_written(tmp_path, monkeypatch):
    home = tmp_path / "a home % $x"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "SYMPHONY_STATE_DIR": str(home / "state")}
    environment.pop("XDG_CONFIG_HOME", None)
    command = [sys.executable, "-m", "symphony", "install", "--user-unit"]
    shown = subprocess.run([*command, "--dry-run"], env=environment, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    path = home / ".config/systemd/user/symphony-resume.service"
    assert not path.exists()
    # Without a user manager, the unit is written, and the message says how to enable it.
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert f"wrote {path}" in done.stdout
    assert path.read_text() in shown.stdout + "\n"
    assert "enable" in done.stderr
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--user", path],
        capture_output=True,
        text=True,
        env={**environment, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert (verified.returncode, verified.stderr) == (0, "")
