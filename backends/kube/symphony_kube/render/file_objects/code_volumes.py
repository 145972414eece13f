"""The code of processes: Secrets with an archive, and the init containers that unpack it. Pure.

A small archive is divided among immutable Secrets, which are named by its digest. The Secrets of an
experiment are mounted only by its own Pods, also if another experiment has the same code. A large
archive is sent to the init container; see `symphony_kube.access.send_code`. This requires that only
commands of the user create the Pods. Other Pods have Secrets with large archives, too.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

from symphony.code.snapshot import SHORT_DIGEST_LENGTH, CodeArchive, size_text
from symphony.errors import SpecError
from symphony.plan.plan import PlannedProcess
from symphony_kube.api.labels import CODE, SNAPSHOT, Scope
from symphony_kube.render.file_objects.files import MAX_OBJECT_BYTES
from symphony_kube.render.text import Object, escape

CODE_VARIABLE = "SYMPHONY_CODE_DIR"
# The directory of the code in the containers of processes.
CODE_DIRECTORY = "/symphony/code"
# The maximum size of a compressed archive in Secrets, which the nodes keep in memory.
SMALL_CODE_BYTES = 4 * MAX_OBJECT_BYTES
# The same, for Pods that are also created when no command of the user runs.
MAX_CODE_BYTES = 8 * MAX_OBJECT_BYTES
# The variable of an init container that waits for an archive. Its value is the digest.
DIGEST_VARIABLE = "SYMPHONY_CODE_DIGEST"
# How long an init container waits for an archive.
WAIT_SECONDS = 600
_KEY = "part"
_VOLUME_PREFIX = "code-"
_UNPACKED = "code"
_PARTS_PATH, TARGET_PATH = "/symphony/parts", "/symphony/unpacked"
_PREPARE = """\
set -e
cd "$1"
[ ! -d code ] || exit 0
for program in cat gzip tar; do
    command -v "$program" >/dev/null || {
        echo "the image has no $program, which unpacks the code: set code_image" >&2
        exit 1
    }
