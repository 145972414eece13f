"""Formatting the resources that processes use. All functions are pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

_BYTE_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_UNIT_BYTES = 1024


def format_core_count(cores: float | None) -> str | None:
    """Format a number of cores, such as ``1.25``."""
    return None if cores is None else f"{cores:.2f}"


def format_bytes(size: float | None) -> str | None:
    """Format a size with three digits, in the units of resource settings.

    >>> [format_bytes(size) for size in (0, 999, 1536, 350 * 2**20, 1023 * 2**20, 2.5 * 2**40)]
    ['0', '999', '1.5Ki', '350Mi', '1023Mi', '2.5Ti']
    """
    if size is None:
        return None
    unit = 0
    while size >= _UNIT_BYTES and unit < len(_BYTE_UNITS) - 1:
        size /= _UNIT_BYTES
        unit += 1
    digits = 1 if unit and size < 100 else 0
    return f"{size:.{digits}f}".removesuffix(".0") + _BYTE_UNITS[unit]


def format_share(share: float | None) -> str | None:
    """Format a utilization as a percentage, such as ``85%``."""
    return None if share is None else f"{share:.0%}"


# The recorded values, with their titles and the functions that format them.
RECORDED_VALUES: Mapping[str, tuple[str, Callable[[float], object]]] = {
    "cpu": ("CPU", format_core_count),
    "memory": ("MEM", format_bytes),
    "pss": ("PSS", format_bytes),
    "open_files": ("FILES", round),
    "gpu_memory": ("GPU-MEM", format_bytes),
    "gpu_utilization": ("GPU-USE", format_share),
}
