"""Parts of the cluster that do not work: slurmctld, nodes, programs of the job, and the disk."""

import compileall
import contextlib
import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import symphony
import symphony_slurm
from symphony.errors import SymphonyError
from symphony.status import ReasonCode, State
from symphony.testing import programs
from symphony.testing.contract import all_running, until
from symphony_slurm import slurm as slurm_programs
from symphony_slurm.job.node_relay import batch_node, node_of
from tests.backends.slurm.jobs import (
    PYTHON,
    forever,
    job_of,
    slurm,
    squeue,
    start_now,
    wait_for_state,
    wait_until,
)

REFUSED = "Unable to contact slurm controller"
TRY_AGAIN = "; try again when slurmctld is running ('scontrol ping')"


@pytest.fixture
def slurmctld(monkeypatch):
    """The connection from this machine to slurmctld. It is restored at the end."""
    # The requests of the test are independent of each other.
    monkeypatch.setattr(slurm_programs, "UNREACHABLE_SECONDS", 0.0)
    connection = Connection()
    monkeypatch.setattr(slurm_programs, "_latest_failure", slurm_programs._LatestFailure())
    yield connection
    connection.restore()


# The commands that interrupt and restore the connection of a machine to slurmctld.
INTERRUPT = "ip rule add ipproto tcp dport 6817 prohibit"
RESTORE = INTERRUPT.replace("add", "del")


class Connection:
    def __init__(self):
        self._is_interrupted = False

    def interrupt(self):
        done = subprocess.run(INTERRUPT.split(), capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"the connection cannot be interrupted: {done.stderr.strip()}")
        self._is_interrupted = True

    def restore(self):
        if self._is_interrupted:
            subprocess.run(RESTORE.split(), check=True)
        self._is_interrupted = False


@pytest.fixture
def node_connection(slurmctld, tmp_path):
    """The connection from node n1, which a job interrupts, to slurmctld."""
    # Find out whether this is possible.
    slurmctld.interrupt()
    slurmctld.restore()
    connection = NodeConnection(tmp_path)
    yield connection
    slurmctld.restore()
    connection.restore()


class NodeConnection:
    """The connection from the node ``n1`` to slurmctld. Jobs run the command INTERRUPT on it.

    Another job restores it, which must be running before, because slurmctld starts no job on a
    node on which another one is completing.
    """

    node = "n1"

    def __init__(self, directory):
        self._wanted, started = directory / "restore", directory / "started"
        script = (
            f"touch {started}; until [ -e {self._wanted} ]; do sleep 0.1; done; "
            f"while {RESTORE}; do :; done"
        )
        command = ["srun", f"--nodelist={self.node}", "--mem=10", "sh", "-c", script]
        self._job = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until(started.exists)

    def restore(self):
        """Restore the connection. Without an effect if it is not interrupted."""
        self._wanted.touch()
        self._job.wait(timeout=60)


def test_job_waits_for_slurmctld_before_it_starts_its_agents(new_cluster, node_connection):
    cluster = new_cluster(sbatch=[f"--nodelist={node_connection.node}"], prologue=[INTERRUPT])
    cluster.launch(forever(cluster, "one"))
    messages = cluster.implementation.runs.find("faults").path / "agents.log"
    wait_until(lambda: messages.exists() and "Unable to contact" in messages.read_text())
    (one,) = cluster.describe_experiment("faults")
    assert one.state is State.PENDING
    node_connection.restore()
    assert all_running(cluster.wait("faults", until="started", timeout=60))


def test_result_of_a_job_that_ends_while_slurmctld_does_not_answer(
    new_cluster, slurmctld, node_connection, tmp_path
):
    cluster = new_cluster(sbatch=[f"--nodelist={node_connection.node}"])
    experiment = cluster.new_experiment("faults")
    script = f"until [ -e {tmp_path}/go ]; do sleep 0.1; done; {INTERRUPT}; echo done"
    experiment.new_process("one", command=["sh", "-c", script])
    cluster.launch(experiment)
    cluster.wait("faults", until="started", timeout=60)
    slurmctld.interrupt()
    (tmp_path / "go").touch()
    status = cluster.wait("faults", timeout=60)
    assert (status.exit_code, status.displayed_state, status.note) == (0, "succeeded", "")
    assert cluster.get_log("faults", "one") == "done\n"
    job = job_of(cluster)
    slurmctld.restore()
    assert squeue("-j", job, "-o", "%T") in ("RUNNING", "COMPLETING")
    node_connection.restore()
    wait_for_state(job, "")


