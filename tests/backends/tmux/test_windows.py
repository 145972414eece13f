"""Test the windows of an experiment, their content, and the logs."""

import json
import os
import resource
import secrets
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from symphony import Cluster
from symphony.errors import BackendError, NotFound
from symphony.status import State
from symphony.testing import until
from symphony.testing.programs import FOREVER, REPORT
from tests.backends.tmux.conftest import eventually, new_session, python, tmux, windows

# A full-screen program: it uses the alternate screen, moves the cursor and sets a colour.
FULL_SCREEN = (
    "import time\n"
    "print('\\x1b[?1049h\\x1b[2J\\x1b[3;5H\\x1b[1;32mdrawn\\x1b[0m', end='', flush=True)\n"
    "time.sleep(1000)"
)
# Variables that tmux sets in a window.
TMUX_VARIABLES = {
    "TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TMUX", "TMUX_PANE",
    "SHELL", "PWD", "OLDPWD", "SHLVL", "_",
}  # fmt: skip


def screen(window, session="exp", *options):
    return tmux("capture-pane", "-p", *options, "-t", f"={session}:{window}")


def test_windows_are_in_declaration_order(cluster, experiment):
    python(experiment, "late", FOREVER).starts_after("early", "started")
    group = experiment.new_process_group("team")
    python(group, "early", FOREVER)
    python(experiment, "last", FOREVER)
    cluster.launch(experiment)
    assert windows() == ["0 late", "1 team:early", "2 last"]
    assert tmux("list-sessions", "-F", "#S").splitlines() == ["exp"]


def test_process_is_a_child_of_the_keeper_of_its_window(cluster, experiment):
    python(experiment, "worker", FOREVER)
    cluster.launch(experiment)
    status = cluster.describe_experiment("exp")
    assert windows(format="#{pane_pid}") == [str(psutil.Process(status.processes[0].pid).ppid())]


def test_variables_of_a_process_do_not_reach_others(cluster, experiment, monkeypatch):
    monkeypatch.setenv("OURS", "inherited")
    python(experiment, "first", "pass", env={"MINE": "1", "OURS": "changed", "LANG": "C"})
    python(experiment, "second", "import os; print(os.environ.get('MINE'), os.environ['OURS'])")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    assert cluster.get_log("exp", "second") == "None inherited\n"


@pytest.mark.parametrize("owner", ["process", "experiment"])
def test_variables_of_the_terminal_can_be_overridden(cluster, experiment, owner):
    """tmux sets these variables. The test covers two windows of a launch, and a restart."""
    values = ["dumb", "", "mine", "7", "/opt/mine", "/an $HOME"]
    keys = ["TERM", "TMUX", "TERM_PROGRAM", "COLUMNS", "SHELL", "PWD"]
    env = dict(zip(keys, values, strict=True))
    names = ("first", "second", "last")
    if owner == "experiment":
        experiment.set_envs(env)
    program = f"import os; print(*(os.environ[key] for key in {keys}), sep=',')"
    for name in names:
        python(experiment, name, program, env=env if owner == "process" else None)
    experiment.get_process("last").restart_policy("Always")
    cluster.launch(experiment)
    until(
        cluster,
        "exp",
        lambda now: now.processes[2].restarts >= 1 and all(item.started for item in now),
    )
    for name, lines in zip(names, (1, 1, 2), strict=True):
        eventually(lambda name=name, lines=lines: cluster.get_log("exp", name).count("\n") >= lines)
        assert set(cluster.get_log("exp", name).splitlines()) == {",".join(values)}


def test_window_remains_after_the_process_exits(cluster, experiment):
    python(experiment, "bad", "print('why'); raise SystemExit(3)")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    eventually(lambda: windows(format="#W #{pane_dead} #{pane_dead_status}") == ["bad 1 3"])
    assert "why" in screen(0, "exp", "-S", "-")
    cluster.delete("exp")
    assert subprocess.run(
        ["tmux", "-L", "test", "has-session"], capture_output=True, check=False
    ).returncode


def test_log_writer_of_a_finished_process_exits(cluster, experiment):
    python(experiment, "one", "print(1)")
    python(experiment, "two", FOREVER)
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: now.processes[0].state is State.SUCCEEDED)
    server = tmux("display-message", "-p", "#{pid}").strip()
    children = f"/proc/{server}/task/{server}/children"
    # The keeper of the second window and the writer of its log remain.
    eventually(lambda: len(Path(children).read_text().split()) == 2)


