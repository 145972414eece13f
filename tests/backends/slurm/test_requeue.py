"""Experiments whose jobs Slurm stops and starts again."""

from symphony.status import ReasonCode, State
from symphony.testing.contract import until
from tests.backends.slurm.jobs import (
    PYTHON,
    SAVING,
    job_of,
    slurm,
    squeue,
    start_now,
    wait_for_state,
)


def test_requeued_job_continues_its_run_until_the_limit(new_cluster):
    cluster = new_cluster(requeue=2, sbatch=["--exclusive", "--nodelist=n1"])
    experiment = cluster.new_experiment("faults")
    command = [PYTHON, "-u", "-c", SAVING]
    experiment.new_process("one", command=command).ready(log="^up", timeout=60)
    experiment.new_process("done", command=[PYTHON, "-c", "print('done')"])
    cluster.launch(experiment)
    cluster.wait("faults", until="ready", timeout=60)
    (run,) = [run for run in cluster.list_runs() if run.experiment == "faults"]
    job = job_of(cluster)
    urgent = slurm(
        *("sbatch", "--parsable", "--partition=urgent", "--nodelist=n1", "--exclusive"),
        *("--output=/dev/null", "--wrap=sleep 60"),
    )
    try:
        waiting = until(cluster, "faults", lambda now: "in the queue" in now.note)
        assert squeue("-j", urgent, "-o", "%T") in ("PENDING", "RUNNING")
    finally:
        slurm("scancel", urgent)
    assert f"job {job} is waiting in the queue" in waiting.note
    assert cluster.get_log("faults", "one") == "up\nsaved\n"
    start_now(job)
    one, done = until(cluster, "faults", lambda now: now.processes[0].ready)
    assert (one.restarts, done.restarts) == (1, 1)
    note = cluster.describe_experiment("faults").note
    assert note.endswith(
        f"restarted once, the last time because job {job} was preempted or requeued"
    )
    # This kills the supervisor at once.
    slurm("scontrol", "requeue", job)
    start_now(job)
    until(cluster, "faults", lambda now: now.processes[0].restarts == 2 and now.processes[0].ready)
    slurm("scontrol", "requeue", job)
    start_now(job)
    status = cluster.wait("faults", timeout=60)
    (one, _) = status
    assert (one.state, one.reason_code) == (State.FAILED, ReasonCode.EVICTED)
    assert one.reason == f"job {job} was requeued more often than the option requeue allows"
    assert status.displayed_state == "failed"
    wait_for_state(job, "")
    assert [item.name for item in cluster.list_runs() if item.experiment == "faults"] == [run.name]
