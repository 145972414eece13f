"""The files of a run's record, and their contents."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from symphony.archive.origin import find_origin
from symphony.status import ExperimentStatus
from symphony.support.hidden_values import shown_command, shown_document

if TYPE_CHECKING:
    from symphony.model import Experiment

RECORD_FILE, RESULT_FILE, STATUS_FILE = "record.json", "result.json", "status.json"
DETAILS_FILE, TOPOLOGY_FILE = "details.json", "topology.json"
MANIFEST_FILE = "manifest.json"
LOG_DIRECTORY = "logs"
# The contents of the secrets. Only the record of an active run has them.
SECRET_FILES = "secrets/*"
SUMMARY_KEYS = (
    "run",
    "experiment",
    "backend",
    "launched",
    "state",
    "exit_code",
    "ended",
    "duration",
    "processes",
    "parameters",
    "bytes",
    "cut",
)
_SUFFIX_LENGTH = 4
_RUN_NAME = re.compile(r"[a-z][-a-z0-9]*-[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
# The unit of st_blocks, whatever the block size of the file system is.
_BLOCK_BYTES = 512


def run_name(experiment: str, launched: float, random_hex: str) -> str:
    """Return the identifier of a run, such as ``rl-20261122-093011-7f3a``.

    It consists of the experiment's name, the local time of the launch, and the first characters of
    ``random_hex``, which distinguish launches within the same second.
    """
    at = time.strftime("%Y%m%d-%H%M%S", time.localtime(launched))
    return f"{experiment}-{at}-{random_hex[:_SUFFIX_LENGTH]}"


def is_run_name(value: object) -> bool:
    """Return whether ``value`` has the form of a run's identifier."""
    return isinstance(value, str) and bool(_RUN_NAME.fullmatch(value))


