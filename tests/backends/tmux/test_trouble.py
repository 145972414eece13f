"""Bad input, and a tmux that dies or is tampered with: one clear line each, nothing half-made, delete cleans up."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from symphony import Cluster
from symphony.errors import AlreadyExists, BackendError, LaunchFailed, PluginError, SpecError
from symphony.status import State
from symphony.testing import until
from symphony.testing.contract import all_running
from symphony.testing.programs import FOREVER, SERVER
from tests.backends.tmux.conftest import eventually, python, server_pid, tmux, windows

STUBBORN = (
    "import signal, time, os; [signal.signal(n, signal.SIG_IGN) for n in (1, 15)]; print('up', flush=True)\n"
    "while True: time.sleep(100)"
)
GONE = "the tmux server is not running (it was killed, or its last session was closed)"
WITH_CHILD = "import subprocess as s, time; s.Popen(['sleep', '1000'], start_new_session=True); print('up'); time.sleep(1000)"


def marked(cluster, name="exp"):
    """Ids of all processes that carry the mark of an experiment, found without the code under test."""
    run_id = json.loads((cluster._root / name / "manifest.json").read_text())["run_id"]

    def look():
        found = []
        for process in psutil.process_iter():
            try:
                if (
                    process.environ().get("SYMPHONY_RUN") == run_id
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process.pid)
            except psutil.Error:
                continue
        return found

    return look


@pytest.fixture
def running(cluster, experiment):
    """Two processes, the second of which a hang-up does not end."""
    python(experiment, "plain", FOREVER).termination_grace_period(
        1
    )  # without a supervisor the longest counts
    python(experiment, "stubborn", STUBBORN).ready(log="^up$").termination_grace_period(1)
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: all_running(now) and now.processes[1].ready)
    return marked(cluster)


def ended_first(cluster):
    return until(cluster, "exp", lambda now: now.processes[0].state is not State.RUNNING)


def is_clean(cluster, running):
    cluster.delete("exp")
    assert running() == []
    assert cluster.list_experiments() == []
    names = tmux("list-sessions", "-F", "#S", check=False).split()
    assert "exp" not in names


def test_a_server_that_is_killed(cluster, running):
    os.kill(server_pid(), signal.SIGKILL)
    plain, stubborn = ended_first(cluster)
    assert (plain.state, plain.reason) == (State.UNKNOWN, f"exit status unknown: {GONE}")
    assert plain.failed
    assert stubborn.state is State.RUNNING  # it lives, and is told to
    is_clean(cluster, running)


def test_a_server_that_is_killed_after_the_end(cluster, experiment):
    python(experiment, "worker", "print('said'); raise SystemExit(3)")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    tmux("kill-server")
    assert cluster.describe_experiment("exp").exit_code == 3
    assert cluster.get_log("exp", "worker") == "said\n"
    cluster.delete("exp")
    assert cluster.list_experiments() == []


def test_a_session_that_is_killed_by_hand(cluster, running):
    tmux("new-session", "-d", "-s", "mine", "sleep", "1000")
    tmux("kill-session", "-t", "=exp")
    status = ended_first(cluster)
    assert status.processes[0].reason == "exit status unknown: its tmux session was closed"
    is_clean(cluster, running)
    assert windows("mine")


def test_the_last_session_that_is_killed_by_hand(cluster, running):
    """The server ends with it, a little later: from then on nobody can tell that from its death."""
    tmux("kill-session", "-t", "=exp")
    reasons = [f"exit status unknown: {said}" for said in (GONE, "its tmux session was closed")]
    assert ended_first(cluster).processes[0].reason in reasons
    is_clean(cluster, running)


def test_a_window_that_is_closed_by_hand(cluster, running):
    tmux("kill-window", "-t", "=exp:0")
    status = ended_first(cluster)
    assert status.processes[0].reason == "exit status unknown: its window was closed"
    assert status.processes[1].state is State.RUNNING
    is_clean(cluster, running)


def test_a_window_that_is_closed_by_hand_comes_back_by_policy(cluster, experiment):
    python(experiment, "worker", FOREVER).restart_policy("Always")
    python(experiment, "other", FOREVER)
    cluster.launch(experiment)
    until(cluster, "exp", all_running)
    tmux("kill-window", "-t", "=exp:0")
    until(cluster, "exp", lambda now: now.processes[0].restarts == 1 and all_running(now))
    assert windows() == ["0 worker", "1 other"]


def test_what_would_restart_cannot_without_its_session(cluster, experiment):
    python(experiment, "worker", FOREVER).restart_policy("Always")
    cluster.launch(experiment)
    until(cluster, "exp", all_running)
    tmux("kill-session", "-t", "=exp")
    worker = cluster.wait("exp", timeout=30).processes[0]
    assert worker.state is State.FAILED
    assert "tmux s" in worker.reason


def test_the_supervisor_dies(cluster, running):
    supervisor = json.loads((cluster._root / "exp" / "supervisor.json").read_text())["pid"]
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: "supervisor was killed" in cluster.describe_experiment("exp").note)
    tmux("send-keys", "-t", "=exp:0", "typed", "Enter")
    is_clean(cluster, running)


def test_a_process_is_killed_by_its_id(cluster, running):
    os.kill(cluster.describe_experiment("exp").processes[0].pid, signal.SIGKILL)
    plain = ended_first(cluster).processes[0]
    assert (plain.state, plain.exit_code, plain.reason) == (State.FAILED, 137, "killed by SIGKILL")


def test_delete_ends_the_whole_tree(cluster, experiment):
    python(experiment, "parent", WITH_CHILD).ready(log="^up$").termination_grace_period(2)
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: now.processes[0].ready)
    running = marked(cluster)
    assert len(running()) == 3  # with the keeper of the window
    is_clean(cluster, running)


def test_the_users_own_tmux_is_left_alone(cluster, experiment, tmp_path, monkeypatch):
    """Their server runs beside ours, with a session of our name; their configuration is not read."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".tmux.conf").write_text(
        "set-option -g status-left 'theirs'\nset-option -g base-index 7\n"
    )
    monkeypatch.setenv("HOME", str(home))
    tmux(
        "new-session", "-d", "-s", "exp", "-x", "80", "-y", "24", "sleep", "1000", server="default"
    )
    state = [
        ("list-panes", "-a", "-F", "#S #I #W #{pane_pid} #{window_activity}"),
        ("show-options", "-g"),
        ("show-environment", "-g"),
    ]
    before = [tmux(*words, server="default") for words in state]
    python(experiment, "worker", FOREVER)
    cluster.launch(experiment)
    until(cluster, "exp", all_running)
    assert cluster.list_experiments() == ["exp"]
    assert windows() == ["0 worker"]
    assert "theirs" not in tmux("show-options", "-g")
    cluster.delete("exp")
    assert [tmux(*words, server="default") for words in state] == before
    assert "theirs" in before[1]


