"""What an experiment becomes on Kubernetes: its objects in the order in which they are created."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from symphony.cluster import Manifest
from symphony.plan import Ignored
from symphony_kube.names import Scope
from symphony_kube.roster import Roster

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeManifest(Manifest):
    """The objects of an experiment, as the API takes them.

    ``ground`` has what comes before every Pod: the Namespace (where it is the experiment's own), Secrets,
    ConfigMaps and Services. ``units`` has the Pod or Job of each unit of the ``roster``, in its order.
    """

    experiment: str
    scope: Scope
    ground: tuple[Object, ...]
    units: tuple[Object, ...]
    roster: Roster
    ignored: tuple[Ignored, ...] = ()

    def __iter__(self) -> Iterator[Object]:
        yield from self.ground
        yield from self.units

    def to_dict(self) -> dict[str, Any]:
        """The manifest as JSON knows it, with the values of secrets redacted."""
        raise NotImplementedError  # written with the rendering

    def __str__(self) -> str:
        return json.dumps(self.to_dict())
