"""Import modules of the product with changed text, without changing their files."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A fault that is put into the product on purpose.

    In the file ``file``, the text ``old``, which occurs there exactly once, is replaced by ``new``.
    ``equivalent`` says why no history can show a difference, or is ``""``. ``saved`` is the name of
    the history in ``tests/unit/histories`` that shows it, if fewer than one in 20,000 others would.
    """

    name: str
    file: str
    old: str
    new: str
    equivalent: str = ""
    saved: str = ""

    def text(self) -> str:
        """Return the changed text of the file. Raises ValueError if ``old`` is not in it once."""
        text = (ROOT / self.file).read_text(encoding="utf-8")
        count = text.count(self.old)
        if count != 1:
            raise ValueError(
                f"mutation {self.name!r}: its old text occurs {count} times in {self.file}, not "
                "once; adapt it to the code in tools/simulate/mutations.py"
            )
        return text.replace(self.old, self.new)


def install(mutation: Mutation) -> None:
    """Let the imports of this interpreter find the mutation.

    Raises ValueError if the module is already imported.
    """
    module = mutation.file.removesuffix(".py").replace("/", ".")
    if module in sys.modules:
        raise ValueError(f"{module} is already imported")
    sys.meta_path.insert(0, _Finder(module, mutation.text()))


class _Finder(MetaPathFinder):
    def __init__(self, module: str, text: str) -> None:
        self._module = module
        self._text = text

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return a specification that loads the changed text."""
        if fullname != self._module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        loader = _Loader(fullname, spec.origin)
        loader.text = self._text
        return importlib.util.spec_from_file_location(fullname, spec.origin, loader=loader)


class _Loader(SourceFileLoader):
    text = ""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the changed text; the cached code is that of the file."""
        return compile(self.text, self.get_filename(fullname), "exec", dont_inherit=True)
