"""From FILE to an experiment: YAML and JSON as they are, Python by its ``build(exp)``."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import (
    AsyncGeneratorType,
    CodeType,
    CoroutineType,
    GeneratorType,
    ModuleType,
    TracebackType,
)
from typing import TYPE_CHECKING

from symphony.errors import NotFound, SpecError, SymphonyError
from symphony.names import corrected, did_you_mean, join_names

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.model import Experiment

SUFFIXES = (".yml", ".yaml", ".json", ".py")
BUILD = "build"
NAME = "NAME"
_MODULE = "symphony_experiment_file"


def load(
    cluster: Cluster,
    path: Path,
    name: str | None = None,
    parameters: Mapping[str, str] | None = None,
) -> Experiment:
    """The experiment that a file describes, under ``name`` where that is given, and with the user's name before it.

    ``parameters`` are those that the file declares, or that its ``build`` takes after the experiment.

    A Python file is executed, with its folder first on ``sys.path``, and its ``build`` fills a new experiment,
    called ``NAME`` where the file sets that, else after the file. What it prints goes to standard error.
    Raises `SpecError` and `NotFound`, which name the file and where they can the line.
    """
    if path.suffix not in SUFFIXES:
        what = (
            "is a folder"
            if path.is_dir()
            else f"ends in {path.suffix!r}"
            if path.suffix
            else "has no ending"
        )
        raise SpecError(f"{path}: {what}; an experiment's file ends in {join_names(SUFFIXES)}")
    if path.suffix == ".py":
        return _built(cluster, path, name, parameters or {})
    from symphony.config import SymphonyConfig
    from symphony.model import Experiment

    found = Experiment.load_file(path, parameters=parameters)
    wanted = SymphonyConfig().experiment_name(name or found.name)
    return found if wanted == found.name else _renamed(found, wanted)


def _renamed(experiment: Experiment, name: str) -> Experiment:
    result = type(experiment).load_dict({**experiment.dump_dict(), "name": name})
    result.base_dir = experiment.base_dir
    return result


# --- Python files ---


def _built(
    cluster: Cluster, path: Path, name: str | None, parameters: Mapping[str, str]
) -> Experiment:
    code, home = _compiled(path), path.absolute()
    with _importing_from(home.parent) as module, contextlib.redirect_stdout(sys.stderr):
        module.__file__ = str(home)
        with _blamed_on(path, "cannot be run"):
            exec(code, vars(module))
        build = _build_function(module, path)
        options = _options(build, path, parameters)
        experiment = cluster.new_experiment(name or _name_of(module, path))
        experiment.base_dir = home.parent
        with _blamed_on(path, f"{BUILD}(exp) failed"):
            _refuse_later(build(experiment, **options))
    return experiment


def _compiled(path: Path) -> CodeType:
    try:
        return compile(path.read_bytes(), str(path.absolute()), "exec", dont_inherit=True)
    except FileNotFoundError:
        beside = (
            sorted(item.name for item in path.parent.glob("*.py")) if path.parent.is_dir() else []
        )
        hint = did_you_mean(path.name, beside) or (
            f"; beside it: {join_names(beside)}" if beside else ""
        )
        raise NotFound(f"{path}: no such file{hint}") from None
    except OSError as exc:
        raise SpecError(f"{path}: cannot be read: {exc.strerror}") from exc
    except SyntaxError as exc:
        place = f":{exc.lineno}:{exc.offset}" if exc.lineno else ""
        raise SpecError(f"{path}{place}: not Python: {exc.msg}") from exc
    except ValueError as exc:  # a NUL byte
        raise SpecError(f"{path}: not Python: {exc}") from exc


def _build_function(module: ModuleType, path: Path) -> Callable[..., object]:
    build = vars(module).get(BUILD)
    if not callable(build):
        own = [
            key
            for key, value in vars(module).items()
            if callable(value) and not key.startswith("_")
        ]
        hint = (
            did_you_mean(BUILD, own)
            or f"; write one that adds processes: def {BUILD}(exp): exp.new_process(...)"
        )
        raise SpecError(f"{path}: has no function {BUILD}(exp){hint}")
    found: Callable[..., object] = build
    return found


def _refuse_later(returned: object) -> None:
    """Refuse a ``build`` that has not run yet: a coroutine or a generator, which nobody here would go on with."""
    for kind, what in _LATER.items():
        if isinstance(returned, kind):
            close = getattr(
                returned, "close", None
            )  # a coroutine that nobody awaits would warn at its end
            if close is not None:
                close()
            raise SpecError(
                f"{BUILD}(exp) {what}, and so nothing of it has run; make it a plain def {BUILD}(exp)"
            )


_LATER: dict[type, str] = {
    CoroutineType: "is async",
    AsyncGeneratorType: "is async and has a yield",
    GeneratorType: "has a yield",
}


def _options(
    build: Callable[..., object], path: Path, parameters: Mapping[str, str]
) -> dict[str, object]:
    """What ``build`` gets beside the experiment: a number or a flag where its default is no text."""
    if not parameters:
        return {}
    import inspect

    from symphony.model.parameters import as_value

    takes = list(inspect.signature(build).parameters.values())[1:]
    known = {
        item.name: item.default
        for item in takes
        if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
    }
    for name in parameters:
        if name not in known and not any(item.kind is item.VAR_KEYWORD for item in takes):
            hint = did_you_mean(name, known) or f"; it takes {join_names(known)}"
            raise SpecError(
                f"{path}: {BUILD}(exp) takes no {name!r}{hint} (as in def {BUILD}(exp, {name}=1))"
            )
    return {
        name: text if isinstance(known.get(name), str) else as_value(text)
        for name, text in parameters.items()
    }


def _name_of(module: ModuleType, path: Path) -> str:
    name = vars(module).get(NAME)
    if name is None:
        name = corrected(path.stem)
        if not name:
            raise SpecError(
                f"{path}: no name can be made of {path.stem!r}; set NAME in the file, or give --name"
            )
    if not isinstance(name, str):
        raise SpecError(f"{path}: NAME is the experiment's name, a text, not {name!r}")
    return name


@contextlib.contextmanager
def _importing_from(folder: Path) -> Iterator[ModuleType]:
    """A module to execute a file in, while its folder is the first that is imported from."""
    module = ModuleType(_MODULE)
    before = list(sys.path)
    sys.modules[_MODULE] = module
    sys.path.insert(0, str(folder))
    try:
        yield module
    finally:
        # A launch hands sys.path to the supervisor, which must not import from the user's folder.
        sys.path[:] = before


@contextlib.contextmanager
def _blamed_on(path: Path, what: str) -> Iterator[None]:
    """Say where in the user's file an error came from."""
    try:
        yield
    except SymphonyError as exc:
        raise SpecError(f"{_place(path, exc.__traceback__)}: {exc}") from exc
    except (Exception, SystemExit) as exc:
        said = f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
        raise SpecError(f"{_place(path, exc.__traceback__)}: {what}: {said}") from exc


def _place(path: Path, trace: TracebackType | None) -> str:
    """``file:line`` of the innermost call in ``path``, or the file where none was reached."""
    home = str(path.absolute())
    lines = [frame.lineno for frame in traceback.extract_tb(trace) if frame.filename == home]
    return f"{path}:{lines[-1]}" if lines else str(path)
