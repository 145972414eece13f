"""Disruptions on a real cluster: evictions and deletions of Pods."""

import re

from symphony.testing.contract import all_running

from .conftest import FOREVER, python, running_pods, wait_until

SERVER = """
import http.server, os
host, port = os.environ["HOST"], int(os.environ["PORT"])
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer((host, port), Handler).serve_forever()
"""
CLIENT = """
import os, time, urllib.request
while True:
    try:
        urllib.request.urlopen(f"http://{os.environ['ADDR']}", timeout=2).close()
        print("reached", flush=True)
    except OSError:
        pass
    time.sleep(0.2)
"""


def served(cluster, name):
    """Return an experiment with a server, its clients, a Job and a unit of ranks."""
    exp = cluster.new_experiment(name)
    server = python(exp, "server", SERVER).binds("api").restart_policy("Always")
    server.set_envs({"HOST": "${api.bind_host}", "PORT": "${api.port}"})
    for number in range(2):
        client = python(exp, f"client-{number}", CLIENT).connects("api").restart_policy("Always")
        client.set_env("ADDR", "${api.addr}")
    python(exp, "work", FOREVER).job(backoff_limit=2)
    for rank in exp.new_ranks("unit", 2, command=["python3", "-u", "-c", FOREVER]):
        rank.restart_policy("OnFailure", max_restarts=1).termination_grace_period(1)
    return exp


def evict(kube, pod):
    """Evict a Pod, as ``kubectl drain`` does."""
    metadata = {"name": pod, "namespace": kube.namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    kube.raw.call("POST", kube.path(f"pods/{pod}/eviction"), body)


def test_an_experiment_whose_pods_are_all_evicted(kube_cluster, shared, name):
    """All processes run again in new Pods, and the clients reach the server at its address."""
    shared.launch(served(shared, name))
    wait_until(lambda: all_running(shared.describe_experiment(name)))
    before = running_pods(kube_cluster, name)
    for pod in before.values():
        evict(kube_cluster, pod)

    def runs_again():
        pods = running_pods(kube_cluster, name)
        is_new = len(pods) == len(before) and pods.keys().isdisjoint(before)
        return is_new and all_running(shared.describe_experiment(name))

    wait_until(runs_again, seconds=30)
    status = shared.describe_experiment(name)
    assert {process.restarts for process in status} == {0}
    reasons = {process.name: process.reason for process in status}
    # Only the API server knows why it has created another Pod of a Job.
    assert reasons.pop("work") == ""
    for reason in reasons.values():
        assert re.fullmatch(r"lost: .*node\d was drained\)?; started again on node\d", reason)
    for client in ("client-0", "client-1"):
        wait_until(lambda client=client: "reached" in shared.get_log(name, client))
    shared.delete(name)
