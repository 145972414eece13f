"""Celery workers finish their tasks when they are stopped or restarted."""

from __future__ import annotations

PROGRAM = "celery"
SLOW = {"seconds": 3.0, "workers": 1}


def test_tasks_are_distributed_to_the_workers(running, example):
    service = running(example, wait="started", parameters={"tasks": 20, "seconds": 0.01})
    assert service.wait(timeout=60).exit_code == 0
    assert f"sum {2 * sum(range(20))}" in service.log("client")


def test_a_worker_finishes_its_task_when_it_is_restarted(running, example, wait_for_line):
    # Two tasks run at the same time, and two wait for the new execution of the worker.
    service = running(example, wait="started", parameters={**SLOW, "tasks": 4})
    wait_for_line(service, "worker-0", "received")
    service.cluster.restart_processes(service.name, ["worker-0"])
    status = service.wait(timeout=90)
    assert (status.exit_code, "sum 12" in service.log("client")) == (0, True)
    log = service.log("worker-0")
    assert "Warm shutdown" in log
    assert "WorkerLostError" not in log
    assert log.count("succeeded in") == 4


def test_a_worker_finishes_its_task_when_it_is_stopped(running, example, wait_for_line):
    service = running(example, wait="started", parameters={**SLOW, "tasks": 1})
    wait_for_line(service, "worker-0", "received")
    service.cluster.stop_processes(service.name, ["worker-0"])
    assert "succeeded in" in service.log("worker-0")
    assert "WorkerLostError" not in service.log("worker-0")
