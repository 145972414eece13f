"""Changing running experiments: what changes, what is refused, and interrupted changes."""

import threading

import pytest

from symphony.errors import AlreadyExists
from symphony_kube import change

from .conftest import unschedulable

STEPS = ("_publish_roster", "_create_unit", "_replace_supervisor", "_remove")


def test_interrupted_changes_are_completed(shared, kube_cluster, name, tmp_path, monkeypatch):
    """No node accepts the Pods, because only the objects matter."""
    token = tmp_path / "token"

    def describe(version, deadline=None):
        token.write_text(f"value {version}")
        secrets = {"token": str(token)}
        experiment = shared.new_experiment(name, secrets=secrets, deadline=deadline)
        unschedulable(experiment, "same").binds("same")
        team = experiment.new_process_group("team")
        team.node_selector("symphony.test/no-such-node", "true")
        for member in ("one", "two"):
            process = team.new_process(member, command=["sleep", "1000"])
            if member == "two":
                process.set_env("VERSION", version)
        team.set_env_secret("TOKEN", "token")
        unschedulable(experiment, f"only-{version}").binds(f"only-{version}")
        unschedulable(experiment, f"later-{version}").starts_after("same", "started")
        return experiment

    def objects(kind):
        items = kube_cluster.raw.call("GET", kube_cluster.path(kind))["items"]
        return {item["metadata"]["name"].removeprefix(f"{name}-"): item for item in items}

    shared.launch(describe("a"))
    uid = objects("pods")["same"]["metadata"]["uid"]
    changes = shared.diff(describe("b"))
    assert changes.names("unchanged") == ["same"]
    assert changes.names("restarted") == ["one", "two"]
    reasons = [process.text for process in changes.processes if process.name == "one"]
    assert "the contents of secret 'token' have changed" in reasons[0]
    with pytest.raises(AlreadyExists, match=r"deadline set to .* cannot be changed on Kubernetes"):
        shared.up(describe("a", deadline=1000))

    version = "a"
    for step in STEPS:
        version = "b" if version == "a" else "a"
        with monkeypatch.context() as patched:

            def fail(*_):
                raise KeyboardInterrupt

            patched.setattr(change._Application, step, fail)
            with pytest.raises(KeyboardInterrupt):
                shared.up(describe(version))
        assert not shared.diff(describe(version)).is_empty, step
        shared.up(describe(version))
        assert shared.diff(describe(version)).is_empty, step
        status = shared.describe_experiment(name)
        expected = ["same", "one", "two", f"only-{version}", f"later-{version}"]
        assert [process.name for process in status] == expected, step
        pods = objects("pods")
        assert pods["same"]["metadata"]["uid"] == uid
        units = {pod["metadata"]["labels"].get("symphony/unit"): pod for pod in pods.values()}
        variables = units["team"]["spec"]["containers"][1]["env"]
        assert {"name": "VERSION", "value": version} in variables
        assert set(objects("services")) == {"same", f"only-{version}"}

    (run,) = [run for run in shared.list_runs() if run.experiment == name]
    assert f"later-{version}" in run.load_record()["definition"]["processes"]

    # Two commands change the experiment at the same time.
    descriptions = [describe("a"), describe("b")]
    threads = [threading.Thread(target=shared.up, args=(item,)) for item in descriptions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same = [shared.diff(item).is_empty for item in descriptions]
    assert sorted(same) == [False, True]
    shared.delete(name)
