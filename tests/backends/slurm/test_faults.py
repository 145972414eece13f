"""What users see when something goes wrong: in the queue, on a node, or in Slurm."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from symphony.errors import LaunchFailed, SpecError
from symphony.lint import ERROR, Machine, Target, lint
from symphony.status import ReasonCode, State
from symphony.testing.contract import all_running, until
from symphony_slurm.submit import node_check
from tests.backends.slurm.jobs import PYTHON, SAVING, forever, job_of, squeue, wait_until

# Each machine has its own /run, so this directory is not shared.
UNSHARED = Path("/run")


def test_status_of_a_job_in_the_queue_has_the_reason_and_the_expected_start(new_cluster):
    cluster = new_cluster(sbatch=["--begin=now+1hour"])
    cluster.launch(forever(cluster, "one"))
    status = cluster.describe_experiment("faults")
    job = job_of(cluster)
    assert f"job {job} is waiting in the queue (BeginTime)" in status.note
    assert "expected to start at 20" in status.processes[0].reason
    assert status.processes[0].reason_code is ReasonCode.WAITING
    cluster.stop("faults")
    assert squeue("-j", job, "-t", "PENDING,RUNNING") == ""
    (stopped,) = cluster.describe_experiment("faults")
    assert (stopped.stopped, stopped.reason) == (True, "stopped before it started")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"partition": "nowhere"}, LaunchFailed, "no partition 'nowhere'"),
        (
            {"sbatch": ["--gres=tpu:1"]},
            LaunchFailed,
            "Slurm refused the job: .*[Ii]nvalid.*; change the gpu limits of the processes",
        ),
        (
            {"sbatch": ["--no-such-option"]},
            LaunchFailed,
            "unrecognized option.*; change the further options of sbatch",
        ),
        ({"time": "unlimited", "partition": "short"}, SpecError, "no time limit, but .* 0:10:00"),
        ({"gpu_type": "big"}, SpecError, "no node of .* GPUs of the type 'big'.* are toy"),
    ],
)
def test_job_that_slurm_refuses_leaves_nothing_behind(new_cluster, options, error, message):
    cluster = new_cluster(**options)
    with pytest.raises(error, match=message):
        cluster.launch(forever(cluster, "one", gpu=1))
    assert cluster.list_experiments() == []
    assert list((Path(cluster._root) / ".jobs").glob("*")) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"account": "nobody"},
            "Invalid account or account/partition combination.*; "
            "change account, or account and partition",
        ),
        ({"qos": "reserved"}, "Invalid qos specification; change qos"),
        (
            {"account": "research", "qos": "short", "time": 30},
            "QOSMaxWallDurationPerJobLimit: .*; "
            "change time, the deadline of the experiment, qos or account",
        ),
    ],
)
def test_job_that_the_accounting_refuses_leaves_nothing_behind(new_cluster, options, message):
    accounts = subprocess.run(
        ["sacctmgr", "-nP", "show", "account"], capture_output=True, text=True
    )
    if "research|" not in accounts.stdout:
        pytest.skip("this Slurm does not have the accounts of devslurm --accounting")
    cluster = new_cluster(**options)
    with pytest.raises(LaunchFailed, match=message):
        cluster.launch(forever(cluster, "one"))
    assert cluster.list_experiments() == []
    assert list((Path(cluster._root) / ".jobs").glob("*")) == []


def test_experiment_larger_than_a_node_is_refused_before_it_is_submitted(new_cluster):
    cluster = new_cluster()
    experiment = forever(cluster, "one")
    experiment.get_process("one").resource_request(cpu=10_000)
    with pytest.raises(SpecError, match="'one' requests 10000 CPUs, but the largest node of"):
        cluster.launch(experiment)
    assert cluster.list_experiments() == []


def test_server_dry_run_asks_slurm(new_cluster):
    cluster = new_cluster()
    answers = []
    manifest = cluster.dry_run(forever(cluster, "one"), server=True, on_answer=answers.append)
    assert "#SBATCH --nodes=1" in str(manifest)
    (answer,) = answers
    assert answer.startswith("Slurm would accept the job, and start it at 20")
    cluster = new_cluster(sbatch=["--gres=tpu:1"])
    with pytest.raises(LaunchFailed, match="Slurm would refuse the job"):
        cluster.launch(forever(cluster, "one"), dry_run="server")


def test_first_launch_refuses_a_directory_that_is_not_shared(new_cluster, monkeypatch, tmp_path):
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "checked"))
    cluster = new_cluster(state_dir=str(UNSHARED / "symphony-test-first"))
    # What was found is not remembered, because the user can mount the directory.
    for _ in range(2):
        with pytest.raises(LaunchFailed, match=r"^node \w+: cannot read /run/.*; set state_dir to"):
            cluster.launch(forever(cluster, "one"))
    assert cluster.list_experiments() == []
    cluster = new_cluster()
    for is_idle in (True, False):
        if not is_idle:
            # The nodes are not checked again.
            monkeypatch.setattr(node_check, "check_nodes", None)
        cluster.launch(forever(cluster, "one"))
        cluster.delete("faults")


@pytest.fixture
def nodes_were_checked(monkeypatch):
    """Only the job checks its nodes, as after a launch with the same directory."""
    monkeypatch.setattr(node_check, "_was_checked_recently", lambda _: True)


@pytest.mark.usefixtures("nodes_were_checked")
def test_directory_that_is_not_shared_is_reported_with_the_node(new_cluster):
    state = UNSHARED / f"symphony-test-{os.getpid()}"
    cluster = new_cluster(state_dir=str(state))
    try:
        cluster.launch(forever(cluster, "one"))
        status = cluster.wait("faults", timeout=60)
        assert status.exit_code == 1
        assert status.processes[0].reason_code is ReasonCode.NEVER_STARTED
        assert f"cannot use {state}; set state_dir to a directory that" in status.note
        assert "because n1 cannot" in status.note or "because n" in status.note
    finally:
        cluster.delete("faults", purge=True)


@pytest.mark.parametrize("were_checked", [False, True])
def test_interpreter_that_is_missing_on_the_nodes_is_reported(new_cluster, tmp_path, were_checked):
    interpreter = UNSHARED / f"python-{os.getpid()}"
    interpreter.symlink_to(sys.executable)
    cluster = new_cluster()
    code = (
        "import json, sys; from symphony import Cluster, Experiment;"
        "from symphony_slurm.submit import node_check;"
        "state, spec, were_checked = map(json.loads, sys.argv[1:]);"
        "node_check._was_checked_recently = lambda _: were_checked;"
        "Cluster.new('slurm', state_dir=state).launch(Experiment.load_dict(spec))"
    )
    spec = forever(cluster, "one").dump_dict()
    arguments = [json.dumps(item) for item in (str(cluster._root), spec, were_checked)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [interpreter, "-c", code, *arguments]
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=environment)
        message = done.stderr
        if were_checked:
            status = cluster.wait("faults", timeout=60)
            assert status.exit_code == 1
            message = status.note
    finally:
        interpreter.unlink()
    missing = f"node n\\d: {interpreter} does not exist; run symphony with a Python that"
    assert re.search(missing, message)
    assert cluster.list_experiments() == (["faults"] if were_checked else [])


def test_check_finds_the_nodes_that_cannot_be_used(new_cluster, tmp_path):
    cluster = new_cluster(nodes=2)
    assert findings_of(cluster) == []
    assert not list(tmp_path.glob(".check-*"))
    cluster = new_cluster(nodes=2, state_dir=str(UNSHARED / "symphony-check"))
    problems = [finding.message for finding in findings_of(cluster)]
    assert len(problems) == 2
    for problem in problems:
        assert re.match(r"node \w+: cannot read /run/\S+: No such file or directory; set ", problem)
    cluster = new_cluster(sbatch=["--no-such-option"])
    (finding,) = findings_of(cluster)
    assert (finding.level, finding.rule) == (ERROR, "nodes")
    assert finding.hint == "change the further options of sbatch"


def findings_of(cluster):
    """Return the findings of symphony check --target slurm."""
    machine = Machine(home="/", base="/", exists=lambda _: True)
    targets = [Target("slurm", cluster)]
    return lint(forever(cluster, "one", "two", gpu=1), targets, machine=machine, thorough=True)


LEFT_BEHIND = """
import psutil, sys, time
while psutil.pid_exists(int(sys.argv[1])):
    time.sleep(0.05)
