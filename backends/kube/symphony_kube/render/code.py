"""The code of processes: Secrets with an archive, and the init containers that unpack it. Pure.

An archive is divided among immutable Secrets, which are named by its digest. The Secrets of an
experiment are mounted only by its own Pods, also if another experiment has the same code.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
from collections.abc import Iterable, Sequence

from symphony.code.snapshot import Archive, size_text
from symphony.errors import SpecError
from symphony.plan.resolve import PlannedProcess
from symphony_kube.api.labels import CODE, SNAPSHOT, Scope
from symphony_kube.render.files import MAX_OBJECT_BYTES
from symphony_kube.render.text import Object

CODE_VARIABLE = "SYMPHONY_CODE_DIR"
# The directory of the code in the containers of processes.
CODE_DIRECTORY = "/symphony/code"
# The maximum size of a compressed archive in Secrets, which the nodes keep in memory.
MAX_CODE_BYTES = 8 * MAX_OBJECT_BYTES
_KEY = "part"
_UNPACKED = "code"
_PARTS_PATH, _TARGET_PATH = "/symphony/parts", "/symphony/unpacked"
# "$1" is the directory with the parts of the archive, and "$2" that of the volume. The code gets
# its final name only when it is complete, so that the script can be repeated after a failure.
UNPACK_SCRIPT = """\
set -e
cd "$2"
[ ! -d code ] || exit 0
for program in cat gzip tar; do
    command -v "$program" >/dev/null || {
        echo "the image has no $program, which unpacks the code: set code_image" >&2
        exit 1
    }
done
rm -rf new code.tar
cat "$1"/* | gzip -dc >code.tar
mkdir new
tar -xof code.tar -C new
rm code.tar
mv new code
"""


def start_directory(process: PlannedProcess) -> str | None:
    """Return the start directory of a process, which is in its code if it has code."""
    if process.code is None:
        return process.start_dir
    return posixpath.normpath(posixpath.join(CODE_DIRECTORY, process.start_dir or ""))


def code_objects(archives: Iterable[Archive], scope: Scope) -> list[Object]:
    """Return the Secrets that contain the archives.

    Raises `SpecError` if an archive is too large.
    """
    result = []
    for archive in {archive.snapshot.digest: archive for archive in archives}.values():
        snapshot = archive.snapshot
        if len(archive.data) > MAX_CODE_BYTES:
            raise SpecError(
                f"code: {snapshot.source} has {size_text(len(archive.data))} when it is "
                f"compressed, and the limit on Kubernetes is {size_text(MAX_CODE_BYTES)}; exclude "
                "large files, and put them into the image or on a volume"
            )
        for name, part in zip(_part_names(archive, scope), _parts(archive), strict=True):
            metadata = {
                "name": name,
                "namespace": scope.namespace,
                "labels": {**scope.labels, CODE: snapshot.short_digest},
                "annotations": {SNAPSHOT: str(snapshot)},
            }
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata,
                "type": "Opaque",
                "immutable": True,
                "data": {_KEY: base64.b64encode(part).decode()},
            }
            result.append(secret)
    return result


def _parts(archive: Archive) -> list[bytes]:
    data = archive.data
    starts = range(0, len(data), MAX_OBJECT_BYTES)
    return [data[start : start + MAX_OBJECT_BYTES] for start in starts]


def _part_names(archive: Archive, scope: Scope) -> list[str]:
    """Return the names of the Secrets.

    Another version of zlib can compress the same code differently, so they also depend on the
    compressed data.
    """
    packed = hashlib.sha256(archive.data).hexdigest()[:8]
    prefix = f"symphony-code-{archive.snapshot.short_digest}-{packed}"
    count = len(_parts(archive))
    return [scope.object_name(f"{prefix}-{number}", "Secret") for number in range(count)]


def volume_name(archive: Archive) -> str:
    """Return the name of the volume with the unpacked code."""
    return f"code-{archive.snapshot.short_digest}"


def code_volumes(archive: Archive, scope: Scope) -> list[Object]:
    """Return the volumes with the parts of an archive and with the unpacked code."""
    names = _part_names(archive, scope)
    sources = [
        {"secret": {"name": name, "items": [{"key": _KEY, "path": f"{number:04}"}]}}
        for number, name in enumerate(names)
    ]
    name = volume_name(archive)
    return [
        {"name": f"{name}-parts", "projected": {"sources": sources}},
        {"name": name, "emptyDir": {}},
    ]


def code_mount(archive: Archive) -> Object:
    """Return the mount of the code in the container of a process."""
    return {"name": volume_name(archive), "mountPath": CODE_DIRECTORY, "subPath": _UNPACKED}


def unpack_container(
    name: str, archive: Archive, image: str | None, further: Sequence[tuple[str, object]]
) -> Object:
    """Return the init container that unpacks an archive. ``further`` contains fields of it."""
    volume = volume_name(archive)
    return {
        "name": name,
        **({"image": image} if image else {}),
        "command": ["/bin/sh", "-c", UNPACK_SCRIPT, "/bin/sh"],
        "args": [_PARTS_PATH, _TARGET_PATH],
        **{key: value for key, value in further if value},
        "volumeMounts": [
            {"name": f"{volume}-parts", "mountPath": _PARTS_PATH, "readOnly": True},
            {"name": volume, "mountPath": _TARGET_PATH},
        ],
    }