def test_screens_show_text_colours_and_full_screen_programs(cluster, experiment):
    text = "print('\\x1b[31mred\\x1b[0m', 'and plain'); import time; time.sleep(1000)"
    python(experiment, "text", text)
    python(experiment, "draws", FULL_SCREEN)
    cluster.launch(experiment)
    eventually(lambda: "drawn" in screen(1) and "plain" in screen(0))
    assert "\x1b[31mred" in screen(0, "exp", "-e")
    assert screen(1).splitlines()[2] == "    drawn"
    # The screen may be ahead of the log.
    eventually(lambda: cluster.get_log("exp", "text").endswith("\n"))
    assert cluster.get_log("exp", "text") == "\x1b[31mred\x1b[0m and plain\n"


def test_login_attaches_to_the_window(cluster, experiment, sockets):
    """The terminal of the user is a window of another tmux server."""
    python(experiment, "first", FOREVER)
    python(experiment, "second", "print('second is up'); input()")
    cluster.launch(experiment)
    program = (
        "import sys, json; from symphony import Cluster;"
        "Cluster.new('tmux', **json.loads(sys.argv[1])).login('exp', 'second')"
    )
    options = json.dumps({"state_dir": str(cluster._root), "server_name": "test"})
    session = ["new-session", "-d", "-s", "mine", "-x", "100", "-y", "30"]
    command = [sys.executable, "-c", program, options]
    tmux("-f", "/dev/null", *session, "--", *command, server="default")

    def is_attached():
        screen = tmux("capture-pane", "-p", "-t", "=mine:", server="default")
        return "second is up" in screen and "second*" in screen

    eventually(is_attached)
    tmux("send-keys", "-t", "=mine:", "Enter", server="default")
    status = until(cluster, "exp", lambda now: now.processes[1].state is State.SUCCEEDED)
    assert status.processes[1].exit_code == 0


def test_attach_command_requires_a_terminal(sockets, tmp_path, monkeypatch):
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    cluster = Cluster.new("tmux")
    experiment = cluster.new_experiment("exp")
    python(experiment, "first", FOREVER)
    python(experiment, "second", FOREVER)
    cluster.launch(experiment)
    try:
        command = [sys.executable, "-m", "symphony", "attach", "-b", "tmux", "exp", "second"]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert done.returncode == 3
        assert "must be a terminal" in done.stderr
        assert done.stderr.strip().endswith(" attach -t exp:1")
    finally:
        cluster.delete("exp")


def test_login_to_pending_process_is_rejected(cluster, experiment):
    python(experiment, "waits", FOREVER).starts_after("first")
    python(experiment, "first", FOREVER).ready(log="never", timeout=1000)
    cluster.launch(experiment)
    with pytest.raises(NotFound, match="'waits' has no window: it is pending .waiting for first"):
        cluster.login("exp", "waits")


@pytest.mark.parametrize("lines", [1, 50_000])
def test_logs_are_complete(cluster, experiment, lines):
    """A process may exit at once, or write more lines than tmux keeps for a window."""
    program = f"import sys; sys.stdout.write(''.join(f'line {{i}}\\n' for i in range({lines})))"
    python(experiment, "worker", program)
    cluster.launch(experiment)
    cluster.wait("exp", timeout=60)
    assert cluster.get_log("exp", "worker") == "".join(f"line {i}\n" for i in range(lines))
    assert [line.text for line in cluster.iter_logs("exp", tail=2)][-1] == f"line {lines - 1}"


def test_logs_of_many_short_processes_are_complete(cluster, experiment):
    for index in range(60):
        experiment.new_process(f"p-{index}", cmd=f"echo one-{index}; printf two; exit {index}")
    cluster.launch(experiment)
    status = cluster.wait("exp", timeout=60)
    assert [process.exit_code for process in status] == list(range(60))
    for index in range(60):
        log = cluster.get_log("exp", f"p-{index}")
        assert log == f"one-{index}\ntwo", screen(index, "exp", "-S", "-")


def test_process_has_the_environment_of_its_launcher(cluster, experiment, monkeypatch, tmp_path):
    new_session("mine")  # The server is running before the launch, with its own environment.
    tmux("set-environment", "-g", "LEAKS", "no")
    tmux("set-environment", "-gu", "LEAKS")
    monkeypatch.setenv("OF_LAUNCHER", "yes")
    monkeypatch.setenv("odd.name%%", "() { :;\n}")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    python(experiment, "plain", REPORT)
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    env = json.loads(cluster.get_log("exp", "plain"))["env"]
    inherited = os.environ.keys() - TMUX_VARIABLES - {"COLUMNS", "LINES"}
    assert {key: env.get(key) for key in inherited} == {key: os.environ[key] for key in inherited}
    assert env["TMUX"]
    assert "LEAKS" not in env


