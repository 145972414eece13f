"""Read node pools from a cluster description in Terraform JSON syntax.

The description contains the pools in ``resource.google_container_node_pool``. See
https://developer.hashicorp.com/terraform/language/syntax/json and the google provider's
documentation for this resource. A block that can occur only once is an object, or a list that
contains one object. A block that can occur several times is a list of objects, or a single object.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from symphony.config.locations import expand_user
from symphony.errors import NotFound, SpecError
from symphony.model.document.documents import from_json, read_text
from symphony.model.settings import validators
from symphony.model.settings.quantities import MILLICORES_PER_CORE, parse_number, parse_whole_number
from symphony.support.names import join_names
from symphony_kube.node_pools.gke_reserve import DEFAULT_MAX_PODS, Reserve
from symphony_kube.node_pools.gpu_types import is_short_gpu_type
from symphony_kube.node_pools.pools import MachineResources, NodePool, Taint

RESOURCE_TYPE = "google_container_node_pool"
NAME_LABEL = "name"
COMMENT_KEY = "//"
# A mapping from each taint effect, in Terraform or Kubernetes notation, to the effect in Kubernetes
# notation.
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
_MAX_SHOWN_CHARS = 60

Block = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpus:
    count: int = 0
    gpu_type: str | None = None


def read_terraform(
    source: str | os.PathLike[str] | Mapping[str, Any], reserve: Reserve
) -> list[NodePool]:
    """Return the node pools in a cluster description, in the order of the description.

    ``source`` is the path of a ``.tf.json`` file, or the parsed contents of such a file. Raises
    `NotFound` if the file does not exist, and `SpecError` if the description is not valid. The
    error message names the file, the pool and the field.
    """
    if isinstance(source, Mapping):
        where = "the description of the cluster"
        data: Any = source
    else:
        path = validators.path(source, "tf_json")
        where = str(path)
        data = _load(path)
    pools: list[NodePool] = []
    for key, block in _pool_blocks(data, where).items():
        with _error_context(f"{where}: node pool {key!r}"):
            pool = _node_pool(key, block, reserve)
            _check_unique_name(pool, pools)
        pools.append(pool)
    return pools


def _check_unique_name(pool: NodePool, pools: list[NodePool]) -> None:
    for other in pools:
        if other.name == pool.name:
            raise SpecError(
                f"{_LABELS}.{NAME_LABEL} is {pool.name!r}, and node pool {other.alias!r} has the "
                "same label: processes are assigned to a pool by this label; give each pool its own"
            )


# --- the file ---


def _load(path: Path) -> Any:
    try:
        text = read_text(expand_user(path))
        # Some editors write a byte order mark, which the decoder leaves in the text.
        data, _ = from_json(path, text.removeprefix("\ufeff"), repeatable_keys=(COMMENT_KEY,))
    except NotFound as exc:
        raise NotFound(
            f"{exc}; it must be the cluster description in Terraform JSON syntax"
        ) from None
    except SpecError as exc:
        if path.suffix != ".json" and isinstance(exc.__cause__, json.JSONDecodeError):
            raise SpecError(
                f"{exc}; use Terraform JSON syntax (*.tf.json), not the native syntax"
            ) from exc
        raise
    return data


def _pool_blocks(data: Any, where: str) -> dict[str, Any]:
    """Return a mapping from each node pool's key to its block."""
    blocks: dict[str, Any] = {}
    with _error_context(where):
        root = _object(data, "a cluster description")
        resources = [_object(part, "resource") for part in _as_list(root.get("resource"))]
        for resource in resources:
            for part in _as_list(resource.get(RESOURCE_TYPE)):
                _add_blocks(blocks, _object(part, f"resource.{RESOURCE_TYPE}"))
    if not blocks:
        types = dict.fromkeys(name for resource in resources for name in resource)
        raise SpecError(
            f"{where}: no node pools: it has no resource.{RESOURCE_TYPE}; its resources are "
            f"{join_names(types)}"
        )
    return blocks


def _add_blocks(blocks: dict[str, Any], part: Block) -> None:
    for key, block in part.items():
        if key in blocks:
            raise SpecError(f"resource.{RESOURCE_TYPE} has two node pools {key!r}")
        if key != COMMENT_KEY:
            blocks[key] = block


# --- a pool ---


