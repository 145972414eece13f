"""The annotation with which the readers of logs share which processes are ready."""

import pytest

from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import READY, Scope
from symphony_kube.status.ready_logs import Execution, find_ready

SCOPE = Scope(experiment="e", namespace="n", shared=True)


class Server:
    """A server with one Pod, whose node changes its status ``changes`` times before a patch."""

    connections = 1

    def __init__(self, ready=None, *, changes=0):
        self.annotations = {} if ready is None else {READY: ready}
        self.changes, self.version, self.patches = changes, 1, 0

    def open_stream(self, path, *, query):
        return Log()

    def find(self, path):
        metadata = {"uid": "u", "resourceVersion": str(self.version)}
        return {"metadata": {**metadata, "annotations": dict(self.annotations)}}

    def call(self, method, path, *, body, content_type):
        if self.changes:
            self.changes -= 1
            self.version += 1
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise ApiError("conflict", status=409, reason="Conflict")
        self.patches += 1
        self.annotations.update(body["metadata"]["annotations"])
        return self.find(path)


class Log:
    """A log that shows that the process is ready."""

    def chunks(self):
        yield b"up\n"

    def close(self):
        """Do nothing, because the log is complete."""


def execution(process, restarts=0, uid="u"):
    return Execution(
        unit="g", process=process, pod="e-g", uid=uid, restarts=restarts, pattern="^up"
    )


def ready_after(server, *executions):
    """Return the annotation after executions were found ready, and those that were reported."""
    found = []
    find_ready(KubeExperiment(server, SCOPE), executions, found.append)
    assert found == list(executions)
    return server.annotations.get(READY)


@pytest.mark.parametrize(
    ("present", "found", "expected"),
    [
        (None, execution("a"), "a"),
        # Another program has found the other process ready.
        ("b", execution("a"), "a,b"),
        ("a,b:2", execution("a", restarts=1), "a:1,b:2"),
        # Another program has read the log of a later execution.
        ("a:2", execution("a", restarts=1), "a:2"),
        ("a:x,,b", execution("c"), "b,c"),
        # Another Pod has the name now.
        ("b", execution("a", uid="v"), "b"),
    ],
)
def test_readiness_is_added_to_that_of_the_other_processes(present, found, expected):
    assert ready_after(Server(present), found) == expected


def test_result_is_recorded_although_the_node_changes_the_pod():
    assert ready_after(Server(changes=3), execution("a"), execution("b")) == "a,b"


def test_what_is_recorded_already_is_not_written_again():
    server = Server("a,b")
    ready_after(server, execution("a"), execution("b"))
    assert server.patches == 0
