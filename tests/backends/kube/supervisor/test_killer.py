"""Killing the processes of stopped Pods."""

import threading
import time
from dataclasses import replace

import pytest

from symphony.cluster import ExecResult
from symphony.errors import BackendError, NotFound
from symphony_kube import killer
from symphony_kube.access import exec as exec_access
from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.killer import Killer, seconds_to_kill
from symphony_kube.state.control_state import Control
from tests.backends.kube.state.test_control import EXITED, NOW, RUNNING, STOP, observe, pod

KILL_NOW = Control(stop=STOP, kill=STOP)
KILL_LATER = Control(stop=STOP, kill=NOW + 5)


class Clock:
    """An API client that only knows the time of the server."""

    connections = 4

    def now(self):
        return NOW


class Executions:
    """Records the executed kills, whose results are in ``results``; the last one repeats."""

    def __init__(self, *results):
        self.results = list(results)
        self.count = 0
        self.event = threading.Event()

    def __call__(self, *_args, **_options):
        self.count += 1
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        self.event.set()
        if isinstance(result, Exception):
            raise result
        return result

    def wait_for_next(self):
        assert self.event.wait(10)
        self.event.clear()


def units(control, state=RUNNING, phase="Running"):
    stopped = pod("a", state, control=control, phase=phase)
    stopped["spec"]["activeDeadlineSeconds"] = 1
    if phase == "Failed":
        # Kubernetes 1.20 reports this before the process has exited.
        stopped["status"]["reason"] = "DeadlineExceeded"
        stopped["metadata"]["managedFields"] = [{"time": "2023-11-14T22:14:59Z"}]
    return observe(stopped).unit_statuses


def use(monkeypatch, *results):
    executions = Executions(*results)
    monkeypatch.setattr(exec_access, "run_in_container", executions)
    return executions


def kill_until_error(units):
    """Kill until this is impossible, and return the error."""
    each = Killer(KubeExperiment(Clock(), None))
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            each.kill_due(units)
        except BackendError as exc:
            return str(exc)
        time.sleep(0.01)
    return "no error"


@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_process_is_killed_whatever_the_phase_of_its_pod_is(monkeypatch, phase):
    executions = use(monkeypatch, ExecResult(exit_code=0))
    assert Killer(KubeExperiment(Clock(), None)).kill_due(units(KILL_NOW, phase=phase)) > 0
    executions.wait_for_next()


def test_pod_whose_node_restarted_the_process_is_killed_again(monkeypatch):
    monkeypatch.setattr(killer, "RETRY_SECONDS", 0.01)
    executions = use(monkeypatch, ExecResult(exit_code=0))
    each = Killer(KubeExperiment(Clock(), None))
    while executions.count < 2:
        each.kill_due(units(KILL_NOW))


@pytest.mark.parametrize(
    ("control", "state"),
    [(Control(stop=STOP), RUNNING), (Control(kill=STOP), RUNNING), (KILL_NOW, EXITED)],
)
def test_nothing_is_killed(monkeypatch, control, state):
    executions = use(monkeypatch, ExecResult(exit_code=0))
    assert Killer(KubeExperiment(Clock(), None)).kill_due(units(control, state)) is None
    assert not executions.count


def test_time_until_a_process_is_killed():
    unit = units(KILL_LATER)["a"]
    latest = unit.pods[-1]
    assert seconds_to_kill(unit, latest, NOW) == 5
    at_once = replace(unit.control, kill=STOP)
    unit.control = at_once
    # The node may not have received the request yet, and would restart the process.
    assert seconds_to_kill(unit, latest, STOP) == killer.NODE_SECONDS
    for pod_status in (
        replace(latest, is_being_stopped=True),
        replace(latest, phase="Failed"),
        replace(latest, deadline=STOP),
    ):
        assert seconds_to_kill(unit, pod_status, STOP) == 0


FORBIDDEN = ApiError("pods/exec is forbidden", status=403)


@pytest.mark.parametrize(
    ("result", "cause"),
    [
        (NotFound("no sh"), "its image contains no shell"),
        (FORBIDDEN, "pods/exec is forbidden"),
        (BackendError("the node is gone"), "the node is gone"),
        (ExecResult(exit_code=1, stderr="not permitted"), "not permitted"),
        (ExecResult(exit_code=0), "it is still running, because its processes belong to another"),
    ],
)
def test_failed_kill_is_an_error(monkeypatch, result, cause):
    monkeypatch.setattr(killer, "GIVE_UP_SECONDS", 0.2)
    use(monkeypatch, result)
    error = kill_until_error(units(KILL_NOW))
    assert error.startswith("'a' is being stopped, but cannot be killed before its own grace")
    assert cause in error
