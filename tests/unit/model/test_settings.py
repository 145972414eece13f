"""The methods that change settings, and which processes a setting applies to."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from symphony import Experiment, Process, ProcessGroup, SpecError
from symphony.model.experiment.component import Component
from symphony.model.settings import write_signatures
from symphony.model.settings.signatures import SettingOptions
from symphony.model.settings.table import CONTAINER, POD, SETTINGS, Settings
from symphony.plan.resolution import configs, env_files
from symphony.plan.resolve import resolve
from symphony.plan.shell import argv
from tests.unit.strategies import SCHEME

Call = Callable[[Component], Any]


def assigned(key: str, value: Any) -> Call:
    def call(component: Component) -> Component:
        setattr(component, key, value)
        return component

    return call


# The name of a setting, calls, and the value of the setting after them.
VALUES: list[tuple[str, list[Call], Any]] = [
    ("env", [lambda c: c.set_env("A", 1)], {"A": "1"}),
    (
        "env",
        [lambda c: c.set_envs({"A": "1", "B": 2}), lambda c: c.set_env("A", "3")],
        {"A": "3", "B": "2"},
    ),
    (
        "env_file",
        [lambda c: c.add_env_file("a"), lambda c: c.add_env_file(["b", "a"])],
        ["a", "b"],
    ),
    (
        "configs",
        [
            lambda c: c.configs("conf/a"),
            lambda c: c.configs(["conf/a"]).configs({"b": "other"}),
        ],
        {"a": "conf/a", "b": "other"},
    ),
    (
        "env_secrets",
        [
            lambda c: c.set_env_secret("A", "token"),
            lambda c: c.set_env_secret("B", "key").set_env_secret("A", "key"),
        ],
        {"A": "key", "B": "key"},
    ),
    (
        "binds",
        [lambda c: c.binds("a"), lambda c: c.binds({"b": 80, "c": None})],
        {"a": None, "b": 80, "c": None},
    ),
    ("binds", [lambda c: c.binds({"a": 80}), lambda c: c.binds({"a": 81})], {"a": 81}),
    ("connects", [lambda c: c.connects("a"), lambda c: c.connects(["b", "a"])], ["a", "b"]),
    ("connects", [lambda c: c.connects(("a", "b"))], ["a", "b"]),
    ("exposes", [lambda c: c.exposes({"board": 6006})], {"board": 6006}),
    ("encrypted", [lambda c: c.encrypts("a"), lambda c: c.encrypts(["b", "a"])], ["a", "b"]),
    ("rank_of", [lambda c: c.rank_of("a")], "a"),
    ("replicated", [lambda c: c.replicates("a"), lambda c: c.replicates(["b"])], ["a", "b"]),
    (
        "resource_request",
        [lambda c: c.resource_request(cpu=0.5), lambda c: c.resource_request(memory="1Gi")],
        {"cpu": "0.5", "memory": "1Gi"},
    ),
    ("resource_request", [lambda c: c.resource_request(mem=1048576)], {"memory": "1048576"}),
    (
        "resource_limit",
        [lambda c: c.resource_limit(cpu=2, gpu=1), lambda c: c.resource_limit(mem="2Gi", cpu=3)],
        {"cpu": "3", "gpu": 1, "memory": "2Gi"},
    ),
    ("resource_limit", [lambda c: c.resource_limit(gpu=0)], {"gpu": 0}),
    ("resource_limit", [lambda c: c.resource_request(gpu=2)], {"gpu": 2}),
    ("image_pull_policy", [lambda c: c.image_pull_policy("Always")], "Always"),
    (
        "restart_policy",
        [lambda c: c.restart_policy("Always"), lambda c: c.restart_policy("OnFailure")],
        "OnFailure",
    ),
    (
        "restart_policy",
        [lambda c: c.restart_policy("always", final_codes=[78, 2])],
        {"policy": "Always", "final_codes": [2, 78]},
    ),
    ("termination_grace_period", [lambda c: c.termination_grace_period(0)], 0),
    ("stop_signal", [lambda c: c.stop_signal("INT"), lambda c: c.stop_signal("SIGHUP")], "HUP"),
    ("stop_signal", [lambda c: c.stop_signal("sigint")], "INT"),
    (
        "stop_command",
        [lambda c: c.stop_command(["pg_ctl", "stop"]), lambda c: c.stop_command("pg_ctl stop")],
        "pg_ctl stop",
    ),
    ("stop_command", [lambda c: c.stop_command(("sleep", 1))], ["sleep", "1"]),
    ("signal_group", [lambda c: c.signal_group(), lambda c: c.signal_group(False)], False),
    ("log_limit", [lambda c: c.log_limit("1Gi"), lambda c: c.log_limit(2**16)], "65536"),
    ("umask", [lambda c: c.umask("027"), lambda c: c.umask("0007")], "0007"),
    ("code", [lambda c: c.code("src"), lambda c: c.code(False)], False),
    ("code", [lambda c: c.code(Path("src"))], {"path": "src"}),
    (
        "code",
        [lambda c: c.code({"path": ".", "include": "src", "exclude": ["*.pt", "!a.pt"]})],
        {"path": ".", "include": ["src"], "exclude": ["*.pt", "!a.pt"]},
    ),
    ("tty", [lambda c: c.tty(), lambda c: c.tty(False)], False),
    ("jobset", [lambda c: c.jobset(), lambda c: c.jobset(False)], False),
    ("job", [lambda c: c.job()], {}),
    (
        "job",
        [lambda c: c.job(backoff_limit=0, active_deadline=2, ttl=3)],
        {"backoff_limit": 0, "active_deadline": 2, "ttl": 3},
    ),
    ("ready", [lambda c: c.ready(tcp="a")], {"tcp": "a", "timeout": 60}),
    (
        "ready",
        [lambda c: c.ready(http=("a", "/h"), timeout=0.5)],
        {"http": ["a", "/h"], "timeout": 0.5},
    ),
    ("ready", [lambda c: c.ready(http="a")], {"http": ["a", "/"], "timeout": 60}),
    ("ready", [lambda c: c.ready(http="a/h/i?b")], {"http": ["a", "/h/i?b"], "timeout": 60}),
    (
        "ready",
        [lambda c: c.ready(command="a b"), lambda c: c.ready(command=["a", 1])],
        {"command": ["a", "1"], "timeout": 60},
    ),
    ("ready", [lambda c: c.ready(command="a | b")], {"command": "a | b", "timeout": 60}),
    ("ready", [lambda c: c.ready(log="^up$", timeout=5)], {"log": "^up$", "timeout": 5}),
    (
        "healthy",
        [lambda c: c.healthy(http="a/h")],
        {"http": ["a", "/h"], "every": 10, "failures": 3, "timeout": 5},
    ),
    (
        "healthy",
        [
            lambda c: c.healthy(tcp="a", every="1m"),
            lambda c: c.healthy(command=["a", 1], every="1m", failures=1, timeout=2),
        ],
        {"command": ["a", "1"], "every": 60, "failures": 1, "timeout": 2},
    ),
    (
        "starts_after",
        [lambda c: c.starts_after("a"), lambda c: c.starts_after("b", "succeeded")],
        {"a": "ready", "b": "succeeded"},
    ),
    (
        "starts_after",
        [lambda c: c.starts_after(Process("a"), condition="started")],
        {"a": "started"},
    ),
    ("starts_after", [lambda c: c.starts_after(ProcessGroup("g"))], {"g": "ready"}),
    (
        "volumes",
        [lambda c: c.mount_nfs("s", "/p", "/m", "n")],
        [{"nfs": {"mount_path": "/m", "server": "s", "path": "/p", "name": "n"}}],
    ),
    (
        "volumes",
        [lambda c: c.mount_host_path("/p", "/m", "Directory", True)],
        [{"host_path": {"mount_path": "/m", "path": "/p", "type": "Directory", "read_only": True}}],
    ),
    (
        "volumes",
        [lambda c: c.mount_host_path("/p", "/m")],
        [{"host_path": {"mount_path": "/m", "path": "/p"}}],
    ),
    (
        "volumes",
        [lambda c: c.mount_pvc("c", "/m", read_only=True)],
        [{"pvc": {"mount_path": "/m", "claim": "c", "read_only": True}}],
    ),
    (
        "volumes",
        [lambda c: c.mount_empty_dir("/m", memory=True, size="1Gi")],
        [{"empty_dir": {"mount_path": "/m", "memory": True, "size": "1Gi"}}],
    ),
    ("volumes", [lambda c: c.mount_shared_memory()], [{"shared_memory": {}}]),
    (
        "volumes",
        [lambda c: c.mount_shared_memory(size=1024)],
        [{"shared_memory": {"size": "1024"}}],
    ),
    (
        "volumes",
        [lambda c: c.mount_secret("s", "/m", files=["a/t"])],
        [{"secret": {"mount_path": "/m", "secret": "s", "files": {"t": "a/t"}}}],
    ),
    (
        "volumes",
        [lambda c: c.mount_config("s", "/m")],
        [{"config": {"mount_path": "/m", "config": "s"}}],
    ),
    (
        "volumes",
        [
            lambda c: c.mount_pvc("a", "/a"),
            lambda c: c.mount_pvc("a", "/a"),
            lambda c: c.mount_pvc("b", "/b"),
        ],
        [{"pvc": {"mount_path": "/a", "claim": "a"}}, {"pvc": {"mount_path": "/b", "claim": "b"}}],
    ),
    (
        "node_selector",
        [lambda c: c.node_selector("a", 1), lambda c: c.node_selector("b/c", "d")],
        {"a": "1", "b/c": "d"},
    ),
    (
        "spread",
        [lambda c: c.spread(), lambda c: c.spread("zone")],
        "zone",
    ),
    ("together", [lambda c: c.together("zone"), lambda c: c.together()], "kubernetes.io/hostname"),
    (
        "topology_spread",
        [
            lambda c: c.add_topology_spread(key="zone"),
            lambda c: c.add_topology_spread(
                key="rack", max_skew=2, when_unsatisfiable="ScheduleAnyway"
            ),
        ],
        [{"key": "zone"}, {"key": "rack", "max_skew": 2, "when_unsatisfiable": "ScheduleAnyway"}],
    ),
    ("per_pod", [lambda c: c.per_pod(8)], 8),
    ("priority_class", [lambda c: c.priority_class("high")], "high"),
    ("queue", [lambda c: c.queue("team-a")], "team-a"),
    ("together_or_not", [lambda c: c.together_or_not(), lambda c: c.together_or_not("5m")], 300),
    (
        "tolerations",
        [lambda c: c.add_toleration(key="k", value=1, effect="NoExecute", toleration_seconds=2)],
        [{"key": "k", "value": "1", "effect": "NoExecute", "toleration_seconds": 2}],
    ),
    (
        "tolerations",
        [
            lambda c: c.add_toleration(operator="Exists"),
            lambda c: c.add_toleration(operator="Exists"),
        ],
        [{"operator": "Exists"}],
    ),
    (
        "labels",
        [lambda c: c.add_label("a", 1), lambda c: c.add_labels({"b": "c"})],
        {"a": "1", "b": "c"},
    ),
    ("pod_yml", [assigned("pod_yml", {"spec": {"a": 1}})], {"spec": {"a": 1}}),
    ("pod_yml", [lambda c: c.pod_yml.update(a=1) or c], {"a": 1}),
    ("container_yml", [assigned("container_yml", {"a": []})], {"a": []}),
]


@pytest.mark.parametrize("make", [Process, ProcessGroup])
@pytest.mark.parametrize(("key", "calls", "value"), VALUES)
def test_calls_set_the_value_and_can_be_chained(
    make: type[Component], key: str, calls: list[Call], value: Any
) -> None:
    component = make("it")
    for call in calls:
        assert call(component) is component
    assert component.settings.dump() == {key: value}


@pytest.mark.parametrize("make", [Process, ProcessGroup])
@pytest.mark.parametrize(("key", "_calls", "value"), VALUES)
def test_keyword_arguments_take_the_values_of_a_file(
    make: Callable[..., Component], key: str, _calls: list[Call], value: Any
) -> None:
    assert make("it", **{key: value}).settings.dump() == {key: value}
    assert make("it").configure(**{key: value}).settings.dump() == {key: value}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"redy": {}}, "process 'it' has the unknown key 'redy'; did you mean 'ready'"),
        ({"restart": "always"}, "the unknown key 'restart'; write restart_policy: Always"),
        ({"restart_policy": "alway"}, "must be one of Always, OnFailure, Never, not 'alway'; did"),
        ({"volumes": [{"nfs": {"server": "s"}}]}, "a volume of kind nfs needs mount_path"),
        (
            {"volumes": [{"git_repo": {"repository": "r", "mount_path": "/m"}}]},
            "the volume kind git_repo was removed; clone the repository on this machine, and set",
        ),
        ({"binds": {"s": 0}}, "the port of 's' must be a number from 1 to 65535"),
    ],
)
def test_errors_in_keyword_arguments_are_those_of_a_file(
    keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        Process("it", **keywords)


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (lambda c: c.ready({"log": "up", "timeout": "2m"}), {"log": "up", "timeout": 120}),
        (lambda c: c.resource_request({"mem": "1Gi"}), {"memory": "1Gi"}),
        (lambda c: c.resource_limit({"gpu": 1}), {"gpu": 1}),
        (lambda c: c.restart_policy({"policy": "always"}), "Always"),
        (lambda c: c.job(True), {}),
        (lambda c: c.node_selector({"a": "b"}), {"a": "b"}),
        (
            lambda c: c.starts_after(["a", Process("b")], "started"),
            {"a": "started", "b": "started"},
        ),
        (lambda c: c.starts_after({"a": "succeeded"}), {"a": "succeeded"}),
    ],
)
def test_methods_accept_the_forms_of_a_file(call: Call, value: Any) -> None:
    (set_value,) = call(Process("it")).settings.dump().values()
    assert set_value == value


def test_a_mapping_and_other_arguments_are_refused() -> None:
    with pytest.raises(SpecError, match="ready has a mapping and other arguments; put all in"):
        Process("it").ready({"log": "up"}, tcp="s")


def test_type_checkers_know_every_setting() -> None:
    assert SettingOptions.__annotations__.keys() == SETTINGS.keys()
    is_current = write_signatures.path().read_text() == write_signatures.text()
    assert is_current, "write the signatures again: scripts/docs pages"


def test_replicas_replicate_the_services_that_they_bind_and_expose() -> None:
    first, second = Experiment("e").new_replicas("r", 2, binds={"s": None}, exposes="page")
    assert first.settings.replicated == second.settings.replicated == ["s", "page"]


def test_the_table_covers_every_setting_and_method() -> None:
    assert {key for key, _, _ in VALUES} == set(SETTINGS)
    for setting in SETTINGS.values():
        if setting.name != "volumes":
            assert hasattr(Component, setting.method), setting.name


def test_changes_to_a_dump_do_not_affect_the_settings() -> None:
    process = Process("p").set_env("A", "1").mount_pvc("c", "/m")
    dumped = process.settings.dump()
    dumped["env"]["A"] = "2"
    dumped["volumes"][0]["pvc"]["claim"] = "d"
    assert process.settings.dump() == {
        "env": {"A": "1"},
        "volumes": [{"pvc": {"mount_path": "/m", "claim": "c"}}],
    }


def test_unset_settings_are_not_dumped() -> None:
    assert Settings().dump() == {}


def test_policies_and_durations_have_the_forms_of_other_programs() -> None:
    process = Experiment("e").new_process("p", command="p")
    for given, parsed in (
        ("always", "Always"),
        ("on-failure", "OnFailure"),
        ("on-failure:5", {"policy": "OnFailure", "max_restarts": 5}),
        ("Always:0", {"policy": "Always", "max_restarts": 0}),
        ("never", "Never"),
    ):
        process.restart_policy(given)
        assert process.settings.restart_policy == parsed
    process.image_pull_policy("if-not-present").termination_grace_period("1m30s")
    process.job(active_deadline="2h", ttl="1d").ready(log="up", timeout="2m")
    process.add_toleration(key="k", effect="NoExecute", toleration_seconds="5m")
    assert process.settings.dump() == {
        "image_pull_policy": "IfNotPresent",
        "restart_policy": "Never",
        "termination_grace_period": 90,
        "job": {"active_deadline": 7200, "ttl": 86400},
        "ready": {"log": "up", "timeout": 120},
        "tolerations": [{"key": "k", "effect": "NoExecute", "toleration_seconds": 300}],
    }


# Values that only these methods refuse. test_validators.py has the checks that they share.
REFUSED: list[tuple[Call, str]] = [
    (lambda c: c.connects({"a": 80}), "connects takes no port ('a': 80); set the port where"),
    (lambda c: c.encrypts({"a": 80}), "encrypts takes no port ('a': 80); set the port where"),
    (lambda c: c.binds("a", encrypted="yes"), "encrypted must be true or false, not 'yes'"),
    (lambda c: c.set_env_secret("1A", "token"), "variable name '1A' is not valid"),
    (lambda c: c.set_env_secret("A", ""), "the secret of variable 'A' is empty"),
    (lambda c: c.resource_request(memory=1, mem=2), "memory and mem are the same setting"),
    (lambda c: c.resource_limit(gpu=-1), "gpu must be at least 0"),
    (lambda c: c.image_pull_policy("ALWAYS"), "one of Always, IfNotPresent, Never, not 'ALWAYS'"),
    (lambda c: c.restart_policy("allways"), "one of Always, OnFailure, Never, not 'allways'; did"),
    (lambda c: c.restart_policy("no"), "restart_policy cannot be 'no': use never"),
    (lambda c: c.restart_policy("unless-stopped"), "cannot be 'unless-stopped': use always, which"),
    (
        lambda c: c.restart_policy("on-failure:x"),
        "as in always:5, on-failure:5, not 'on-failure:x'",
    ),
    (lambda c: c.restart_policy("on-failure:" + "9" * 99), "must have a number of restarts after"),
    (lambda c: c.restart_policy("never:5"), "restart_policy has max_restarts, but Never restarts"),
    (lambda c: c.restart_policy("always", final_codes=256), "final_codes must be at most 255, not"),
    (lambda c: c.restart_policy("always:5", max_restarts=6), "restart_policy has two limits"),
    (lambda c: c.termination_grace_period(-1), "termination_grace_period must be seconds or a"),
    (lambda c: c.termination_grace_period("1.5s"), "must be a whole number of seconds, not '1.5s'"),
    (lambda c: c.stop_signal("KILL"), "to kill the process at once, set termination_grace_period"),
    (lambda c: c.stop_signal("STOP"), "stop_signal must be one of TERM, INT, "),
    (lambda c: c.stop_signal("Int"), "stop_signal must be one of TERM, INT, "),
    (lambda c: c.stop_command([]), "stop_command is empty; give a program with its arguments"),
    (lambda c: c.stop_command(" "), "stop_command has an empty line"),
    (lambda c: c.umask(0o27), "umask must be three or four octal digits, such as '027', not 23"),
    (
        lambda c: c.umask("0x7"),
        "umask must be three or four octal digits, such as '027', not '0x7'",
    ),
    (lambda c: c.log_limit("10"), "log_limit must be at least 64Ki (64 * 1024 bytes), not '10'"),
    (lambda c: c.log_limit("much"), "log_limit must be an amount such as 2, '500m' or '4Gi'"),
    (lambda c: c.code(True), "code must be a directory, such as '.', or false, not True"),
    (lambda c: c.code({"exclude": "a"}), "code needs path"),
    (lambda c: c.code({"path": ".", "ignore": "a"}), "unknown"),
    (lambda c: c.job(ttl=1.5), "ttl must be a whole number of seconds"),
    (lambda c: c.ready(), "ready takes exactly one of tcp, http, command, log, not 0"),
    (lambda c: c.ready(tcp="a", log="b"), "log, not 2"),
    (lambda c: c.ready(tcp="a", timeout=0), "the timeout of ready must be above 0"),
    (lambda c: c.ready(tcp="a", timeout=float("nan")), "not nan"),
    (lambda c: c.ready(tcp="a", timeout=True), "not True"),
    (lambda c: c.ready(http=("a",)), "such as web/health or ['web', '/health'], not ('a',)"),
    (lambda c: c.ready(http="http://a/h"), "http must be a service and a path, such as web/health"),
    (lambda c: c.ready(http="/health"), "service name '' is not valid"),
    (lambda c: c.ready(http=("a", "h")), "the path of http must be an absolute path, not 'h'"),
    (lambda c: c.ready(command=[]), "ready command is empty; give a program"),
    (lambda c: c.ready(log="("), "log is not a regular expression: '('"),
    (lambda c: c.ready(log="[[:digit:]]"), "possible nested set at position 1; write"),
    (lambda c: c.starts_after("Bad"), "process name 'Bad' is not valid"),
    (lambda c: c.healthy(), "healthy takes exactly one of tcp, http, command, not 0"),
    (lambda c: c.healthy(tcp="a", command="b"), "tcp, http, command, not 2"),
    (lambda c: c.healthy({"log": "up"}), "healthy takes no log, because a line in the log does"),
    (lambda c: c.healthy(tcp="a", every=0), "every of healthy must be at least 1 s, not 0"),
    (lambda c: c.healthy(tcp="a", every=1.5), "every of healthy must be a whole number of seconds"),
    (lambda c: c.healthy(tcp="a", timeout="500ms"), "the timeout of healthy must be"),
    (lambda c: c.healthy(tcp="a", failures=0), "failures of healthy must be at least 1, not 0"),
    (lambda c: c.healthy(tcp="a", failures=None), "failures of healthy must be a whole number"),
    (lambda c: c.healthy(command=[]), "healthy command is empty; give a program"),
    (lambda c: c.starts_after("a", "done"), "must be one of ready, started, succeeded, not 'done'"),
    (lambda c: c.mount_nfs("s", "p", "/m"), "the NFS path must be an absolute path, not 'p'"),
    (lambda c: c.mount_nfs(None, "/p", "/m"), "a volume of kind nfs needs server"),
    (
        lambda c: c.mount_git_repo("r", "/m", revision="main"),
        "mount_git_repo was removed; clone the repository on this machine, and set code",
    ),
    (lambda c: c.mount_pvc("c", "/m", read_only=1), "read_only must be true or false, not 1"),
    (lambda c: c.mount_pvc("c", "/m", name="N"), "volume name 'N' is not valid"),
    (lambda c: c.mount_host_path("/p", "/m", "Folder"), "type must be one of '', DirectoryOr"),
    (lambda c: c.mount_empty_dir("/m", size="big"), "size must be an amount"),
    (lambda c: c.mount_secret("s", "/m", files={"a/b": "c"}), "the files of the volume: 'a/b' is"),
    (lambda c: c.mount_pvc("a", "/m").mount_pvc("b", "/m"), "mounts two volumes at '/m'"),
    (lambda c: c.mount_shared_memory().mount_empty_dir("/dev/shm"), "two volumes at '/dev/shm'"),
    (lambda c: c.node_selector("a b", "c"), "label key 'a b' is not valid"),
    (lambda c: c.add_toleration(value="v"), "set operator='Exists' to allow it"),
    (lambda c: c.add_toleration(key="k l"), "key must be the key of a label, [prefix/]name"),
    (lambda c: c.add_toleration(key="k", operator="Exists", value="v"), "remove value, or set "),
    (lambda c: c.add_toleration(key="k", toleration_seconds=2), "set effect='NoExecute', or "),
    (lambda c: c.add_toleration(key="k", effect="no"), "effect must be one of NoSchedule"),
    (lambda c: c.add_labels(["a"]), "labels must be a mapping"),
    (
        lambda c: c.ready("redis"),
        "ready must be a mapping with the keys tcp, http, command, log, timeout, not 'redis'",
    ),
    (assigned("pod_yml", []), "pod_yml must be a mapping, not []"),
    (assigned("container_yml", "x"), "container_yml must be a mapping, not 'x'"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_other_values_are_refused_with_a_message(call: Call, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        call(Process("it"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# --- settings of groups ---

POD_LEVEL = [name for name, setting in SETTINGS.items() if setting.level == POD]
CALLS = {key: calls[0] for key, calls, _ in reversed(VALUES)}


@pytest.mark.parametrize("key", POD_LEVEL)
def test_a_grouped_process_cannot_have_a_pod_setting(key: str) -> None:
    process = ProcessGroup("trainers").new_process("one", command="c")
    call = CALLS[key]
    with pytest.raises(
        SpecError, match=r"'one' is in group 'trainers'.*of the group 'trainers' instead"
    ):
        call(process)
    assert process.settings.dump() == {}


@pytest.mark.parametrize("key", POD_LEVEL)
def test_a_process_with_a_pod_setting_cannot_join_a_group(key: str) -> None:
    process = Process("one", command="c")
    CALLS[key](process)
    group = ProcessGroup("trainers")
    with pytest.raises(
        SpecError, match=rf"'one' has settings that belong to its group: {key}; .*'trainers'"
    ):
        group.add_process(process)
    assert group.list_processes() == []
    assert process.group is None


def settings_of(experiment: Experiment, process: str) -> dict[str, Any]:
    return next(
        item for item in resolve(experiment, SCHEME) if item.name == process
    ).settings.dump()


# The plan reads env files and configuration files; see test_env_files.py and test_configs.py.
CONTAINER_LEVEL = [
    name
    for name, setting in SETTINGS.items()
    if setting.level == CONTAINER and name not in (env_files.KEY, configs.KEY)
]


# The tests of a process need a service that it serves.
OWN_SERVICE_CALLS: dict[str, Call] = {
    "ready": lambda c: c.ready(tcp="own"),
    "healthy": lambda c: c.healthy(tcp="own"),
}


@pytest.mark.parametrize("key", CONTAINER_LEVEL)
def test_a_container_setting_of_a_group_applies_to_all_members(key: str) -> None:
    experiment = Experiment("e", secrets=["token"])
    experiment.new_process("server", command="c").binds(["a", "b"])
    group = experiment.new_process_group("g").binds("own")
    group.new_process("before", command="c")
    OWN_SERVICE_CALLS.get(key, CALLS[key])(group)
    group.new_process("after", command="c")
    value = group.settings.dump()[key]
    assert settings_of(experiment, "before")[key] == value
    assert settings_of(experiment, "after")[key] == value
    assert key not in settings_of(experiment, "server")


@pytest.mark.parametrize("key", ["binds", "exposes", *POD_LEVEL])
def test_other_settings_of_a_group_do_not_apply_to_its_members(key: str) -> None:
    experiment = Experiment("e")
    for name in ("a", "b"):
        experiment.new_process(name, command="c")
    group = experiment.new_process_group("g")
    group.new_process("member", command="c")
    call: Call = (lambda c: c.starts_after("a")) if key == "starts_after" else CALLS[key]
    call(group)
    assert key not in settings_of(experiment, "member")
    planned = resolve(experiment, SCHEME).processes[-1]
    assert (key in planned.pod.dump()) == (key in POD_LEVEL)


def test_a_setting_of_a_member_takes_precedence_and_mappings_are_merged() -> None:
    experiment = Experiment("e")
    group = (
        experiment.new_process_group("g")
        .set_envs({"A": "group", "B": "group"})
        .resource_limit(cpu=1, gpu=1)
    )
    group.image_pull_policy("Always").ready(log="group", timeout=1).mount_pvc("a", "/a")
    group.container_yml = {"x": {"y": 1, "z": [1]}}
    member = (
        group.new_process("p", command="c", env={"A": "own"})
        .resource_limit(cpu=2)
        .image_pull_policy("Never")
    )
    member.ready(command="own").mount_pvc("b", "/b")
    member.container_yml = {"x": {"z": [2]}}
    settings = settings_of(experiment, "p")
    assert settings["env"] == {"A": "own", "B": "group"}
    assert settings["resource_limit"] == {"cpu": "2", "gpu": 1}
    assert settings["image_pull_policy"] == "Never"
    assert settings["ready"] == {"command": "own", "timeout": 60}
    assert [next(iter(volume.values()))["claim"] for volume in settings["volumes"]] == ["a", "b"]
    assert settings["container_yml"] == {"x": {"y": 1, "z": [2]}}


# --- settings that the plan carries out for all backends ---


def test_a_file_sets_the_mask_without_quotes_and_the_program_has_it(tmp_path: Path) -> None:
    file = tmp_path / "e.yml"
    file.write_text(
        "name: e\nprocesses:\n"
        "  g: {umask: 007, processes: {command: {command: [sh, -c, umask]}, line: {cmd: umask}}}\n"
    )
    for process in resolve(Experiment.load_file(file), SCHEME):
        done = subprocess.run(argv(process, "sh"), capture_output=True, text=True, check=True)
        assert int(done.stdout, base=8) == 0o007, process.name
