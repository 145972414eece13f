"""Running processes: restarts, readiness, GPUs, private files and inherited state."""

import json
import os
import re
import resource
import shlex
import signal
import stat
import subprocess
import sys

import pytest

from symphony import Cluster, LaunchFailed, SpecError, State
from symphony.log_blocks import LogBlock
from symphony.plan.restart_policy import Backoff
from symphony.status import ReasonCode
from symphony.supervised.read import log_files
from symphony.testing import until
from symphony.testing.programs import FOREVER, REPORT

from .conftest import eventually, kill, kill_supervision, marked, python, run_id_of, supervisor_of

# --- ranks ---


def test_ranks_share_the_cores_of_the_machine_at_each_start(state, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cluster = Cluster.new("local", state_dir=state, backoff=Backoff(first=0.05))
    experiment = cluster.new_experiment("exp")
    cores = len(os.sched_getaffinity(0))
    for rank in experiment.new_ranks("p", 2, cmd="echo $OMP_NUM_THREADS; sleep 0.1; exit 3"):
        rank.restart_policy("OnFailure", max_restarts=2)
    experiment.new_process("alone", cmd="echo -$OMP_NUM_THREADS-")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    assert cluster.get_log("exp", "p-1") == f"{max(1, cores // 2)}\n" * 3
    assert cluster.get_log("exp", "alone") == "--\n"


@pytest.mark.parametrize("own", [None, "mine"])
def test_pwd_is_the_directory_unless_the_experiment_sets_it(cluster, tmp_path, own):
    experiment = cluster.new_experiment("exp", env={"PWD": own} if own else None)
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to("place")
    program = ["-c", "import os; print(os.environ['PWD'])"]
    for name, directory in {"p": "link", "q": "link/../place"}.items():
        directory = f"{tmp_path}/{directory}"
        experiment.new_process(name, command=sys.executable, args=program, start_dir=directory)
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    assert cluster.get_log("exp", "p") == f"{own or tmp_path / 'link'}\n"
    assert cluster.get_log("exp", "q") == f"{own or tmp_path / 'place'}\n"


# --- restarts and readiness ---


def test_backing_off_process_reports_its_next_start(cluster, experiment):
    experiment.new_process("p", cmd="exit 3").restart_policy("OnFailure")
    cluster.launch(experiment)
    process = until(
        cluster, "exp", lambda now: now.processes[0].restarts == 1 and now.processes[0].exit_code
    ).processes[0]
    assert (process.state, process.exit_code) == (State.PENDING, 3)
    assert process.reason == "exit code 3"
    assert process.next_start == process.ended + 10
    assert process.reason_code is ReasonCode.BACKING_OFF


@pytest.mark.parametrize("is_first_start", [True, False])
def test_process_whose_program_is_missing_for_a_while_is_restarted(state, tmp_path, is_first_start):
    """For example, its program is being built again."""
    cluster = Cluster.new("local", state_dir=state, backoff=Backoff(first=0.05))
    experiment = cluster.new_experiment("exp")
    program = tmp_path / "program"
    remove = f"rm {program}"
    before = experiment.new_process("before", cmd=remove if is_first_start else "true")
    process = experiment.new_process("p", command=str(program)).restart_policy("OnFailure")
    process.starts_after(before, "succeeded")
    experiment.new_process("after", command="true").starts_after("p", "started")
    write_program(program, f"{remove}; exit 3")
    cluster.launch(experiment)
    found = until(cluster, "exp", lambda now: "cannot start" in now.processes[1].reason)
    assert found.processes[1].reason_code is ReasonCode.BACKING_OFF
    write_program(program, "exit 0")
    status = cluster.wait("exp", timeout=30)
    assert [process.state for process in status] == [State.SUCCEEDED] * 3
    assert status.processes[1].restarts == (0 if is_first_start else 1)
    events = [event.text for event in cluster.explain_process("exp", "p").events]
    assert any(re.match(r"not started: restarts .* \(cannot start", text) for text in events)


def write_program(path, script):
    """Write a program in one step. A program cannot be run while it is being written."""
    part = path.with_suffix(".part")
    part.write_text(f"#!/bin/sh\n{script}\n")
    part.chmod(0o700)
    part.replace(path)


def test_dependents_of_a_process_that_is_not_ready_in_time_can_be_started_when_it_is(
    cluster, experiment, tmp_path
):
    up = tmp_path / "up"
    db = python(experiment, "db", FOREVER)
    db.ready(command=f"echo starting up; test -e {shlex.quote(str(up))}", timeout=0.2)
    experiment.new_process("app", command="true").starts_after("db")
    experiment.new_process("more", command="true").starts_after("app", "succeeded")
    python(experiment, "slow", FOREVER).ready(log="never")
    experiment.new_process("patient", command="true").starts_after("slow")
    cluster.launch(experiment)
    assert cluster.describe_process("exp", "patient").reason == "waiting for slow to be ready"
    status = until(cluster, "exp", lambda now: now.processes[2].state is State.FAILED)
    reason = "not ready within 0.2 s: exit code 1: starting up"
    assert (status.processes[0].reason, status.processes[0].not_ready_in_time) == (reason, True)
    assert status.processes[1].reason == f"never started: db was {reason}"
    assert "app failed" in status.processes[2].reason
    assert [process.reason_code for process in status] == [
        ReasonCode.NOT_READY,
        ReasonCode.NEVER_STARTED,
        ReasonCode.NEVER_STARTED,
        status.processes[3].reason_code,
        ReasonCode.WAITING,
    ]
    up.touch()
    late = until(cluster, "exp", lambda now: now.processes[0].ready).processes[0]
    assert (late.reason, late.not_ready_in_time, late.test_result) == ("", False, "")
    assert [process.state for process in cluster.start_processes("exp", ["app", "more"])] != []
    until(cluster, "exp", lambda now: now.processes[2].state is State.SUCCEEDED)


def test_exit_codes_are_explained(cluster, experiment):
    experiment.new_process("succeeds", cmd="true")
    experiment.new_process("fails", cmd="exit 1")
    experiment.new_process("missing", cmd="no-such-thing")
    experiment.new_process("killed", cmd="kill -9 $$")
    cluster.launch(experiment)
    found = [
        (item.exit_code, item.reason, item.reason_code) for item in cluster.wait("exp", timeout=20)
    ]
    assert found == [
        (0, "", ReasonCode.EXITED),
        (1, "", ReasonCode.EXITED),
        (127, "the command was not found", ReasonCode.CANNOT_START),
        (137, "killed by SIGKILL", ReasonCode.KILLED),
    ]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_idle_supervisor_makes_no_system_call(cluster, experiment, is_replaced):
    """The number of its context switches does not change."""
    for number in range(5):
        experiment.new_process(f"p-{number}", command=["sleep", "1000"])
    cluster.launch(experiment)
    if is_replaced:
        kill_supervision(cluster)
        cluster.describe_experiment("exp")
    path = f"/proc/{supervisor_of(cluster)}/status"
    samples = []

    def is_idle():
        with open(path) as file:
            samples.append([line for line in file if "ctxt_switches" in line])
        return len(samples) > 50 and samples[-1] == samples[-50]

    eventually(is_idle)
    assert marked(run_id_of(cluster))


# --- logs ---


def test_log_is_limited_while_its_process_writes(cluster, experiment, state):
    program = "for number in range(100_000): print('line', number)"
    python(experiment, "p", program).log_limit("64Ki")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    # The limit is applied for the last time after the exit has been recorded.
    eventually(lambda: len(cluster.get_log("exp", "p")) <= 2**16)
    log = cluster.get_log("exp", "p")
    assert len(log) > 2**16 - 100
    eventually(lambda: (state / "exp" / "logs" / "p.log").stat().st_blocks * 512 < 2**17)
    assert log.startswith("line ")
    assert log.endswith("line 99999\n")


def test_output_precedes_the_exit_although_the_process_exits_meanwhile(
    cluster, experiment, monkeypatch
):
    experiment.new_process("p", cmd="echo line")
    measure = log_files.lengths
    calls = []

    def measure_early(run, names):
        found = measure(run, names)
        if not calls:
            calls.append(names)
            found = dict.fromkeys(found, 0)  # The process writes and exits after this.
        return found

    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    monkeypatch.setattr(log_files, "lengths", measure_early)
    output = list(cluster.iter_output("exp", follow=True, events=True))
    kinds = [item.text if isinstance(item, LogBlock) else item.kind.value for item in output]
    assert kinds.index("line\n") < kinds.index("exited")


def test_status_is_read_once_for_all_logs(cluster, experiment, monkeypatch, tmp_path):
    names = [f"p-{number}" for number in range(5)]
    for name in names:
        experiment.new_process(name, cmd="echo hello")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    reading = Cluster.new("local", state_dir=cluster._root)
    runs, statuses = reading.implementation.runs, []
    describe = runs.status
    monkeypatch.setattr(runs, "status", lambda run: statuses.append(describe(run)) or statuses[-1])
    assert len(list(reading.iter_logs("exp", names))) == 5
    assert len(statuses) == 1
    reading.save_logs("exp", tmp_path, names)
    assert len(statuses) == 2


# --- GPUs ---


def test_gpus_are_leased_across_experiments_until_their_process_exits(state, tmp_path):
    devices = [f"test-{os.getpid()}-{number}" for number in range(3)]
    cluster = Cluster.new("local", state_dir=state, gpus=devices)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    try:
        first = cluster.new_experiment("first")
        first.new_process(
            "two", cmd=f"echo $CUDA_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES; cat {gate}"
        ).resource_limit(gpu=2)
        python(first, "none", FOREVER)
        cluster.launch(first)
        other = cluster.new_experiment("other")
        python(other, "two", FOREVER).resource_limit(gpu=2)
        with pytest.raises(LaunchFailed, match="requests 2 GPUs, but only 1 of 3 are free"):
            cluster.launch(other)
        assert cluster.list_experiments() == ["first"]
        gate.write_text("")
        until(cluster, "first", lambda now: now.processes[0].state is State.SUCCEEDED)
        assert cluster.get_log("first", "two").split() == [",".join(devices[:2])] * 2
        manifest = json.loads((state / "first" / "manifest.json").read_text())
        assert "CUDA_VISIBLE_DEVICES" not in manifest["processes"][1]["env"]
        cluster.launch(other)
    finally:
        cluster.delete_batch(["first", "other"])


def test_gpu_is_leased_while_descendants_of_its_process_are_running(state):
    """It is not available either after the supervisor was killed."""
    cluster = Cluster.new("local", state_dir=state, gpus=[f"test-{os.getpid()}-descendants"])
    try:
        first = cluster.new_experiment("first")
        first.new_process("p", cmd="setsid sleep 1000 & echo $!").resource_limit(gpu=1)
        python(first, "other", FOREVER)
        cluster.launch(first)
        until(cluster, "first", lambda now: now.processes[0].state is State.SUCCEEDED)
        descendant = int(cluster.get_log("first", "p"))
        second = cluster.new_experiment("second")
        second.new_process("p", command="true").resource_limit(gpu=1)
        with pytest.raises(LaunchFailed, match="running experiments have leased the others;"):
            cluster.launch(second)
        kill_supervision(cluster, "first")
        with pytest.raises(LaunchFailed, match="processes of 'first' are running although"):
            cluster.launch(second)
        kill(descendant)
        cluster.launch(second)
    finally:
        cluster.delete_batch(["first", "second"])


# --- the run directory and the state that processes inherit ---


def test_files_of_a_run_are_private(cluster, state, tmp_path):
    (tmp_path / "token").write_text("swordfish")
    (tmp_path / "token").chmod(0o644)
    experiment = cluster.new_experiment("exp", secrets=[str(tmp_path / "token")])
    python(experiment, "p", FOREVER).ready(log="up")
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: now.processes[0].ready)
    for parent, _, files in os.walk(state):
        assert stat.S_IMODE(os.stat(parent).st_mode) == 0o700, parent
        for file in files:
            if file not in {"p.when", "supervisor.json", "supervisor.log"}:
                assert stat.S_IMODE(os.stat(os.path.join(parent, file)).st_mode) == 0o600, file
    cluster.delete("exp")
    assert not list(state.rglob("token"))
    # It contains the environment of the launcher.
    assert not list(state.rglob("launcher.json"))


