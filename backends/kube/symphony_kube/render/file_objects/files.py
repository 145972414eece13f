"""Read the files that become Secrets and ConfigMaps. Rendering reads no other files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from symphony.code.snapshot import CodeArchives
from symphony.config.locations import expand_user
from symphony.errors import SpecError, error_path
from symphony.model.document_path import DocumentPath
from symphony.plan.plan import Plan
from symphony.plan.resolution.encryption_keys import generate

# The maximum size of a Secret or ConfigMap; see MaxSecretSize in
# k8s.io/kubernetes/pkg/apis/core/types.go.
MAX_OBJECT_BYTES = 1024 * 1024


def read_files(plan: Plan) -> Mapping[str, bytes]:
    """Return the contents of the files that a plan names, keyed by path.

    The keys are the paths as written in the plan. Relative paths are relative to the plan's base
    directory, or to the current directory if the plan has no base directory. The result also maps
    each variable that holds an encryption key to a newly generated key. Raises `SpecError` if a
    file does not exist, cannot be read, or is too large for a Secret or ConfigMap.
    """
    base = plan.base_dir or Path.cwd()
    contents: dict[str, bytes] = {}
    for what, path, source in _sources(plan):
        if source not in contents:
            with error_path(*path):
                contents[source] = _read(base / expand_user(source), what)
    for variable, key in generate(plan.key_variables).items():
        contents[variable] = key.encode()
    return contents


def check_start_directories(plan: Plan, archives: CodeArchives) -> None:
    """Raise `SpecError` if the start directory of a process does not exist in its code.

    Kubernetes would create the directory. The contents of archives of earlier runs are not checked.
    """
    for process in plan:
        archive = archives.get(process.name)
        if archive is None or not process.start_dir:
            continue
        source = Path(archive.snapshot.source)
        directory = source / process.start_dir
        is_in_code = not Path(process.start_dir).is_absolute() and source.is_dir()
        if is_in_code and not directory.is_dir():
            raise SpecError(
                f"process {process.path!r}: start_dir {directory} is not a directory",
                path=(*process.document_path, "start_dir"),
            )


def paths(plan: Plan) -> list[str]:
    """Return the paths of the files that a plan names, as written in the plan."""
    return list(dict.fromkeys(source for _, _, source in _sources(plan)))


def _sources(plan: Plan) -> Iterator[tuple[str, DocumentPath, str]]:
    """Yield a description, the place in the experiment and the path of each file."""
    for name, source in plan.secrets.items():
        yield f"secret {name!r}", ("secrets", name), source
    for process in plan:
        volumes = (*process.document_path, "volumes")
        for index, volume in enumerate(process.settings.volumes):
            ((kind, details),) = volume.items()
            for name, source in details.get("files", {}).items():
                what = f"{kind} {details[kind]!r}, file {name!r}"
                yield what, (*volumes, index, kind, "files"), source


def _read(path: Path, what: str) -> bytes:
    if not path.is_file():
        raise SpecError(f"{what}: there is no file {path}")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_OBJECT_BYTES + 1)
    except PermissionError:
        raise SpecError(f"{what}: {path} cannot be read by this user") from None
    except OSError as exc:
        raise SpecError(f"{what}: {path} cannot be read: {exc.strerror}") from exc
    if len(content) > MAX_OBJECT_BYTES:
        raise SpecError(
            f"{what}: {path} is larger than 1 MiB, the limit of Kubernetes; put it on a volume"
        )
    return content
