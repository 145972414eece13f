"""The Job of a supervisor in the cluster, to which the settings of the experiment apply."""

import pytest

from symphony import Experiment
from symphony.errors import SpecError
from symphony_kube.api import error_messages
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import MANAGED_BY, SUPERVISOR, Scope
from symphony_kube.lifecycle.supervisor.in_cluster import (
    NAME,
    SupervisorOptions,
    _options_of,
    render,
    render_job,
)
from symphony_kube.render.options import RenderOptions
from tests.backends.kube.render.test_render import rendered

SCOPE = Scope(experiment="e", namespace="team")
OWN_LABELS = {MANAGED_BY: "symphony", SUPERVISOR: "e"}


def job_of(**options):
    return render_job(SCOPE, NAME, SupervisorOptions(image="s:1", **options))


def pod_of(**options):
    return job_of(**options)["spec"]["template"]


def test_options_for_all_pods_and_jobs_apply():
    pod_yml = {
        "metadata": {"labels": {"team": "a"}, "annotations": {"cost": "1"}},
        "spec": {
            "securityContext": {"runAsUser": 1000},
            "priorityClassName": "low",
            "restartPolicy": "Always",
            "containers": [{"name": "sidecar", "image": "x"}],
            "initContainers": [{"name": "first", "image": "x"}],
        },
    }
    job_yml = {"metadata": {"labels": {"team": "a"}}, "spec": {"ttlSecondsAfterFinished": 9}}
    cluster = RenderOptions(
        pod_yml=pod_yml, job_yml=job_yml, security="restricted", image_pull_secrets=("s",)
    )
    job = job_of(cluster=cluster)
    assert job["metadata"]["labels"] == {**OWN_LABELS, "team": "a"}
    assert job["spec"]["ttlSecondsAfterFinished"] == 9
    pod = job["spec"]["template"]
    assert pod["metadata"]["labels"] == {**OWN_LABELS, "team": "a"}
    assert pod["metadata"]["annotations"] == {"cost": "1"}
    spec = pod["spec"]
    assert spec["securityContext"]["runAsUser"] == 1000
    assert spec["securityContext"]["runAsNonRoot"]
    assert (spec["priorityClassName"], spec["restartPolicy"]) == ("low", "OnFailure")
    assert [item["name"] for item in spec["containers"]] == ["supervisor"]
    assert "initContainers" not in spec
    with pytest.raises(SpecError, match="job_yml changes the name"):
        job_of(cluster=RenderOptions(job_yml={"metadata": {"name": "x"}}))


def test_labels_and_priority_of_all_processes_apply():
    exp = Experiment("e")
    for name, labels in (("a", {"team": "x", "own": "1"}), ("b", {"team": "x", "own": "2"})):
        process = exp.new_process(name, command="c", queue="q", priority_class="high")
        process.add_labels(labels)
    exp.new_process("c", command="c", labels={"team": "x"}, priority_class="high").job()
    options = SupervisorOptions(image="s:1").like(rendered(exp).units)
    pod = render_job(SCOPE, NAME, options)["spec"]["template"]
    assert pod["metadata"]["labels"] == {**OWN_LABELS, "team": "x"}
    assert pod["spec"]["priorityClassName"] == "high"
    exp.new_process("d", command="c")
    options = SupervisorOptions(image="s:1").like(rendered(exp).units)
    assert (dict(options.labels), options.priority_class) == ({}, None)


@pytest.mark.parametrize("account", [None, "trainer"])
def test_rights_are_those_of_the_service_account(account):
    options = SupervisorOptions(image="s:1", cluster=RenderOptions(service_account=account))
    objects = {item["kind"]: item for item in render(SCOPE, b"", options)}
    assert ("ServiceAccount" in objects) is (account is None)
    (subject,) = objects["RoleBinding"]["subjects"]
    spec = objects["Job"]["spec"]["template"]["spec"]
    assert subject["name"] == spec["serviceAccountName"] == (account or NAME)


def test_limits_are_those_that_a_quota_requires():
    (container,) = pod_of(limits={"memory": "1Gi"})["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": "1Gi"}


def test_next_job_of_a_supervisor_is_like_the_first():
    pod_yml = {"metadata": {"labels": {"team": "a"}}, "spec": {"securityContext": {"runAsUser": 9}}}
    first = job_of(cluster=RenderOptions(pod_yml=pod_yml, security="restricted"))
    template = first["spec"]["template"]
    added = {"controller-uid": "1", "batch.kubernetes.io/job-name": NAME}
    labels = {**template["metadata"]["labels"], **added}
    present = {**first, "spec": {"template": {**template, "metadata": {"labels": labels}}}}
    again = render_job(SCOPE, NAME, _options_of(present))
    assert again["spec"]["template"]["spec"] == template["spec"]
    assert again["spec"]["template"]["metadata"]["labels"] == template["metadata"]["labels"]


VIOLATION = (
    'pods "a" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != '
    'false (container "a" must set securityContext.allowPrivilegeEscalation=false)'
)


@pytest.mark.parametrize(
    ("detail", "hint"),
    [
        (VIOLATION, "; set the option security to restricted"),
        ('pods "a" is forbidden: violates PodSecurity "baseline": host namespaces', ""),
    ],
)
def test_refusal_by_pod_security_admission_names_the_option(detail, hint):
    error = ApiError(detail, status=403, reason="Forbidden", detail=detail)
    text = error_messages.cannot_create("Pod", "a", SCOPE, error)
    assert text == f"cannot create pod 'a' in namespace 'team': {detail}{hint}"
