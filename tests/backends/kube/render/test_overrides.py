"""Fields of pod_yml and container_yml that the server does not know."""

from __future__ import annotations

from typing import Any

import pytest

from symphony.errors import LaunchFailed
from symphony_kube.render.given_fields.overrides import Override, dropped_fields
from tests.backends.kube.conftest import unschedulable

MADE: dict[str, Any] = {
    "metadata": {"name": "p", "labels": {"a": "b"}},
    "spec": {
        "containers": [
            {"name": "sidecar", "image": "i"},
            {
                "name": "p",
                "image": "i",
                "resources": {"limits": {"cpu": "1500m"}},
                "volumeMounts": [
                    {"mountPath": "/account", "name": "t"},
                    {"mountPath": "/x", "name": "x"},
                ],
                "securityContext": {},
            },
        ],
        "tolerations": [{"key": "added", "operator": "Exists"}, {"key": "k", "value": "v"}],
    },
}


def of_pod(**written: Any) -> list[str]:
    return dropped_fields(Override(unit="p", description="pod_yml", path=(), fields=written), MADE)


def of_container(**written: Any) -> list[str]:
    place = ("spec", "containers", "p")
    return dropped_fields(
        Override(unit="p", description="container_yml", path=place, fields=written), MADE
    )


@pytest.mark.parametrize(
    "written",
    [
        {"resources": {"limits": {"cpu": 1.5}}},
        {
            "tty": False,
            "stdin": None,
            "securityContext": {"privileged": False},
            "lifecycle": {},
            "args": [],
        },
        {"volumeMounts": [{"mountPath": "/x", "name": "x"}]},
    ],
)
def test_normalized_values_are_not_reported(written: dict[str, Any]) -> None:
    assert of_container(**written) == []


def test_additions_of_the_server_are_not_reported() -> None:
    spec = {
        "tolerations": [{"key": "k", "value": "v"}],
        "containers": [{"name": "p", "image": "i"}],
    }
    assert of_pod(spec=spec, metadata={"labels": {"a": "b"}}) == []


def test_dropped_field_is_reported_with_its_path() -> None:
    assert of_container(resorces={"limits": {"cpu": 1}}) == ["resorces (did you mean 'resources'?)"]
    assert of_container(volumeMounts=[{"mountPath": "/x", "readonly": True}]) == [
        "volumeMounts[0].readonly"
    ]
    assert of_pod(spec={"bogus": 1}) == ["spec.bogus"]
    spec = {"containers": [{"name": "p", "imag": "j"}], "tolerations": [{"key": "k", "vale": "v"}]}
    assert of_pod(spec=spec) == [
        "spec.containers[0].imag (did you mean 'image'?)",
        "spec.tolerations[0].vale",
    ]


def test_unexpected_response_is_ignored() -> None:
    hatch = Override(
        unit="p", description="", path=("spec", "template"), fields={"spec": {"bogus": 1}}
    )
    assert dropped_fields(hatch, MADE) == []


WRONG = [
    (
        False,
        "container_yml",
        {"resorces": {"limits": {"cpu": 1}}},
        "create pod .*container_yml of .* resorces",
    ),
    (
        False,
        "pod_yml",
        {"spec": {"bogus": 1}},
        r"create pod .*pod_yml of process 'p'.* spec\.bogus",
    ),
    (True, "pod_yml", {"spec": {"bogus": 1}}, r"create job .*pod_yml of process 'p'.* spec\.bogus"),
    (
        True,
        "container_yml",
        {"bogus": {"a": 1}},
        r"create job .*container_yml of process 'p'.* bogus",
    ),
]


def test_server_dry_run_reports_unknown_fields_and_accepts_normalized_values(shared, name):
    exp = shared.new_experiment(name)
    unschedulable(exp, "right").container_yml = {
        "resources": {"limits": {"cpu": 1.5}},
        "stdin": False,
        "env": None,
    }
    unschedulable(exp, "task").job().pod_yml = {
        "spec": {"hostNetwork": False, "dnsPolicy": "Default"}
    }
    shared.launch(exp, dry_run="server")
    for job, setting, written, message in WRONG:
        exp = shared.new_experiment(name)
        process = unschedulable(exp, "p")
        setattr(process, setting, written)
        if job:
            process.job()
        with pytest.raises(LaunchFailed, match=message):
            shared.launch(exp, dry_run="server")
