"""Hide the values of secrets in the output of processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from symphony.hidden_values import HiddenValues
from symphony.log_blocks import LogBlock

Item = TypeVar("Item")


def without_secrets(items: Iterable[Item], hidden: HiddenValues) -> Iterator[Item]:
    """Yield blocks of output in which the values are replaced, and all other items unchanged.

    A value that a process writes in two parts, without the end of its line, is not found.
    """
    if not hidden:
        yield from items
        return
    for item in items:
        if isinstance(item, LogBlock):
            text = hidden.in_text(item.text)
            yield item if text is item.text else replace(item, text=text)
        else:
            yield item
