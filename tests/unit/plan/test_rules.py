"""The rules that an experiment must satisfy: resolve raises the first finding, lint reports all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from symphony import Experiment, SpecError
from symphony.plan.resolve import check_experiment, resolve
from tests.unit.strategies import SCHEME

Change = Callable[[Experiment], object]
KEY = "SYMPHONY_CURVE_SERVER_SECRET"


def example(change: Change = lambda _: None) -> Experiment:
    """Return processes ``a`` and ``b`` and a group ``g`` with a member ``m``, and change them."""
    experiment = Experiment("e", secrets={"token": "t"})
    experiment.new_process("a", command="c").binds("replay").exposes("page")
    experiment.new_process("b", command="c")
    experiment.new_process_group("g").new_process("m", command="c")
    change(experiment)
    return experiment


RULES: list[tuple[str, Change, str, str]] = [
    ("no-processes", lambda e: e.new_process_group("h"), "processes.h", "group 'h': the group has"),
    (
        "two-ports",
        lambda e: e.get_process("b").binds({"x": 1}).exposes({"x": 2}),
        "processes.b.exposes.x",
        "process 'b': binds service 'x' on port 1 and exposes it on port 2; use one port",
    ),
    (
        "bound-twice",
        lambda e: e.get_process("b").binds("replay"),
        "processes.b.binds.replay",
        "process 'b': serves service 'replay', which 'a' serves too; let one of them bind it",
    ),
    (
        "bound-twice",
        lambda e: e.get_process("b").exposes("replay"),
        "processes.b.exposes.replay",
        "process 'b': serves service 'replay', which 'a' serves too",
    ),
    (
        "bound-twice",
        lambda e: e.get_process_group("g").binds("x").get_process("m").binds("x"),
        "processes.g.processes.m.binds.x",
        "process 'g/m': serves service 'x', which 'g' serves too",
    ),
    (
        "unbound-service",
        lambda e: e.get_process("b").connects(["replay", "reply"]),
        "processes.b.connects.1",
        "process 'b': connects to service 'reply', which no process binds; did you mean 'replay'?",
    ),
    (
        "unbound-service",
        lambda e: e.get_process_group("g").connects("zzz"),
        "processes.g.connects.0",
        "group 'g': connects to service 'zzz', which no process binds; let a process bind it; boun",
    ),
    (
        "unbound-service",
        lambda e: e.get_process("b").connects("page"),
        "processes.b.connects.0",
        "process 'b': connects to service 'page', which 'a' exposes but does not bind; add it to t",
    ),
    (
        "ready",
        lambda e: e.get_process("a").ready(tcp="reply"),
        "processes.a.ready",
        "process 'a': ready.tcp names service 'reply', which the process neither binds nor exposes",
    ),
    (
        "healthy",
        lambda e: e.get_process("a").healthy(http="reply/up"),
        "processes.a.healthy",
        "process 'a': healthy.http names service 'reply', which the process neither binds nor expo",
    ),
    (
        "ready",
        lambda e: e.get_process_group("g").ready(http=("replay", "/")),
        "processes.g.ready",
        "process 'g/m': ready.http names service 'replay', which the process neither binds nor exp",
    ),
    (
        "encrypted",
        lambda e: e.get_process("b").encrypts("replay"),
        "processes.b.encrypted.0",
        "process 'b': encrypts service 'replay', which it does not bind; encrypt the service where",
    ),
    (
        "shared-variable",
        lambda e: e.get_process("b").binds("replay-bind"),
        "processes.a.binds.replay",
        "process 'a': services 'replay' and 'replay-bind' share the variable SYMPH_REPLAY_BIND_HOS",
    ),
    (
        "start-order",
        lambda e: e.get_process("a").starts_after("bb"),
        "processes.a.starts_after.bb",
        "process 'a': starts after 'bb', which is not in the experiment; did you mean 'b'?",
    ),
    (
        "start-order",
        lambda e: e.new_replicas("r", 2, cmd="c") and e.get_process("a").starts_after("r"),
        "processes.a.starts_after.r",
        "process 'a': starts after 'r', which is not in the experiment; pass the list of its "
        "replicas, or their names: r-0, r-1",
    ),
    (
        "start-order",
        lambda e: e.get_process("a").starts_after("a"),
        "processes.a.starts_after.a",
        "process 'a': starts after 'a', and cannot wait for itself or for its own members; remove",
    ),
    (
        "start-order",
        lambda e: e.get_process_group("g").starts_after("m"),
        "processes.g.starts_after.m",
        "group 'g': starts after 'm', and cannot wait for itself",
    ),
    (
        "start-order",
        lambda e: (
            e.get_process("a").starts_after("g") and e.get_process_group("g").starts_after("a")
        ),
        "processes",
        "the start order is a cycle: 'a' waits for 'm' waits for 'a'; remove one of these conditio",
    ),
    (
        "mounted-twice",
        lambda e: (
            e.get_process_group("g").mount_pvc("x", "/m")
            and e.get_process("m").mount_pvc("y", "/m")
        ),
        "processes.g.processes.m.volumes.0",
        "process 'g/m': mounts two volumes at '/m'; choose another mount_path for one of them",
    ),
    (
        "unknown-secret",
        lambda e: e.get_process("a").set_env_secret("TOKEN", "tokn"),
        "processes.a.env_secrets.TOKEN",
        "process 'a': variable 'TOKEN' uses secret 'tokn', which the experiment does not have; did",
    ),
    (
        "unknown-secret",
        lambda e: e.get_process_group("g").set_env_secret("TOKEN", "zzz"),
        "processes.g.env_secrets.TOKEN",
        "process 'g/m': variable 'TOKEN' uses secret 'zzz', which the experiment does not have; it",
    ),
    (
        "variable-twice",
        lambda e: e.get_process("a").set_env("TOKEN", "x").set_env_secret("TOKEN", "token"),
        "processes.a.env_secrets.TOKEN",
        "process 'a': variable 'TOKEN' is set in env and in env_secrets; remove one of them",
    ),
    (
        "reserved-variable",
        lambda e: e.get_process("a").encrypts("replay").set_env("SYMPHONY_CURVE_SERVER_SECRET", ""),
        "processes.a.env.SYMPHONY_CURVE_SERVER_SECRET",
        "process 'a': variable 'SYMPHONY_CURVE_SERVER_SECRET' is reserved for an encryption key of",
    ),
]


@pytest.mark.parametrize(("rule", "change", "path", "message"), RULES)
def test_each_rule_reports_its_finding(rule: str, change: Change, path: str, message: str) -> None:
    experiment = example(change)
    (finding,) = check_experiment(experiment)
    assert finding.rule == rule
    assert ".".join(map(str, finding.path)) == path
    assert str(finding.to_error()).startswith(message)
    with pytest.raises(SpecError) as caught:
        resolve(experiment, SCHEME)
    assert str(caught.value) == str(finding.to_error())
    assert caught.value.path == finding.path


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda e: e.set_env(KEY, "x"), ("env", KEY)),
        (lambda e: e.secrets.update({KEY: "x"}), ("secrets", KEY)),
        (
            lambda e: e.get_process("a").set_env_secret(KEY, "token"),
            ("processes", "a", "env_secrets", KEY),
        ),
    ],
)
def test_no_variable_or_secret_has_the_name_of_a_key(change: Change, path: tuple[str]) -> None:
    experiment = example(change)
    experiment.get_process("a").encrypts("replay")
    (finding,) = check_experiment(experiment)
    assert (finding.rule, finding.path) == ("reserved-variable", path)


def test_all_findings_are_reported_in_one_pass() -> None:
    experiment = example()
    for _, change, _, _ in RULES[1:10]:
        change(experiment)
    assert len({finding.rule for finding in check_experiment(experiment)}) == 5


def test_an_experiment_without_processes_is_an_error() -> None:
    with pytest.raises(
        SpecError,
        match="^experiment 'e' has no processes; add one below processes, or raise its replicas",
    ):
        resolve(Experiment("e"), SCHEME)


def test_a_valid_experiment_has_no_findings() -> None:
    experiment = example()
    experiment.get_process("a").binds({"x": 80}).exposes({"x": 80}).ready(tcp="page")
    experiment.get_process_group("g").binds("own").get_process("m").ready(tcp="own")
    experiment.get_process("b").connects(["replay", "x"]).starts_after("g")
    assert list(check_experiment(experiment)) == []
