"""Node pools from a cluster's description in Terraform's JSON form: ``resource.google_container_node_pool``.

https://developer.hashicorp.com/terraform/language/syntax/json and the google provider's page of that resource. Where a
block may stand once, an object and a list of one mean the same; where it may stand often, an object means one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony.errors import NotFound, SpecError
from symphony.model import validators
from symphony.names import join_names
from symphony_kube.node_pools.gke_reserve import USUAL_PODS, Reserve
from symphony_kube.node_pools.pools import NodePool, Resources, Taint
from symphony_kube.node_pools.quantities import MILLI, number, whole

KIND = "google_container_node_pool"
NAME_LABEL = "name"
COMMENT = "//"
# Terraform's words for the effects of taints, and Kubernetes' own.
EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
    "NO_EXECUTE": "NoExecute",
    "NoSchedule": "NoSchedule",
    "PreferNoSchedule": "PreferNoSchedule",
    "NoExecute": "NoExecute",
}
_LABELS = "node_config.labels"
_ACCELERATOR = "node_config.guest_accelerator"

Block = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpus:
    count: int = 0
    kind: str | None = None


def read(source: str | os.PathLike[str] | Mapping[str, Any], reserve: Reserve) -> list[NodePool]:
    """The node pools of a description, in its order: of a ``.tf.json`` file, or as a mapping.

    Raises `NotFound` for a file that is not there, and `SpecError` that names file, pool and field for a wrong one.
    """
    where = "the cluster's description" if isinstance(source, Mapping) else os.fspath(source)
    data = source if isinstance(source, Mapping) else _load(Path(source))
    found: list[NodePool] = []
    for key, block in _pool_blocks(data, where).items():
        with _at(f"{where}: node pool {key!r}"):
            pool = _pool(key, block, reserve)
            _refuse_second(pool, found)
        found.append(pool)
    return found


def _refuse_second(pool: NodePool, found: list[NodePool]) -> None:
    other = next((earlier for earlier in found if earlier.name == pool.name), None)
    if other is not None:
        raise SpecError(
            f"{_LABELS}.{NAME_LABEL} is {pool.name!r}, and so is that of node pool {other.alias!r}: "
            "processes are sent to a pool by this label; give each pool its own"
        )


# --- the file ---


def _load(path: Path) -> Any:
    try:
        return json.loads(
            path.expanduser().read_bytes().decode("utf-8-sig"), object_pairs_hook=_unique
        )
    except FileNotFoundError:
        raise NotFound(
            f"{path}: no such file; it is the cluster's description in Terraform's JSON form"
        ) from None
    except OSError as exc:
        raise SpecError(f"{path}: cannot be read: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise SpecError(f"{path}: not UTF-8 text (byte {exc.start}); save it as UTF-8") from exc
    except json.JSONDecodeError as exc:
        form = (
            ""
            if path.suffix == ".json"
            else "; Terraform's JSON form is needed (*.tf.json), not its own language"
        )
        raise SpecError(f"{path}:{exc.lineno}:{exc.colno}: not JSON: {exc.msg}{form}") from exc
    except RecursionError as exc:
        raise SpecError(f"{path}: nested too deeply") from exc
    except SpecError as exc:
        raise SpecError(f"{path}: {exc}") from exc
    except ValueError as exc:  # a number of thousands of digits
        raise SpecError(f"{path}: not JSON: {exc}") from exc


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and key != COMMENT:
            raise SpecError(f"the key {key!r} stands twice in one object")
        found[key] = value
    return found


def _pool_blocks(data: Any, where: str) -> dict[str, Any]:
    """Every node pool's block by its name."""
    with _at(where):
        top = _object(data, "a cluster's description")
        resources = [_object(part, "resource") for part in _several(top.get("resource"))]
        there = [part for resource in resources for part in _several(resource.get(KIND))]
        blocks = _merged([_object(part, f"resource.{KIND}") for part in there])
    if not blocks:
        kinds = dict.fromkeys(kind for resource in resources for kind in resource)
        raise SpecError(
            f"{where}: no node pools: it has no resource.{KIND}; its resources are {join_names(kinds)}"
        )
    return blocks


