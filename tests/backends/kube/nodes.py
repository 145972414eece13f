"""The nodes of a cluster whose API server is in memory: tests write the states of Pods."""

import time

from kubetest.rawapi import MERGE_PATCH
from symphony_kube.api.labels import ATTEMPT, CONTROL
from symphony_kube.state.control_state import decode_attempt, decode_control

from .conftest import wait_until


class Nodes:
    """The nodes of the cluster, and what the supervisor writes to the Pods of an experiment."""

    def __init__(self, kube, name):
        self._kube = kube
        self._name = name

    def path(self, pod):
        return self._kube.path(f"pods/{self._name}-{pod}")

    def find(self, pod):
        return self._kube.raw.find(self.path(pod))

    def await_pod(self, pod):
        return wait_until(lambda: self.find(pod))

    def _report(self, pod, phase, state):
        (container,) = self.await_pod(pod)["spec"]["containers"]
        status = {"name": container["name"], "restartCount": 0, "state": state}
        patch = {
            "spec": {"nodeName": "n1"},
            "status": {"phase": phase, "conditions": [], "containerStatuses": [status]},
        }
        self._kube.raw.call("PATCH", self.path(pod), patch, MERGE_PATCH)

    def run(self, *pods):
        for pod in pods:
            self._report(pod, "Running", {"running": {"startedAt": now()}})

    def wait(self, pod, reason, message):
        self._report(pod, "Pending", {"waiting": {"reason": reason, "message": message}})

    def refuse(self, pod):
        """Report that no node accepts a Pod at the moment."""
        self.await_pod(pod)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu",
        }
        patch = {"status": {"phase": "Pending", "conditions": [condition]}}
        self._kube.raw.call("PATCH", self.path(pod), patch, MERGE_PATCH)

    def exit(self, pod, code):
        times = {"startedAt": now(), "finishedAt": now()}
        phase = "Failed" if code else "Succeeded"
        state = {"running": None, "terminated": {"exitCode": code, **times}}
        self._report(pod, phase, state)

    def control(self, pod):
        return decode_control(self.find(pod)["metadata"]["annotations"].get(CONTROL))

    def await_control(self, pod):
        wait_until(lambda: CONTROL in self.find(pod)["metadata"]["annotations"])
        return self.control(pod)

    def attempt(self, pod):
        return decode_attempt(self.await_pod(pod)["metadata"]["annotations"].get(ATTEMPT))

    def is_stopped(self, pod):
        return "activeDeadlineSeconds" in self.find(pod)["spec"]


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
