"""The environment that children inherit, changed from one child to the next by as little as it takes.

A mapping given to `subprocess.Popen` is encoded anew for each child, which for a usual environment takes a tenth of
the time that it takes to start a process at all. What is inherited lies there already as the kernel wants it.

What /proc shows of this process stays what it began with, so that it never carries the mark of its own children. No
other thread may look into its environment, for which C has no lock: those that probe give what they start a mapping.
What C code sets behind Python's back, as readline does, would be inherited too; nothing here does so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping


class Environment:
    """This process's own environment, for its children: a common one with, above it, that of the next child."""

    def __init__(self) -> None:
        self._common: Mapping[str, str] | None = None
        self._own: Mapping[str, str] = {}

    def become(self, common: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Be exactly ``common`` with ``own`` above it, until told otherwise. ``common`` must not change later.

        Raises OSError or ValueError where a variable cannot be set; what was set by then is put right the next time.
        """
        if common is not self._common:
            self._common, self._own = None, {}
            _replace(common)
            self._common = common
        gone = self._own.keys() - own.keys()
        self._own = own
        for key in gone:
            if key in common:
                _set(key, common[key])
            else:
                os.environ.pop(key, None)
        for key, value in own.items():
            _set(key, value)


def _replace(common: Mapping[str, str]) -> None:
    for key in os.environ.keys() - common.keys():
        del os.environ[key]
    for key, value in common.items():
        _set(key, value)


def _set(key: str, value: str) -> None:
    if (
        os.environ.get(key) != value
    ):  # what is there may have a name that cannot be set, such as none at all
        os.environ[key] = value
