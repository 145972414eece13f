"""pod_yml and container_yml: how they are merged, and which changes are refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from symphony import Experiment, SpecError
from symphony_kube.api.labels import EXPERIMENT, MANAGED_BY, RUN, UNIT
from symphony_kube.render.given_fields.merge import merge, to_plain_data
from symphony_kube.render.options import RenderOptions
from tests.backends.kube.render.test_render import IMAGE, one, rendered, spec_of

MERGED: dict[str, tuple[Any, Any, Any]] = {
    "a mapping": (
        {"a": {"b": 1, "c": 2}},
        {"a": {"c": 3, "d": 4}},
        {"a": {"b": 1, "c": 3, "d": 4}},
    ),
    "a scalar over a mapping": ({"a": {"b": 1}}, {"a": 2}, {"a": 2}),
    "a mapping over a scalar": ({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}),
    "null removes a key": ({"a": 1, "b": 2}, {"a": None, "c": None}, {"b": 2}),
    "null in a new mapping": ({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    "items with names": (
        {"x": [{"name": "a", "v": {"p": 1}}, {"name": "b"}]},
        {"x": [{"name": "c"}, {"name": "a", "v": {"q": 2}}]},
        {"x": [{"name": "a", "v": {"p": 1, "q": 2}}, {"name": "b"}, {"name": "c"}]},
    ),
    "items without names": ({"x": [{"key": "a"}]}, {"x": [{"key": "b"}]}, {"x": [{"key": "b"}]}),
    "a list of strings": ({"x": ["a", "b"]}, {"x": ["c"]}, {"x": ["c"]}),
    "an empty list": ({"x": [{"name": "a"}]}, {"x": []}, {"x": [{"name": "a"}]}),
    "a new list": (
        {},
        {"x": [{"name": "a", "b": None}]},
        {"x": [{"name": "a", "b": None}]},
    ),
    "mounts are merged by path": (
        {"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]},
        {
            "volumeMounts": [
                {"name": "v", "mountPath": "/b", "readOnly": True},
                {"name": "v", "mountPath": "/c"},
            ]
        },
        {
            "volumeMounts": [
                {"name": "v", "mountPath": "/a"},
                {"name": "v", "mountPath": "/b", "readOnly": True},
                {"name": "v", "mountPath": "/c"},
            ]
        },
    ),
    "a variable has one source": (
        {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        {
            "env": [
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
                {"name": "B", "value": "3"},
            ]
        },
        {
            "env": [
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
                {"name": "B", "value": "3"},
            ]
        },
    ),
    "a volume has one type": (
        {
            "volumes": [
                {"name": "a", "emptyDir": {}},
                {"name": "b", "nfs": {"server": "s", "path": "/p"}},
            ]
        },
        {
            "volumes": [
                {"name": "a", "nfs": {"server": "t"}},
                {"name": "b", "nfs": {"readOnly": True}},
            ]
        },
        {
            "volumes": [
                {"name": "a", "nfs": {"server": "t"}},
                {"name": "b", "nfs": {"server": "s", "path": "/p", "readOnly": True}},
            ]
        },
    ),
}


@pytest.mark.parametrize(("below", "over", "result"), MERGED.values(), ids=MERGED)
def test_merge(below: Any, over: Any, result: Any) -> None:
    before = copy.deepcopy((below, over))
    assert merge(below, over) == result
    assert (below, over) == before


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"a": [{"b": object}]},
            "pod_yml.a[0].b must be text, a number, true, false, a list or a mapping",
        ),
        ({"a": {1: "x"}}, "pod_yml.a has a key that is not text: 1; quote it"),
        ({"a": float("nan")}, "pod_yml.a must be text"),
    ],
)
def test_data_that_is_not_json_is_refused(value: Any, message: str) -> None:
    with pytest.raises(SpecError) as refusal:
        to_plain_data(value, "pod_yml")
    assert message in str(refusal.value)


def test_tuples_become_lists() -> None:
    assert to_plain_data({"a": (1, 2.5, None, True)}, "x") == {"a": [1, 2.5, None, True]}


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"containers": []},
        "pod_yml of process 'p' is merged over the Pod, which has metadata and spec, but no "
        "'containers'; write spec: {containers: ...}",
    ),
    ({"metdata": {}}, "no 'metdata'; did you mean 'metadata'?"),
    ({"kind": "Deployment"}, "pod_yml of process 'p' changes the kind of the object"),
    (
        {"metadata": {"name": "q"}},
        "pod_yml of process 'p' changes 'name', by which symphony finds its objects",
    ),
    ({"metadata": {"namespace": "q"}}, "changes 'namespace'"),
    ({"metadata": None}, "changes 'name'"),
    ({"metadata": {"labels": {UNIT: "q"}}}, f"changes '{UNIT}'"),
    ({"metadata": {"labels": {EXPERIMENT: None}}}, f"changes '{EXPERIMENT}'"),
    ({"metadata": {"labels": {MANAGED_BY: "helm"}}}, f"changes '{MANAGED_BY}'"),
    ({"metadata": {"labels": "none"}}, f"changes '{MANAGED_BY}'"),
    (
        {"metadata": {"annotations": "none"}},
        "pod_yml of process 'p' has annotations that are not a mapping: 'none'",
    ),
    ({"spec": "none"}, "removes the container 'p'"),
    ({"spec": None}, "removes the container 'p'; name each container that it changes"),
    ({"spec": {"containers": [{"image": "x"}]}}, "removes the container 'p'"),
]


@pytest.mark.parametrize(("own", "message"), REFUSED)
@pytest.mark.parametrize("job", [False, True])
def test_pod_yml_that_changes_the_identity_of_a_pod_is_refused(
    own: dict[str, Any], message: str, job: bool
) -> None:
    exp, process = one()
    process.pod_yml = own
    with pytest.raises(SpecError) as refusal:
        rendered(
            exp, RenderOptions(image=IMAGE, jobs_only=job), namespace="team-a" if job else None
        )
    assert message in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


def test_container_yml_that_changes_the_name_is_refused() -> None:
    exp, process = one()
    process.container_yml = {"name": "q"}
    with pytest.raises(
        SpecError, match="container_yml of process 'p' changes the name of the container"
    ):
        rendered(exp)


@pytest.mark.parametrize("key", [MANAGED_BY, UNIT, RUN, "symphony/mine"])
def test_labels_of_symphony_are_reserved(key: str) -> None:
    exp, process = one()
    process.add_label(key, "x")
    with pytest.raises(
        SpecError, match=f"process 'p' has a label '{key}', which is reserved for symphony"
    ):
        rendered(exp)


@pytest.mark.parametrize("key", ["a..b/x", f"{'a' * 254}/x"])
def test_label_prefix_must_be_a_domain(key: str) -> None:
    exp, process = one()
    process.node_selector(key, "x")
    with pytest.raises(SpecError, match="the part before '/' must be a domain name"):
        rendered(exp)


def test_pod_yml_of_a_job_applies_to_its_pod_template() -> None:
    exp = Experiment("e")
    process = exp.new_process("p", command="c").job()
    process.pod_yml = {"metadata": {"labels": {"a": "b"}}, "spec": {"priorityClassName": "high"}}
    manifest = rendered(exp)
    (job,) = manifest.units
    assert spec_of(manifest, "p")["priorityClassName"] == "high"
    assert job["spec"]["template"]["metadata"]["labels"]["a"] == "b"
    assert "a" not in job["metadata"]["labels"]
    assert "priorityClassName" not in job["spec"]


def test_restart_policy_in_pod_yml_of_a_job_is_checked() -> None:
    exp, process = one()
    process.job()
    process.pod_yml = {"spec": {"restartPolicy": "Always"}}
    with pytest.raises(SpecError, match="has the restart policy Always, which a Job cannot have"):
        rendered(exp)


def test_pod_yml_can_change_one_container() -> None:
    exp = Experiment("e")
    group = exp.new_process_group("g")
    for name in ("a", "b"):
        group.new_process(name, command="c")
    group.pod_yml = {
        "spec": {"containers": [{"name": "b", "tty": True}, {"name": "sidecar", "image": "s"}]}
    }
    found = spec_of(rendered(exp), "g")["containers"]
    assert [(item["name"], item.get("tty")) for item in found] == [
        ("a", None),
        ("b", True),
        ("sidecar", None),
    ]
    assert [item["command"] for item in found[:2]] == [["c"], ["c"]]
