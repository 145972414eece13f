"""Test invalid input and a tmux server that is killed, blocked or changed by the user.

Errors have one line, a failed launch leaves nothing behind, and delete removes everything.
"""

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys

import psutil
import pytest

from symphony import Cluster
from symphony.errors import AlreadyExists, BackendError, LaunchFailed, PluginError, SpecError
from symphony.status import State
from symphony.supervised.processes.process_groups import wait_for_exit
from symphony.supervised.record.directory import RunDirectory
from symphony.support.install_hints import install_command
from symphony.testing import until
from symphony.testing.contract import all_running
from symphony.testing.programs import FOREVER, SERVER
from tests.backends.tmux.conftest import (
    eventually,
    new_session,
    python,
    run_directory,
    run_id,
    server_pid,
    tmux,
    windows,
)
from tests.supervision import kill_supervision

# A program that ignores SIGHUP and SIGTERM.
STUBBORN = (
    "import signal, time\n"
    "for number in (1, 15): signal.signal(number, signal.SIG_IGN)\n"
    "print('up', flush=True)\n"
    "while True: time.sleep(100)"
)
SERVER_GONE = "the tmux server is not running (it was killed, or its last session was closed)"
SESSION_CLOSED = "its tmux session was closed"


def find_processes(variable, value):
    """Return the ids of the processes that have ``variable`` in their environment.

    The code under test is not used.
    """
    found = []
    for process in psutil.process_iter():
        try:
            zombie = process.status() == psutil.STATUS_ZOMBIE
            if not zombie and process.environ().get(variable) == value:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def processes_of(cluster):
    """Return a function that lists the processes of the experiment, also after its deletion."""
    run = run_id(cluster)
    return lambda: find_processes("SYMPHONY_RUN", run)


@pytest.fixture
def running(cluster, experiment):
    """Launch two processes, the second of which ignores SIGHUP and SIGTERM."""
    # Without a supervisor, delete waits for the longest grace period.
    python(experiment, "plain", FOREVER).termination_grace_period(1)
    python(experiment, "stubborn", STUBBORN).ready(log="^up$").termination_grace_period(1)
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: all_running(now) and now.processes[1].ready)
    return processes_of(cluster)


def wait_for_exit_of_first(cluster):
    return until(cluster, "exp", lambda now: now.processes[0].state is not State.RUNNING)


def delete_and_check(cluster, running):
    cluster.delete("exp")
    assert running() == []
    assert cluster.list_experiments() == []
    names = tmux("list-sessions", "-F", "#S", check=False).split()
    assert "exp" not in names


# --- the server cannot open enough files ---


def test_low_limit_of_open_files_is_reported_before_the_launch(cluster, experiment):
    new_session("mine")
    pid = server_pid()
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    for number in range(5):
        python(experiment, f"worker-{number}", FOREVER)
    already_open = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (already_open + 16, hard))
    with pytest.raises(BackendError, match=rf"raise it with: prlimit --pid {pid} --nofile=\d+, "):
        cluster.launch(experiment)
    assert cluster.list_experiments() == []
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (already_open + 32, hard))
    cluster.launch(experiment)
    until(cluster, "exp", all_running)
    cluster.launch(experiment, force=True)
    assert len(windows()) == 5


# --- the server, a session, a window or a process is killed ---


def kill_server():
    os.kill(server_pid(), signal.SIGKILL)


def kill_session():
    new_session("mine")
    tmux("kill-session", "-t", "=exp")


def kill_last_session():
    """The server exits a moment later, and then the status cannot distinguish the two causes."""
    tmux("kill-session", "-t", "=exp")


def kill_window():
    tmux("kill-window", "-t", "=exp:0")


@pytest.mark.parametrize(
    ("kill", "reasons"),
    [
        (kill_server, [SERVER_GONE]),
        (kill_session, [SESSION_CLOSED]),
        (kill_last_session, [SERVER_GONE, SESSION_CLOSED]),
        (kill_window, ["its window was closed"]),
    ],
)
def test_exit_status_is_unknown_after_a_kill(cluster, running, kill, reasons):
    kill()
    plain, stubborn = wait_for_exit_of_first(cluster)
    assert plain.state is State.UNKNOWN
    assert plain.failed
    assert plain.reason in [f"exit status unknown: {reason}" for reason in reasons]
    assert stubborn.state is State.RUNNING
    delete_and_check(cluster, running)
    if kill is kill_session:
        assert windows("mine")