done
rm -rf new code.tar
"""
# The code gets its final name only when it is complete, so that the script can be repeated after a
# failure.
_FINISH = """\
mkdir new
tar -xof code.tar -C new
rm -f code.tar code.tar.gz
mv new code
"""
# "$1" is the directory of the volume, and "$2" that with the parts of the archive.
UNPACK_SCRIPT = f"""\
{_PREPARE}\
cat "$2"/* | gzip -dc >code.tar
{_FINISH}"""
# "$1" is the directory of the volume, and "$2" the time in seconds for which the script waits for
# the archive.
WAIT_SCRIPT = f"""\
{_PREPARE}\
waited=0
until [ -f code.tar.gz ]; do
    [ "$waited" -lt "$2" ] || {{
        echo "the code was not sent: run symphony up with the experiment file" >&2
        exit 1
    }}
    sleep 1
    waited=$((waited + 1))
done
gzip -dc code.tar.gz >code.tar
{_FINISH}"""
# This script runs in a container that runs the script above. "$1" is the directory of the volume,
# and "$2" the size of the archive, which gets its name only when it is complete.
RECEIVE_SCRIPT = """\
cd "$1" || exit 1
incoming=.incoming.$$
trap 'rm -f "$incoming"' EXIT
trap 'exit 1' HUP INT TERM PIPE
head -c "$2" >"$incoming"
[ "$(wc -c <"$incoming")" -eq "$2" ] && gzip -t <"$incoming" || {
    echo "it is incomplete" >&2
    exit 1
}
[ -d code ] || mv "$incoming" code.tar.gz
"""


def is_small(archive: CodeArchive) -> bool:
    """Return whether an archive is always sent in Secrets."""
    return len(archive.data) <= SMALL_CODE_BYTES


def fits_into_secrets(archive: CodeArchive) -> bool:
    """Return whether an archive can be stored in Secrets, for Pods that are created later."""
    return len(archive.data) <= MAX_CODE_BYTES


def start_directory(process: PlannedProcess) -> str | None:
    """Return the start directory of a process, which is in its code if it has code."""
    if process.code is None:
        return process.start_dir
    return posixpath.normpath(posixpath.join(CODE_DIRECTORY, process.start_dir or ""))


def code_objects(archives: Iterable[CodeArchive], scope: Scope) -> list[Object]:
    """Return the Secrets that contain the archives.

    Raises `SpecError` if an archive is too large.
    """
    result = []
    for archive in {archive.snapshot.digest: archive for archive in archives}.values():
        snapshot = archive.snapshot
        if not fits_into_secrets(archive):
            raise SpecError(
                f"code: {snapshot.source} has {size_text(len(archive.data))} when it is "
                f"compressed, and the limit is {size_text(MAX_CODE_BYTES)} on Kubernetes for "
                "processes that are restarted, that are jobs or ranks, or that wait for others; "
                "exclude large files, and put them into the image or on a volume"
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


def _parts(archive: CodeArchive) -> list[bytes]:
    data = archive.data
    starts = range(0, len(data), MAX_OBJECT_BYTES)
    return [data[start : start + MAX_OBJECT_BYTES] for start in starts]


def _part_names(archive: CodeArchive, scope: Scope) -> list[str]:
    """Return the names of the Secrets.

    Another version of zlib can compress the same code differently, so they also depend on the
    compressed data.
    """
    packed = hashlib.sha256(archive.data).hexdigest()[:8]
    prefix = f"symphony-code-{archive.snapshot.short_digest}-{packed}"
    count = len(_parts(archive))
    return [scope.object_name(f"{prefix}-{number}", "Secret") for number in range(count)]


def volume_name(archive: CodeArchive) -> str:
    """Return the name of the volume with the unpacked code."""
    return f"{_VOLUME_PREFIX}{archive.snapshot.short_digest}"


def mounted_code(pod: Mapping[str, Any]) -> set[str]:
    """Return the short digests of the code in the volumes of a Pod."""
    names = [volume["name"] for volume in pod["spec"].get("volumes") or ()]
    start = len(_VOLUME_PREFIX)
    return {
        name[start : start + SHORT_DIGEST_LENGTH]
        for name in names
        if name.startswith(_VOLUME_PREFIX)
    }


def code_volumes(volume: str, archive: CodeArchive, scope: Scope, *, is_sent: bool) -> list[Object]:
    """Return the volume with the unpacked code, and that with the parts of the archive unless it
    is sent to the init container. ``volume`` is the name of the former.
    """
    unpacked: Object = {"name": volume, "emptyDir": {}}
    if is_sent:
        return [unpacked]
    names = _part_names(archive, scope)
    sources = [
        {"secret": {"name": name, "items": [{"key": _KEY, "path": f"{number:04}"}]}}
        for number, name in enumerate(names)
    ]
    return [{"name": f"{volume}-parts", "projected": {"sources": sources}}, unpacked]


def code_mount(volume: str) -> Object:
    """Return the mount of the code in the container of a process."""
    return {"name": volume, "mountPath": CODE_DIRECTORY, "subPath": _UNPACKED}


def update_mount(volume: str) -> Object:
    """Return the mount of the whole volume, in which a container finds changed code."""
    return {"name": volume, "mountPath": TARGET_PATH}


def unpack_container(
    name: str,
    volume: str,
    archive: CodeArchive,
    further: Mapping[str, object],
    *,
    is_sent: bool,
) -> Object:
    """Return the init container that unpacks an archive. ``further`` contains fields of it."""
    mounts = [update_mount(volume)]
    script, source = WAIT_SCRIPT, str(WAIT_SECONDS)
    environment: list[Object] = []
    if is_sent:
        digest = archive.snapshot.short_digest
        environment.append({"name": DIGEST_VARIABLE, "value": digest})
    else:
        script, source = UNPACK_SCRIPT, _PARTS_PATH
        mounts.append({"name": f"{volume}-parts", "mountPath": _PARTS_PATH, "readOnly": True})
    # In a script, Kubernetes would replace $( and $$.
    fields = {
        "command": ["/bin/sh", "-c", escape(script), "/bin/sh"],
        "args": [TARGET_PATH, source],
        "env": environment,
        **further,
        "volumeMounts": mounts,
        # The status of the process then contains the error message of the script.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return {"name": name, **{key: value for key, value in fields.items() if value}}