def test_environments_of_two_launchers_are_separate(cluster, monkeypatch):
    first, second = cluster.new_experiment("first"), cluster.new_experiment("second")
    python(first, "worker", FOREVER)
    python(second, "worker", REPORT)
    with monkeypatch.context() as patch:
        patch.setenv("OF_FIRST", "1")
        cluster.launch(first)
    cluster.launch(second)
    cluster.wait("second", timeout=30)
    env = json.loads(cluster.get_log("second", "worker"))["env"]
    assert "OF_FIRST" not in env
    known = {*os.environ, *TMUX_VARIABLES}
    assert {key for key in env if not key.startswith("SYMPH")} <= known


def test_variables_are_not_visible(cluster, tmp_path):
    """The values appear neither on the screen, nor in ps, nor in the messages of tmux."""
    secret = secrets.token_hex()  # ps shows the processes of other tests as well.
    (tmp_path / "secret").write_text(secret)
    experiment = cluster.new_experiment("exp", secrets={"token": str(tmp_path / "secret")})
    worker = python(experiment, "worker", FOREVER)
    for variable in ("TOKEN", "SHELL", "TERM"):
        worker.set_env_secret(variable, "token")
    cluster.launch(experiment)
    status = until(cluster, "exp", lambda now: now.processes[0].ready)
    eventually(lambda: "up" in screen(0))
    env = psutil.Process(status.processes[0].pid).environ()
    assert (env["TOKEN"], env["SHELL"], env["TERM"]) == (secret, secret, secret)
    assert not any(name.startswith("SYMPHONY_SET_") for name in env)
    ps = subprocess.run(
        ["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True
    ).stdout
    assert secret not in ps + screen(0)
    assert tmux("show-options", "-sv", "message-limit") == "0\n"


def test_directory_umask_and_file_limit_of_a_process(cluster, experiment, tmp_path):
    directory = tmp_path / "a #[b] %H 'quoted' $HOME"
    directory.mkdir()
    program = (
        "import os, resource\n"
        "limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "print(os.getcwd(), oct(os.umask(0)), limit)"
    )
    python(experiment, "worker", program, start_dir=str(directory))
    old = os.umask(0o027)
    try:
        cluster.launch(experiment)
    finally:
        os.umask(old)
    cluster.wait("exp", timeout=30)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert cluster.get_log("exp", "worker") == f"{directory} 0o27 {limit}\n"


def test_state_directory_with_special_characters(tmp_path, options):
    cluster = Cluster.new("tmux", **{**options, "state_dir": str(tmp_path / "s #{pid} %d 'q'")})
    experiment = cluster.new_experiment("exp")
    python(experiment, "worker", "print('here')")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    assert cluster.get_log("exp", "worker") == "here\n"
    cluster.delete("exp")


def test_describe_does_not_run_tmux(cluster, experiment, monkeypatch):
    python(experiment, "worker", FOREVER)
    cluster.launch(experiment)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        assert cluster.describe_experiment("exp").processes[0].state is State.RUNNING
        assert cluster.list_experiments() == ["exp"]


def test_restart_keeps_the_window_and_the_log(cluster, experiment):
    python(experiment, "worker", "print('again'); raise SystemExit(4)").restart_policy("OnFailure")
    cluster.launch(experiment)
    until(
        cluster,
        "exp",
        lambda now: now.processes[0].restarts >= 1 and now.processes[0].state is State.PENDING,
    )
    assert cluster.get_log("exp", "worker") == "again\nagain\n"
    assert windows() == ["0 worker"]


def test_window_opened_by_the_user_is_kept(cluster, experiment):
    python(experiment, "first", "print('up'); input()").ready(log="^up$")
    python(experiment, "second", FOREVER).starts_after("first", "succeeded")
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: now.processes[0].ready)
    tmux("new-window", "-d", "-t", "=exp:1", "-n", "mine", "sleep", "1000")
    tmux("send-keys", "-t", "=exp:0", "Enter")
    until(cluster, "exp", lambda now: now.processes[1].state is State.RUNNING)
    assert windows() == ["0 first", "1 mine", "2 second"]
    with pytest.raises(BackendError, match="attach -t exp:2$"):
        cluster.login("exp", "second")


def test_renamed_window_is_found(cluster, experiment):
    python(experiment, "first", FOREVER)
    python(experiment.new_process_group("team"), "second", FOREVER)
    cluster.launch(experiment)
    tmux("rename-window", "-t", "=exp:0", "team:second")
    tmux("rename-window", "-t", "=exp:1", "a new name")
    for process, window in (("first", 0), ("second", 1)):
        with pytest.raises(BackendError, match=f"attach -t exp:{window}$"):
            cluster.login("exp", process)
