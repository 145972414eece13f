"""The settings that contain the fields that a server does not know."""

import pytest

from symphony import Experiment
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.api.resources import to_resource
from symphony_kube.lifecycle.create import refusal
from symphony_kube.render.given_fields.unknown_fields import unknown_fields
from symphony_kube.render.options import RenderOptions
from tests.backends.kube.render.test_render import rendered
from tests.backends.kube.specimens import IMAGE

SCOPE = Scope(experiment="e", namespace="e")
STRICT = 'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '


def unknown(*paths):
    return STRICT + ", ".join(f'unknown field "{path}"' for path in paths)


def refused(exp, message, options=None):
    """Return the message for the first Pod or Job of an experiment."""
    manifest = rendered(exp, options or RenderOptions(image=IMAGE))
    resource = to_resource(manifest.units[0], "e")
    error = ApiError(message, status=400, detail=message)
    return str(refusal(resource, SCOPE, error, manifest.overrides))


def test_unknown_fields_lead_to_the_setting_and_the_key():
    exp = Experiment("e")
    group = exp.new_process_group("team")
    group.pod_yml = {"spec": {"colour": "red"}}
    group.new_process("a", command="c")
    group.new_process("b", command="c").container_yml = {"resorces": {"limits": {"cpu": 1}}}
    message = unknown("spec.containers[1].resorces", "spec.colour")
    assert refused(exp, message) == (
        "cannot create pod 'team' in namespace 'e' as written: container_yml of process 'team/b' "
        "has fields that the server does not know: resorces (did you mean 'resources'?); pod_yml "
        "of group 'team' has fields that the server does not know: spec.colour"
    )


def test_unknown_field_of_a_job():
    exp = Experiment("e")
    exp.new_process("p", command="c", container_yml={"imag": "x"}).job()
    text = refused(exp, unknown("spec.template.spec.containers[0].imag"))
    assert "container_yml of process 'p'" in text
    assert text.endswith("imag (did you mean 'image'?)")


def test_unknown_field_of_an_option_leads_to_the_container():
    exp = Experiment("e")
    exp.new_process("p", command="c")
    options = RenderOptions(image=IMAGE, pod_yml={"spec": {"containers": [{"name": "p", "x": 1}]}})
    text = refused(exp, unknown("spec.containers[0].x"), options)
    assert "container 'p' has fields that the server does not know: x" in text


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (
            "failed to create typed patch object (/bad; /v1, Kind=Pod): .spec.colour: field not "
            "declared in schema",
            {"it": ["spec.colour"]},
        ),
        (STRICT + 'duplicate field "spec.zzz"', {"it": ["spec.zzz"]}),
        ('spec.volumes[0]: unknown field "x" of a webhook', {}),
        ("json: cannot unmarshal string into Go struct field PodSpec.spec.containers", {}),
        (unknown("spec.containers[7].a[3].b"), {"container '7'": ["a.3.b"]}),
    ],
)
def test_forms_of_the_message(message, fields):
    assert unknown_fields(message, {"spec": {"containers": []}}) == fields


def test_containers_are_named():
    body = {"spec": {"containers": [{"name": "main", "command": ["c"], "comand": ["x"]}]}}
    assert unknown_fields(unknown("spec.containers[0].comand", "spec.colour"), body) == {
        "container 'main'": ["comand (did you mean 'command'?)"],
        "it": ["spec.colour"],
    }