def record_without_secrets(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a launch with the secrets in it hidden.

    See `symphony.support.hidden_values`.
    """
    command = shown_command(record.get("command") or [])
    shown: dict[str, Any] = shown_document({**record, "command": command})
    return shown


def launch_record(
    experiment: Experiment,
    backend: str,
    run: str,
    launched: float,
    options: Mapping[str, Any] = MappingProxyType({}),
    launch_options: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the description of a launch, with JSON-serializable values.

    * ``run``, ``experiment`` and ``backend`` are names. ``launched`` is the time in seconds since
      the epoch.
    * ``definition`` has the keys of an experiment file, and contains the values of all parameters.
      Relative paths in it are relative to ``base_directory``.
    * ``file`` is the path of the experiment file, and ``origin`` its origin; see
      `symphony.archive.origin`. Both are None for an experiment that a program describes.
    * ``source`` contains the document of the file and the values of its parameters, with which the
      experiment can be scaled, or is None; see `symphony.model.document.scaling`.
    * ``given`` contains the options with which the user has loaded the file; see
      `symphony.model.experiment.given_options`.
    * ``command`` contains the arguments of the program that launched the experiment, in the
      directory ``working_directory``.
    * ``options`` are the options for `Cluster.new` with which the experiment is found again, and
      ``launch_options`` those with which it was launched or changed last.
    * ``host``, ``user``, ``python`` and ``symphony`` describe the machine, the user and the
      versions.
    """
    import symphony

    return {
        "run": run,
        "experiment": experiment.name,
        "backend": backend,
        "launched": launched,
        "options": dict(options),
        "launch_options": dict(launch_options),
        "definition": experiment.dump_dict(),
        "given": experiment.given.to_dict(),
        "source": None if experiment.source is None else experiment.source.to_dict(),
        "base_directory": str(experiment.base_dir or Path.cwd()),
        "file": None if experiment.file is None else str(experiment.file),
        "origin": None if experiment.file is None else str(find_origin(experiment.file.parent)),
        "command": sys.argv,
        "working_directory": str(Path.cwd()),
        "host": os.uname().nodename,
        "user": _user(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "symphony": symphony.__version__,
    }


def known_launch_options(recorded: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the recorded options of a launch that are in ``names``.

    Another version of symphony can have recorded options that this version does not have.
    """
    return {name: value for name, value in recorded.items() if name in names}


def _user() -> str:
    """Return the name of the user, or the number of a user that has no name."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # The exception depends on the version of Python.
        return str(os.getuid())


def result_of(
    status: ExperimentStatus | None,
    identity: Mapping[str, Any],
    size_bytes: int,
    cut: Sequence[str] = (),
) -> dict[str, Any]:
    """Return how a run ended, with JSON-serializable values.

    ``identity`` contains ``run``, ``experiment``, ``backend`` and ``launched``, as in
    `launch_record`. The result contains them, and these values:

    * ``state`` and ``exit_code`` are those of the experiment. If ``status`` is None because the
      status could not be read, they are ``unknown`` and None.
    * ``ended`` is the time at which the last process ended, in seconds since the epoch, or None.
    * ``duration`` is the time from the creation of the experiment to ``ended`` in seconds, or None.
      Both times are those of the clock of the backend, and ``launched`` is that of this machine.
    * ``processes`` is the number of processes, or None.
    * ``parameters`` contains the values of parameters that the user has given, or None.
    * ``bytes`` is the size of the record.
    * ``cut`` contains messages about the parts of the record that are missing or can be wrong.
    """
    result: dict[str, Any] = {
        **identity,
        "state": "unknown",
        "exit_code": None,
        "ended": None,
        "duration": None,
        "processes": None,
        "parameters": None,
        "bytes": size_bytes,
        "cut": list(cut),
    }
    if status is not None:
        ends = [process.ended for process in status if process.ended is not None]
        result["state"] = status.displayed_state
        result["exit_code"] = status.exit_code
        if ends:
            created = identity["launched"] if status.created is None else status.created
            result.update(ended=max(ends), duration=max(0.0, max(ends) - created))
        result["processes"] = len(status.processes)
        result["parameters"] = dict(status.parameters)
    return result


def duration_of(result: Mapping[str, Any]) -> float | None:
    """Return the duration of a run in seconds, or None if it has not ended."""
    duration: float | None = result.get("duration")
    if duration is None and result["ended"] is not None:
        # The record does not contain the duration.
        return max(0.0, float(result["ended"]) - float(result["launched"] or 0.0))
    return duration


def write_result(
    directory: Path,
    status: ExperimentStatus | None,
    identity: Mapping[str, Any],
    cut: Sequence[str] = (),
) -> None:
    """Write how a run ended into its record; see `result_of`. Raises OSError."""
    if status is not None:
        write_json(directory / STATUS_FILE, status.to_dict())
    result = result_of(status, identity, disk_usage(directory), cut)
    write_json(directory / RESULT_FILE, result)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a file of a record. Only this user can read it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(json.dumps(data).encode())


def read_files(record: Path, pattern: str) -> dict[str, bytes]:
    """Return the contents of the files of a record whose names match ``pattern``, by their names.

    A file that cannot be read is missing in the result.
    """
    found = {}
    for path in sorted(record.glob(pattern)) if "*" in pattern else [record / pattern]:
        with contextlib.suppress(OSError):
            found[str(path.relative_to(record))] = path.read_bytes()
    return found


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the contents of a file of a record, or None if it is missing or damaged."""
    try:
        return parse_json(path.read_bytes())
    except OSError:
        return None


def parse_json(content: bytes) -> dict[str, Any] | None:
    """Return the contents of a file of a record, or None if it is damaged."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def disk_usage(directory: Path) -> int:
    """Return how many bytes the files in a directory and in its subdirectories use on the disk."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                # A log can have holes, which use no space.
                total += os.lstat(f"{parent}/{name}").st_blocks * _BLOCK_BYTES
            except OSError:
                continue
    return total
