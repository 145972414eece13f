"""Load an experiment from a YAML, JSON or Python file.

A Python file must define the function ``build(exp)``.
"""

from __future__ import annotations

import contextlib
import inspect
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
from typing import TYPE_CHECKING, NamedTuple

from symphony.errors import NotFound, SpecError, SymphonyError
from symphony.support.data_classes import replace
from symphony.support.import_path import forget_modules_of_program, import_path_of_program
from symphony.support.names import did_you_mean, join_names, suggested_name

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.model import Experiment
    from symphony.model.document.load import LoadResult

SUFFIXES = (".yml", ".yaml", ".json", ".py")
BUILD_FUNCTION = "build"
NAME_CONSTANT = "NAME"
_MODULE_NAME = "symphony_experiment_file"


def load_experiment_file(
    cluster: Cluster,
    path: Path,
    name: str | None = None,
    parameters: Mapping[str, str] | None = None,
) -> Experiment:
    """Load the experiment that a file describes.

    ``name`` overrides the name in the file. If a user name is configured, the experiment name is
    prefixed with it. ``parameters`` contains values for the parameters that the file declares, or
    for the keyword arguments of ``build``.

    A Python file is executed with its directory first on ``sys.path``. Its function ``build``
    receives a new experiment. The experiment is named after the constant ``NAME``, or after the
    file if the constant is not defined. The standard output of the Python file is redirected to
    standard error.

    Raises `SpecError` if the file is invalid and `NotFound` if it does not exist. The error message
    contains the file name and, if it is known, the line number.
    """
    return load_with_errors(cluster, path, name, parameters).experiment_or_error()


def load_with_errors(
    cluster: Cluster,
    path: Path,
    name: str | None = None,
    parameters: Mapping[str, str] | None = None,
    *,
    copy: bool = False,
) -> LoadResult:
    """Load the valid parts of an experiment, and collect all errors in the other parts.

    The arguments are the same as for `load_experiment_file`. With ``copy``, or if the copy that
    belongs to the origin of the file is active, the experiment is this copy; see
    `symphony.archive.copies`. Raises `NotFound` if the file does not exist, and `SpecError` if it
    cannot be read or parsed. Any error in a Python file raises `SpecError`.
    """
    from symphony.model.document.load import LoadResult

    if path.suffix not in SUFFIXES:
        raise SpecError(
            f"{path}: {_describe_wrong_path(path)}; an experiment file must end in "
            f"{join_names(SUFFIXES)}{_other_command(path)}"
        )
    if path.suffix == ".py":
        return LoadResult(_load_python(cluster, path, name, parameters or {}, copy=copy), [])
    from symphony.model import Experiment
    from symphony.model.document import files

    result = files.load(Experiment, path, parameters, default_name=name)
    experiment = result.experiment
    if experiment is None:
        return result
    final = _final_name(cluster, path, name or experiment.name, copy=copy)
    if final.name != experiment.name:
        experiment = _renamed(experiment, final.name)
    experiment.given = replace(experiment.given, copy_of=final.copy_of)
    return LoadResult(experiment, result.errors)


class _FinalName(NamedTuple):
    """The name of an experiment, and of which experiment it is a copy, or None if it is none."""

    name: str
    copy_of: str | None


def _final_name(cluster: Cluster, path: Path, name: str, *, copy: bool) -> _FinalName:
    """Return the name with which the experiment ``name`` of a file is launched or changed."""
    from symphony.archive.copies import copy_name
    from symphony.commandline.commands.lookup.own_copy import find_own_copy

    full_name = cluster.configuration.experiment_name(name)
    if copy:
        return _FinalName(copy_name(full_name, path.parent), full_name)
    own_copy = find_own_copy(cluster, full_name, path.parent)
    if own_copy is None:
        return _FinalName(full_name, None)
    return _FinalName(own_copy.experiment, full_name)


def _describe_wrong_path(path: Path) -> str:
    if path.is_dir():
        return "is a directory"
    if path.suffix:
        return f"ends in {path.suffix!r}"
    return "has no file name extension"


