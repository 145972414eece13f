"""Windows as a person sees them, and what is in them and in their logs."""

import json
import os
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
from tests.backends.tmux.conftest import eventually, python, tmux, windows

# Draws as a full-screen program does: another screen, a place on it, a colour.
DRAWS = "import time; print('\\x1b[?1049h\\x1b[2J\\x1b[3;5H\\x1b[1;32mdrawn\\x1b[0m', end='', flush=True); time.sleep(1000)"


def screen(window, session="exp", *options):
    return tmux("capture-pane", "-p", *options, "-t", f"={session}:{window}")


def test_a_window_a_process_in_declaration_order(cluster, experiment):
    python(experiment, "late", FOREVER).starts_after("early", "started")
    group = experiment.new_process_group("team")
    python(group, "early", FOREVER)
    python(experiment, "last", FOREVER)
    cluster.launch(experiment)
    assert windows() == ["0 late", "1 team:early", "2 last"]
    assert tmux("list-sessions", "-F", "#S").splitlines() == ["exp"]


def test_the_process_is_the_process_of_its_window(cluster, experiment):
    python(experiment, "worker", FOREVER)
    cluster.launch(experiment)
    status = cluster.describe_experiment("exp")
    assert windows(what="#{pane_pid}") == [str(psutil.Process(status.processes[0].pid).ppid())]


def test_the_variables_of_the_first_process_are_its_own(cluster, experiment, monkeypatch):
    monkeypatch.setenv("OURS", "inherited")
    python(experiment, "first", "pass", env={"MINE": "1", "OURS": "changed", "LANG": "C"})
    python(experiment, "second", "import os; print(os.environ.get('MINE'), os.environ['OURS'])")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    assert cluster.get_log("exp", "second") == "None inherited\n"


@pytest.mark.parametrize("of", ["process", "experiment"])
def test_what_describes_a_terminal_may_be_ones_own(cluster, experiment, of):
    """In the first window, in another, and after a restart: tmux has values of its own for it."""
    chosen = {
        "TERM": "dumb",
        "TMUX": "",
        "TERM_PROGRAM": "mine",
        "COLUMNS": "7",
        "SHELL": "/opt/mine",
    }
    names = ("first", "second", "last")
    if of == "experiment":
        experiment.set_envs(chosen)
    for name in names:
        program = f"import os; print(*(os.environ[key] for key in {list(chosen)}), sep=',')"
        python(experiment, name, program, env=chosen if of == "process" else None)
    again = experiment.get_process("last").set_env("AGAIN", "1").restart_policy("Always")
    cluster.launch(experiment)
    until(
        cluster,
        "exp",
        lambda now: now.processes[2].restarts >= 1 and all(item.started for item in now),
    )
    for name, lines in zip(names, (1, 1, 2), strict=True):
        eventually(lambda name=name, lines=lines: cluster.get_log("exp", name).count("\n") >= lines)
        assert set(cluster.get_log("exp", name).splitlines()) == {"dumb,,mine,7,/opt/mine"}
    del again


def test_what_has_ended_keeps_its_window(cluster, experiment):
    python(experiment, "bad", "print('why'); raise SystemExit(3)")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    eventually(lambda: windows(what="#W #{pane_dead} #{pane_dead_status}") == ["bad 1 3"])
    assert "why" in screen(0, "exp", "-S", "-")
    cluster.delete("exp")
    assert subprocess.run(
        ["tmux", "-L", "test", "has-session"], capture_output=True, check=False
    ).returncode


def test_nothing_is_left_of_what_writes_the_logs(cluster, experiment):
    python(experiment, "one", "print(1)")
    python(experiment, "two", FOREVER)
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: now.processes[0].state is State.SUCCEEDED)
    server = tmux("display-message", "-p", "#{pid}").strip()
    children = f"/proc/{server}/task/{server}/children"
    eventually(
        lambda: len(Path(children).read_text().split()) == 2
    )  # the second keeper, and its log's