def test_log_that_cannot_be_read_does_not_stop_a_stop(cluster, running):
    log = RunDirectory(run_directory(cluster)).log("plain")
    log.unlink()
    log.mkdir()
    cluster.stop_processes("exp")
    status = cluster.wait("exp", timeout=20)
    assert [process.exit_code for process in status] == [0, 137]


def test_killed_server_after_the_processes_exited(cluster, experiment):
    python(experiment, "worker", "print('output'); raise SystemExit(3)")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    tmux("kill-server")
    assert cluster.describe_experiment("exp").exit_code == 3
    assert cluster.get_log("exp", "worker") == "output\n"
    cluster.delete("exp")
    assert cluster.list_experiments() == []


def test_restart_policy_applies_to_a_closed_window(cluster, experiment):
    python(experiment, "worker", FOREVER).restart_policy("Always")
    python(experiment, "other", FOREVER)
    cluster.launch(experiment)
    until(cluster, "exp", all_running)
    tmux("kill-window", "-t", "=exp:0")
    until(cluster, "exp", lambda now: now.processes[0].restarts == 1 and all_running(now))
    assert windows() == ["0 worker", "1 other"]


@pytest.mark.parametrize("kill", [kill_server, kill_session, kill_last_session])
def test_restart_policy_applies_to_a_killed_session(cluster, experiment, kill):
    """The session, and the server if necessary, are started again."""
    for name in ("first", "second"):
        python(experiment, name, FOREVER).restart_policy("Always").ready(log="^up")
    cluster.launch(experiment)

    def are_ready(status, restarts):
        return all(process.ready and process.restarts == restarts for process in status)

    until(cluster, "exp", lambda status: are_ready(status, 0))
    kill()
    until(cluster, "exp", lambda status: are_ready(status, 1))
    assert cluster.get_log("exp", "second").splitlines() == ["up", "up"]
    assert sorted(window.split()[1] for window in windows()) == ["first", "second"]


def test_killed_supervisor(cluster, running):
    """`delete` does not need a new one."""
    kill_supervision(RunDirectory(cluster._root / "exp"))
    tmux("send-keys", "-t", "=exp:0", "typed", "Enter")
    delete_and_check(cluster, running)


# The supervisor is killed once, at a moment of a restart at which the gate is closed.
KILLED_CHILDREN = """
import os, signal, subprocess
from symphony_tmux.children import TmuxChildren

def kill(moment):
    path = {path!r}
    if os.path.exists(path) and moment == {moment!r}:
        os.unlink(path)
        os.kill(os.getpid(), signal.SIGKILL)

class Children(TmuxChildren):
    def start(self, commands, env):
        # No earlier process may wait at the gate when a process is started.
        waiting = subprocess.run(["pgrep", "-f", {gate!r}], capture_output=True).stdout
        with open({path!r} + ".waiting", "wb") as file:
            file.write(waiting)
        for started in super().start(commands, env):
            kill("before the start is recorded")
            yield started

    def _log_all(self):
        if self._unlogged:
            kill("after the start is recorded")
        super()._log_all()
"""


@pytest.mark.parametrize("moment", ["before the start is recorded", "after the start is recorded"])
def test_supervisor_killed_before_the_gate_is_open(
    cluster, experiment, monkeypatch, tmp_path, moment
):
    switch = tmp_path / "switch"
    module = tmp_path / "modules" / "killed_children.py"
    module.parent.mkdir()
    gate = str(tmp_path / "state/exp/gates/worker")
    module.write_text(KILLED_CHILDREN.format(path=str(switch), moment=moment, gate=gate))
    monkeypatch.syspath_prepend(str(module.parent))
    monkeypatch.setattr(type(cluster), "children", "killed_children:Children")
    python(experiment, "worker", FOREVER).ready(log="up")
    cluster.launch(experiment)
    cluster.wait("exp", until="ready")
    supervisor = RunDirectory(run_directory(cluster)).supervisor()
    switch.touch()
    # After the start has been recorded, the restart is done.
    with contextlib.suppress(BackendError):
        cluster.restart_processes("exp")
    assert wait_for_exit(supervisor, 20)
    status = cluster.wait("exp", until="ready", timeout=20)
    assert status.processes[0].restarts == 1
    if moment.startswith("before"):
        assert switch.with_suffix(".waiting").read_text() == ""
    assert cluster.get_log("exp", "worker") == "up\nup\n"
    assert windows() == ["0 worker"]