def _other_command(path: Path) -> str:
    """Return the end of the error message for a file of another program, if there is one."""
    if path.name.startswith("Procfile"):
        return f"; to convert it, use the command: import {path}"
    if path.suffix in (".sh", ".sbatch", ".slurm"):
        return f"; to run one command, use: submit -- sh {path}"
    if not path.suffix and not path.exists():
        return "; for one process of an experiment, use start, stop or restart"
    return ""


def _renamed(experiment: Experiment, name: str) -> Experiment:
    result = type(experiment).load_dict({**experiment.dump_dict(), "name": name})
    result.base_dir = experiment.base_dir
    result.file = experiment.file
    result.replicas = experiment.replicas
    if experiment.source is not None:
        result.source = experiment.source.renamed(name)
    result.given = experiment.given
    return result


# --- Python files ---


def _load_python(
    cluster: Cluster,
    path: Path,
    name: str | None,
    parameters: Mapping[str, str],
    *,
    copy: bool,
) -> Experiment:
    from symphony.model.document.files import absolute_path
    from symphony.model.experiment.given_options import GivenOptions

    code = _compile(path)
    absolute = absolute_path(path)
    with _importing_from(absolute.parent) as module, contextlib.redirect_stdout(sys.stderr):
        module.__file__ = str(absolute)
        with _errors_located_in(path, "failed to execute"):
            exec(code, vars(module))
        build = _build_function(module, path)
        arguments = _build_arguments(build, path, parameters)
        final = _final_name(cluster, path, name or _experiment_name(module, path), copy=copy)
        experiment = cluster.new_experiment(final.name)
        experiment.base_dir = absolute.parent
        experiment.file = absolute
        experiment.given = GivenOptions(parameters=parameters, copy_of=final.copy_of)
        with _errors_located_in(path, f"{BUILD_FUNCTION}(exp) failed"):
            _refuse_deferred_result(build(experiment, **arguments))
    return experiment


def _compile(path: Path) -> CodeType:
    """Compile a Python file.

    Raises `NotFound` if the file does not exist, and `SpecError` if it cannot be read or compiled.
    """
    try:
        return compile(path.read_bytes(), str(path.absolute()), "exec", dont_inherit=True)
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file{_other_files_hint(path)}") from None
    except OSError as exc:
        raise SpecError(f"{path}: cannot be read: {exc.strerror}") from exc
    except SyntaxError as exc:
        position = f":{exc.lineno}:{exc.offset}" if exc.lineno else ""
        raise SpecError(f"{path}{position}: invalid Python: {exc.msg}") from exc
    except ValueError as exc:
        # compile() raises ValueError if the source contains a null byte.
        raise SpecError(f"{path}: invalid Python: {exc}") from exc


def _other_files_hint(path: Path) -> str:
    """Return a hint for an error message about a missing Python file.

    The hint suggests Python files with similar names or, if there are none, lists all Python files
    in the directory. It is empty if the directory contains no Python files.
    """
    if not path.parent.is_dir():
        return ""
    files = sorted(item.name for item in path.parent.glob("*.py"))
    if not files:
        return ""
    return did_you_mean(path.name, files) or f"; the directory contains {join_names(files)}"


def _build_function(module: ModuleType, path: Path) -> Callable[..., object]:
    """Return a module's function ``build``. Raises `SpecError` if there is no such function."""
    build = vars(module).get(BUILD_FUNCTION)
    if not callable(build):
        functions = [
            key
            for key, value in vars(module).items()
            if callable(value) and not key.startswith("_")
        ]
        hint = did_you_mean(BUILD_FUNCTION, functions) or (
            f"; define one that adds processes: def {BUILD_FUNCTION}(exp): exp.new_process(...)"
        )
        raise SpecError(f"{path}: has no function {BUILD_FUNCTION}(exp){hint}")
    function: Callable[..., object] = build
    return function


