"""How processes of this machine live: restarts, readiness, GPUs, secrets, folders, preambles, limits."""

import http.server
import json
import os
import resource
import signal
import stat
import subprocess
import threading

import pytest

from symphony import Cluster, LaunchFailed, NotFound, SpecError, State
from symphony.host.supervisor.restart_policy import Backoff
from symphony.testing import until
from symphony.testing.programs import FOREVER, REPORT

from .conftest import eventually, marked, python, run_id_of, supervisor_of

QUICK = Backoff(first=0.05, longest=0.1, reset=600)


@pytest.fixture
def quick(state):
    """A cluster whose restarts do not wait long."""
    cluster = Cluster.new("local", state_dir=state, backoff=QUICK)
    yield cluster
    for name in cluster.list_experiments():
        cluster.delete(name)


# --- restarts ---


def test_always_restarts_what_succeeded_too(quick):
    experiment = quick.new_experiment("exp")
    experiment.new_process("p", cmd="echo run").restart_policy("Always")
    quick.launch(experiment)
    until(quick, "exp", lambda now: now.processes[0].restarts >= 3)
    assert quick.get_log("exp", "p").startswith("run\nrun\nrun\n")


def test_on_failure_restarts_until_it_succeeds(quick, tmp_path):
    program = "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.open('a').write('x'); exit(p.stat().st_size < 4)"
    experiment = quick.new_experiment("exp")
    python(experiment, "p", program, str(tmp_path / "tries")).restart_policy("OnFailure")
    quick.launch(experiment)
    status = quick.wait("exp", timeout=20)
    assert status.processes[0].restarts == 3
    assert status.exit_code == 0


def test_a_process_that_waits_for_its_restart_says_so(cluster, experiment):
    experiment.new_process("p", cmd="exit 3").restart_policy("OnFailure")
    cluster.launch(experiment)
    status = until(
        cluster,
        "exp",
        lambda now: now.processes[0].restarts == 1 and now.processes[0].exit_code == 3,
    )
    assert status.processes[0].state is State.PENDING
    assert status.processes[0].reason == "restarts in 10 s (exit code 3)"


# --- readiness ---


def test_readiness_by_http(cluster, experiment):
    program = (
        "import http.server as h, os;"
        "h.test(h.SimpleHTTPRequestHandler, port=int(os.environ['SYMPH_WEB_PORT']), bind='127.0.0.1')"
    )
    python(experiment, "web", program).binds("web").ready(http=("web", "/"))
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: now.processes[0].ready)


def test_an_http_answer_other_than_200_is_not_ready(cluster, experiment):
    class Refuses(http.server.BaseHTTPRequestHandler):
        asked = threading.Event()

        def do_GET(self):
            self.send_response(503)
            self.end_headers()
            self.asked.set()

        def log_message(self, *_):
            pass

    python(experiment, "web", FOREVER).binds("web").ready(http=("web", "/health"), timeout=1)
    port = int(cluster.launch(experiment).services["web"].rpartition(":")[2])
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        status = until(cluster, "exp", lambda now: now.processes[0].reason != "")
        server.shutdown()
    assert status.processes[0].reason == "not ready within 1 s"
    assert not status.processes[0].ready


def test_readiness_by_command_runs_in_the_environment_and_folder(cluster, experiment, tmp_path):
    python(experiment, "p", FOREVER, env={"FILE": "there"}, start_dir=str(tmp_path)).ready(
        command=["sh", "-c", 'test -e "$FILE"']
    )
    cluster.launch(experiment)
    assert not cluster.describe_process("exp", "p").ready
    (tmp_path / "there").touch()
    until(cluster, "exp", lambda now: now.processes[0].ready)


