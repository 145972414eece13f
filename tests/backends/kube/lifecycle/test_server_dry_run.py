"""Golden objects are accepted by a real API server (dry run), and their YAML by kubectl."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from kubetest.accounts import wait_for_account
from kubetest.plugin import KubeCluster
from kubetest.rawapi import MERGE_PATCH, ApiError
from symphony import Experiment
from symphony_kube.api.labels import Scope
from symphony_kube.lifecycle.supervisor.in_cluster import SupervisorOptions, render_job
from symphony_kube.render.experiment import render
from symphony_kube.render.manifest import KubeManifest
from symphony_kube.render.options import RenderOptions
from tests.backends.kube.conftest import wait_until
from tests.backends.kube.specimens import FILES, IMAGE, SPECIMENS, Specimen, planned

Object = dict[str, Any]

PLACES = {
    "Secret": "api/v1/namespaces/{}/secrets",
    "ConfigMap": "api/v1/namespaces/{}/configmaps",
    "Service": "api/v1/namespaces/{}/services",
    "Pod": "api/v1/namespaces/{}/pods",
    "Job": "apis/batch/v1/namespaces/{}/jobs",
}
# Fields that the server normalizes, or that servers before Kubernetes 1.21 do not know.
OTHERWISE = {"cpu", "memory", "sizeLimit", "ttlSecondsAfterFinished"}


def refused(kube: KubeCluster, item: Object) -> str:
    """Return why the server rejects an object, or which fields it drops, or ``""``."""
    if item["kind"] == "Namespace":
        return ""
    path = f"/{PLACES[item['kind']].format(kube.namespace)}?dryRun=All"
    answer = kube.raw.call("POST", path, item)
    return "; ".join(_missing(item, answer, item["kind"]))


def _missing(sent: Any, got: Any, where: str) -> list[str]:
    """Return the paths of values that are not in the response."""
    if isinstance(sent, dict) and isinstance(got, dict):
        return [
            problem
            for key, item in sent.items()
            if key not in OTHERWISE
            for problem in _missing(item, got.get(key), f"{where}.{key}")
        ]
    if isinstance(sent, list) and isinstance(got, list) and len(got) >= len(sent):
        pairs = zip(sent, got, strict=False)
        return [
            problem
            for number, (a, b) in enumerate(pairs)
            for problem in _missing(a, b, f"{where}[{number}]")
        ]
    return (
        []
        if sent == got or (not sent and got is None)
        else [f"{where} was {sent!r} and is {got!r}"]
    )


@pytest.fixture
def account(kube_cluster: KubeCluster) -> None:
    """Create the service account of a specimen, without which its Pods are rejected."""
    kube_cluster.raw.call(
        "POST", kube_cluster.path("serviceaccounts"), {"metadata": {"name": "trainer"}}
    )
    wait_for_account(kube_cluster.raw, kube_cluster.namespace, "trainer")


def amounts(exp: Experiment) -> None:
    """Add processes with all notations of amounts, and with the longest names."""
    for number, amount in enumerate(["2", "500m", "1.5", ".5", "2.", "0", "1e3", "2E", "1k"]):
        exp.new_process(f"{'p' * 60}{number:03d}", container_image=IMAGE).resource_request(
            cpu=amount
        )
    memory = (
        exp.new_process("memory", container_image=IMAGE)
        .resource_request(memory="4Gi")
        .resource_limit(mem=2**33)
    )
    memory.mount_shared_memory("1.5Gi").mount_empty_dir("/x", size="1e6", name="x" * 63)
    for letter in "ab":
        memory.mount_empty_dir(f"/{letter}", size=ord(letter), name="y" * 63)
    memory.binds(["s" * 63, "s" * 62 + "t", "a--b", "a-b", "x1"]).ready(
        command=["test", "$(x)", ""]
    )


@pytest.mark.usefixtures("account")
def test_server_accepts_golden_objects_and_all_amounts_and_names(kube_cluster: KubeCluster) -> None:
    for specimen in (*SPECIMENS.values(), Specimen(build=amounts)):
        for item in specimen.manifest(kube_cluster.namespace):
            assert refused(kube_cluster, item) == "", (
                f"{specimen.name}: {item['kind']} {item['metadata']['name']}"
            )


def test_a_restricted_namespace_admits_processes_and_their_supervisor(
    kube_cluster: KubeCluster,
) -> None:
    """Pod security admission checks Pods as it creates them, and not the Jobs that contain them."""
    namespace = f"/api/v1/namespaces/{kube_cluster.namespace}"
    enforce = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    kube_cluster.raw.call("PATCH", namespace, enforce, MERGE_PATCH)

    def refusal(options: RenderOptions) -> str:
        try:
            return "; ".join(refused(kube_cluster, item) for item in pods_of_pair(options))
        except ApiError as exc:
            return str(exc)

    user = {"spec": {"securityContext": {"runAsUser": 1000}}}
    # The admission learns of the label a moment later.
    wait_until(lambda: 'violates PodSecurity "restricted' in refusal(RenderOptions(pod_yml=user)))
    assert refusal(RenderOptions(pod_yml=user, security="restricted")) == "; "


def pods_of_pair(options: RenderOptions) -> list[Object]:
    """Return the Pod of a server that is stopped gracefully, and that of a supervisor."""
    exp = Experiment("pair")
    exp.new_process("server", container_image=IMAGE, command=["sleep", "9"]).binds("web")
    scope = Scope(experiment="pair", namespace="pair")
    manifest = render(planned(exp, scope), scope, options, {})
    (pod,) = [item for item in manifest if item["kind"] == "Pod"]
    job = render_job(scope, "supervisor", SupervisorOptions(image=IMAGE, cluster=options))
    supervisor = {**job["spec"]["template"], "kind": "Pod", "apiVersion": "v1"}
    supervisor["metadata"] = {**supervisor["metadata"], "name": "supervisor"}
    supervisor["spec"] = {**supervisor["spec"], "serviceAccountName": "default"}
    del pod["metadata"]["namespace"]
    return [pod, supervisor]


@pytest.mark.parametrize("verb", ["create", pytest.param("apply", marks=pytest.mark.long)])
def test_kubectl_accepts_the_text_of_a_manifest(kube_cluster: KubeCluster, verb: str) -> None:
    for name in ("awkward", "volumes", "job", "group"):
        manifest = SPECIMENS[name].manifest(kube_cluster.namespace)
        kubectl(kube_cluster, [verb, "--dry-run=server", "-f", "-"], _without_namespace(manifest))
    shown = kubectl(
        kube_cluster,
        [verb, "--dry-run=client", "-o", "name", "-f", "-"],
        str(SPECIMENS["everything"].manifest()),
    )
    kinds = [line.partition("/")[0] for line in shown.split()]
    assert kinds == ["namespace", "secret", "secret", "configmap", *["service"] * 5, "pod"]


def _without_namespace(manifest: KubeManifest) -> str:
    """Return the text without the Namespace, which exists already."""
    head, _, rest = str(manifest).partition("kind: Namespace")
    return rest[rest.index("\n---\n") :] if rest else head


def kubectl(kube: KubeCluster, arguments: list[str], text: str) -> str:
    command = [kube.kubectl, "--kubeconfig", str(kube.kubeconfig), *arguments]
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_special_characters_arrive_in_a_container(kube_cluster: KubeCluster) -> None:
    """The model of expansion behaves like a kubelet."""
    exp = Experiment("words")
    program = "import json, os, sys; print(json.dumps({'args': sys.argv[1:], **os.environ}))"
    words = ["$(WORD) $$(WORD) $WORD", "a\n$(X)\n", "$$", "$", ""]
    exp.secrets["wandb"] = "tokens/wandb"
    process = exp.new_process(
        "words", container_image=kube_cluster.image, command=["python3", "-c", program]
    )
    process.args = words
    process.set_env("WORD", "$(TOKEN) $$").set_env_secret("TOKEN", "wandb")
    scope = Scope(experiment="words", namespace=kube_cluster.namespace)
    for item in render(planned(exp, scope), scope, RenderOptions(), FILES):
        if item["kind"] != "Namespace":
            kube_cluster.raw.call(
                "POST", f"/{PLACES[item['kind']].format(kube_cluster.namespace)}", item
            )
    kube_cluster.wait_for_pod("words", "Succeeded", "Failed")
    log = kube_cluster.raw.call("GET", kube_cluster.path("pods/words/log"))
    assert (log["args"], log["WORD"], log["TOKEN"]) == (words, "$(TOKEN) $$", "wandb-token\n")
