"""The description of a launched experiment from which its supervisor works. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from symphony.plan.policies import Policies
from symphony_kube.api.labels import Scope
from symphony_kube.render import codec
from symphony_kube.render.roster import Roster, decode_roster, encode_roster

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedRun:
    """One launch of an experiment.

    ``units`` maps the names of the units that the supervisor creates to their Pods or Jobs.
    ``launched`` is the time of the launch, in seconds since the epoch. ``kubeconfig`` and
    ``context`` select the cluster. Both are None in the description for a supervisor in the
    cluster. ``run_name`` is the identifier of the run that users see. ``revision`` is the number of
    the change of the experiment that has written the description, and 0 after the launch.
    """

    scope: Scope
    roster: Roster
    units: Mapping[str, Object]
    policies: Policies = field(default_factory=Policies)
    launched: float = 0.0
    kubeconfig: str | None = None
    context: str | None = None
    run_name: str = ""
    revision: int = 0


def encode_run(run: SupervisedRun) -> bytes:
    """Encode a run. The result contains everything that the objects contain, such as variables."""
    scope = run.scope
    content = {
        "experiment": scope.experiment,
        "namespace": scope.namespace,
        "shared": scope.shared,
        "run": scope.run,
        "roster": encode_roster(run.roster),
        "units": run.units,
        "policies": run.policies.to_dict(),
        "launched": run.launched,
        "kubeconfig": run.kubeconfig,
        "context": run.context,
        "run_name": run.run_name,
        "revision": run.revision,
    }
    return codec.compress(codec.to_text(content))


def decode_run(data: bytes) -> SupervisedRun:
    """Decode a run that `encode_run` encoded. Raises ValueError if the data is damaged."""
    try:
        content = codec.from_text(codec.decompress(data, max_bytes=0))
        scope = Scope(
            experiment=content["experiment"],
            namespace=content["namespace"],
            shared=content["shared"],
            run=content["run"],
        )
        return SupervisedRun(
            scope=scope,
            roster=decode_roster(content["roster"]),
            units=content["units"],
            policies=Policies.from_dict(content["policies"]),
            launched=content["launched"],
            kubeconfig=content["kubeconfig"],
            context=content["context"],
            run_name=content.get("run_name", ""),
            revision=content.get("revision", 0),
        )
    except (KeyError, TypeError) as exc:
        raise ValueError(f"not the description of a run: {exc}") from exc
