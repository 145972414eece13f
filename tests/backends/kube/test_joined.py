"""Who is joined with whom, as Pods, roster and Services tell it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from symphony import Experiment, NotFound
from symphony.errors import BackendError
from symphony.plan.topology import Link, Service, Topology
from symphony.status import ExperimentStatus, ProcessStatus
from symphony_kube.api.labels import Scope
from symphony_kube.render.experiment import render
from symphony_kube.render.options import Options
from symphony_kube.render.roster import decode, encode
from symphony_kube.status.topology import build_topology

from .conftest import FOREVER, python
from .specimens import FILES, IMAGE, planned


def of(exp: Experiment, *, environment: bool = True, expose: str = "LoadBalancer") -> Topology:
    """The topology of an experiment as if it ran, its Services listed by name as the API does."""
    scope = Scope(experiment=exp.name, namespace="team-a", shared=True)
    plan = planned(exp, scope)
    files = {**FILES, **dict.fromkeys(plan.key_variables, b"key")}
    manifest = render(plan, scope, Options(image=IMAGE, expose=expose), files)  # type: ignore[arg-type]
    roster = decode(encode(manifest.roster))
    processes = tuple(
        ProcessStatus(name=name, group=unit.name if unit.group else None)
        for unit in roster
        for name in unit.processes
    )
    container = manifest.units[0]["spec"]["containers"][0]
    env = {item["name"]: item.get("value", "") for item in container["env"]} if environment else {}
    services = sorted(
        (item for item in manifest if item["kind"] == "Service"),
        key=lambda one: one["metadata"]["name"],
    )
    status = ExperimentStatus(name=exp.name, backend="kube", processes=processes)
    return build_topology(status, roster, services, env)


def everything() -> Experiment:
    exp = Experiment("rl")
    exp.new_process("z").binds({"z-db": 7400}, encrypted=True).exposes({"web": 7401})
    team = (
        exp.new_process_group("team")
        .binds({"of-team": 7402})
        .connects("z-db")
        .starts_after("z", "started")
    )
    team.new_process("one")
    team.new_process("two").binds({"of-two": 7403}).connects("of-team")
    return exp


def test_services_are_told_in_the_order_of_the_description_with_who_serves_them() -> None:
    assert of(everything()).services == (
        Service(name="z-db", owners=("z",), port=7400, bound=True, encrypted=True),
        Service(name="web", owners=("z",), port=7401, exposed=True),
        Service(name="of-team", owners=("team",), port=7402, bound=True),
        Service(name="of-two", owners=("two",), port=7403, bound=True),
    )


def test_links_are_those_of_the_roster() -> None:
    assert of(everything()).links == (
        Link(kind="connects", source="team", target="z-db"),
        Link(kind="starts-after", source="team", target="z", condition="started"),
        Link(kind="connects", source="two", target="of-team"),
    )


def test_before_there_is_a_pod_services_are_told_by_name() -> None:
    assert [service.name for service in of(everything(), environment=False).services] == [
        "of-team", "of-two", "web", "z-db"
    ]  # fmt: skip


def test_what_leads_nowhere_outside_is_not_exposed() -> None:
    web = of(everything(), expose="none").services[1]
    assert (web.name, web.exposed, web.bound) == ("web", False, True)


# --- live ---


def test_without_the_right_to_list_services_that_right_is_named(
    kube_cluster, open_cluster, shared, name
):
    """Of an experiment whose Pods may be seen."""
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    restricted = open_cluster(
        namespace=kube_cluster.namespace, kubeconfig=str(kube_cluster.user("viewer", rules))
    )
    exp = shared.new_experiment(name)
    python(exp, "server", FOREVER).binds("db")
    shared.launch(exp)
    with pytest.raises(BackendError, match="it requires the right to list services in namespace"):
        restricted.describe_topology(name)
    with pytest.raises(NotFound, match="no experiment 'nowhere'"):
        shared.describe_topology("nowhere")


def test_the_command_line_draws_completes_and_says_what_it_would_do(
    kube_cluster, shared, name, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    exp = shared.new_experiment(name)
    python(exp, "server", FOREVER).binds({"db": 7400})
    python(exp, "client", FOREVER).connects("db")
    shared.launch(exp)
    kube_cluster.wait_for_pod(f"{name}-server")  # or there is nothing to attach to, or to copy from
    where = [
        "-b",
        "kube",
        "--kubeconfig",
        str(kube_cluster.kubeconfig),
        "--namespace",
        kube_cluster.namespace,
    ]

    def symphony(*words):
        argv = [sys.executable, "-m", "symphony", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    drawn = symphony("graph", *where, name)
    assert "binds db:7400 ← client" in drawn.stdout, drawn.stderr
    assert "connects db:7400 → server" in drawn.stdout
    assert symphony("__complete", *where, "forward", name, "").stdout.split() == [
        "server",
        "client",
        "db",
    ]
    for words, said in {
        ("attach", name, "server"): f"would attach this terminal to server of {name}",
        (
            "forward",
            name,
            "db",
        ): f"would forward any free local port to port 7400 of db of {name}",
        (
            "forward",
            name,
            "server",
            "80:8080",
        ): "would forward local port 8080 to port 80 of server",
        ("visit", name, "db"): "would forward any free local port to port 7400 of db",
        ("cp", name, "serv:/etc/hosts", "hosts"): f"would copy server:/etc/hosts to hosts ({name})",
    }.items():
        done = symphony(*words, *where, "--dry-run")
        assert (done.returncode, done.stdout, done.stderr[: len(said)]) == (0, "", said)
    assert (
        "which port of process 'server'?"
        in symphony("forward", name, "server", *where, "--dry-run").stderr
    )
    done = symphony("forward", name, "sever", *where, "--dry-run")
    assert "no process or service 'sever'; did you mean 'server'?" in done.stderr