def _merged(parts: list[Block]) -> dict[str, Any]:
    """Pools by name: of one object, or of several in lists."""
    found: dict[str, Any] = {}
    for part in parts:
        for key, block in part.items():
            if key in found:
                raise SpecError(f"resource.{KIND} has two node pools {key!r}")
            if key != COMMENT:
                found[key] = block
    return found


# --- a pool ---


def _pool(key: str, value: Any, reserve: Reserve) -> NodePool:
    block = _one(value, "it")
    _refuse_dynamic(block, "", "node_config", "write node_config itself")
    config = _one(block.get("node_config"), "node_config")
    _refuse_dynamic(config, "node_config.", "taint", "write taint itself")
    labels = _object(config.get("labels"), _LABELS)
    name = _name(labels)
    gpus = _gpus(config, labels)
    capacity = Resources(
        millicores=int(number(_needed(labels, "cpu", "4 (cores)"), f"{_LABELS}.cpu") * MILLI),
        memory_m=int(number(_needed(labels, "memory_m", "15360 (MiB)"), f"{_LABELS}.memory_m")),
        gpus=gpus.count,
    )
    for field, amount in (("cpu", capacity.millicores), ("memory_m", capacity.memory_m)):
        if not amount:
            raise SpecError(
                f"{_LABELS}.{field} is {labels[field]!r}: a machine has more than nothing"
            )
    machine_type = str(config.get("machine_type") or "")
    allocatable = reserve.allocatable(
        capacity, machine_type=machine_type, max_pods=_max_pods(block)
    )
    return NodePool(
        name=name,
        alias=key,
        selector=(NAME_LABEL, name),
        capacity=capacity,
        allocatable=allocatable,
        gpu_type=gpus.kind,
        taints=_taints(config),
    )


def _name(labels: Block) -> str:
    """The label by which nodes are selected."""
    _, name = validators.label_pair(
        NAME_LABEL, _plain(_needed(labels, NAME_LABEL, "the pool's name"))
    )
    if not name:
        raise SpecError(
            f"{_LABELS}.{NAME_LABEL} is empty; processes are sent to a pool by this label"
        )
    return name


def _needed(labels: Block, field: str, example: str) -> Any:
    value = labels.get(field)
    if value is None:
        raise SpecError(
            f"{_LABELS}.{field} is missing; add it, for example {field} = {example}; its labels are {join_names(labels)}"
        )
    return value


def _max_pods(block: Block) -> int:
    """How many Pods a node may have; an expression of Terraform's tells nothing."""
    value = block.get("max_pods_per_node")
    return (
        USUAL_PODS if value is None or _is_expression(value) else whole(value, "max_pods_per_node")
    )


def _gpus(config: Block, labels: Block) -> _Gpus:
    """The GPUs that the labels tell, or where they say nothing, those of the machine."""
    machine = _accelerator(config)
    count, kind = labels.get("gpu_count"), labels.get("gpu_type")
    if count is None and kind is None:
        mend = f"write it itself, or {_LABELS}.gpu_count (0 for none) and gpu_type"
        _refuse_dynamic(config, "node_config.", "guest_accelerator", mend)
        return _of_machine(machine)
    told = 0 if count is None else whole(count, f"{_LABELS}.gpu_count")
    if kind is None and told:
        raise SpecError(
            f"{_LABELS}.gpu_type is missing, and gpu_count is {told}; add it, for example 'nvidia-l4'"
        )
    if kind is not None and count is None:
        raise SpecError(f"{_LABELS}.gpu_count is missing, and gpu_type is {kind!r}; add it")
    name = None if kind is None else _gpu_type(kind, f"{_LABELS}.gpu_type")
    _refuse_other_gpus(told, name, machine)
    return _Gpus(count=told, kind=name) if told else _Gpus()


def _gpu_type(value: Any, what: str) -> str:
    return validators.path(_label_value("gpu_type", value, what), what)