def test_a_session_of_that_name_on_our_server(cluster, experiment):
    tmux("-f", "/dev/null", "new-session", "-d", "-s", "exp", "sleep", "1000")
    before = windows(what="#{pane_pid}")
    for index in range(3):
        python(experiment, f"worker-{index}", FOREVER)
    with pytest.raises(
        LaunchFailed, match="has a session 'exp' that does not belong to.*kill-session"
    ):
        cluster.launch(experiment)
    assert windows(what="#{pane_pid}") == before
    assert cluster.list_experiments() == []
    cluster.delete("exp")
    assert windows(what="#{pane_pid}") == before


def test_a_name_in_use(cluster, running):
    again = cluster.new_experiment("exp")
    python(again, "other", FOREVER)
    before = windows(what="#{pane_pid}")
    with pytest.raises(AlreadyExists, match="'exp' is running"):
        cluster.launch(again)
    assert windows(what="#{pane_pid}") == before


def nothing_was_made(cluster, experiment, error, match):
    with pytest.raises(error, match=match) as caught:
        cluster.launch(experiment)
    assert "\n" not in str(caught.value)
    assert cluster.list_experiments() == []
    assert (
        [name for name in os.listdir(cluster._root) if not name.startswith(".lock")] == []
        if cluster._root.exists()
        else True
    )


def test_a_socket_that_cannot_be_created(cluster, experiment, monkeypatch, tmp_path):
    """Its path is too long, or what should be its folder is a file."""
    python(experiment, "worker", FOREVER)
    long, taken = tmp_path / ("long" * 30), tmp_path / "taken"
    for folder in (long, taken):
        folder.mkdir()
    (taken / f"tmux-{os.getuid()}").write_text("")
    for folder in (long, taken):
        with monkeypatch.context() as patch:
            patch.setenv("TMUX_TMPDIR", str(folder))
            nothing_was_made(
                cluster,
                experiment,
                LaunchFailed,
                f"its socket is below .*{folder.name} .TMUX_TMPDIR",
            )


def test_a_folder_that_does_not_exist(cluster, experiment, tmp_path):
    python(experiment, "worker", FOREVER, start_dir=str(tmp_path / "missing"))
    nothing_was_made(cluster, experiment, SpecError, "missing is not a directory")


def test_tmux_is_missing(cluster, experiment, monkeypatch):
    python(experiment, "worker", FOREVER)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        nothing_was_made(
            cluster,
            experiment,
            BackendError,
            "tmux was not found on the PATH; install tmux 3.3 or newer",
        )


