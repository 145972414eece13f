"""What processes wait for in a queue, from Workloads as Kueue 0.13 reports them."""

from __future__ import annotations

from typing import Any

from symphony.status import ExperimentStatus, ProcessStatus, State
from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import Scope
from symphony_kube.status.queue_reasons import explain_queues, with_queue_reasons

WAITS = "waiting for quota in queue team-a"
QUOTA = "insufficient unused quota for cpu in flavor cq-22, 200m more needed"
SCOPE = Scope(experiment="e", namespace="ns", shared=True)
PROCESSES = {"pod-0": ("first-0",), "pod-1": ("first-1",), "job": ("second",)}


def processes_of(uid: str) -> tuple[str, ...]:
    return PROCESSES.get(uid, ())


def workload(status: str, message: str, *owners: str) -> dict[str, Any]:
    condition = {"type": "QuotaReserved", "status": status, "reason": "Pending", "message": message}
    return {
        "metadata": {"ownerReferences": [{"uid": uid} for uid in owners]},
        "status": {"conditions": [condition]},
    }


def waiting(*names: str) -> ExperimentStatus:
    processes = [ProcessStatus(name=name, reason=WAITS) for name in names]
    running = ProcessStatus(name="other", state=State.RUNNING)
    return ExperimentStatus(name="e", backend="kube", processes=(*processes, running))


def reasons(status: ExperimentStatus) -> list[str]:
    return [process.reason for process in status]


def test_the_message_of_a_workload_is_the_reason_of_all_processes_that_it_admits() -> None:
    message = f"couldn't assign flavors to pod set 293855ce: {QUOTA}"
    found = with_queue_reasons(
        waiting("first-0", "first-1", "second"),
        [
            workload("False", message, "pod-0", "pod-1"),
            workload("True", "Quota reserved", "job"),
            workload("False", "of another experiment", "unknown"),
            {"metadata": {}},
        ],
        processes_of,
    )
    assert reasons(found) == [f"{WAITS}: {QUOTA}", f"{WAITS}: {QUOTA}", WAITS, ""]


class Server:
    """An API server, of which the answers are given by path."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.requests: list[str] = []

    def call(self, method: str, path: str) -> Any:
        self.requests.append(path)
        for end, answer in self.answers.items():
            if path.endswith(end):
                return answer
        raise ApiError("no", status=404, reason="NotFound", detail="no")


def test_the_version_of_kueue_that_the_server_prefers_is_used() -> None:
    server = Server(
        **{
            "kueue.x-k8s.io": {"preferredVersion": {"version": "v1beta2"}},
            "v1beta2/namespaces/ns/workloads": {"items": [workload("False", QUOTA, "job")]},
        }
    )
    found = explain_queues(KubeExperiment(server, SCOPE), waiting("second"), processes_of)
    assert reasons(found) == [f"{WAITS}: {QUOTA}", ""]


def test_workloads_are_only_read_if_a_process_waits_and_need_not_exist() -> None:
    server = Server()
    running = ExperimentStatus(name="e", backend="kube", processes=())
    assert explain_queues(KubeExperiment(server, SCOPE), running, processes_of) is running
    assert server.requests == []
    status = waiting("second")
    assert explain_queues(KubeExperiment(server, SCOPE), status, processes_of) is status
