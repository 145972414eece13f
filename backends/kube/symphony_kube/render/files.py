"""Reading what becomes Secrets and ConfigMaps: the one place of the rendering that looks at this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from symphony.errors import SpecError
from symphony.plan.encryption_keys import generate
from symphony.plan.resolve import Plan

# Kubernetes, pkg/apis/core/types.go: MaxSecretSize, which is that of a ConfigMap too. In bytes.
MOST = 1024 * 1024


def read_files(plan: Plan) -> Mapping[str, bytes]:
    """The contents of the files that a plan names, by their paths as they stand there.

    Relative paths begin at the plan's base, or here. A file that is not there or cannot be read is a `SpecError`,
    and so is one that no Secret or ConfigMap can hold. Keys of encrypted services are made here, by their variables.
    """
    base = plan.base_dir or Path.cwd()
    found: dict[str, bytes] = {}
    for what, source in _named(plan):
        if source not in found:
            found[source] = _read(base / source, what)
    return {
        **found,
        **{variable: key.encode() for variable, key in generate(plan.key_variables).items()},
    }


def paths(plan: Plan) -> list[str]:
    """The paths of the files that a plan names, as they stand there."""
    return list(dict.fromkeys(source for _, source in _named(plan)))


def _named(plan: Plan) -> Iterator[tuple[str, str]]:
    """What every file is for, and its path."""
    for name, source in plan.secrets.items():
        yield f"secret {name!r}", source
    for process in plan:
        for volume in process.settings.volumes:
            ((kind, details),) = volume.items()
            for name, source in details.get("files", {}).items():
                yield f"{kind} {details[kind]!r}, file {name!r}", source


def _read(path: Path, what: str) -> bytes:
    if not path.is_file():
        raise SpecError(f"{what}: there is no file {path}")
    try:
        with path.open("rb") as file:
            content = file.read(MOST + 1)
    except PermissionError:
        raise SpecError(f"{what}: {path} cannot be read by this user") from None
    except OSError as exc:
        raise SpecError(f"{what}: {path} cannot be read: {exc.strerror}") from exc
    if len(content) > MOST:
        raise SpecError(
            f"{what}: {path} has more than the 1 MiB that Kubernetes takes; mount it from a volume"
        )
    return content
