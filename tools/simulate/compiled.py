"""The decisions and the simulated world as compiled modules, which run several times as fast.

mypyc compiles the source files that Python would import, without a change. The result is kept in a
cache under a name that depends on the contents of these files.
"""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from machines import store
from machines.directories import cache_home
from symphony.support import data_classes

OPTION = "--compiled"

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"

_PLAN = (
    "actions",
    "decide",
    "disruption",
    "observation",
    "policies",
    "requests",
    "restart_policy",
    "start_order",
    "state",
    "stop_order",
    "unit_decision",
    "wish",
)
# These modules of the tool run few instructions, or are imported before the compiled ones.
_NOT_COMPILED = (
    "__init__",
    "__main__",
    "cli",
    "compiled",
    "mutated_code",
    "mutations",
    "runner",
    "shrink",
)
# All compiled modules are in one library, because calls within a library are faster.
_LIBRARY = "simulate"
# Others take longer to compile than the histories of a short run save.
_OPTIMIZATION = "1"
# The number of results that the cache keeps.
_KEPT = 4


class Unavailable(Exception):
    """The modules cannot be compiled here. The message says why."""


def sources() -> dict[str, Path]:
    """Return the source files of the compiled modules."""
    plan = ROOT / "symphony" / "plan"
    paths = [ROOT / "symphony" / "status.py"]
    paths += [plan / f"{name}.py" for name in _PLAN]
    paths += sorted((plan / "decisions").glob("*.py"))
    paths += sorted((TOOLS / "simulate").glob("*.py"))
    return {_module_name(path): path for path in paths if path.stem not in _NOT_COMPILED}


def _module_name(path: Path) -> str:
    base = TOOLS if path.is_relative_to(TOOLS) else ROOT
    return ".".join(path.relative_to(base).with_suffix("").parts)


def use() -> None:
    """Import the compiled modules instead of their sources, and compile them before if needed.

    Call this before any of them is imported. Raises Unavailable.
    """
    directory = _ensure_compiled()
    found = sources()
    sys.meta_path.insert(0, _Finder(directory, [*found, f"{_LIBRARY}__mypyc"]))
    with _without_slots():
        for name in found:
            importlib.import_module(name)


@contextmanager
def _without_slots() -> Iterator[None]:
    """Let data classes have no slots of their own, because compiled classes cannot be replaced by
    others that have slots. They have slots anyway.
    """
    original: Callable[..., Any] = data_classes.dataclass

    def decorate(cls: type | None = None, /, **options: bool) -> Any:
        return original(cls, **{**options, "slots": False})

    vars(data_classes)["dataclass"] = decorate
    try:
        yield
    finally:
        vars(data_classes)["dataclass"] = original


class _Finder(MetaPathFinder):
    """Finds the compiled modules in a directory."""

    def __init__(self, directory: Path, modules: Sequence[str]) -> None:
        self._paths = {
            name: directory.joinpath(*name.split(".")).with_suffix(EXTENSION_SUFFIXES[0])
            for name in modules
        }

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return a specification that loads the compiled module."""
        if fullname not in self._paths:
            return None
        return importlib.util.spec_from_file_location(fullname, self._paths[fullname])


# --- the cache ---


def _ensure_compiled() -> Path:
    """Return the directory of the compiled modules, and compile them if it does not exist."""
    cache = cache_home(os.environ, Path.home()) / "symphony" / "simulate"
    cache.mkdir(parents=True, exist_ok=True)
    entry = cache / _key()
    with (cache / "lock").open("w") as lock:
        # Another run may be compiling the same files.
        fcntl.flock(lock, fcntl.LOCK_EX)
        store.ensure(entry, _compile, report=_tell)
        os.utime(entry)
        _remove_old(cache)
    return entry


def _remove_old(cache: Path) -> None:
    """Remove the results that were used least recently, except a few."""
    entries = [path for path in cache.iterdir() if path.is_dir()]
    entries.sort(key=lambda path: path.stat().st_mtime)
    for path in entries[:-_KEPT]:
        shutil.rmtree(path)


def _key() -> str:
    try:
        from mypy.version import __version__ as version_of_mypy
    except ImportError:
        raise Unavailable("mypy is not installed") from None
    contents = {name: store.digest(path) for name, path in sources().items()}
    python = (platform.python_implementation(), sys.version, platform.machine())
    return store.key(contents, python, version_of_mypy, _OPTIMIZATION)


def _tell(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _compile(directory: Path) -> None:
    """Compile the modules into a directory. Raises Unavailable."""
    if shutil.which(os.environ.get("CC", "cc").split()[0]) is None:
        raise Unavailable("there is no C compiler")
    _tell("compiling the decisions and the simulated world ...")
    completed = subprocess.run(
        [sys.executable, "-m", "simulate.compiled", str(directory)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": f"{TOOLS}:{ROOT}", "MYPYPATH": f"{TOOLS}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode:
        lines = [*completed.stdout.splitlines(), *completed.stderr.splitlines()]
        raise Unavailable("they cannot be compiled:\n" + "\n".join(lines[-20:]))


def _main(directory: Path) -> None:
    """Compile the modules in this interpreter, and leave only the compiled modules."""
    from mypyc.build import mypycify

    # mypyc needs it, and it has no type annotations.
    setuptools: Any = importlib.import_module("setuptools")
    mypy_options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    paths = [str(path) for path in sources().values()]
    modules = mypycify(
        [*mypy_options, *paths],
        opt_level=_OPTIMIZATION,
        debug_level="0",
        target_dir=str(directory / "c"),
        group_name=_LIBRARY,
    )
    distribution = setuptools.Distribution({"name": "simulate", "ext_modules": modules})
    command = distribution.get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(directory), str(directory / "objects")
    command.ensure_finalized()
    command.run()
    for name in ("c", "objects", ".mypy_cache"):
        shutil.rmtree(directory / name, ignore_errors=True)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
