"""Change the environment that child processes inherit, with as little work as possible.

For each child, `subprocess.Popen` encodes the mapping that it receives as ``env``. With a typical
environment, the encoding accounts for a tenth of the total time needed to start the child. An
inherited environment is already in the form that the kernel needs.

``/proc`` shows the environment with which a process started, so the supervisor never appears to
belong to the run of its own children. The C library does not lock the environment, so no other
thread may read the environment while it is being changed. The threads that run probes therefore
pass a mapping as ``env`` when they start a command. Children would also inherit variables that C
code such as readline sets directly. The supervisor uses no such code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping


class InheritedEnvironment:
    """The environment of this process, which its children inherit.

    The environment consists of the variables that all children share, and the next child's own
    variables.
    """

    def __init__(self) -> None:
        self._common: Mapping[str, str] | None = None
        self._own: Mapping[str, str] = {}

    def set(self, common: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Replace the environment with ``common``, overridden by ``own``.

        The caller must not modify ``common`` afterwards. Raises OSError or ValueError if a variable
        cannot be set. The next call corrects the variables that were set before the error.
        """
        if common is not self._common:
            self._common, self._own = None, {}
            _replace_environment(common)
        # After an error, the next call replaces the whole environment.
        self._common = None
        previous, self._own = self._own, own
        for key in previous.keys() - own.keys():
            if key in common:
                _set_variable(key, common[key])
            else:
                os.environ.pop(key, None)
        for key, value in own.items():
            if previous.get(key) != value:
                _set_variable(key, value)
        self._common = common


def _replace_environment(variables: Mapping[str, str]) -> None:
    for key in os.environ.keys() - variables.keys():
        del os.environ[key]
    for key, value in variables.items():
        _set_variable(key, value)


def _set_variable(key: str, value: str) -> None:
    # An inherited variable can have a name that cannot be set, such as the empty string. Such a
    # variable must not be set again if its value is already correct.
    if os.environ.get(key) != value:
        os.environ[key] = value
