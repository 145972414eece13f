"""The controllers of JobSet and Kueue, which run in the cluster as Deployments.

Their manifests are those of their modules, with the changes in `modules/*/kustomization.yaml`.
Their images contain nothing but the program.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from devcluster import images
from devcluster.build import Component
from machines import store
from machines.console import Console, ToolError

# The node that runs the controllers. Few tests run Pods there.
NODE = "node3"
_WEBHOOKS = re.compile(r"^kind: \w+WebhookConfiguration$", re.MULTILINE)
_SECRET = re.compile(r"^kind: Secret$", re.MULTILINE)
_CLIENT = re.compile(r"^( *(?:- )?)clientConfig:\n(?: *caBundle: .*\n)?", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A controller: its name, and the paths of its image and of its manifests in the cache."""

    name: str
    image: Path
    manifests: Path

    @property
    def namespace(self) -> str:
        """The namespace of the controller."""
        return f"{self.name}-system"

    @property
    def deployment(self) -> str:
        """The path of the controller's Deployment in the API."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        return f"{path}/{self.name}-controller-manager"

    @property
    def host(self) -> str:
        """The name under which the API server calls the webhooks."""
        return f"{self.name}-webhook-service.{self.namespace}.svc"

    def certified(self, certificate: bytes, key: bytes) -> tuple[str, str]:
        """Return the manifests as two texts: the webhook configurations, and everything else
        before.

        The API server trusts `certificate` when it calls a webhook. The Secret contains the
        certificate and its key.
        """
        data = {"tls.crt": certificate, "tls.key": key}
        text = {name: base64.b64encode(value).decode() for name, value in data.items()}
        objects: list[str] = []
        webhooks: list[str] = []
        for part in self.manifests.read_text().split("\n---\n"):
            bundled = _CLIENT.sub(partial(_with_bundle, bundle=text["tls.crt"]), part)
            if _WEBHOOKS.search(part):
                webhooks.append(bundled)
            elif _SECRET.search(part):
                objects.append(f"{part}\ndata: {json.dumps(text)}")
            else:
                objects.append(bundled)
        return "\n---\n".join(objects), "\n---\n".join(webhooks)


NAMES = ("jobset", "kueue")


def prepare(
    cache: Path, wanted: list[Component], programs: Mapping[str, Path], *, console: Console
) -> list[Controller]:
    """Return the controllers. Create the images and manifests that are missing or damaged."""
    found = []
    for component in wanted:
        if component.name not in NAMES:
            continue
        program = programs[component.name]
        overlay = component.directory / "kustomization.yaml"
        key = store.key(program.parent.name, overlay.read_bytes())
        entry = cache / "controllers" / component.directory.name / key
        make = partial(_make, component=component, program=program, kubectl=programs["kubectl"])
        if store.ensure(entry, make, report=console.report):
            store.keep_only(entry.parent, [entry.name])
        found.append(
            Controller(
                name=component.name,
                image=entry / "image.tar",
                manifests=entry / "manifests.yaml",
            )
        )
    return found


def _make(directory: Path, *, component: Component, program: Path, kubectl: Path) -> None:
    images.make_of_program(
        directory, name=image_name(component.name), program=program, path="manager"
    )
    work = directory / "work"
    shutil.copytree(program.parent / "config", work / "config")
    shutil.copy(component.directory / "kustomization.yaml", work)
    done = subprocess.run([kubectl, "kustomize", work], capture_output=True, text=True)
    if done.returncode:
        raise ToolError(f"kubectl kustomize failed for {component.title}: {done.stderr.strip()}")
    (directory / "manifests.yaml").write_text(done.stdout)
    shutil.rmtree(work)


def image_name(name: str) -> str:
    """Return the name of the image of the controller `name`."""
    return f"docker.io/library/{name}:devcluster"


def _with_bundle(match: re.Match[str], *, bundle: str) -> str:
    indent = " " * len(match[1])
    return f"{match[1]}clientConfig:\n{indent}  caBundle: {bundle}\n"


def make_certificate(directory: Path, controller: Controller) -> list[str]:
    """Return the command that makes a certificate of a controller's webhooks in `directory`.

    The certificate is its own authority. The files are `NAME.crt` and `NAME.key`.
    """
    subject = f"/CN={controller.host}"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650"]
    names = ["-subj", subject, "-addext", f"subjectAltName=DNS:{controller.host}"]
    stem = directory / controller.name
    files = ["-keyout", f"{stem}.key", "-out", f"{stem}.crt"]
    return ["openssl", "req", "-x509", *kind, *names, *files]