print("gone")
"""


def test_killed_guardian_of_an_agent_affects_only_the_processes_of_its_node(new_cluster):
    cluster = new_cluster(nodes=2)
    cluster.launch(forever(cluster, "one", "two"))
    until(cluster, "faults", all_running)
    # The guardian is the parent of the agent, which is the parent of the process.
    kill = "import os, sys, psutil; psutil.Process(int(sys.argv[1])).parent().parent().kill()"
    pid = cluster.describe_process("faults", "one").pid
    # The step of the agents is destroyed while the command runs in it.
    with contextlib.suppress(Exception):
        cluster.exec_command("faults", "one", [PYTHON, "-c", kill, str(pid)])
    status = until(cluster, "faults", lambda now: now.processes[0].state is State.UNKNOWN)
    one, two = status
    assert "or its agent has failed" in one.reason
    # Slurm has ended the agent and the process.
    left = cluster.exec_command("faults", "one", [PYTHON, "-c", LEFT_BEHIND, str(pid)])
    assert left.stdout == "gone\n"
    assert two.state is State.RUNNING
    cluster.stop("faults")
    assert cluster.describe_process("faults", "two").stopped


def test_preempted_job_lets_the_processes_save_and_has_failed(new_cluster, tmp_path):
    cluster = new_cluster(sbatch=["--exclusive", "--nodelist=n1"])
    experiment = cluster.new_experiment("faults")
    command = [PYTHON, "-u", "-c", SAVING]
    experiment.new_process("one", command=command).ready(log="^up", timeout=60)
    cluster.launch(experiment)
    cluster.wait("faults", until="ready", timeout=60)
    urgent = ["sbatch", "--parsable", "--partition=urgent", "--nodelist=n1", "--exclusive"]
    submitted = subprocess.run(
        [*urgent, "--output=/dev/null", "--wrap=sleep 60"],
        capture_output=True,
        text=True,
        check=True,
    )
    try:
        status = cluster.wait("faults", timeout=60)
    finally:
        subprocess.run(["scancel", submitted.stdout.strip()], check=True)
    assert cluster.get_log("faults", "one") == "up\nsaved\n"
    assert (status.exit_code, status.displayed_state) == (1, "failed")
    (one,) = status
    assert one.reason_code is ReasonCode.EVICTED
    assert f"job {job_of(cluster)} was canceled or preempted" in one.reason


def test_canceled_job_has_failed(new_cluster):
    cluster = new_cluster()
    cluster.launch(forever(cluster, "one"))
    until(cluster, "faults", all_running)
    subprocess.run(["scancel", job_of(cluster)], check=True)
    # Slurm sends SIGTERM to the process at the same time as to the supervisor, so the process can
    # exit before the supervisor has recorded the reason.
    (one,) = cluster.wait("faults", timeout=60)
    assert one.reason_code in (ReasonCode.EVICTED, ReasonCode.EXITED)


# Finds the guardian and the supervisor on the node of the batch step.
FIND = """
import os, psutil, sys, time
directory = sys.argv[1]
def lines(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []
programs = [
    process for process in psutil.process_iter()
    if any(part.endswith("/batch.py") for part in lines(process))
    and any(part.startswith(directory) for part in lines(process))
]
(supervisor,) = (item for item in programs if item.parent() in programs)
guardian = supervisor.parent()
"""
# Lets processes exit while there is no supervisor, because its guardian cannot start another one.
KILL_DURING_EXITS = """
gate, count = sys.argv[2], int(sys.argv[3])
guardian.suspend()
supervisor.kill()
open(gate, "w").close()
while len([name for name in os.listdir(os.path.dirname(gate)) if name.startswith("done-")]) < count:
    time.sleep(0.01)
time.sleep(0.2)
guardian.resume()
"""


def on_batch_node(cluster, code, *arguments):
    """Run Python code on the node of the supervisor, on which ``one`` also runs, and return its
    output.
    """
    command = [PYTHON, "-c", FIND + code, str(Path(cluster._root) / ".jobs"), *arguments]
    result = cluster.exec_command("faults", "one", command)
    assert result.exit_code == 0, result
    return result.stdout


# Lets processes exit while their node has no agent, and with the argument "both" no supervisor.
KILL_AGENT_DURING_EXITS = """
pid, gate, count, killed = int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
agent = psutil.Process(pid).parent()
guardians = [agent.parent()]
victims = [agent]
if killed == "both":
    guardians.append(guardian)
    victims.append(supervisor)
for item in guardians:
    item.suspend()
for item in victims:
    item.kill()
open(gate, "w").close()
while len([name for name in os.listdir(os.path.dirname(gate)) if name.startswith("done-")]) < count:
    time.sleep(0.01)
time.sleep(0.2)
for item in guardians:
    item.resume()
"""


@pytest.mark.parametrize("killed", ["agent", "both"])
def test_killed_agent_is_replaced_and_exit_codes_in_between_are_kept(new_cluster, tmp_path, killed):
    cluster = new_cluster(nodes=2)
    experiment = forever(cluster, "one", "two")
    gate = tmp_path / "gate"
    wait = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    wait += f"open({str(tmp_path)!r} + '/done-' + os.environ['SYMPHONY_ROLE'], 'w').close()\n"
    command = [PYTHON, "-c", f"{wait}print('through')\nexit(7)"]
    for name in ("gated-0", "gated-1"):
        gated = experiment.new_process(name, command=command)
        gated.restart_policy("OnFailure", max_restarts=1)
    cluster.launch(experiment)
    before = {process.name: process for process in until(cluster, "faults", all_running)}
    # There is one on each node.
    assert {before[name].node for name in ("gated-0", "gated-1")} == {"n1", "n2"}
    on_batch_node(cluster, KILL_AGENT_DURING_EXITS, str(before["one"].pid), str(gate), "2", killed)
    # The supervisor restarts them by their policy, and they exit again.
    until(cluster, "faults", lambda now: all(item.exit_code == 7 for item in now.processes[2:]))
    after = {process.name: process for process in cluster.describe_experiment("faults")}
    for name in ("one", "two"):
        assert (after[name].pid, after[name].state) == (before[name].pid, State.RUNNING)
    for name in ("gated-0", "gated-1"):
        assert (after[name].restarts, after[name].state) == (1, State.FAILED)
        assert cluster.get_log("faults", name) == "through\n" * 2
        exits = [event for event in cluster.iter_events("faults") if event.process == name]
        assert not [event for event in exits if "unknown" in event.line]
    reported = [event.line for event in replacements(cluster) if "agent" in event.line]
    assert reported == ["experiment agent replaced: the agent of node n1 was killed"]
    cluster.stop("faults")
    assert cluster.describe_process("faults", "one").stopped
    assert cluster.describe_process("faults", "two").stopped


def replacements(cluster):
    return [event for event in cluster.iter_events("faults") if "replaced" in event.line]


def test_killed_supervisor_is_replaced_and_exit_codes_in_between_are_kept(new_cluster, tmp_path):
    cluster = new_cluster(nodes=2)
    experiment = forever(cluster, "one", "two")
    gate = tmp_path / "gate"
    wait = f"import os, sys, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    wait += f"open({str(tmp_path)!r} + '/done-' + os.environ['SYMPHONY_ROLE'], 'w').close()\n"
    experiment.new_process("gated", command=[PYTHON, "-c", wait + "exit(7)"])
    again = experiment.new_process("again", command=[PYTHON, "-c", wait + "exit(3)"])
    again.restart_policy("OnFailure", max_restarts=2)
    cluster.launch(experiment)
    until(cluster, "faults", all_running)
    before = {process.name: process.pid for process in cluster.describe_experiment("faults")}
    on_batch_node(cluster, KILL_DURING_EXITS, str(gate), "2")
    until(cluster, "faults", lambda now: now.processes[2].exit_code is not None)
    after = {process.name: process for process in cluster.describe_experiment("faults")}
    assert (after["one"].pid, after["two"].pid) == (before["one"], before["two"])
    assert (after["gated"].state, after["gated"].exit_code) == (State.FAILED, 7)
    until(cluster, "faults", lambda now: now.processes[3].restarts >= 1)
    assert len(replacements(cluster)) == 1
    # The new supervisor carries out requests, and the job ends as it should.
    assert cluster.restart_processes("faults", ["one"])
    until(cluster, "faults", lambda now: now.processes[0].pid not in (None, before["one"]))
    job = job_of(cluster)
    cluster.stop("faults")
    assert cluster.describe_process("faults", "two").stopped
    wait_until(lambda: squeue("-j", job, "-t", "RUNNING") == "")


def test_supervisor_that_is_killed_again_and_again_is_replaced(new_cluster):
    cluster = new_cluster(nodes=2)
    cluster.launch(forever(cluster, "one", "two"))
    until(cluster, "faults", all_running)
    before = [process.pid for process in cluster.describe_experiment("faults")]
    times = []
    for count in range(1, 4):
        begin = float(on_batch_node(cluster, "supervisor.kill(); print(time.time())"))
        wait_until(lambda count=count: len(replacements(cluster)) == count)
        times.append(replacements(cluster)[-1].at - begin)
        # A supervisor that dies within a second has failed at once.
        time.sleep(1.2)
    # On an idle machine, this takes 0.2 s.
    assert min(times) < 2.0, times
    assert [process.pid for process in cluster.describe_experiment("faults")] == before
    cluster.stop("faults")
    assert all(process.stopped for process in cluster.describe_experiment("faults"))


def test_killed_batch_step_is_reported(new_cluster, monkeypatch):
    monkeypatch.setattr("symphony_slurm.status.ALIVE_SECONDS", 6.0)
    cluster = new_cluster()
    cluster.launch(forever(cluster, "one"))
    until(cluster, "faults", all_running)
    job = job_of(cluster)
    subprocess.run(["scancel", "--batch", "--signal=KILL", job], check=True)
    status = cluster.wait("faults", timeout=60)
    (one,) = status
    assert (one.state, one.reason_code) == (State.UNKNOWN, ReasonCode.LOST)
    assert f"job {job} has ended" in status.note
    assert squeue("-j", job, "-t", "RUNNING") == ""


def test_status_of_a_running_experiment_needs_no_request_to_slurm(new_cluster, monkeypatch):
    cluster = new_cluster()
    experiment = forever(cluster, "one")
    experiment.get_process("one").ready(log="^up", timeout=60)
    cluster.launch(experiment)
    cluster.wait("faults", until="ready", timeout=60)
    # No program of Slurm can be found.
    monkeypatch.setenv("PATH", "/nowhere")
    (one,) = cluster.describe_experiment("faults")
    assert one.state is State.RUNNING
    assert cluster.get_log("faults", "one") == "up\n"
    monkeypatch.undo()