def _refuse_other_gpus(count: int, kind: str | None, machine: Block) -> None:
    """Refuse labels that tell other GPUs than the machine has; an expression may be anything."""
    has = machine.get("count")
    if has and not _is_expression(has) and whole(has, f"{_ACCELERATOR}.count") != count:
        raise SpecError(
            f"{_LABELS}.gpu_count is {count}, and {_ACCELERATOR} has a count of {has}; make them the same"
        )
    type_ = machine.get("type")
    if count and kind and type_ and not _is_expression(type_) and not _same_type(kind, str(type_)):
        raise SpecError(
            f"{_LABELS}.gpu_type is {kind!r}, and {_ACCELERATOR}.type is {str(type_)!r}; make them the same"
        )


def _same_type(one: str, other: str) -> bool:
    """Whether both may mean one type: ``k80`` is short for ``nvidia-tesla-k80``."""
    words, others = (set(re.split(r"[-_.]", name.lower())) for name in (one, other))
    return words <= others or others <= words


def _accelerator(config: Block) -> Block:
    """The GPUs of a machine as they are described, where they are of one type; else nothing."""
    found = [_object(item, _ACCELERATOR) for item in _several(config.get("guest_accelerator"))]
    return found[0] if len(found) == 1 else {}


def _of_machine(machine: Block) -> _Gpus:
    if not (machine.get("count") and machine.get("type")):
        return _Gpus()
    count = whole(machine["count"], f"{_ACCELERATOR}.count")
    return (
        _Gpus(count=count, kind=_gpu_type(machine["type"], f"{_ACCELERATOR}.type"))
        if count
        else _Gpus()
    )


def _taints(config: Block) -> tuple[Taint, ...]:
    return tuple(
        _taint(_object(item, f"node_config.taint[{index}]"), f"node_config.taint[{index}]")
        for index, item in enumerate(_several(config.get("taint")))
    )


def _taint(item: Block, what: str) -> Taint:
    for field in ("key", "effect"):
        if item.get(field) in (None, ""):
            raise SpecError(f"{what}.{field} is missing")
    key = item["key"]
    if not isinstance(key, str):
        raise SpecError(f"{what}.key is text, not {_short(key)}")
    _refuse_expression(key, f"{what}.key")
    with _at(f"{what}.key"):
        validators.label_pair(key, "")
    effect = validators.one_of(item["effect"], list(EFFECTS), f"{what}.effect")
    value = item.get("value")
    content = "" if value is None else _label_value(key, value, f"{what}.value")
    return Taint(key=key, value=content, effect=EFFECTS[effect])


def _label_value(key: str, value: Any, what: str) -> str:
    """The value of a label or a taint; Kubernetes allows both the same."""
    plain = _plain(value)
    if not isinstance(plain, (str, int, float)):
        raise SpecError(f"{what} is text, not {_short(value)}")
    _refuse_expression(plain, what)
    with _at(what):
        return validators.label_pair(key, plain)[1]


# --- Terraform's forms ---


def _is_expression(value: Any) -> bool:
    return "${" in str(value)


def _refuse_expression(value: Any, what: str) -> None:
    if _is_expression(value):
        raise SpecError(
            f"{what} is {value!r}: Terraform's expressions are not evaluated here; write the value"
        )


def _refuse_dynamic(block: Block, what: str, field: str, mend: str) -> None:
    """Refuse a field that only Terraform can make."""
    for part in _several(block.get("dynamic")):
        if field in _object(part, f"{what}dynamic"):
            raise SpecError(
                f"{what}dynamic.{field}: Terraform's dynamic blocks are not evaluated here; {mend}"
            )


def _plain(value: Any) -> Any:
    """A value as it ends up in a label or a taint: Terraform writes true and false in small letters."""
    return str(value).lower() if isinstance(value, bool) else value


def _several(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _one(value: Any, what: str) -> Block:
    """A block that stands once."""
    if isinstance(value, list):
        if len(value) != 1:
            raise SpecError(f"{what} is one object, not a list of {len(value)}")
        value = value[0]
    return _object(value, what)


def _object(value: Any, what: str) -> Block:
    if not isinstance(value, Mapping):
        raise SpecError(
            f"{what} is missing" if value is None else f"{what} is an object, not {_short(value)}"
        )
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Say where in the description something is wrong."""
    try:
        yield
    except SpecError as exc:
        raise SpecError(f"{where}: {exc}") from exc
