"""Which container engine this machine really has: each is tried, not guessed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping

from symphony.addons.docker.engines import BUILDKIT, BUILDX, CLASSIC, PODMAN, Engine
from symphony.addons.docker.subprocesses import asked
from symphony.errors import BackendError, SpecError, Unreachable
from symphony.names import did_you_mean

VARIABLE = "SYMPHONY_CONTAINER_ENGINE"
DOCKER = "docker"  # whichever of docker's builders is there, the best first
CHOICES = (DOCKER, BUILDX, BUILDKIT, CLASSIC, PODMAN)


def check_choice(choice: str | None, environ: Mapping[str, str]) -> str | None:
    """The engine that is wished for, or None for any. Raises `SpecError` for one that nobody knows."""
    wish = choice or environ.get(VARIABLE) or None
    if wish is None or wish in CHOICES:
        return wish
    where = "engine" if choice else VARIABLE
    raise SpecError(
        f"{where} is one of {', '.join(CHOICES)}, not {wish!r}{did_you_mean(wish, CHOICES)}"
    )


def find(choice: str | None = None) -> Engine:
    """The engine of ``choice``, else of SYMPHONY_CONTAINER_ENGINE, else the first that answers.

    docker comes before podman, BuildKit before the classic builder. Raises `SpecError` for a choice that is none,
    `Unreachable` where an engine does not answer, `BackendError` where there is none.
    """
    wish = check_choice(choice, os.environ)
    trouble: list[str] = []
    silent = False
    for name in (DOCKER, PODMAN):
        if wish is not None and not wish.startswith(name):
            continue
        program = shutil.which(name)
        if program is None:
            trouble.append(f"there is no {name} on the PATH")
            continue
        try:
            return _answering(program, wish)
        except Unreachable as exc:
            silent = True
            trouble.append(f"{name} does not answer: {exc}")
    raise (Unreachable if silent else BackendError)(
        f"no container engine: {'; '.join(trouble)}; start or install one, or choose another with "
        f"{VARIABLE} ({', '.join(CHOICES)})"
    )


def _answering(program: str, wish: str | None) -> Engine:
    """The engine of a program. Raises `Unreachable` where it does not answer; of docker its daemon has to."""
    if _is_podman(program):
        _answer([program, "version"])
        if wish not in {None, DOCKER, PODMAN}:
            raise BackendError(
                f"engine {wish} was asked for, but {program} is podman; ask for podman, or for none"
            )
        return Engine(kind=PODMAN, program=program)
    _answer([program, "version", "--format", "{{.Server.Version}}"])
    kinds = list(_BUILDERS)
    if wish in kinds:
        kinds = [wish]
    elif os.environ.get("DOCKER_BUILDKIT") == "0":  # the user's word to docker itself
        kinds = [CLASSIC]
    for kind in kinds:
        if _BUILDERS[kind](program):
            return Engine(kind=kind, program=program)
    raise BackendError(
        f"engine {wish} was asked for, which {program} has not; ask for {DOCKER}, or install it"
    )


def _answer(command: list[str]) -> None:
    done = asked(command)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Unreachable(said[-1] if said else f"exit code {done.returncode}")


def _is_podman(program: str) -> bool:
    """Whether it is podman, which also goes by the name docker."""
    return asked([program, "--version"]).stdout.strip().lower().startswith(PODMAN)


def _has_buildx(program: str) -> bool:
    return asked([program, "buildx", "version"]).returncode == 0


def _has_buildkit(program: str) -> bool:
    """Whether this client speaks BuildKit by itself, as those before buildx did; a later one refuses."""
    done = asked([program, "build", "--help"], {"DOCKER_BUILDKIT": "1"})
    return done.returncode == 0 and "--progress" in done.stdout


_BUILDERS: dict[str, Callable[[str], bool]] = {
    BUILDX: _has_buildx,
    BUILDKIT: _has_buildkit,
    CLASSIC: lambda _: True,
}