def test_tmux_is_too_old(cluster, experiment, monkeypatch, tmp_path):
    """One that lacks what came with 3.3 is told by what it says of an option that it does not know."""
    real = subprocess.run(
        ["which", "tmux"], capture_output=True, text=True, check=True
    ).stdout.strip()
    old = tmp_path / "bin" / "tmux"
    old.parent.mkdir()
    old.write_text(
        f'#!/bin/sh\nsed s/remain-on-exit-format/remain-on-exit-fromat/ | exec {real} "$@"\n'
    )
    old.chmod(0o755)
    python(experiment, "worker", FOREVER)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")
        nothing_was_made(
            cluster, experiment, LaunchFailed, "is older than 3.3; install a newer version"
        )


def test_a_command_or_an_environment_that_is_too_long(cluster, tmp_path):
    """It is refused as on local, by the bounds of the system: for one word (on Linux), and for all together."""
    word = 32 * os.sysconf("SC_PAGE_SIZE") - 1
    long = {f"LONG_{number}": "x" * 100_000 for number in range(70)}
    local = Cluster.new("local", state_dir=str(tmp_path / "local"))
    for args, env in [
        (["x" * (word + 1)], {}),
        (["é" * (word // 2 + 1)], {}),
        ([], {"A": "x" * (word - 1)}),
        ([], long),
    ]:
        said = []
        for backend in (local, cluster):
            experiment = backend.new_experiment("exp")
            python(experiment, "first", FOREVER)
            python(experiment, "worker", "pass", *args, env=env)
            nothing_was_made(
                backend,
                experiment,
                LaunchFailed,
                "'worker': cannot start .*: Argument list too long",
            )
            with pytest.raises(LaunchFailed) as caught:
                backend.launch(experiment)
            said.append(str(caught.value))
        assert said[0] == said[1]


def test_a_command_and_a_variable_that_are_just_not_too_long(cluster, experiment):
    word = 32 * os.sysconf("SC_PAGE_SIZE") - 1
    program = "import os, sys; print(len(sys.argv[1]), len(os.environ['A']))"
    python(experiment, "worker", program, "x" * word, env={"A": "x" * (word - 2)})
    cluster.launch(experiment)
    assert cluster.wait("exp", timeout=30).exit_code == 0, cluster.get_log("exp", "worker")
    assert cluster.get_log("exp", "worker") == f"{word} {word - 2}\n"


@pytest.fixture
def hangs(options, running):
    """A cluster with little patience, and the server of what runs, which is stopped."""
    pid = server_pid()
    os.kill(pid, signal.SIGSTOP)
    yield Cluster.new("tmux", **options, answer_within=1), pid
    os.kill(pid, signal.SIGCONT)


def test_a_server_that_hangs_refuses_a_launch(hangs, running, options):
    cluster, pid = hangs
    experiment = cluster.new_experiment("other")
    for number in range(100):
        python(experiment, f"worker-{number}", FOREVER, "x" * 10_000)  # more than a pipe takes
    match = rf"'worker-0': got no window: the tmux server 'test' does not respond; continue it .kill -CONT {pid}. or end"
    with pytest.raises(LaunchFailed, match=match) as caught:
        cluster.launch(experiment)
    assert "\n" not in str(caught.value)
    assert cluster.list_experiments() == ["exp"]
    os.kill(pid, signal.SIGCONT)
    assert tmux("list-sessions", "-F", "#S") == "exp\n"  # nor does it take place now
    Cluster.new("tmux", **options).launch(
        experiment
    )  # with the usual patience: so many take a while


def test_a_server_that_begins_to_hang_amid_a_launch(cluster, experiment, options, monkeypatch):
    """What was made is taken back, of tmux once it goes on."""
    python(experiment, "first", FOREVER).ready(log="^up")
    python(experiment, "second", FOREVER, start_dir="/").starts_after("first")
    cluster.launch(experiment)
    pid = server_pid()
    real = subprocess.run(
        ["which", "tmux"], capture_output=True, text=True, check=True
    ).stdout.strip()
    folder = cluster._root.parent / "bin"
    folder.mkdir()
    (folder / "tmux").write_text(
        f'#!/bin/sh\ncase "$*" in *start-server*) {real} "$@"; code=$?; kill -STOP {pid}; exit $code;; esac\n'
        f'exec {real} "$@"\n'
    )
    (folder / "tmux").chmod(0o755)
    other = cluster.new_experiment("other")
    for number in range(100):
        python(other, f"worker-{number}", FOREVER).termination_grace_period(1)
    try:
        with monkeypatch.context() as patch:
            patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
            with pytest.raises(LaunchFailed, match="does not respond; continue it") as caught:
                Cluster.new("tmux", **options, answer_within=1).launch(other)
        assert "\n" not in str(caught.value)
        assert cluster.list_experiments() == ["exp"]
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: tmux("list-sessions", "-F", "#S") == "exp\n")


def test_a_server_that_hangs_lets_delete_do_the_rest(cluster, experiment, options):
    """It is not asked for each process anew: that would take longer than anybody waits."""
    python(experiment, "stubborn", STUBBORN).ready(log="^up$").termination_grace_period(1)
    for number in range(40):
        experiment.new_process(
            f"plain-{number}", command=["sleep", "1000"]
        ).termination_grace_period(1)
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: all_running(now) and now.processes[0].ready)
    running, server = marked(cluster), psutil.Process(server_pid())
    server.suspend()
    try:
        impatient = Cluster.new("tmux", **options, answer_within=1)
        match = rf"'test' does not respond; continue it .kill -CONT {server.pid}."
        with pytest.raises(BackendError, match=match) as caught:
            impatient.delete("exp")
        assert "\n" not in str(caught.value)
        assert running() == []
        assert cluster.list_experiments() == []
    finally:
        server.resume()
    eventually(lambda: is_over(server))


def is_over(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("seconds", [0, -1, True, "1", float("inf"), float("nan")])
def test_no_time_to_answer_in(seconds):
    with pytest.raises(SpecError, match="answer_within must be a number of seconds above 0"):
        Cluster.new("tmux", answer_within=seconds)


@pytest.mark.parametrize("name", ["default", "", "a/b", "a b", 3, ".."])
def test_server_names_that_cannot_be(name):
    with pytest.raises(SpecError, match="server_name"):
        Cluster.new("tmux", server_name=name)


def test_without_libtmux_the_extra_is_named(tmp_path):
    code = (
        "import sys, importlib.util as u; real = u.find_spec;"
        "u.find_spec = lambda name, *a: None if name == 'libtmux' else real(name, *a);"
        "from symphony import Cluster; Cluster.new('tmux')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert PluginError.__name__ in done.stderr
    assert "pip install 'symphony-launcher[tmux]'" in done.stderr


def test_a_launch_that_fails_half_way_takes_everything_back(cluster, experiment, tmp_path):
    """One window cannot be made: its program goes while the others are made."""
    for index in range(70):
        experiment.new_process(f"p-{index}", command=["sleep", "1000"]).set_env(
            "TEST_MARK", "half-way"
        )
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nsleep 1000\n")
    program.chmod(0o755)
    experiment.new_process("broken", command=str(program)).set_env("TEST_MARK", "half-way")
    from symphony.host import preflight

    real = preflight.write

    def write(run, manifest):
        real(run, manifest)
        program.unlink()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preflight, "write", write)
        with pytest.raises(LaunchFailed, match=r"'broken': cannot start .*No such file"):
            cluster.launch(experiment)
    assert cluster.list_experiments() == []
    assert "exp" not in tmux("list-sessions", check=False)
    alive = [p for p in psutil.process_iter() if _mark(p) == "half-way"]
    assert alive == []


def _mark(process):
    try:
        return (
            process.environ().get("TEST_MARK") if process.status() != psutil.STATUS_ZOMBIE else None
        )
    except psutil.Error:
        return None


def test_local_and_tmux_never_share_a_port(cluster, tmp_path):
    local = Cluster.new("local", state_dir=str(tmp_path / "local"))
    ports = set()
    try:
        for number, backend in enumerate([cluster, local, cluster, local]):
            experiment = backend.new_experiment(f"exp-{number}")
            python(experiment, "server", SERVER, env={"CLIENTS": "100"}).binds(
                ["echo", "other"]
            ).ready(tcp="echo")
            manifest = backend.launch(experiment)
            ports |= set(manifest.services.values())
            until(backend, f"exp-{number}", lambda now: now.processes[0].ready)
        assert len(ports) == 8
    finally:
        for name in local.list_experiments():
            local.delete(name)


def test_two_launchers_at_one_instant_share_a_server(cluster, options):
    """Each may find no server, or one that is just ending."""
    code = (
        "import json, sys; from symphony import Cluster; cluster = Cluster.new('tmux', **json.loads(sys.argv[1]))\n"
        "for turn in range(3):\n"
        "    experiment = cluster.new_experiment(sys.argv[2]); experiment.new_process('p', cmd='echo hi')\n"
        "    cluster.launch(experiment); status = cluster.wait(sys.argv[2], timeout=60)\n"
        "    assert status.exit_code == 0, status; assert cluster.get_log(sys.argv[2], 'p') == 'hi\\n'\n"
        "    cluster.delete(sys.argv[2])"
    )
    words = [sys.executable, "-c", code, json.dumps(options)]
    launchers = [
        subprocess.Popen([*words, f"exp-{i}"], stderr=subprocess.PIPE, text=True) for i in range(5)
    ]
    for launcher in launchers:
        assert launcher.communicate(timeout=60)[1] == ""
        assert launcher.returncode == 0
