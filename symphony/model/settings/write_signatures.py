"""Write `symphony.model.settings.signatures` from the table of settings.

Type checkers and editors do not run programs, so the keyword arguments and the methods of settings
must be in a file.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path

from symphony.model.settings.table import SETTINGS, Setting

_HEAD = '''"""The settings as keyword arguments and as methods, for type checkers and editors.

``scripts/docs pages`` writes this file from `symphony.model.settings.table`. Change the table
instead of this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from symphony.model.settings import validators
from symphony.model.settings.setting_owner import SettingOwner

if TYPE_CHECKING:
    from typing_extensions import Self

    from symphony.model.experiment.component import Component

Keywords = Mapping[str, Any]


class SettingOptions(TypedDict, total=False):
    """The settings of a process or group as keyword arguments."""

'''

_CLASS = '''

class SettingMethods(SettingOwner):
    """The methods that only set the value of one setting."""
'''

_WIDTH = 100
_INDENT = " " * 8


def path() -> Path:
    """Return the path of the file."""
    return Path(__file__).with_name("signatures.py")


def text() -> str:
    """Return the contents of the file."""
    keywords = [f"    {name}: {item.accepts} | None\n" for name, item in SETTINGS.items()]
    methods = [
        line
        for setting in SETTINGS.values()
        if setting.argument is not None
        for line in _method(setting, setting.argument)
    ]
    return "".join([_HEAD, *keywords, _CLASS, *(f"{line}\n" for line in methods)])


def _method(setting: Setting, argument: str) -> Iterator[str]:
    default = "" if setting.default is None else f" = {setting.default}"
    yield ""
    yield f"    def {setting.method}(self, {argument}: {setting.accepts}{default}) -> Self:"
    yield from _docstring(inspect.cleandoc(setting.text) or _sentence(setting.description))
    yield f'        return self._set("{setting.name}", {argument})'


def _sentence(description: str) -> str:
    """Return the description of a setting as that of a method: ``The size`` is ``Set the size``."""
    first, _, rest = description.partition(" ")
    is_noun_phrase = first in ("A", "The")
    return f"Set {first.lower()} {rest}" if is_noun_phrase else description


def _docstring(text: str) -> Iterator[str]:
    paragraphs = text.split("\n\n")
    lines: list[str] = []
    for paragraph in paragraphs:
        filled = textwrap.fill(
            paragraph if lines else f'"""{paragraph}',
            width=_WIDTH,
            initial_indent=_INDENT,
            subsequent_indent=_INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines += ["", *filled.splitlines()] if lines else filled.splitlines()
    fits = len(lines) == 1 and len(lines[0]) + len('"""') <= _WIDTH
    if fits:
        yield f'{lines[0]}"""'
    else:
        yield from lines
        yield f'{_INDENT}"""'


if __name__ == "__main__":
    path().write_text(text(), encoding="utf-8")