def test_delete_kills_all_descendants(cluster, experiment):
    program = (
        "import subprocess, time; subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "print('up'); time.sleep(1000)"
    )
    python(experiment, "parent", program).ready(log="^up$").termination_grace_period(2)
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: now.processes[0].ready)
    running = processes_of(cluster)
    assert len(running()) == 3  # The keeper of the window, the process and its child.
    delete_and_check(cluster, running)


# --- sessions and servers of the user ---


def test_tmux_server_of_the_user_is_not_changed(cluster, experiment, tmp_path, monkeypatch):
    """The server of the user has a session of the same name. Its configuration is not read."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".tmux.conf").write_text(
        "set-option -g status-left 'theirs'\nset-option -g base-index 7\n"
    )
    monkeypatch.setenv("HOME", str(home))
    session = ["new-session", "-d", "-s", "exp", "-x", "80", "-y", "24"]
    tmux(*session, "sleep", "1000", server="default")
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


def test_foreign_session_with_the_name_of_the_experiment(cluster, experiment):
    new_session("exp")
    before = windows(format="#{pane_pid}")
    for index in range(3):
        python(experiment, f"worker-{index}", FOREVER)
    with pytest.raises(
        LaunchFailed, match="has a session 'exp' that does not belong to.*kill-session"
    ):
        cluster.launch(experiment)
    assert windows(format="#{pane_pid}") == before
    assert cluster.list_experiments() == []
    cluster.delete("exp")
    assert windows(format="#{pane_pid}") == before


# --- invalid input ---


def check_launch_fails(cluster, experiment, error, match):
    """Check that the launch fails with one line and leaves nothing behind. Return the error."""
    with pytest.raises(error, match=match) as caught:
        cluster.launch(experiment)
    assert "\n" not in str(caught.value)
    assert cluster.list_experiments() == []
    if cluster._root.exists():
        assert [name for name in os.listdir(cluster._root) if not name.startswith(".lock")] == []
    return str(caught.value)


def install_wrapper(directory, script):
    """Put a shell script in place of tmux. In the script, ``$TMUX_PROGRAM`` is the real tmux."""
    directory.mkdir()
    wrapper = directory / "tmux"
    wrapper.write_text(f"#!/bin/sh\nTMUX_PROGRAM={shutil.which('tmux')}\n{script}\n")
    wrapper.chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"


KILL_SUPERVISOR = "kill -KILL $PPID"
CREATE = '"$TMUX_PROGRAM" "$@" >/dev/null; touch created'
WAIT_FOR_DELETION = "until [ -e deleted ]; do sleep 0.01; done"


@pytest.mark.parametrize(
    "creation",
    [f"{CREATE}; {KILL_SUPERVISOR}", f"{KILL_SUPERVISOR}; {WAIT_FOR_DELETION}; {CREATE}"],
    ids=["before the supervisor was killed", "after the experiment was deleted"],
)
def test_supervisor_killed_during_the_creation_of_the_session(
    cluster, experiment, monkeypatch, tmp_path, creation
):
    """The launcher deletes the experiment, and the session does not remain."""
    new_session("mine")
    python(experiment, "worker", FOREVER)
    script = (
        f"cd '{tmp_path}'\n"
        'case "$*" in\n'
        f"*start-server*) {creation};;\n"
        '*kill-session*) "$TMUX_PROGRAM" "$@"; touch deleted;;\n'
        '*) exec "$TMUX_PROGRAM" "$@";;\n'
        "esac"
    )
    with monkeypatch.context() as patch:
        patch.setenv("PATH", install_wrapper(tmp_path / "bin", script))
        with pytest.raises(BackendError, match="the supervisor of 'exp' died while launching"):
            cluster.launch(experiment)
    assert cluster.list_experiments() == []
    eventually((tmp_path / "created").exists)
    eventually(lambda: tmux("list-sessions", "-F", "#S") == "mine\n")
    cluster.launch(experiment)
    until(cluster, "exp", all_running)


def test_session_of_an_earlier_run_is_replaced(cluster, experiment):
    """The session is the only one of the server, which would exit without a session."""
    new_session("exp")
    directory = str(run_directory(cluster)).encode().hex()
    tmux("set-option", "-t", "=exp:", "@symphony_directory", directory)
    python(experiment, "worker", FOREVER)
    cluster.launch(experiment)
    assert windows() == ["0 worker"]


def test_name_of_a_running_experiment_is_rejected(cluster, running):
    other = cluster.new_experiment("exp")
    python(other, "other", FOREVER)
    before = windows(format="#{pane_pid}")
    with pytest.raises(AlreadyExists, match="'exp' is running"):
        cluster.launch(other)
    assert windows(format="#{pane_pid}") == before


def test_socket_that_cannot_be_created(cluster, experiment, monkeypatch, tmp_path):
    """The path is too long, or the directory of the socket is a file."""
    python(experiment, "worker", FOREVER)
    too_long, occupied = tmp_path / ("long" * 30), tmp_path / "occupied"
    for directory in (too_long, occupied):
        directory.mkdir()
    (occupied / f"tmux-{os.getuid()}").write_text("")
    for directory in (too_long, occupied):
        with monkeypatch.context() as patch:
            patch.setenv("TMUX_TMPDIR", str(directory))
            message = f"its socket is below .*{directory.name} .TMUX_TMPDIR"
            check_launch_fails(cluster, experiment, LaunchFailed, message)


def test_missing_start_directory(cluster, experiment, tmp_path):
    python(experiment, "worker", FOREVER, start_dir=str(tmp_path / "missing"))
    check_launch_fails(cluster, experiment, SpecError, "missing is not a directory")


def test_missing_tmux(cluster, experiment, monkeypatch):
    python(experiment, "worker", FOREVER)
    message = "tmux was not found on the PATH; install tmux 3.3 or newer"
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        check_launch_fails(cluster, experiment, BackendError, message)


def test_old_tmux(cluster, experiment, monkeypatch, tmp_path):
    """A tmux older than 3.3 reports an option that it does not know."""
    script = 'sed s/remain-on-exit-format/remain-on-exit-fromat/ | exec "$TMUX_PROGRAM" "$@"'
    python(experiment, "worker", FOREVER)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", install_wrapper(tmp_path / "bin", script))
        message = "is older than 3.3; install a newer version"
        check_launch_fails(cluster, experiment, LaunchFailed, message)


# The longest argument that Linux accepts, without its final zero byte.
LONGEST_ARGUMENT = 32 * os.sysconf("SC_PAGE_SIZE") - 1


@pytest.mark.parametrize(
    ("args", "env"),
    [
        (["x" * (LONGEST_ARGUMENT + 1)], {}),
        (["é" * (LONGEST_ARGUMENT // 2 + 1)], {}),
        ([], {"A": "x" * (LONGEST_ARGUMENT - 1)}),
        ([], {f"LONG_{number}": "x" * 100_000 for number in range(70)}),
    ],
    ids=["argument", "argument in UTF-8", "variable", "environment"],
)
def test_too_long_command_or_environment(cluster, tmp_path, args, env):
    """The error is that of the local backend, for one argument and for the total size."""
    errors = []
    for backend in (Cluster.new("local", state_dir=str(tmp_path / "local")), cluster):
        experiment = backend.new_experiment("exp")
        python(experiment, "first", FOREVER)
        python(experiment, "worker", "pass", *args, env=env)
        message = "'worker': cannot start .*: Argument list too long"
        errors.append(check_launch_fails(backend, experiment, LaunchFailed, message))
    assert errors[0] == errors[1]


def test_longest_possible_argument_and_variable(cluster, experiment):
    longest = LONGEST_ARGUMENT
    program = "import os, sys; print(len(sys.argv[1]), len(os.environ['A']))"
    python(experiment, "worker", program, "x" * longest, env={"A": "x" * (longest - 2)})
    cluster.launch(experiment)
    assert cluster.wait("exp", timeout=30).exit_code == 0, cluster.get_log("exp", "worker")
    assert cluster.get_log("exp", "worker") == f"{longest} {longest - 2}\n"


# --- a server that does not respond ---


def test_launch_fails_if_the_server_does_not_respond(running, options):
    cluster, pid = Cluster.new("tmux", **options, answer_within=1), server_pid()
    experiment = cluster.new_experiment("other")
    for number in range(20):
        # All commands together are larger than the buffer of a pipe.
        command = ["sh", "-c", "exec sleep 1000", "x" * 10_000]
        experiment.new_process(f"worker-{number}", command=command)
    match = (
        "'worker-0': got no window: the tmux server 'test' does not respond; "
        f"continue it .kill -CONT {pid}. or end"
    )
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(LaunchFailed, match=match) as caught:
            cluster.launch(experiment)
        assert "\n" not in str(caught.value)
        assert cluster.list_experiments() == ["exp"]
    finally:
        os.kill(pid, signal.SIGCONT)
    # The server does not execute the commands later.
    assert tmux("list-sessions", "-F", "#S") == "exp\n"
    # So many windows can need more than one second, so this launch has the default timeout.
    Cluster.new("tmux", **options).launch(experiment)


def test_server_that_stops_responding_during_a_launch(cluster, experiment, options, monkeypatch):
    """The launch is rolled back. tmux closes its windows when it continues."""
    python(experiment, "first", FOREVER).ready(log="^up")
    python(experiment, "second", FOREVER, start_dir="/").starts_after("first")
    cluster.launch(experiment)
    pid = server_pid()
    script = (
        '"$TMUX_PROGRAM" "$@"; code=$?\n'
        f'case "$*" in *start-server*) kill -STOP {pid};; esac\n'
        "exit $code"
    )
    path = install_wrapper(cluster._root.parent / "bin", script)
    other = cluster.new_experiment("other")
    for number in range(100):
        process = other.new_process(f"worker-{number}", command=["sleep", "1000"])
        process.termination_grace_period(1)
    try:
        with monkeypatch.context() as patch:
            patch.setenv("PATH", path)
            with pytest.raises(LaunchFailed, match="does not respond; continue it") as caught:
                Cluster.new("tmux", **options, answer_within=1).launch(other)
        assert "\n" not in str(caught.value)
        assert cluster.list_experiments() == ["exp"]
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: tmux("list-sessions", "-F", "#S") == "exp\n")


def test_delete_kills_the_processes_if_the_server_does_not_respond(cluster, experiment, options):
    """The timeout elapses once, not once for each process."""
    python(experiment, "stubborn", STUBBORN).ready(log="^up$").termination_grace_period(1)
    for number in range(40):
        process = experiment.new_process(f"plain-{number}", command=["sleep", "1000"])
        process.termination_grace_period(1)
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: all_running(now) and now.processes[0].ready)
    running, server = processes_of(cluster), psutil.Process(server_pid())
    server.suspend()
    try:
        match = rf"'test' does not respond; continue it .kill -CONT {server.pid}."
        with pytest.raises(BackendError, match=match) as caught:
            Cluster.new("tmux", **options, answer_within=1).delete("exp")
        assert "\n" not in str(caught.value)
        assert running() == []
        assert cluster.list_experiments() == []
    finally:
        server.resume()
    eventually(lambda: has_exited(server))


def has_exited(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("seconds", [0, -1, True, "soon", float("inf"), float("nan")])
def test_invalid_timeout_is_rejected(seconds):
    with pytest.raises(SpecError, match="answer_within (must be|is too long)"):
        Cluster.new("tmux", answer_within=seconds)


@pytest.mark.parametrize("name", ["default", "", "a/b", "a b", 3, ".."])
def test_invalid_server_name_is_rejected(name):
    with pytest.raises(SpecError, match="server_name"):
        Cluster.new("tmux", server_name=name)


def test_missing_libtmux_is_reported():
    code = (
        "import sys, importlib.util as u; real = u.find_spec;"
        "u.find_spec = lambda name, *a: None if name == 'libtmux' else real(name, *a);"
        "from symphony import Cluster; Cluster.new('tmux')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert PluginError.__name__ in done.stderr
    assert f"install it with: {install_command('tmux')}" in done.stderr


# --- launches ---


def test_failed_launch_is_rolled_back(cluster, experiment, tmp_path, monkeypatch):
    """The program of the last window is removed after the checks, so it cannot be started."""
    mark = str(tmp_path)
    experiment.set_envs({"TEST_MARK": mark})
    for index in range(70):
        experiment.new_process(f"p-{index}", command=["sleep", "1000"])
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nsleep 1000\n")
    program.chmod(0o755)
    experiment.new_process("broken", command=str(program))
    write = RunDirectory.write_manifest

    def write_and_remove(run, contents):
        write(run, contents)
        program.unlink()

    monkeypatch.setattr(RunDirectory, "write_manifest", write_and_remove)
    with pytest.raises(LaunchFailed, match=r"'broken': cannot start .*No such file"):
        cluster.launch(experiment)
    assert cluster.list_experiments() == []
    assert "exp" not in tmux("list-sessions", check=False)
    assert find_processes("TEST_MARK", mark) == []


def test_local_and_tmux_use_different_ports(cluster, tmp_path):
    local = Cluster.new("local", state_dir=str(tmp_path / "local"))
    ports = set()
    try:
        for number, backend in enumerate([cluster, local, cluster, local]):
            experiment = backend.new_experiment(f"exp-{number}")
            server = python(experiment, "server", SERVER, env={"CLIENTS": "100"})
            server.binds(["echo", "other"]).ready(tcp="echo")
            manifest = backend.launch(experiment)
            ports |= set(manifest.services.values())
            until(backend, f"exp-{number}", lambda now: now.processes[0].ready)
        assert len(ports) == 8
    finally:
        for name in local.list_experiments():
            local.delete(name)


LAUNCHER = """
import json, sys
from symphony import Cluster
cluster, name = Cluster.new("tmux", **json.loads(sys.argv[1])), sys.argv[2]
for turn in range(2):
    experiment = cluster.new_experiment(name)
    experiment.new_process("p", cmd="echo hi")
    cluster.launch(experiment)
    status = cluster.wait(name, timeout=60)
    assert status.exit_code == 0, status
    assert cluster.get_log(name, "p") == "hi\\n"
    cluster.delete(name)