def test_what_waits_for_something_never_ready_has_failed(cluster, experiment):
    python(experiment, "db", FOREVER).ready(log="never", timeout=0.2)
    experiment.new_process("app", command="true").starts_after("db")
    experiment.new_process("more", command="true").starts_after("app", "succeeded")
    python(experiment, "slow", FOREVER).ready(log="never")
    experiment.new_process("patient", command="true").starts_after("slow")
    cluster.launch(experiment)
    assert cluster.describe_process("exp", "patient").reason == "waiting for slow to be ready"
    status = until(cluster, "exp", lambda now: now.processes[2].state is State.FAILED)
    assert status.processes[1].reason == "never started: db was not ready within 0.2 s"
    assert "app failed" in status.processes[2].reason
    assert status.processes[0].state is State.RUNNING


# --- GPUs ---


def test_gpus_are_leased_across_experiments(state):
    cluster = Cluster.new(
        "local", state_dir=state, gpus=[f"test-{os.getpid()}-{number}" for number in range(3)]
    )
    try:
        first = cluster.new_experiment("first")
        python(
            first, "two", REPORT + "input() if 0 else __import__('time').sleep(1000)"
        ).resource_limit(gpu=2)
        python(first, "none", FOREVER)
        cluster.launch(first)
        other = cluster.new_experiment("other")
        python(other, "two", FOREVER).resource_limit(gpu=2)
        with pytest.raises(LaunchFailed, match="requests 2 GPUs, but only 1 of 3 are free"):
            cluster.launch(other)
        assert cluster.list_experiments() == ["first"]
        commands = {
            item["name"]: item["env"] for item in manifest_of(cluster, "first")["processes"]
        }
        assert len(commands["two"]["CUDA_VISIBLE_DEVICES"].split(",")) == 2
        assert "CUDA_VISIBLE_DEVICES" not in commands["none"]
        cluster.delete("first")
        cluster.launch(other)
    finally:
        cluster.delete_batch(["first", "other"])


def test_a_gpu_is_free_again_when_its_process_has_ended(state):
    cluster = Cluster.new("local", state_dir=state, gpus=[f"test-{os.getpid()}"])
    try:
        first = cluster.new_experiment("first")
        first.new_process("quick", command="true").resource_limit(gpu=1)
        python(first, "goes-on", FOREVER)
        cluster.launch(first)
        until(cluster, "first", lambda now: now.processes[0].state is State.SUCCEEDED)
        other = cluster.new_experiment("other")
        python(other, "p", FOREVER).resource_limit(gpu=1)
        cluster.launch(other)
    finally:
        cluster.delete_batch(["first", "other"])


def test_a_machine_without_gpus_says_so(state):
    cluster = Cluster.new("local", state_dir=state, gpus=[])
    experiment = cluster.new_experiment("exp")
    python(experiment, "p", FOREVER).resource_limit(gpu=1)
    with pytest.raises(LaunchFailed, match="no GPU is visible on this machine"):
        cluster.launch(experiment)
    assert cluster.list_experiments() == []


def manifest_of(cluster, name):
    return json.loads((cluster._root / name / "manifest.json").read_text())


# --- what only the user may see ---


def test_what_is_kept_is_for_this_user_alone(cluster, state, tmp_path):
    (tmp_path / "token").write_text("swordfish")
    (tmp_path / "token").chmod(0o644)
    experiment = cluster.new_experiment("exp", secrets=[str(tmp_path / "token")])
    python(experiment, "p", FOREVER).ready(log="up")
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: now.processes[0].ready)
    for folder, _, files in os.walk(state):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700, folder
        for file in files:
            if file not in {"p.when", "supervisor.json", "supervisor.log"}:
                assert stat.S_IMODE(os.stat(os.path.join(folder, file)).st_mode) == 0o600, file
    cluster.delete("exp")
    assert not list(state.rglob("token"))


# --- where and how it runs ---