def test_the_scene(cluster, experiment):
    """A person attaches, and sees text, colour, and a program that draws."""
    python(
        experiment,
        "text",
        "print('\\x1b[31mred\\x1b[0m', 'and plain'); import time; time.sleep(1000)",
    )
    python(experiment, "draws", DRAWS)
    cluster.launch(experiment)
    eventually(lambda: "drawn" in screen(1) and "plain" in screen(0))
    assert "\x1b[31mred" in screen(0, "exp", "-e")
    assert screen(1).splitlines()[2] == "    drawn"
    eventually(
        lambda: cluster.get_log("exp", "text").endswith("\n")
    )  # a screen may be ahead of the log
    assert cluster.get_log("exp", "text") == "\x1b[31mred\x1b[0m and plain\n"


def test_login_shows_the_window(cluster, experiment, sockets):
    """Seen in a terminal, which is a window of another tmux, the user's."""
    python(experiment, "first", FOREVER)
    python(experiment, "second", "print('look at me'); input()")
    cluster.launch(experiment)
    program = (
        "import sys, json; from symphony import Cluster;"
        "Cluster.new('tmux', **json.loads(sys.argv[1])).login('exp', 'second')"
    )
    options = json.dumps({"state_dir": str(cluster._root), "server_name": "test"})
    words = [sys.executable, "-c", program, options]
    tmux(
        "-f",
        "/dev/null",
        "new-session",
        "-d",
        "-s",
        "mine",
        "-x",
        "100",
        "-y",
        "30",
        "--",
        *words,
        server="default",
    )
    seen = ""

    def attached():
        nonlocal seen
        seen = tmux("capture-pane", "-p", "-t", "=mine:", server="default")
        return "look at me" in seen and "second*" in seen

    eventually(attached)
    tmux("send-keys", "-t", "=mine:", "Enter", server="default")  # typed, it reaches the process
    status = until(cluster, "exp", lambda now: now.processes[1].state is State.SUCCEEDED)
    assert status.processes[1].exit_code == 0


def test_the_command_line_attaches_to_a_terminal_alone(sockets, tmp_path, monkeypatch):
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    cluster = Cluster.new("tmux")
    experiment = cluster.new_experiment("exp")
    python(experiment, "first", FOREVER)
    python(experiment, "second", FOREVER)
    cluster.launch(experiment)
    try:
        words = [sys.executable, "-m", "symphony", "attach", "-b", "tmux", "exp", "second"]
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert done.returncode == 3
        assert "must be a terminal" in done.stderr
        assert done.stderr.strip().endswith(" attach -t exp:1")
    finally:
        cluster.delete("exp")


def test_login_says_what_is_missing(cluster, experiment):
    python(experiment, "waits", FOREVER).starts_after("first")
    python(experiment, "first", FOREVER).ready(log="never", timeout=1000)
    cluster.launch(experiment)
    with pytest.raises(NotFound, match="'waits' has no window: it is pending .waiting for first"):
        cluster.login("exp", "waits")


@pytest.mark.parametrize("lines", [1, 50_000])
def test_logs_are_whole(cluster, experiment, lines):
    """However fast a process ends, and however much more it writes than its window keeps."""
    python(
        experiment,
        "worker",
        f"import sys; sys.stdout.write(''.join(f'line {{i}}\\n' for i in range({lines})))",
    )
    cluster.launch(experiment)
    cluster.wait("exp", timeout=60)
    assert cluster.get_log("exp", "worker") == "".join(f"line {i}\n" for i in range(lines))
    assert [line.text for line in cluster.iter_logs("exp", tail=2)][-1] == f"line {lines - 1}"


def test_many_short_processes_lose_nothing(cluster, experiment):
    for index in range(60):
        experiment.new_process(f"p-{index}", cmd=f"echo one-{index}; printf two; exit {index}")
    cluster.launch(experiment)
    status = cluster.wait("exp", timeout=60)
    assert [process.exit_code for process in status] == list(range(60))
    for index in range(60):
        assert cluster.get_log("exp", f"p-{index}") == f"one-{index}\ntwo", screen(
            index, "exp", "-S", "-"
        )


