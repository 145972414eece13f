"""What an experiment becomes on Kubernetes: its objects in the order in which they are created."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony.cluster import Manifest
from symphony.plan.resolve import Ignored
from symphony_kube.api.labels import Scope
from symphony_kube.render import secret_file
from symphony_kube.render.overrides import Override
from symphony_kube.render.roster import Roster

Object = dict[str, Any]

REDACTED = "<redacted>"
_REDACTED_NOTE = "# Values of secrets are redacted; to write them to a private file: symphony render --with-secrets FILE\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeManifest(Manifest):
    """The objects of an experiment, as the API takes them.

    ``ground`` has what comes before every Pod: the Namespace (where it is the experiment's own), Secrets,
    ConfigMaps and Services. ``units`` has the Pod or Job of each unit of the ``roster``, in its order.
    ``hatches`` is what users wrote into them themselves, ``reads`` the files that became Secrets and ConfigMaps.
    Its text is YAML that ``kubectl create -f -`` and ``kubectl apply -f -`` take, without the values of secrets.
    """

    experiment: str
    scope: Scope
    ground: tuple[Object, ...]
    units: tuple[Object, ...]
    roster: Roster
    ignored: tuple[Ignored, ...] = ()
    overrides: tuple[Override, ...] = ()
    reads: tuple[Path, ...] = ()

    def __iter__(self) -> Iterator[Object]:
        yield from self.ground
        yield from self.units

    def to_dict(self) -> dict[str, Any]:
        """The manifest as JSON knows it, with the values of secrets redacted."""
        return {
            "experiment": self.experiment,
            "backend": "kube",
            "namespace": self.scope.namespace,
            "objects": [redacted(item) for item in self],
            "ignored": [
                {"setting": item.setting, "processes": list(item.processes)}
                for item in self.ignored
            ],
        }

    def __str__(self) -> str:
        from symphony.model.files import to_yaml_documents

        shown = [redacted(item) for item in self]
        note = [_REDACTED_NOTE] if any(item["kind"] == "Secret" for item in shown) else []
        return "".join([*note, to_yaml_documents(shown)])

    def write(self, path: str | os.PathLike[str], *, dry_run: bool = False) -> None:
        """Write the YAML with the values of secrets to a file that only its owner can read, new or not.

        With ``dry_run`` nothing is written. Raises `SpecError` for what is there and is no file, for a link, and for
        a file that the experiment is made from; `NotFound` without its folder; and OSError.
        """
        target = secret_file.check(os.fspath(path), self.reads)
        if not dry_run:
            from symphony.model.files import to_yaml_documents

            secret_file.write(target, to_yaml_documents(list(self)))


def encoded(item: Object) -> bytes:
    """An object as the API takes it over the wire."""
    return json.dumps(item, separators=(",", ":")).encode()


def redacted(item: Object) -> Object:
    """An object without the values that it keeps secret: still a Secret that the API takes. Others as they are."""
    if item["kind"] != "Secret":
        return item
    rest = {key: value for key, value in item.items() if key != "data"}
    return {**rest, "stringData": dict.fromkeys(item.get("data", {}), REDACTED)}