def test_folders_join_from_the_outside_in(state, tmp_path):
    (tmp_path / "a/b/c").mkdir(parents=True)
    cluster = Cluster.new("local", state_dir=state, start_dir=str(tmp_path))
    experiment = cluster.new_experiment("exp", start_dir="a")
    group = experiment.new_process_group("team", start_dir="b")
    group.new_process("deep", command="pwd", start_dir="c")
    experiment.new_process("flat", command="pwd")
    experiment.new_process("away", command="pwd", start_dir="/")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=20)
    folders = [cluster.get_log("exp", name).strip() for name in ("deep", "flat", "away")]
    assert folders == [str(tmp_path / "a/b/c"), str(tmp_path / "a"), "/"]
    cluster.delete("exp")


def test_preambles_run_from_the_outside_in_and_leave_their_environment(state):
    cluster = Cluster.new("local", state_dir=state, preamble_cmds="export P=cluster")
    experiment = cluster.new_experiment("exp", preamble_cmds=["export P=$P,experiment"])
    group = experiment.new_process_group(
        "team", preamble_cmds=["export P=$P,group # and a comment"]
    )
    group.new_process("argv", command=["sh", "-c", 'echo "$P" "$@"', "sh"], args=["two  words"])
    group.new_process("line", cmd='echo "$P"; f() { echo f; }; f')
    experiment.new_process("broken", cmd="echo never", preamble_cmds=["( exit 5 )"])
    cluster.launch(experiment)
    status = cluster.wait("exp", timeout=20)
    assert cluster.get_log("exp", "argv") == "cluster,experiment,group two  words\n"
    assert cluster.get_log("exp", "line") == "cluster,experiment,group\nf\n"
    assert cluster.get_log("exp", "broken") == ""
    assert status.exit_code == 5
    cluster.delete("exp")


def test_the_launchers_environment_lies_below(cluster, experiment, monkeypatch):
    monkeypatch.setenv("INHERITED", "yes")
    monkeypatch.setenv("OVERRIDDEN", "outer")
    monkeypatch.setenv("SYMPH_A_HOST", "stale")
    monkeypatch.setenv("SYMPHONY_GROUP", "stale")
    python(experiment, "p", REPORT, env={"OVERRIDDEN": "inner"}).binds("a")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=20)
    env = json.loads(cluster.get_log("exp", "p"))["env"]
    assert (env["INHERITED"], env["OVERRIDDEN"], env["SYMPH_A_HOST"], env["SYMPHONY_GROUP"]) == (
        "yes",
        "inner",
        "127.0.0.1",
        "",
    )


def test_processes_begin_as_plain_children_would(cluster, experiment, tmp_path):
    """Signals, the limit of descriptors and the descriptors themselves are those of a bare Popen."""
    look = (
        "grep -E 'SigBlk|SigIgn|SigCgt' /proc/self/status; ulimit -Sn; ulimit -Hn; ls /proc/self/fd"
    )
    gate = (
        tmp_path / "gate"
    )  # until the launch is through, a process may have the limits of its supervisor
    os.mkfifo(gate)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1000), hard))
    hung_up = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
    try:
        bare = subprocess.run(
            ["bash", "-c", f"true; {look}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        experiment.new_process("p", cmd=f"cat {gate}; {look}").binds("a")
        cluster.launch(experiment)
        gate.write_text("")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        signal.signal(signal.SIGHUP, hung_up)
    cluster.wait("exp", timeout=20)
    assert cluster.get_log("exp", "p") == bare


def test_each_process_leads_a_session_of_its_own(cluster, experiment):
    python(experiment, "p", "import os; print(os.getsid(0) == os.getpid() == os.getpgid(0))")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=20)
    assert cluster.get_log("exp", "p") == "True\n"


def test_the_supervisor_waits_without_pidfds_too(cluster, experiment, monkeypatch, tmp_path):
    (tmp_path / "no_pidfds.py").write_text(
        "import functools\nfrom symphony_local.children import LocalChildren\n"
        "Children = functools.partial(LocalChildren, pidfds=False)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(type(cluster), "children", "no_pidfds:Children")
    for number in range(20):
        experiment.new_process(f"p-{number}", cmd=f"exit {number % 3}")
    cluster.launch(experiment)
    status = cluster.wait("exp", timeout=20)
    assert [process.exit_code for process in status] == [number % 3 for number in range(20)]


# --- beside a process ---


def test_a_command_runs_with_what_the_preamble_set(cluster, experiment, tmp_path):
    python(
        experiment, "p", FOREVER, preamble_cmds=["export VENV=on"], start_dir=str(tmp_path)
    ).ready(log="up")
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: now.processes[0].ready)
    result = cluster.exec_command(
        "exp", "p", ["sh", "-c", "echo $VENV; pwd; echo oops >&2; kill -9 $$"]
    )
    assert (result.stdout, result.stderr, result.exit_code) == (f"on\n{tmp_path}\n", "oops\n", 137)
    with pytest.raises(SpecError, match="cannot run 'no-such-thing'"):
        cluster.exec_command("exp", "p", "no-such-thing")


def test_no_command_runs_beside_a_process_that_has_ended(cluster, experiment):
    experiment.new_process("p", command="true")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=20)
    with pytest.raises(NotFound, match="'p' is not running"):
        cluster.exec_command("exp", "p", "true")