def test_environment_of_the_launcher_has_the_lowest_precedence(cluster, experiment, monkeypatch):
    for name in ("INHERITED", "OVERRIDDEN", "SYMPH_A_HOST", "SYMPHONY_GROUP"):
        monkeypatch.setenv(name, "outer")
    python(experiment, "p", REPORT, env={"OVERRIDDEN": "inner"}).binds("a")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=20)
    env = json.loads(cluster.get_log("exp", "p"))["env"]
    expected = {
        "INHERITED": "outer",
        "OVERRIDDEN": "inner",
        "SYMPH_A_HOST": "127.0.0.1",
        "SYMPHONY_GROUP": "",
    }
    assert {name: env[name] for name in expected} == expected


def test_processes_start_like_children_of_a_plain_popen(cluster, experiment, tmp_path):
    """Signals, limits and descriptors are those of a process that the launcher itself starts."""
    report = (
        "grep -E 'SigBlk|SigIgn|SigCgt' /proc/self/status; ulimit -Sn; ulimit -Hn; ls /proc/self/fd"
    )
    # A process may have the limits of the supervisor until the launch is complete.
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1000), hard))
    # The tests may run under nohup, which ignores SIGHUP.
    on_hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        expected = subprocess.run(
            ["bash", "-c", f"true; {report}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        experiment.new_process("p", cmd=f"cat {gate}; {report}").binds("a")
        cluster.launch(experiment)
        gate.write_text("")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        signal.signal(signal.SIGHUP, on_hangup)
    cluster.wait("exp", timeout=20)
    assert cluster.get_log("exp", "p") == expected


def test_process_leads_its_own_session(cluster, experiment):
    python(experiment, "p", "import os; print(os.getsid(0) == os.getpid() == os.getpgid(0))")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=20)
    assert cluster.get_log("exp", "p") == "True\n"


# --- refused launches ---


def test_launch_checks_every_process_before_it_starts_one(cluster, experiment):
    python(experiment, "fine", FOREVER)
    experiment.new_process("wrong", command="no-such-thing")
    with pytest.raises(SpecError, match="command 'no-such-thing' was not found on the PATH"):
        cluster.launch(experiment)
    assert cluster.list_experiments() == []


def test_launch_is_rolled_back_if_a_process_cannot_start(cluster, experiment, tmp_path):
    """The file looks like a program until the kernel executes it."""
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    for number in range(10):
        experiment.new_process(f"p-{number}", command=["sleep", "1000"]).set_env(
            "TEST_MARK", "rolled-back"
        )
    experiment.new_process("broken", command=str(broken))
    message = (
        "'broken': cannot start .*Exec format error; the processes that had started were stopped"
    )
    with pytest.raises(LaunchFailed, match=message):
        cluster.launch(experiment)
    assert cluster.list_experiments() == []
    listed = subprocess.run(["ps", "e", "-A"], capture_output=True, text=True, check=True).stdout
    assert "TEST_MARK=rolled-back" not in listed