def test_a_process_gets_the_environment_of_its_launcher_and_no_other(
    cluster, experiment, monkeypatch, tmp_path
):
    tmux(
        "-f", "/dev/null", "new-session", "-d", "-s", "hand", "sleep", "1000"
    )  # the server has an environment of its own
    tmux("set-environment", "-g", "LEAKS", "no")
    tmux("set-environment", "-gu", "LEAKS")
    monkeypatch.setenv("OF_LAUNCHER", "yes")
    monkeypatch.setenv("odd.name%%", "() { :;\n}")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    python(experiment, "plain", REPORT)
    python(
        experiment,
        "own",
        REPORT,
        env={"SHELL": "/opt/mine", "TERM": "dumb", "PATH": os.environ["PATH"]},
    )
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    plain, own = (json.loads(cluster.get_log("exp", name))["env"] for name in ("plain", "own"))
    same = {
        key: value
        for key, value in os.environ.items()
        if key not in ("TERM", "TERM_PROGRAM", "PWD", "OLDPWD", "_", "SHLVL", "COLUMNS", "LINES")
    }
    assert {key: plain.get(key) for key in same if key != "SHELL"} == {
        k: v for k, v in same.items() if k != "SHELL"
    }
    assert plain["odd.name%%"] == "() { :;\n}"
    assert plain["TMUX"]
    assert (own["SHELL"], own["TERM"]) == ("/opt/mine", "dumb")


def test_variables_of_one_launcher_do_not_reach_the_experiments_of_the_next(cluster, monkeypatch):
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
    known = {*os.environ, *tmux_variables()}
    assert {key for key in env if not key.startswith("SYMPH")} <= known


def tmux_variables():
    return {
        "TERM",
        "TERM_PROGRAM",
        "TERM_PROGRAM_VERSION",
        "TMUX",
        "TMUX_PANE",
        "SHELL",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    }


def test_no_secret_shows(cluster, experiment):
    """Neither on a screen, nor in ps, nor in tmux's messages."""
    secret = secrets.token_hex()  # other tests, at the same time, have theirs
    python(experiment, "worker", FOREVER, env={"TOKEN": secret})
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: now.processes[0].ready)
    eventually(lambda: "up" in screen(0))
    seen = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert secret not in seen + screen(0)
    assert tmux("show-options", "-sv", "message-limit") == "0\n"


def test_umask_folder_and_open_files_are_those_of_the_launcher(cluster, experiment, tmp_path):
    folder = tmp_path / "a #[b] %H 'quoted' $HOME"
    folder.mkdir()
    program = "import os, resource; print(os.getcwd(), oct(os.umask(0)), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    import resource

    python(experiment, "worker", program, start_dir=str(folder))
    old = os.umask(0o027)
    try:
        cluster.launch(experiment)
    finally:
        os.umask(old)
    cluster.wait("exp", timeout=30)
    assert (
        cluster.get_log("exp", "worker")
        == f"{folder} 0o27 {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}\n"
    )


def test_a_state_folder_with_awkward_characters(tmp_path, options):
    from symphony import Cluster

    cluster = Cluster.new("tmux", **{**options, "state_dir": str(tmp_path / "s #{pid} %d 'q'")})
    experiment = cluster.new_experiment("exp")
    python(experiment, "worker", "print('here')")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    assert cluster.get_log("exp", "worker") == "here\n"
    cluster.delete("exp")


def test_ps_asks_tmux_nothing(cluster, experiment, monkeypatch):
    python(experiment, "worker", FOREVER)
    cluster.launch(experiment)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        assert cluster.describe_experiment("exp").processes[0].state is State.RUNNING
        assert cluster.list_experiments() == ["exp"]


def test_a_restart_keeps_the_window_and_the_log(cluster, experiment):
    python(experiment, "worker", "print('again'); raise SystemExit(4)").restart_policy("OnFailure")
    cluster.launch(experiment)
    until(
        cluster,
        "exp",
        lambda now: now.processes[0].restarts >= 1 and now.processes[0].state is State.PENDING,
    )
    assert cluster.get_log("exp", "worker") == "again\nagain\n"
    assert windows() == ["0 worker"]


def test_a_window_that_somebody_opened_is_in_nobodys_way(cluster, experiment):
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


def test_a_window_that_was_renamed_is_the_window_of_its_process(cluster, experiment):
    python(experiment, "first", FOREVER)
    python(experiment.new_process_group("team"), "second", FOREVER)
    cluster.launch(experiment)
    tmux("rename-window", "-t", "=exp:0", "team:second")
    tmux("rename-window", "-t", "=exp:1", "a new name")
    for process, window in (("first", 0), ("second", 1)):
        with pytest.raises(BackendError, match=f"attach -t exp:{window}$"):
            cluster.login("exp", process)
