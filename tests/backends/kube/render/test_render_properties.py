"""Properties of all rendered experiments: values are preserved, and generated names are valid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from symphony import Experiment
from symphony.plan.plan import Plan
from symphony.plan.shell import argv
from symphony_kube.api.labels import Scope
from symphony_kube.render.experiment import render
from symphony_kube.render.options import RenderOptions
from symphony_kube.render.text import escape, is_port_name, port_name, unique_name
from tests.backends.kube.specimens import IMAGE, planned
from tests.unit.strategies import experiments, names, texts

Object = dict[str, Any]

# The rules of Kubernetes, taken from its documentation (Object Names and IDs, Labels, Quantity).
LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
DNS_LABEL = re.compile(LABEL)
SUBDOMAIN = re.compile(rf"{LABEL}(\.{LABEL})*")
SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
PORT_NAME = re.compile(r"(?=.{1,15}$)(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LABEL_KEY = re.compile(rf"({LABEL}(\.{LABEL})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
VARIABLE = re.compile(r"(?!\.$|\.\.)[-._a-zA-Z][-._a-zA-Z0-9]*")
QUANTITY = re.compile(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)(m|k|[MGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?")


def expanded(text: str, mapping: Mapping[str, str]) -> str:
    """Expand an argument with the algorithm of Kubernetes.

    See third_party/forked/golang/expansion/expand.go. The algorithm reads bytes, and writes the
    byte after a single "$" as the character with this number, so that "$é" is not preserved.
    """
    data, out, place = text.encode(), b"", 0
    while place < len(data):
        byte, follower = data[place : place + 1], data[place + 1 : place + 2]
        end = data.find(b")", place + 2) if follower == b"(" else -1
        if byte != b"$" or not follower:
            out += byte
            place += 1
        elif follower == b"$":
            out += b"$"
            place += 2
        elif end == -1:
            out += b"$" + chr(follower[0]).encode()
            place += 2
        else:
            name = data[place + 2 : end].decode()
            out += mapping.get(name, f"$({name})").encode()
            place = end + 1
    return out.decode(errors="replace")


X = {"X": "wrong", "XX": "wrong", "": "wrong"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$(X)", "wrong"),
        ("$$(X)", "$(X)"),
        ("$(Y)", "$(Y)"),
        ("$(X", "$(X"),
        ("$X $", "$X $"),
        ("$$$$(X)", "$$(X)"),
        ("$é $$é", "$Ã\ufffd $é"),
    ],
)
def test_model_of_expansion(text: str, result: str) -> None:
    assert expanded(text, X) == result


def test_all_short_escaped_texts_expand_to_themselves() -> None:
    for length in range(6):
        for characters in product("$()X é", repeat=length):
            text = "".join(characters)
            assert expanded(escape(text), X) == text


@given(texts)
def test_escaped_text_expands_to_itself(text: str) -> None:
    assert expanded(escape(text), X) == text


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("for name in $NAMES; do echo ${name%$}; done", None),
        ("$", None),
        ("$HOME $(date) $X", "$HOME $$(date) $X"),
        ("a=$(ls -l | wc -l)", None),
        ("$(echo $(X))", "$$(echo $$(X))"),
        ("echo $$ $HOME$", "echo $$$$ $HOME$"),
        ("$$(X) $$$X", "$$$$(X) $$$$$$X"),
        ("$é", "$$é"),
    ],
)
def test_only_text_that_would_be_expanded_is_escaped(text: str, escaped: str | None) -> None:
    assert escape(text) == (escaped or text)


# --- whole experiments ---


def tamed(data: Object) -> Object:
    """Return an experiment without settings that Kubernetes does not support."""
    for component in (data, *_components(data)):
        env = component.get("env", {})
        component["env"] = {key: value for key, value in env.items() if VARIABLE.fullmatch(key)}
    for component in _components(data):
        for key in ("pod_yml", "container_yml"):
            component.pop(key, None)
        if component.get("job") is not None:
            component.pop("restart_policy", None)
        for volume in component.get("volumes", []):
            _tame(volume)
        if "command" not in component and "cmd" not in component and "cmds" not in component:
            component.pop("args", None)
    return data


def _tame(volume: Object) -> None:
    ((kind, details),) = volume.items()
    if "mount_path" in details:
        details["mount_path"] = details["mount_path"].replace(":", "-")
    if kind in ("secret", "config", "pvc"):
        details["claim" if kind == "pvc" else kind] = "an.object"
        details.pop("files", None)
    if kind == "host_path":
        details["path"] = details["path"].replace("..", "-")


def _components(data: Object) -> Iterator[Object]:
    for member in data["processes"].values():
        yield member
        yield from member.get("processes", {}).values()


def _services(data: Object) -> list[str]:
    keys = ("binds", "exposes")
    return [
        name for component in _components(data) for key in keys for name in component.get(key, {})
    ]


def made(
    data: Object, *, shared: bool = False, jobs_only: bool = False
) -> tuple[Plan, list[Object]]:
    """Return the plan and the objects of an experiment in its file form."""
    exp = Experiment.load_dict(data)
    scope = Scope(experiment=exp.name, namespace="team-a" if shared else exp.name, shared=shared)
    plan = planned(exp, scope)
    files = dict.fromkeys([*plan.secrets.values(), *plan.key_variables], b"swordfish")
    options = RenderOptions(image=IMAGE, jobs_only=jobs_only)
    return plan, list(render(plan, scope, options, files))


whole = experiments().map(tamed)


def pods(objects: list[Object]) -> Iterator[Object]:
    """Yield every Pod, and the Pod template of every Job."""
    for item in objects:
        if item["kind"] in ("Pod", "Job"):
            yield item if item["kind"] == "Pod" else item["spec"]["template"]


@given(whole)
def test_arguments_and_variables_are_preserved(data: Object) -> None:
    plan, objects = made(data)
    containers = {item["name"]: item for pod in pods(objects) for item in pod["spec"]["containers"]}
    assert list(containers) == [process.name for process in plan]
    for process in plan:
        item = containers[process.name]
        env = {
            variable["name"]: variable["value"] for variable in item["env"] if "value" in variable
        }
        arrived = {key: expanded(value, env) for key, value in env.items()}
        for directory in ("SECRETS", "SCRATCH", "CONFIG"):
            arrived.pop(f"SYMPHONY_{directory}_DIR", None)
        assert arrived == {**plan.environment(process)}
        got = [expanded(word, env) for word in (*item.get("command", []), *item.get("args", []))]
        directory = process.start_dir
        if directory is None or directory.startswith("/"):
            wanted = argv(process, "/bin/sh")
            if wanted[:2] == ["/bin/sh", "-c"]:
                # Scripts precede the shell line.
                wanted = wanted[2:]
            assert got[len(got) - len(wanted) :] == wanted
            assert item.get("workingDir") == directory
        elif process.command:
            assert got[-len(process.command) - len(process.args) :] == [
                *process.command,
                *process.args,
            ]


@given(whole, st.booleans(), st.booleans())
def test_rendered_objects_are_valid(data: Object, shared: bool, jobs_only: bool) -> None:
    every = [data["name"], "symphony-secrets", *data["processes"], *_services(data)]
    if max(map(len, every)) > 30:
        shared = False
    for component in _components(data):
        if jobs_only and component.get("restart_policy") == "Always":
            component["restart_policy"] = "OnFailure"
    _, objects = made(data, shared=shared, jobs_only=jobs_only)
    seen = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(set(seen)) == len(seen)
    for item in objects:
        check_metadata(item["metadata"])
        if item["kind"] == "Service":
            assert SERVICE_NAME.fullmatch(item["metadata"]["name"])
            assert all(LABEL_VALUE.fullmatch(value) for value in item["spec"]["selector"].values())
    for pod in pods(objects):
        check_metadata(pod["metadata"])
        check_pod(pod["spec"])


def check_metadata(metadata: Object) -> None:
    assert SUBDOMAIN.fullmatch(metadata.get("name", "x"))
    assert len(metadata.get("name", "")) <= 63
    for key, value in metadata["labels"].items():
        assert LABEL_KEY.fullmatch(key)
        assert LABEL_VALUE.fullmatch(value)


def check_pod(spec: Object) -> None:
    volumes = [volume["name"] for volume in spec.get("volumes", [])]
    assert len(set(volumes)) == len(volumes)
    assert all(DNS_LABEL.fullmatch(name) for name in volumes)
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    names_ = [item["name"] for item in containers]
    assert len(set(names_)) == len(names_)
    assert all(DNS_LABEL.fullmatch(name) for name in names_)
    ports = [port for item in containers for port in item.get("ports", [])]
    assert len({port["name"] for port in ports}) == len(ports)
    assert all(PORT_NAME.fullmatch(port["name"]) for port in ports)
    used = set()
    for item in containers:
        mounts = [mount["mountPath"] for mount in item.get("volumeMounts", [])]
        assert len(set(mounts)) == len(mounts)
        used.update(mount["name"] for mount in item.get("volumeMounts", []))
        variables = [variable["name"] for variable in item["env"]]
        assert len(set(variables)) == len(variables)
        assert all(VARIABLE.fullmatch(name) for name in variables)
        for amounts in item.get("resources", {}).values():
            for amount in amounts.values():
                assert isinstance(amount, str)
                assert QUANTITY.fullmatch(amount)
    assert used == set(volumes)


@given(whole)
def test_rendering_is_deterministic_plain_data(data: Object) -> None:
    plan, objects = made(data)
    before = json.dumps(plan.to_dict())
    scope = Scope(experiment=plan.experiment, namespace=plan.experiment)
    again = render(
        plan,
        scope,
        RenderOptions(image=IMAGE),
        dict.fromkeys([*plan.secrets.values(), *plan.key_variables], b"swordfish"),
    )
    assert json.dumps(list(again)) == json.dumps(objects)
    assert json.dumps(plan.to_dict()) == before
    assert json.loads(json.dumps(objects)) == objects


@given(whole)
def test_yaml_has_the_same_content(data: Object) -> None:
    plan, _ = made(data)
    scope = Scope(experiment=plan.experiment, namespace=plan.experiment)
    manifest = render(
        plan,
        scope,
        RenderOptions(image=IMAGE),
        dict.fromkeys([*plan.secrets.values(), *plan.key_variables], b"swordfish"),
    )
    text = str(manifest)
    assert "swordfish" not in text
    for loader in (yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        assert list(yaml.load_all(text, loader)) == manifest.to_dict()["objects"]


# --- generated names ---


@given(
    st.lists(
        st.one_of(names, st.from_regex(r"[a-z]([-a-z]{0,20}[a-z0-9])?", fullmatch=True)),
        unique=True,
    )
)
def test_port_names_are_unique(services: list[str]) -> None:
    taken: list[str] = []
    for service in services:
        name = port_name(service, taken)
        assert PORT_NAME.fullmatch(name)
        assert is_port_name(name)
        assert name not in taken
        assert name == service or not is_port_name(service) or service in taken
        taken.append(name)


def test_generated_port_name_is_kept() -> None:
    made_up = port_name("a-service-with-a-long-name", [])
    assert PORT_NAME.fullmatch(made_up)
    for service in (made_up, "a-service-with-a-long-name"):
        assert port_name(service, [made_up]) != made_up
        assert PORT_NAME.fullmatch(port_name(service, [made_up]))
    assert port_name("a--b", []) != "a-b" != port_name("a--b", ["a-b"])


@given(names, st.lists(names))
def test_unique_name_is_short_and_new(name: str, taken: list[str]) -> None:
    for _ in range(3):
        found = unique_name(name, taken)
        assert DNS_LABEL.fullmatch(found)
        assert found not in taken
        taken = [*taken, found]