def _refuse_deferred_result(result: object) -> None:
    """Raise `SpecError` if ``build`` returned a coroutine or a generator.

    In both cases, the body of ``build`` has not run. Without this check, the experiment would be
    empty, and no error would be reported.
    """
    for kind, description in _DEFERRED_RESULTS.items():
        if isinstance(result, kind):
            # Python warns about a coroutine that is neither awaited nor closed. An asynchronous
            # generator has no ``close`` method, but Python does not warn about it.
            close = getattr(result, "close", None)
            if close is not None:
                close()
            raise SpecError(
                f"{BUILD_FUNCTION}(exp) {description}, so its body did not run; "
                f"make it a plain function: def {BUILD_FUNCTION}(exp)"
            )


_DEFERRED_RESULTS: dict[type, str] = {
    CoroutineType: "is async",
    AsyncGeneratorType: "is async and contains yield",
    GeneratorType: "contains yield",
}


def _build_arguments(
    build: Callable[..., object], path: Path, parameters: Mapping[str, str]
) -> dict[str, object]:
    """Return the keyword arguments for ``build``.

    Raises `SpecError` for a parameter that ``build`` does not accept.

    A value remains a string if the argument's default is a string. Otherwise, a value that
    represents a number or a boolean is converted to a number or a boolean.
    """
    if not parameters:
        return {}
    from symphony.model.document.parameters import value_of_text

    # The first argument of ``build`` is the experiment.
    accepted = list(inspect.signature(build).parameters.values())[1:]
    defaults = {
        item.name: item.default
        for item in accepted
        if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
    }
    accepts_any = any(item.kind is item.VAR_KEYWORD for item in accepted)
    arguments: dict[str, object] = {}
    for name, text in parameters.items():
        if name not in defaults and not accepts_any:
            hint = did_you_mean(name, defaults) or f"; it accepts {join_names(defaults)}"
            raise SpecError(
                f"{path}: {BUILD_FUNCTION}(exp) has no argument {name!r}{hint} "
                f"(declare it: def {BUILD_FUNCTION}(exp, {name}=1))"
            )
        arguments[name] = text if isinstance(defaults.get(name), str) else value_of_text(text)
    return arguments


def _experiment_name(module: ModuleType, path: Path) -> str:
    """Return the value of the constant ``NAME``, or a name derived from the file name."""
    name = vars(module).get(NAME_CONSTANT)
    if name is None:
        name = suggested_name(path.stem)
        if not name:
            raise SpecError(
                f"{path}: cannot derive an experiment name from {path.stem!r}; "
                "set NAME in the file, or pass --name"
            )
    if not isinstance(name, str):
        raise SpecError(f"{path}: NAME must be a string, not {name!r}")
    return name


@contextlib.contextmanager
def _importing_from(directory: Path) -> Iterator[ModuleType]:
    """Yield a module in which to execute a file, with ``directory`` first on ``sys.path``."""
    module = ModuleType(_MODULE_NAME)
    previous = list(sys.path)
    # Dataclasses look up their defining module in ``sys.modules``.
    sys.modules[_MODULE_NAME] = module
    sys.path[:] = import_path_of_program(str(directory))
    try:
        yield module
    finally:
        forget_modules_of_program(str(directory))
        # symphony must not import the user's modules instead of its own.
        sys.path[:] = previous


@contextlib.contextmanager
def _errors_located_in(path: Path, summary: str) -> Iterator[None]:
    """Raise each error as a `SpecError` whose message begins with the location in ``path``."""
    try:
        yield
    except SymphonyError as exc:
        raise SpecError(f"{_location(path, exc.__traceback__)}: {exc}") from exc
    except (Exception, SystemExit) as exc:
        kind = type(exc).__name__
        text = f"{kind}: {exc}" if str(exc) else kind
        raise SpecError(f"{_location(path, exc.__traceback__)}: {summary}: {text}") from exc


def _location(path: Path, trace: TracebackType | None) -> str:
    """Return ``path:line`` for the innermost frame in ``path``, or ``path`` if there is none."""
    absolute = str(path.absolute())
    lines = [frame.lineno for frame in traceback.extract_tb(trace) if frame.filename == absolute]
    return f"{path}:{lines[-1]}" if lines else str(path)
