"""Golden objects are validated with the schemas of several versions of Kubernetes."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
from kubernetes_validate import ValidationError, utils
from kubernetes_validate import validate as check

from tests.backends.kube.specimens import SPECIMENS, Specimen

Object = dict[str, Any]

SHIPPED = sorted(
    {version.rpartition(".")[0] for version in utils.all_versions()}, key=utils.major_minor
)
# The oldest and the newest version of the package, and some between them.
VERSIONS = list(
    dict.fromkeys([SHIPPED[0], *(v for v in ("1.29", "1.33") if v in SHIPPED), SHIPPED[-1]])
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("specimen", SPECIMENS.values(), ids=SPECIMENS)
def test_golden_objects_match_the_schemas(specimen: Specimen, version: str) -> None:
    seen: set[str] = set()
    for item in specimen.manifest():
        alike = _shape(item)
        if alike not in seen:
            seen.add(alike)
            assert kubernetes_validate.validate(item, version, strict=True) == version


def _shape(value: Any) -> str:
    """Return the fields of an object and the types of their values. Schemas check nothing else."""
    if isinstance(value, dict):
        inside = ",".join(sorted(f"{key}:{_shape(item)}" for key, item in value.items()))
        return f"{{{inside}}}"
    if isinstance(value, list):
        return f"[{','.join(sorted({_shape(item) for item in value}))}]"
    return type(value).__name__


def test_schemas_are_strict() -> None:
    (pod,) = SPECIMENS["group"].manifest().units
    for wrong in ({"restartpolicy": "Never"}, {"terminationGracePeriodSeconds": "30"}):
        with pytest.raises(ValidationError):
            check({**pod, "spec": {**pod["spec"], **wrong}}, VERSIONS[-1], strict=True)
