"""The manifest of an experiment: the base objects, followed by the Pods, Jobs and JobSets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symphony.archive.code_archives import SNAPSHOTS_KEY
from symphony.cluster import Manifest
from symphony.code.snapshot import CodeSnapshot
from symphony.plan.ignored import Ignored
from symphony.plan.policies import Policies
from symphony_kube.api.labels import Scope
from symphony_kube.render.file_objects import secret_file
from symphony_kube.render.given_fields.overrides import Override
from symphony_kube.render.roster import Roster, is_supervised_to_the_end, units_by_object

Object = dict[str, Any]

REDACTED = "<redacted>"
_REDACTED_NOTE = (
    "# Values of secrets are redacted; to write them to a private file: "
    "symphony render --with-secrets FILE\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeManifest(Manifest):
    """An experiment's objects, in the form that the API accepts.

    * ``base_objects``: the Namespace (unless it is shared), Secrets, ConfigMaps and Services. These
      objects are created before the Pods.
    * ``units``: the Pod or Job of each unit in ``roster``, in the same order. The ranks of a
      JobSet have one object, at the place of the first rank.
    * ``ignored``: the experiment's settings that Kubernetes does not support.
    * ``overrides``: the overrides that users set on the units.
    * ``policies``: the rules for the end of the experiment that its supervisor applies.
    * ``parameters``: the values of parameters that the user has given, in which secrets are hidden.
    * ``source_files``: the files from which Secrets and ConfigMaps are created.
    * ``bind_host``: the address on which processes listen.
    * ``snapshots``: the snapshots of the code, keyed by the names of the processes.
    * ``supervisor``: where the experiment is supervised, or ``""`` if it needs no supervisor. The
      objects of a supervisor in the cluster are not a part of the manifest, because they contain
      the identifier of the run.

    The text of the manifest is YAML for ``kubectl create -f -`` or ``kubectl apply -f -``. It does
    not contain the values of secrets.
    """

    experiment: str
    scope: Scope
    base_objects: tuple[Object, ...]
    units: tuple[Object, ...]
    roster: Roster
    ignored: tuple[Ignored, ...] = ()
    overrides: tuple[Override, ...] = ()
    source_files: tuple[Path, ...] = ()
    policies: Policies = field(default_factory=Policies)
    parameters: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    supervisor: str = ""
    bind_host: str = ""
    snapshots: Mapping[str, CodeSnapshot] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Object]:
        yield from self.base_objects
        yield from self.units

    @property
    def objects_by_unit(self) -> dict[str, Object]:
        """The objects in ``units`` by the name of their first unit."""
        return dict(zip(units_by_object(self.roster), self.units, strict=True))

    @property
    def needs_supervisor(self) -> bool:
        """True if decisions remain after the launch has created the first objects."""
        has_later_units = any(unit.starts_after for unit in self.roster)
        return has_later_units or is_supervised_to_the_end(self.roster, self.policies)

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as JSON data in which the values of secrets are redacted."""
        return {
            "experiment": self.experiment,
            "backend": "kube",
            "namespace": self.scope.namespace,
            "objects": [redacted(item) for item in self],
            "ignored": [
                {"setting": item.setting, "processes": list(item.processes)}
                for item in self.ignored
            ],
            "supervisor": self.supervisor,
            SNAPSHOTS_KEY: {name: item.to_dict() for name, item in self.snapshots.items()},
        }

    def __str__(self) -> str:
        from symphony.model.document.files import to_yaml_documents

        objects = [redacted(item) for item in self]
        notes = [f"# Ignored on this backend: {item}\n" for item in self.ignored]
        code = {item.source: str(item) for item in self.snapshots.values()}
        notes += [f"# The code {source}: {text}\n" for source, text in code.items()]
        if self.supervisor:
            notes.append(f"# A launch also {self.supervisor}\n")
        text = "".join(notes) + to_yaml_documents(objects)
        has_secrets = any(item["kind"] == "Secret" for item in objects)
        return f"{_REDACTED_NOTE}{text}" if has_secrets else text

    def write(self, path: str | os.PathLike[str], *, dry_run: bool = False) -> None:
        """Write the manifest as YAML to a file that only its owner can read.

        The file contains the values of secrets. An existing regular file is replaced. With
        ``dry_run``, the path is checked and nothing is written. Raises `SpecError` if the path
        exists but is not a regular file, or if it is one of the experiment's source files. Raises
        `NotFound` if the path's directory does not exist, and OSError if writing fails.
        """
        target = secret_file.check_target(os.fspath(path), self.source_files)
        if not dry_run:
            from symphony.model.document.files import to_yaml_documents

            secret_file.write_private_file(target, to_yaml_documents(list(self)))


def redacted(item: Object) -> Object:
    """Return an object with the values of secrets redacted.

    A redacted Secret is still a valid API object. An object that is not a Secret is returned
    unchanged.
    """
    if item["kind"] != "Secret":
        return item
    rest = {key: value for key, value in item.items() if key != "data"}
    return {**rest, "stringData": dict.fromkeys(item.get("data", {}), REDACTED)}
