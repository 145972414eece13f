"""The names of GPU types, such as ``nvidia-tesla-k80``, and short names, such as ``k80``. Pure.

Cloud providers and the NVIDIA device plug-in use different names for one type, for example
``nvidia-tesla-t4``, ``Tesla-T4`` and ``t4``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from symphony.errors import SpecError
from symphony.support.names import join_names

# These words occur in the names of many types, and do not distinguish one type from another.
_BRANDS = frozenset({"nvidia", "tesla"})


def is_same_gpu_type(one: str, other: str) -> bool:
    """Return whether two names differ only in their spelling or in the brand of the GPU.

    >>> is_same_gpu_type("Tesla-T4", "nvidia-tesla-t4")
    True
    >>> is_same_gpu_type("nvidia-tesla-a100", "nvidia-a100-80gb")
    False
    """
    return _words(one) == _words(other)


def is_short_gpu_type(short: str, full: str) -> bool:
    """Return whether ``short`` can be a short name of ``full``, which is also true if both are the
    same type.

    >>> is_short_gpu_type("a100", "nvidia-a100-80gb")
    True
    """
    words = _words(short)
    return bool(words) and words <= _words(full)


def find_gpu_type(name: str, known: Iterable[str]) -> str | None:
    """Return the type in ``known`` that ``name`` means, or None if there is none.

    ``name`` is the name of a type or a short name. Raises `SpecError` with the candidates if a
    short name can mean several types.
    """
    types = sorted(set(known))
    if name in types:
        return name
    candidates = [gpu_type for gpu_type in types if is_short_gpu_type(name, gpu_type)]
    if not candidates:
        return None
    first = candidates[0]
    if not all(is_same_gpu_type(first, other) for other in candidates):
        raise SpecError(
            f"gpu_type {name!r} is ambiguous: it can mean {join_names(candidates, limit=20)}; use "
            "one of these names"
        )
    return first


def _words(name: str) -> frozenset[str]:
    """Return the words of a name that distinguish the type from others."""
    words = frozenset(re.findall(r"[a-z0-9]+", name.lower()))
    return words - _BRANDS or words