def results_of(**calls):
    """Make calls at the same time. Return the results, or the messages of errors."""

    def result_of(call):
        try:
            return call()
        except SymphonyError as exc:
            return str(exc)

    with ThreadPoolExecutor(len(calls)) as pool:
        return dict(zip(calls, pool.map(result_of, calls.values()), strict=True))


def test_nothing_is_lost_while_slurmctld_does_not_answer(
    new_cluster, slurmctld, tmp_path, monkeypatch
):
    cluster = new_cluster(sbatch=["--cpus-per-task=2"])
    cluster.launch(forever(cluster, "one"))
    cluster.wait("faults", until="started", timeout=60)
    queued = new_cluster(sbatch=["--begin=now+1hour"], state_dir=str(tmp_path / "queued"))
    queued.launch(forever(queued, "one"))
    new = new_cluster(state_dir=str(tmp_path / "new"))
    changed = forever(cluster, "one", "two")
    slurmctld.interrupt()
    results = results_of(
        launch=lambda: new.launch(forever(new, "one")),
        up=lambda: cluster.up(changed),
        restart=lambda: cluster.restart_processes("faults"),
        execute=lambda: cluster.exec_command("faults", "one", ["true"]),
        delete=lambda: cluster.delete("faults"),
        delete_queued=lambda: queued.delete("faults"),
        queued=lambda: queued.describe_experiment("faults").note,
    )
    for name, result in results.items():
        assert REFUSED in result, name
        assert result.endswith(TRY_AGAIN), name
    assert new.list_experiments() == []
    # These need no slurmctld.
    (one,) = cluster.describe_experiment("faults")
    assert one.state is State.RUNNING
    assert cluster.get_log("faults", "one") == "up\n"
    assert cluster.diff(changed).summary == "1 added, 1 unchanged"
    slurmctld.restore()
    # For some seconds after a failure, slurmctld is not asked again.
    monkeypatch.setattr(slurm_programs, "UNREACHABLE_SECONDS", 60.0)
    assert REFUSED in queued.describe_experiment("faults").note
    monkeypatch.setattr(slurm_programs, "UNREACHABLE_SECONDS", 0.0)
    assert "waiting in the queue" in queued.describe_experiment("faults").note
    # The failed deletion does not affect how the supervisor understands the next SIGTERM.
    slurm("scancel", "--batch", "--signal=TERM", job_of(cluster))
    (one,) = cluster.wait("faults", timeout=60)
    assert one.reason_code is ReasonCode.EVICTED


@pytest.fixture
def failing_node(new_cluster):
    """A function that lets slurmctld regard a node as failed. The node is restored at the end."""
    failed = []

    def fail(node):
        failed.append(node)
        slurm("scontrol", "update", f"node={node}", "state=down", "reason=test")

    yield fail
    for node in failed:
        # slurmd can already have registered the node again.
        with contextlib.suppress(subprocess.CalledProcessError):
            slurm("scontrol", "update", f"node={node}", "state=resume")


def test_failed_node_ends_its_experiment_unless_it_may_be_requeued(
    new_cluster, failing_node, tmp_path
):
    options = {"sbatch": ["--exclude=n1"]}
    failed = new_cluster(**options)
    moved = new_cluster(**options, requeue=1, state_dir=str(tmp_path / "moved"))
    for cluster in (failed, moved):
        cluster.launch(forever(cluster, "one"))
    nodes = []
    for cluster in (failed, moved):
        cluster.wait("faults", until="started", timeout=60)
        nodes.append(squeue("-j", job_of(cluster), "-o", "%N"))
    for node in set(nodes):
        failing_node(node)
    # Slurm cannot start the job on a node on which it is still running.
    start_now(job_of(moved), f"ExcNodeList={','.join(['n1', *nodes])}")
    until(moved, "faults", lambda now: now.processes[0].restarts == 1 and all_running(now))
    assert squeue("-j", job_of(moved), "-o", "%N") not in nodes
    status = failed.wait("faults", timeout=60)
    assert status.displayed_state == "failed"
    assert (
        f"job {job_of(failed)}" in status.note
        or f"job {job_of(failed)}" in status.processes[0].reason
    )


