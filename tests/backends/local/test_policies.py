"""Restarts of whole experiments, and the deadlines and retries of jobs."""

import os

from symphony import Cluster, State
from symphony.plan.restart_policy import Backoff
from symphony.status import ReasonCode
from symphony.testing import until

# Fails twice, and prints which attempt it is.
THIRD_TIME_LUCKY = "echo attempt >> {file}; test $(wc -l < {file}) = 3"


def test_experiment_restarts_after_a_failure_in_start_order(state, tmp_path):
    gpu = f"test-{os.getpid()}-restart"
    cluster = Cluster.new("local", state_dir=state, backoff=Backoff(first=0.05), gpus=[gpu])
    experiment = cluster.new_experiment("exp", on_failure="restart", ends_with="learner")
    experiment.new_process("prepare", command="true").resource_limit(gpu=1)
    server = experiment.new_process("server", cmd="echo up; exec sleep 1000")
    server.starts_after("prepare", "succeeded").ready(log="up")
    learner = experiment.new_process("learner", cmd=THIRD_TIME_LUCKY.format(file=tmp_path / "log"))
    learner.starts_after("server")
    # Its own restart must not start it before the experiment restarts.
    experiment.new_process("flaky", cmd="exit 1").restart_policy("Always")
    statuses = []
    cluster.launch(experiment)
    status = cluster.wait("exp", timeout=30, on_change=statuses.append)
    assert (status.exit_code, status.displayed_state) == (0, "succeeded")
    assert [process.restarts for process in status.processes[:3]] == [2, 2, 2]
    assert not any(earlier.ended for earlier in statuses[:-1])
    prepare, server, learner, _ = status.processes
    assert prepare.started <= server.started <= learner.started
    assert (tmp_path / "log").read_text().count("attempt") == 3


def test_waiting_experiment_can_be_stopped(state):
    cluster = Cluster.new("local", state_dir=state)
    experiment = cluster.new_experiment("exp", on_failure={"policy": "restart", "backoff": "5m"})
    experiment.new_process("server", command=["sleep", "1000"])
    experiment.new_process("learner", cmd="exit 3")
    cluster.launch(experiment)
    waiting = until(
        cluster,
        "exp",
        lambda now: all(process.reason_code is ReasonCode.EXPERIMENT_RESTARTS for process in now),
    )
    server = waiting.processes[0]
    assert (server.state, server.reason) == (State.PENDING, "learner failed (exit code 3)")
    assert server.next_start is not None
    assert waiting.note == "the experiment restarts: learner failed (exit code 3)"
    cluster.delete("exp")
    assert cluster.list_experiments() == []


def test_job_has_a_deadline_and_a_number_of_retries(cluster, experiment):
    experiment.new_process("late", cmd="trap 'exit 0' TERM; sleep 1000 & wait").job(
        active_deadline=1
    )
    experiment.new_process("retried", cmd="exit 5").job(backoff_limit=1)
    experiment.new_process("once", cmd="exit 6").job()
    cluster.launch(experiment)
    late, retried, once = cluster.wait("exp", timeout=30)
    assert (late.state, late.reason) == (State.FAILED, "deadline exceeded")
    assert (retried.exit_code, retried.restarts) == (5, 1)
    assert retried.reason == "not restarted again, because the limit is 1"
    assert (once.exit_code, once.restarts) == (6, 0)


def test_restart_of_the_experiment_does_not_start_what_a_user_has_stopped(state, tmp_path):
    cluster = Cluster.new("local", state_dir=state)
    experiment = cluster.new_experiment("exp", on_failure="restart")
    experiment.new_process("stopped", command=["sleep", "1000"])
    gate = tmp_path / "gate"
    experiment.new_process(
        "learner", cmd=f"until test -e {gate}; do sleep 0.02; done; rm {gate}; exit 3"
    )
    cluster.launch(experiment)
    cluster.stop_processes("exp", ["stopped"])
    gate.touch()
    now = until(
        cluster,
        "exp",
        lambda now: (now.processes[1].restarts, now.processes[1].state) == (1, State.RUNNING),
    )
    stopped = now.processes[0]
    assert (stopped.displayed_state, stopped.restarts) == ("stopped", 0)
    cluster.delete("exp")