def _node_pool(key: str, value: Any, reserve: Reserve) -> NodePool:
    block = _single_object(value, "it")
    _refuse_dynamic(block, "", "node_config", "write node_config itself")
    config = _single_object(block.get("node_config"), "node_config")
    _refuse_dynamic(config, "node_config.", "taint", "write taint itself")
    labels = _object(config.get("labels"), _LABELS)
    name = _pool_name(labels)
    gpus = _gpus(config, labels)
    cores = _number(_required(labels, "cpu", "4 (cores)"), f"{_LABELS}.cpu")
    memory = _number(_required(labels, "memory_m", "15360 (MiB)"), f"{_LABELS}.memory_m")
    capacity = MachineResources(
        millicores=int(cores * MILLICORES_PER_CORE), memory_m=int(memory), gpus=gpus.count
    )
    for field, amount in (("cpu", capacity.millicores), ("memory_m", capacity.memory_m)):
        if not amount:
            raise SpecError(f"{_LABELS}.{field} is {labels[field]!r}: it must be greater than 0")
    allocatable = reserve.allocatable(
        capacity,
        machine_type=str(config.get("machine_type") or ""),
        max_pods=_max_pods(block),
    )
    return NodePool(
        name=name,
        alias=key,
        selector=(NAME_LABEL, name),
        capacity=capacity,
        allocatable=allocatable,
        gpu_type=gpus.gpu_type,
        taints=_taints(config),
    )


def _pool_name(labels: Block) -> str:
    """Return the value of the label that selects the pool's nodes."""
    value = _required(labels, NAME_LABEL, "the name of the pool")
    _, name = validators.label_pair(NAME_LABEL, _terraform_text(value))
    if not name:
        raise SpecError(
            f"{_LABELS}.{NAME_LABEL} is empty; processes are assigned to a pool by this label"
        )
    return name


def _required(labels: Block, field: str, example: str) -> Any:
    value = labels.get(field)
    if value is None:
        raise SpecError(
            f"{_LABELS}.{field} is missing; add it, for example {field} = {example}; its labels "
            f"are {join_names(labels)}"
        )
    return value


def _max_pods(block: Block) -> int:
    """Return the maximum number of Pods on a node.

    Return the default if the number is not set or is an expression.
    """
    value = block.get("max_pods_per_node")
    if value is None or _is_expression(value):
        return DEFAULT_MAX_PODS
    return parse_whole_number(value, "max_pods_per_node")


def _gpus(config: Block, labels: Block) -> _Gpus:
    """Return the number and type of a machine's GPUs.

    If the labels do not specify GPUs, guest_accelerator is used.
    """
    accelerator = _accelerator(config)
    count = labels.get("gpu_count")
    gpu_type = labels.get("gpu_type")
    if count is None and gpu_type is None:
        hint = f"write it itself, or {_LABELS}.gpu_count (0 for none) and gpu_type"
        _refuse_dynamic(config, "node_config.", "guest_accelerator", hint)
        return _gpus_of_accelerator(accelerator)
    number = 0 if count is None else _whole_number(count, f"{_LABELS}.gpu_count")
    if gpu_type is None and number:
        raise SpecError(
            f"{_LABELS}.gpu_type is missing, and gpu_count is {number}; add it, for example "
            "'nvidia-l4'"
        )
    if gpu_type is not None and count is None:
        raise SpecError(f"{_LABELS}.gpu_count is missing, and gpu_type is {gpu_type!r}; add it")
    name = None if gpu_type is None else _gpu_type(gpu_type, f"{_LABELS}.gpu_type")
    _check_accelerator(number, name, accelerator)
    return _Gpus(count=number, gpu_type=name) if number else _Gpus()


def _gpu_type(value: Any, what: str) -> str:
    return validators.nonempty_text(_label_value("gpu_type", value, what), what)


def _check_accelerator(count: int, gpu_type: str | None, accelerator: Block) -> None:
    """Raise `SpecError` if the labels and guest_accelerator specify different GPUs.

    Expressions are not compared.
    """
    other_count = accelerator.get("count")
    if other_count and not _is_expression(other_count):
        number = parse_whole_number(other_count, f"{_ACCELERATOR}.count")
        if number != count:
            raise SpecError(
                f"{_LABELS}.gpu_count is {count}, and {_ACCELERATOR} has a count of {other_count}; "
                "make them equal"
            )
    other_type = accelerator.get("type")
    if count and gpu_type and other_type and not _is_expression(other_type):
        one, other = gpu_type, str(other_type)
        if not (is_short_gpu_type(one, other) or is_short_gpu_type(other, one)):
            raise SpecError(
                f"{_LABELS}.gpu_type is {gpu_type!r}, and {_ACCELERATOR}.type is "
                f"{str(other_type)!r}; make them equal"
            )


