"""The events of an experiment on a real Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from symphony.errors import NotFound
from tests.backends.kube.conftest import FOREVER, managed_objects, python

# This supervisor fails once.
CRASH = "test -e /data/failed && sleep 1000; touch /data/failed; echo 'OSError: no space'; exit 3"
MOUNT = 'MountVolume.SetUp failed for volume "v" : '
EXPECTED = {
    'process stuck FailedMount: secret "no-such-secret" not found',
    "experiment supervisor exited with 3: OSError: no space",
    "experiment supervisor started again",
    "process agent started",
}


def supervisor_pod(name: str, image: str) -> dict[str, Any]:
    container = {
        "name": "supervisor",
        "image": image,
        "command": ["sh", "-c", CRASH],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "metadata": {
            "name": f"{name}-supervisor",
            "labels": {"app.kubernetes.io/managed-by": "symphony", "symphony/supervisor": name},
        },
        "spec": {
            "containers": [container],
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }


@pytest.mark.timeout(240)
def test_problems_crashes_and_changes_are_events(kube_cluster: Any, shared: Any, name: str) -> None:
    def describe(*agents: str) -> Any:
        exp = shared.new_experiment(name)
        for agent in agents:
            python(exp, agent, FOREVER)
        stuck = python(exp, "stuck", FOREVER)
        volume = {"name": "v", "secret": {"secretName": "no-such-secret"}}
        stuck.pod_yml = {"spec": {"volumes": [volume]}}
        stuck.container_yml = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
        return exp

    shared.launch(describe("agent"))
    kube_cluster.raw.call(
        "POST", kube_cluster.path("pods"), supervisor_pod(name, kube_cluster.image)
    )
    lines: list[str] = []
    for event in shared.iter_events(name, follow=True):
        lines.append(event.line.replace(MOUNT, ""))
        print(lines[-1])  # pytest shows it if a line does not come
        if EXPECTED.issubset(lines):
            break
    assert len(lines) == len(set(lines)), "each message is reported once"
    # The events that happened earlier are the same, without following them.
    shared.up(describe("agent", "other"))
    later = [event.line.replace(MOUNT, "") for event in shared.iter_events(name)]
    assert EXPECTED.union({"experiment changed: start other (new)"}).issubset(later)


@pytest.mark.timeout(240)
def test_a_removed_job_and_group_keep_their_logs(kube_cluster: Any, shared: Any, name: str) -> None:
    def describe(*, complete: bool) -> Any:
        exp = shared.new_experiment(name)
        python(exp, "kept", FOREVER)
        if complete:
            python(exp, "job", f"print('job'); {FOREVER}").job()
            team = exp.new_process_group("team")
            python(team, "one", f"print('one'); {FOREVER}")
            python(team, "two", f"print('two'); {FOREVER}")
        return exp

    shared.launch(describe(complete=True))
    followed = shared.iter_logs(name, ["job", "team"], follow=True)
    assert {next(followed).text for _ in range(3)} == {"job", "one", "two"}
    shared.up(describe(complete=False))
    assert [process.name for process in shared.describe_experiment(name)] == ["kept"]
    assert list(followed) == []
    assert sorted(shared.removed_processes(name)) == ["job", "one", "two"]
    assert shared.get_log(name, "job") == "job\n"
    assert shared.get_log(name, "two") == "two\n"
    events = [(event.process, str(event.kind)) for event in shared.iter_events(name, ["two"])]
    assert events == [("two", "started"), ("two", "stopped")]
    with pytest.raises(NotFound):
        shared.restart_processes(name, ["job"])
    # A process with the name of a removed one gets a new Pod.
    again = describe(complete=False)
    python(again, "one", f"print('again'); {FOREVER}")
    shared.up(again)
    assert sorted(shared.removed_processes(name)) == ["job"]
    shared.delete(name)
    assert managed_objects(kube_cluster) == {}


@pytest.mark.timeout(240)
def test_a_kubelet_and_a_job_count_an_unhealthy_process_as_failed(shared: Any, name: str) -> None:
    exits = "import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); signal.pause()"
    exp = shared.new_experiment(name)
    python(exp, "again", exits).restart_policy("OnFailure")
    python(exp, "once", exits).job()
    for process in exp.list_all_processes():
        process.healthy(command="echo sick; exit 1", every=1, failures=1)
        process.termination_grace_period(30)
    shared.launch(exp)
    reason = "unhealthy: the command failed: sick"
    expected = {"process again started again (restart 1)"}
    for process in ("again", "once"):
        expected.add(f"process {process} {reason}")
        expected.add(f"process {process} killed by SIGTERM ({reason})")
    lines = set()
    for event in shared.iter_events(name, follow=True):
        print(event.line)  # pytest shows it if a line does not come
        lines.add(event.line)
        if expected.issubset(lines):
            break
    again, once = shared.describe_experiment(name)
    assert again.restarts >= 1
    assert (once.displayed_state, once.exit_code, once.reason) == ("failed", 143, reason)
    # So does the record of the run.
    shared.delete(name)
    (run,) = [run for run in shared.list_runs() if run.experiment == name]
    assert shared.at_run(run).describe_experiment(name).processes[1] == once
