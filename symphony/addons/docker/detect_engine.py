"""Finding a container engine on this machine by running the candidates in order of preference."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping

from symphony.addons.docker.engines import BUILDKIT, BUILDX, CLASSIC, PODMAN, Engine
from symphony.addons.docker.subprocesses import run_query
from symphony.errors import BackendError, SpecError, Unreachable
from symphony.support.names import check_is_text, did_you_mean

VARIABLE = "SYMPHONY_CONTAINER_ENGINE"
DOCKER = "docker"  # docker with the best available builder.
CHOICES = (DOCKER, BUILDX, BUILDKIT, CLASSIC, PODMAN)


def check_choice(choice: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the name of the requested engine, or None if no engine is requested. Raises
    `SpecError` if the name is unknown.
    """
    if choice is not None:
        check_is_text(choice, "engine")
    requested = choice or environ.get(VARIABLE) or None
    if requested is None or requested in CHOICES:
        return requested
    source = "engine" if choice else VARIABLE
    hint = did_you_mean(requested, CHOICES)
    raise SpecError(f"{source} must be one of {', '.join(CHOICES)}, not {requested!r}{hint}")


def find(choice: str | None = None) -> Engine:
    """Return the engine that ``choice`` names, or else the one that SYMPHONY_CONTAINER_ENGINE
    names. If neither is set, return the first engine that responds.

    docker is preferred to podman, and BuildKit to the classic builder. Raises `SpecError` if the
    name is unknown, `Unreachable` if an engine is installed but none responds, and `BackendError`
    if no suitable engine is installed.
    """
    requested = check_choice(choice, os.environ)
    problems: list[str] = []
    unresponsive = False
    for name in (DOCKER, PODMAN):
        if requested is not None and not requested.startswith(name):
            continue
        program = shutil.which(name)
        if program is None:
            problems.append(f"{name} is not on PATH")
            continue
        try:
            return _check_engine(program, requested)
        except Unreachable as exc:
            unresponsive = True
            problems.append(f"{name} does not respond: {exc}")
    raise (Unreachable if unresponsive else BackendError)(
        f"no container engine: {'; '.join(problems)}; start or install one, or choose another with "
        f"{VARIABLE} ({', '.join(CHOICES)})"
    )


def _check_engine(program: str, requested: str | None) -> Engine:
    """Return the engine for ``program``. Raises `Unreachable` if the program or the docker daemon
    does not respond, and `BackendError` if the ``requested`` engine is not available.
    """
    if _is_podman(program):
        _run_or_raise([program, "version"])
        if requested not in {None, DOCKER, PODMAN}:
            raise BackendError(
                f"engine {requested} was requested, but {program} is podman; "
                "request podman, or none"
            )
        return Engine(kind=PODMAN, program=program)
    _run_or_raise([program, "version", "--format", "{{.Server.Version}}"])
    kinds = list(_BUILDERS)
    if requested in kinds:
        kinds = [requested]
    elif os.environ.get("DOCKER_BUILDKIT") == "0":  # The user has disabled BuildKit in docker.
        kinds = [CLASSIC]
    for kind in kinds:
        if _BUILDERS[kind](program):
            return Engine(kind=kind, program=program)
    raise BackendError(
        f"engine {requested} was requested, but {program} does not have it; "
        f"request {DOCKER}, or install it"
    )


def _run_or_raise(command: list[str]) -> None:
    done = run_query(command)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise Unreachable(lines[-1] if lines else f"exit code {done.returncode}")


def _is_podman(program: str) -> bool:
    """Return whether ``program`` is podman, which can also be installed as ``docker``."""
    return run_query([program, "--version"]).stdout.strip().lower().startswith(PODMAN)


def _has_buildx(program: str) -> bool:
    return run_query([program, "buildx", "version"]).returncode == 0


def _has_buildkit(program: str) -> bool:
    """Return whether the docker client ``program`` supports BuildKit without buildx. Only old
    docker versions do; newer versions require buildx.
    """
    done = run_query([program, "build", "--help"], {"DOCKER_BUILDKIT": "1"})
    return done.returncode == 0 and "--progress" in done.stdout


_BUILDERS: dict[str, Callable[[str], bool]] = {
    BUILDX: _has_buildx,
    BUILDKIT: _has_buildkit,
    CLASSIC: lambda _: True,
}