# A program that kills the srun of the agents of a run. Its child process then cancels the step.
KILL = """
import psutil, sys
for process in psutil.process_iter():
    words = process.cmdline()
    if words[:1] == ["srun"] and sys.argv[1] in words and process.parent().name() != "srun":
        process.kill()
        break
"""


def test_killed_srun_stops_all_processes_and_is_reported(new_cluster):
    cluster = new_cluster(nodes=2)
    cluster.launch(forever(cluster, "one", "two"))
    until(cluster, "faults", all_running)
    run = cluster.implementation.runs.find("faults")
    path = str(run.path.resolve())
    node = batch_node(run)
    name = next(name for name in ("one", "two") if node_of(run, name) == node)
    # The step in which the command runs can end at the same time.
    with contextlib.suppress(SymphonyError):
        cluster.exec_command("faults", name, [PYTHON, "-c", KILL, path])
    status = cluster.wait("faults", timeout=60)
    assert [process.state for process in status] == [State.UNKNOWN] * 2
    for process in status:
        assert "or its agent has failed" in process.reason
    wait_for_state(job_of(cluster), "")


def test_disk_that_is_full_when_the_job_starts_is_reported(new_cluster):
    # With the limit below, Python would store incomplete bytecode without an error, and later jobs
    # would fail to import it.
    for package in (symphony, symphony_slurm):
        assert compileall.compile_dir(Path(package.__file__).parent, quiet=1)
    # The files of the job can have at most 1 KiB.
    cluster = new_cluster(prologue=["ulimit -f 1"])
    cluster.launch(forever(cluster, *(f"p{number}" for number in range(8))))
    status = cluster.wait("faults", timeout=60)
    assert status.exit_code == 1
    assert re.match(r"node n\d: cannot use .*: File too large", status.note)
    assert status.processes[0].reason_code is ReasonCode.NEVER_STARTED


# A program that fills a disk, then creates a file on another disk, and then writes to its log.
FILL = """
import os, sys
try:
    with open(sys.argv[1], "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
except OSError:
    open(sys.argv[2], "w").close()
    os.write(1, b"full")
"""


def test_disk_that_fills_while_the_job_runs_loses_no_result(new_cluster, tmp_path):
    disk = os.environ.get("SYMPHONY_TEST_SLURM_SMALL_DISK")
    if not disk:
        pytest.skip("SYMPHONY_TEST_SLURM_SMALL_DISK names no small disk, which the test could fill")
    filler, is_full = Path(disk) / "filler", tmp_path / "full"
    cluster = new_cluster(state_dir=f"{disk}/state", nodes=2)
    experiment = cluster.new_experiment("faults")
    command = [PYTHON, "-u", "-c", programs.FOREVER]
    experiment.new_process("one", command=command).ready(log="^up", timeout=60)
    command = [PYTHON, "-c", FILL, str(filler), str(is_full)]
    experiment.new_process("fill", command=command).starts_after("one", "ready")
    until_full = f"until [ -e {is_full} ]; do sleep 0.1; done; exit 3"
    experiment.new_process("two", command=["sh", "-c", until_full])
    try:
        cluster.launch(experiment)
        expected = [State.RUNNING, State.SUCCEEDED, State.FAILED]
        status = until(cluster, "faults", lambda now: [p.state for p in now] == expected)
        # The output of the process fill is lost, but the process receives no error.
        assert cluster.get_log("faults", "fill") == ""
        assert re.fullmatch("no space is left on the disk of .*, so output is lost", status.note)
        *_, two = status
        assert (two.exit_code, two.reason) == (3, "no space was left on the disk of its log")
        # Nothing was made free.
        cluster.stop("faults")
        (one, *_) = cluster.describe_experiment("faults")
        assert (one.stopped, one.exit_code) == (True, 0)
        cluster.delete("faults")
        assert cluster.list_experiments() == []
    finally:
        filler.unlink(missing_ok=True)