"""


def test_concurrent_launchers_share_a_server(cluster, options):
    """A launcher may find no server, or one that is about to exit."""
    command = [sys.executable, "-c", LAUNCHER, json.dumps(options)]
    launchers = [
        subprocess.Popen([*command, f"exp-{index}"], stderr=subprocess.PIPE, text=True)
        for index in range(5)
    ]
    for launcher in launchers:
        assert launcher.communicate(timeout=60)[1] == ""
        assert launcher.returncode == 0


FAILS_ONCE = """
import symphony_tmux.children
from symphony_tmux.children import TmuxChildren
from symphony_tmux.windows import Windows

symphony_tmux.children.RETRY_SECONDS = 0.01

class FailingWindows(Windows):
    failures = {"log": 1, "query_panes": 1}

    def fail_once(self, method):
        if self.failures[method]:
            self.failures[method] -= 1
            raise BlockingIOError(11, f"no process for {method}")

    def log(self, commands):
        self.fail_once("log")
        super().log(commands)

    def query_panes(self):
        self.fail_once("query_panes")
        return super().query_panes()

symphony_tmux.children.Windows = FailingWindows
"""


def test_tmux_client_that_cannot_be_started_is_started_later(
    cluster, experiment, monkeypatch, tmp_path
):
    """The user's limit on processes can be reached for a while."""
    (tmp_path / "failing_children.py").write_text(FAILS_ONCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(type(cluster), "children", "failing_children:TmuxChildren")
    experiment.new_process("p", cmd="echo up; exit 3")
    cluster.launch(experiment)
    status = cluster.wait("exp", timeout=20)
    assert status.exit_code == 3
    assert "no process for query_panes" in status.note
    assert cluster.get_log("exp", "p") == "up\n"


@pytest.mark.parametrize("content", [None, b"", b"\0\xff", b"relative"])
def test_session_is_removed_if_the_record_of_its_server_is_damaged(cluster, experiment, content):
    new_session("own")
    experiment.new_process("p", command="true")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=20)
    socket = run_directory(cluster) / "socket"
    socket.unlink()
    if content is not None:
        socket.write_bytes(content)
        with pytest.raises(BackendError, match=f"{socket}"):
            cluster.login("exp", "p")
    cluster.delete("exp")
    assert tmux("list-sessions", "-F", "#S").split() == ["own"]
