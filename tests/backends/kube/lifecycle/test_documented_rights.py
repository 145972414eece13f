"""The Roles in docs/howto/shared-clusters.md are sufficient, and grant nothing unnecessary."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubetest.faults import FaultProxy
from kubetest.rights import required_right, with_group
from symphony import Cluster, Experiment, Process
from symphony.errors import LaunchFailed, Unsupported
from symphony.status import ProcessStatus, State
from tests.backends.kube.conftest import managed_objects, python

PAGE = Path(__file__).parents[4] / "docs" / "howto" / "shared-clusters.md"
SECRET = "swordfish"


def rules(title: str) -> list[dict[str, Any]]:
    """Return the rules of the Role that the page shows under a title."""
    found = re.search(
        rf'^```yaml title="{re.escape(title)}"\n(.*?)^```$', PAGE.read_text("utf-8"), re.S | re.M
    )
    assert found, f"the page has no {title}"
    allowed: list[dict[str, Any]] = yaml.safe_load(found[1])["rules"]
    return allowed


@pytest.fixture
def as_user(kube_cluster: Any, open_cluster: Any) -> Callable[..., Cluster]:
    """A function that opens a cluster as a user with the Role of a title in the namespace."""

    def new(title: str, **options: Any) -> Cluster:
        kubeconfig = str(kube_cluster.user("someone", rules(title)))
        opened: Cluster = open_cluster(
            kubeconfig=kubeconfig, **{"namespace": kube_cluster.namespace, **options}
        )
        return opened

    return new


SERVER = """
import os, time
print("up")
while not os.path.exists("/tmp/over"): time.sleep(0.1)
"""


def pair(cluster: Cluster, name: str, **options: Any) -> tuple[Experiment, Process]:
    """Add a server that is ready by its log and runs until a file exists, and a client after it."""
    exp = cluster.new_experiment(name, **options)
    server = python(exp, "server", SERVER).ready(log="^up")
    python(exp, "client", "print('hello')").starts_after("server")
    return exp, server


def states(cluster: Cluster, name: str) -> dict[str, ProcessStatus]:
    """Return the status of each process by name."""
    return {process.name: process for process in cluster.describe_experiment(name).processes}


def granted(title: str) -> set[tuple[str, str]]:
    """Return the resources and verbs that the Role of a title grants."""
    return {
        (with_group(resource, group), verb)
        for rule in rules(title)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def build(cluster: Cluster, name: str, file: Path, *, port: int) -> Experiment:
    """Return an experiment with all kinds of objects. ``port`` is the port of its service."""
    exp, server = pair(cluster, name, secrets={"token": str(file)})
    server.binds({"web": port}).mount_config("settings", "/etc/settings", files=[str(file)])
    python(exp, "task", "print('done')").job()
    python(exp, "looping", SERVER).job().restart_policy("OnFailure")
    return exp


def test_role_of_a_member_is_sufficient_and_necessary(
    kube_cluster: Any, open_cluster: Any, name: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text(SECRET)
    user = kube_cluster.user("someone", rules("role-member.yml"))
    with FaultProxy(user, scratch=tmp_path) as proxy:
        cluster = open_cluster(kubeconfig=str(proxy.kubeconfig), namespace=kube_cluster.namespace)
        use_everything(cluster, name, tmp_path / "file")
        used = {required_right(call.method, call.path) for call in proxy.calls()}
    assert managed_objects(kube_cluster) == {}
    # Newer versions of Kubernetes require another verb to connect to a Pod.
    connecting = {"pods/exec", "pods/attach", "pods/portforward"}
    unused = {
        (resource, verb)
        for resource, verb in granted("role-member.yml") - used
        if resource not in connecting
    }
    assert unused == set()


def use_everything(cluster: Cluster, name: str, file: Path) -> None:
    """Use all commands for which the Role of a member is necessary."""
    exp = build(cluster, name, file, port=7000)
    cluster.check(cluster.manifest(exp))
    cluster.launch(exp)
    assert cluster.list_experiments() == [name]
    assert cluster.wait(name, until="ready", timeout=60)
    assert states(cluster, name)["server"].ready  # the supervisor could record it
    assert cluster.exec_command(name, "server", ["echo", "there"]).stdout == "there\n"
    cluster.transfer_file(name, str(file), "server:/tmp/")
    assert cluster.explain_process(name, "server").events
    assert not any("may not list events" in event.text for event in cluster.iter_events(name))
    assert "up" in cluster.get_log(name, "server")
    with pytest.raises(Unsupported, match="the cluster serves no metrics"):
        cluster.iter_usage(name)
    cluster.port_forward(name, "server", 7000).close()
    file.write_text("another text")
    cluster.up(build(cluster, name, file, port=7001))
    cluster.stop_processes(name, ["looping"])
    cluster.delete(name)


@pytest.mark.parametrize(
    ("title", "serves"), [("role-jobs-and-services.yml", True), ("role-jobs.yml", False)]
)
def test_role_for_jobs_is_sufficient(
    kube_cluster: Any, as_user: Any, shared: Any, name: str, title: str, serves: bool
) -> None:
    cluster = as_user(title, jobs_only=True)
    exp, server = pair(cluster, name)
    server.binds("web")
    if not serves:
        with pytest.raises(LaunchFailed, match="ask for the right to create services"):
            cluster.launch(exp)
        assert managed_objects(kube_cluster) == {}
        exp, _ = pair(cluster, name)
    cluster.check(cluster.manifest(exp))
    cluster.launch(exp)
    cluster.wait(name, until="started", timeout=60)
    # The client was created because of the log, although nothing could be recorded on the Pod.
    assert states(cluster, name)["server"].state == State.RUNNING
    assert cluster.list_experiments() == [name]
    assert cluster.explain_process(name, "server").status.name == "server"
    with pytest.raises(Unsupported, match="ask for the right to list pods in the API group metr"):
        cluster.iter_usage(name)
    notes = [event for event in cluster.iter_events(name) if event.kind == "warning"]
    assert [("may not list events" in note.text) for note in notes] == [True]
    shared.exec_command(name, "server", ["touch", "/tmp/over"])  # as a user who may exec
    assert cluster.wait(name, timeout=60).exit_code == 0
    assert cluster.get_log(name, "client") == "hello\n"
    cluster.delete(name)
    assert managed_objects(kube_cluster) == {}