@pytest.mark.timeout(180)
def test_time_limit_of_the_job_stops_the_processes_in_order(new_cluster):
    # Slurm sends SIGTERM up to a minute early. With a shorter time limit, it could do so before the
    # process handles SIGTERM.
    cluster = new_cluster(time=2)
    experiment = cluster.new_experiment("faults")
    command = [PYTHON, "-u", "-c", programs.FOREVER]
    experiment.new_process("one", command=command).termination_grace_period(20)
    cluster.launch(experiment)
    status = cluster.wait("faults", timeout=150)
    (one,) = status
    assert one.reason_code is ReasonCode.DEADLINE_EXCEEDED, one
    assert one.reason.startswith(f"Slurm announced the time limit of job {job_of(cluster)}, ")
    assert (one.exit_code, status.displayed_state) == (0, "failed")


def test_job_of_another_user_is_never_touched(new_cluster):
    cluster = new_cluster()
    cluster.launch(forever(cluster, "one"))
    cluster.wait("faults", until="started", timeout=60)
    run = cluster.implementation.runs.find("faults")
    comment = json.dumps({"symphony": "faults", "run": run.run_id()[:12]})
    try:
        other = slurm(
            *("sbatch", "--parsable", "--uid=bob", "--job-name=symphony:faults"),
            *("--chdir=/tmp", f"--comment={comment}", "--output=/dev/null", "--wrap=sleep 60"),
        )
    except subprocess.CalledProcessError as exc:
        pytest.skip(f"a job of another user cannot be submitted: {exc.stderr.strip()}")
    try:
        # The launcher was killed before it recorded the number of the job.
        own = job_of(cluster)
        run.file("job").unlink()
        cluster.delete("faults")
        wait_for_state(own, "")
        assert squeue("-j", other, "-o", "%T") in ("PENDING", "RUNNING")
        assert cluster.list_experiments() == []
    finally:
        slurm("scancel", other)


def test_launch_of_1000_processes_sends_few_requests(new_cluster):
    """At most one step is created, and at most two queries are sent, however many processes."""
    cluster = new_cluster(nodes=4)
    experiment = cluster.new_experiment("faults")
    for process in experiment.new_replicas("many", 1000, command=["sleep", "300"]):
        process.resource_request(cpu="10m")
    sent = [requests_of_launch(cluster, experiment)]
    # Other users of the cluster can send requests at the same time.
    while not is_small(sent[-1]) and len(sent) < 3:
        sent.append(requests_of_launch(cluster, experiment))
    assert is_small(sent[-1]), sent


def requests_of_launch(cluster, experiment):
    """Return how many requests of each type slurmctld receives until all processes are running."""
    before = requests()
    cluster.launch(experiment)
    cluster.wait("faults", until="started", timeout=60)
    sent = {name: count - before.get(name, 0) for name, count in requests().items()}
    assert all_running(cluster.describe_experiment("faults"))
    cluster.delete("faults")
    return sent


def is_small(sent):
    queries = sent.get("REQUEST_JOB_INFO", 0) + sent.get("REQUEST_JOB_INFO_SINGLE", 0)
    created = sent.get("REQUEST_JOB_STEP_CREATE", 0), sent.get("REQUEST_SUBMIT_BATCH_JOB", 0)
    return created == (1, 1) and queries <= 2


def requests():
    """Return how many requests of each type slurmctld has received."""
    _, _, table = slurm("sdiag").partition("by message type")
    table, _, _ = table.partition("statistics by user")
    return {name: int(count) for name, count in re.findall(r"(\w+) +\( *\d+\) +count:(\d+)", table)}