# --- what is wrong is said before anything starts ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"command": "no-such-thing"}, "command 'no-such-thing' was not found on the PATH"),
        ({"command": "sleep 100"}, "for a shell line use cmd='sleep 100'"),
        ({"command": "./nothing"}, "there is no .*nothing"),
        ({"command": "/etc/passwd"}, "is not executable"),
        ({"command": ""}, "empty command"),
        ({"command": "true", "start_dir": "/no/such"}, "start_dir /no/such is not a directory"),
        ({}, "has no command"),
    ],
)
def test_a_command_that_cannot_run_is_refused(cluster, experiment, options, message):
    python(experiment, "fine", FOREVER)
    experiment.new_process("wrong", **options)
    with pytest.raises(SpecError, match=message):
        cluster.launch(experiment)
    assert cluster.list_experiments() == []


def test_a_missing_secret_is_refused(cluster, tmp_path):
    experiment = cluster.new_experiment("exp", secrets={"token": str(tmp_path / "none")})
    experiment.new_process("p", command="true")
    with pytest.raises(SpecError, match="secret 'token': there is no file"):
        cluster.launch(experiment)


def test_a_launch_that_fails_half_way_takes_back_what_it_started(cluster, experiment, tmp_path):
    """A file that looks like a program until the kernel is asked to run it."""
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    for number in range(10):
        experiment.new_process(f"p-{number}", command=["sleep", "1000"]).set_env(
            "TEST_MARK", "half-way"
        )
    experiment.new_process("broken", command=str(broken))
    with pytest.raises(
        LaunchFailed, match="'broken' cannot be started .*Exec format error.*were stopped"
    ):
        cluster.launch(experiment)
    assert cluster.list_experiments() == []
    listed = subprocess.run(["ps", "e", "-A"], capture_output=True, text=True, check=True).stdout
    assert "TEST_MARK=half-way" not in listed


def test_a_command_that_fails_later_is_told_from_one_that_is_missing(cluster, experiment):
    experiment.new_process("fails", cmd="exit 1")
    experiment.new_process("missing", cmd="no-such-thing")
    cluster.launch(experiment)
    fails, missing = cluster.wait("exp", timeout=20)
    assert (fails.exit_code, fails.reason) == (1, "")
    assert (missing.exit_code, missing.reason) == (127, "the command was not found")


def test_an_idle_supervisor_does_nothing(cluster, experiment):
    """No event, no system call: its count of voluntary switches stands still."""
    for number in range(5):
        experiment.new_process(f"p-{number}", command=["sleep", "1000"])
    cluster.launch(experiment)
    path = f"/proc/{supervisor_of(cluster)}/status"

    def switches():
        with open(path) as file:
            return [line for line in file if "ctxt_switches" in line]

    samples = []

    def quiet():
        samples.append(switches())
        return len(samples) > 50 and samples[-1] == samples[-50]

    eventually(quiet)
    assert marked(run_id_of(cluster))
