"""The manifests of the controllers that run in the devcluster."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from devcluster import build, controllers
from devcluster.node import NODES

MANIFESTS = """\
apiVersion: v1
kind: Namespace
metadata:
  name: kueue-system
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec:
  conversion:
    webhook:
      clientConfig:
        caBundle: Cg==
        service:
          name: kueue-webhook-service
---
apiVersion: v1
kind: Secret
metadata:
  name: kueue-webhook-server-cert
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
webhooks:
- admissionReviewVersions:
  - v1
  clientConfig:
    service:
      name: kueue-webhook-service
- clientConfig:
    service:
      name: kueue-webhook-service
"""


def test_manifests_get_the_certificate_and_webhooks_come_last(tmp_path: Path) -> None:
    (tmp_path / "manifests.yaml").write_text(MANIFESTS)
    kueue = controllers.Controller(
        name="kueue", image=tmp_path, manifests=tmp_path / "manifests.yaml"
    )
    first, later = kueue.certified(b"certificate", b"key")
    bundle = base64.b64encode(b"certificate").decode()
    namespace, definition, secret = yaml.safe_load_all(first)
    assert namespace["kind"] == "Namespace"
    client = definition["spec"]["conversion"]["webhook"]["clientConfig"]
    assert client == {"caBundle": bundle, "service": {"name": "kueue-webhook-service"}}
    assert secret["data"] == {"tls.crt": bundle, "tls.key": base64.b64encode(b"key").decode()}
    (configuration,) = yaml.safe_load_all(later)
    found = [webhook["clientConfig"]["caBundle"] for webhook in configuration["webhooks"]]
    assert found == [bundle, bundle]


@pytest.mark.parametrize("name", controllers.NAMES)
def test_the_controllers_run_on_the_node_that_gets_their_images(name: str) -> None:
    (component,) = (each for each in build.components(build.versions()[0]) if each.name == name)
    overlay = yaml.safe_load((component.directory / "kustomization.yaml").read_text())
    (image,) = overlay["images"]
    assert f"{image['newName']}:{image['newTag']}" == controllers.image_name(name)
    (deployment,) = (
        patch for patch in overlay["patches"] if patch.get("target") == {"kind": "Deployment"}
    )
    changes = {change["path"]: change["value"] for change in yaml.safe_load(deployment["patch"])}
    (node,) = (each for each in NODES if each.name == controllers.NODE)
    assert changes["/spec/template/spec/nodeSelector"].items() <= node.labels.items()