def _accelerator(config: Block) -> Block:
    """Return the guest_accelerator block if there is exactly one, or else an empty mapping."""
    blocks = [_object(item, _ACCELERATOR) for item in _as_list(config.get("guest_accelerator"))]
    return blocks[0] if len(blocks) == 1 else {}


def _gpus_of_accelerator(accelerator: Block) -> _Gpus:
    if not (accelerator.get("count") and accelerator.get("type")):
        return _Gpus()
    count = _whole_number(accelerator["count"], f"{_ACCELERATOR}.count")
    if not count:
        return _Gpus()
    return _Gpus(count=count, gpu_type=_gpu_type(accelerator["type"], f"{_ACCELERATOR}.type"))


def _taints(config: Block) -> tuple[Taint, ...]:
    taints = []
    for index, item in enumerate(_as_list(config.get("taint"))):
        what = f"node_config.taint[{index}]"
        taints.append(_taint(_object(item, what), what))
    return tuple(taints)


def _taint(item: Block, what: str) -> Taint:
    for field in ("key", "effect"):
        if item.get(field) in (None, ""):
            raise SpecError(f"{what}.{field} is missing")
    key = item["key"]
    if not isinstance(key, str):
        raise SpecError(f"{what}.key must be text, not {_shortened(key)}")
    _refuse_expression(key, f"{what}.key")
    with _error_context(f"{what}.key"):
        validators.label_pair(key, "")
    effect = validators.one_of(item["effect"], list(EFFECTS), f"{what}.effect")
    value = item.get("value")
    text = "" if value is None else _label_value(key, value, f"{what}.value")
    return Taint(key=key, value=text, effect=EFFECTS[effect])


def _label_value(key: str, value: Any, what: str) -> str:
    """Validate ``value`` as the value of a label or taint, and return it as a string.

    Kubernetes has the same rules for label values and taint values.
    """
    text = _terraform_text(value)
    if not isinstance(text, (str, int, float)):
        raise SpecError(f"{what} must be text, not {_shortened(value)}")
    _refuse_expression(text, what)
    with _error_context(what):
        return validators.label_pair(key, text)[1]


# --- Terraform JSON syntax ---


def _number(value: Any, what: str) -> Fraction:
    _refuse_expression(value, what)
    return parse_number(value, what)


def _whole_number(value: Any, what: str) -> int:
    _refuse_expression(value, what)
    return parse_whole_number(value, what)


def _is_expression(value: Any) -> bool:
    return "${" in str(value)


def _refuse_expression(value: Any, what: str) -> None:
    if _is_expression(value):
        raise SpecError(
            f"{what} is {value!r}: Terraform expressions are not evaluated here; write the value"
        )


def _refuse_dynamic(block: Block, what: str, field: str, hint: str) -> None:
    """Raise `SpecError` if ``field`` is a dynamic block, which only Terraform can expand."""
    for part in _as_list(block.get("dynamic")):
        if field in _object(part, f"{what}dynamic"):
            raise SpecError(
                f"{what}dynamic.{field}: dynamic blocks of Terraform are not evaluated here; {hint}"
            )


def _terraform_text(value: Any) -> Any:
    """Return ``value``, converted to a string if it is a boolean.

    Terraform writes booleans in lower case.
    """
    return str(value).lower() if isinstance(value, bool) else value


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _single_object(value: Any, what: str) -> Block:
    """Return the object of a block that can occur only once."""
    if isinstance(value, list):
        if len(value) != 1:
            raise SpecError(f"{what} must be one object, not a list of {len(value)}")
        value = value[0]
    return _object(value, what)


def _object(value: Any, what: str) -> Block:
    if value is None:
        raise SpecError(f"{what} is missing")
    if not isinstance(value, Mapping):
        raise SpecError(f"{what} must be an object, not {_shortened(value)}")
    return value


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[: _MAX_SHOWN_CHARS - 1]}…"


@contextmanager
def _error_context(where: str) -> Iterator[None]:
    """Prefix error messages with a location in the description."""
    try:
        yield
    except SpecError as exc:
        raise SpecError(f"{where}: {exc}") from exc
