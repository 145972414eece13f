"""The start order on a real cluster."""

import pytest

from symphony.errors import LaunchFailed
from symphony.status import State
from tests.backends.kube.conftest import (
    FOREVER,
    managed_objects,
    python,
    unschedulable,
    wait_until,
)
from tests.backends.kube.held import HELD, release

SERVE = f"""
import os, socket
server = socket.create_server(("", int(os.environ["SYMPH_WEB_PORT"])))
{FOREVER}
"""
# Connects to the port of one service at the host of another service of the same process.
CONNECT = f"""
import os, socket, time
address = os.environ["SYMPH_CONTROL_HOST"], int(os.environ["SYMPH_WEB_PORT"])
while True:
    try:
        socket.create_connection(address, timeout=5).close()
        break
    except OSError:
        time.sleep(0.05)
print("connected", flush=True)
{FOREVER}
"""


def test_launch_waits_for_each_condition(kube_cluster, shared, name):
    exp = shared.new_experiment(name)
    python(exp, "server", HELD + SERVE).binds(["control", "web"]).ready(tcp="web")
    # The search of the first line is abandoned.
    logger = f"print('a' * 40 + '!', flush=True); {HELD}print('go'); {FOREVER}"
    python(exp, "logger", logger).ready(log="^((a+)+|go)$")
    python(exp, "short", HELD)
    after_ready = python(exp, "after-ready", CONNECT).connects(["control", "web"])
    after_ready.starts_after("server").starts_after("logger")
    python(exp, "after-end", FOREVER).starts_after("short", "succeeded")
    python(exp, "after-start", FOREVER).starts_after("after-end", "started")
    seen = []
    held = {"server", "logger", "short"}

    def see(status):
        seen.append(status)
        for process in [
            item.name for item in status if item.name in held and item.state is State.RUNNING
        ]:
            if process == "logger" and not status.note:
                continue
            held.remove(process)
            release(shared, name, process)

    shared.launch(exp)
    shared.wait(name, until="started", on_change=see, timeout=60)
    assert len(managed_objects(kube_cluster)["pods"]) == 6
    first = {process.name: process.reason for process in seen[0]}
    assert first["after-ready"] == "waiting for server to be ready and logger to be ready"
    assert first["after-end"] == "waiting for short to succeed"
    problem = "logger: it takes too long to search the log for '^((a+)+|go)$'; simplify"
    assert any(status.note.startswith(problem) for status in seen)
    assert seen[-1].note == ""
    pods = {
        item["metadata"]["name"]: item
        for item in kube_cluster.raw.call("GET", kube_cluster.path("pods"))["items"]
    }
    notes = pods[f"{name}-logger"]["metadata"]["annotations"]
    assert notes["symphony/ready"] == "logger"
    ready = pods[f"{name}-server"]["status"]["conditions"]
    when = next(item["lastTransitionTime"] for item in ready if item["type"] == "Ready")
    assert pods[f"{name}-after-ready"]["metadata"]["creationTimestamp"] >= when
    ended = pods[f"{name}-short"]["status"]["containerStatuses"][0]["state"]["terminated"][
        "finishedAt"
    ]
    assert pods[f"{name}-after-end"]["metadata"]["creationTimestamp"] >= ended
    wait_until(lambda: shared.get_log(name, "after-ready") == "connected\n")
    shared.delete(name)


def test_launch_checks_the_units_that_are_created_later(kube_cluster, shared, name):
    exp = shared.new_experiment(name)
    python(exp, "first", "print(1)").binds("web")
    wrong = unschedulable(exp, "second").starts_after("first", "succeeded")
    wrong.pod_yml = {"spec": {"restartPolicy": "Sometimes"}}
    with pytest.raises(LaunchFailed, match=f"cannot create pod '{name}-second'.*Sometimes"):
        shared.launch(exp)
    assert managed_objects(kube_cluster) == {}
