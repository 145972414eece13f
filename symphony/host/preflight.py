"""What must hold on this machine before anything starts, and what is written before it does."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from symphony.errors import SpecError
from symphony.host.processes.spec import Command
from symphony.host.render import HostManifest
from symphony.host.run.directory import RunDirectory
from symphony.plan.encryption_keys import generate
from symphony.plan.resolve import secret_text


def check(manifest: HostManifest) -> None:
    """Raise `SpecError` for a folder, a secret or a command that is not there."""
    for name, source in manifest.secrets.items():
        if not Path(source).is_file():
            raise SpecError(f"secret {name!r}: there is no file {source}")
        if not os.access(source, os.R_OK):
            raise SpecError(f"secret {name!r}: {source} cannot be read by this user")
    generate(manifest.keys)  # that it can be done
    for name in {name for command in manifest.commands for name in command.env_secrets.values()} - {
        *manifest.keys
    }:
        secret_text(name, Path(manifest.secrets[name]).read_bytes())
    seen: set[tuple[str, str, str | None]] = set()
    for command in manifest.commands:
        search = command.env.get("PATH", manifest.env.get("PATH", os.environ.get("PATH")))
        look = (command.argv[0], command.cwd, search)
        if look not in seen:
            seen.add(look)
            _check_command(command, search)


def _check_command(command: Command, search: str | None) -> None:
    if not Path(command.cwd).is_dir():
        raise SpecError(
            f"process {command.path!r} starts in {command.cwd}, which is no folder; mend its start_dir"
        )
    program = command.argv[0]
    if not program:
        raise SpecError(f"process {command.path!r} has an empty command")
    if "/" in program:
        path = os.path.join(command.cwd, program)
        if not os.path.exists(path):
            raise SpecError(f"process {command.path!r}: there is no {path}")
        if Path(path).is_dir():
            raise SpecError(f"process {command.path!r}: {path} is a folder; name a program in it")
        if not os.access(path, os.X_OK):
            raise SpecError(
                f"process {command.path!r}: {path} cannot be executed; chmod +x it, or name its interpreter"
            )
    elif shutil.which(program, path=search) is None:
        words = program.split()
        hint = f"; for a shell line use cmd={program!r}" if len(words) > 1 else ""
        raise SpecError(
            f"process {command.path!r}: command {program!r} was not found on the PATH{hint}"
        )


def write(run: RunDirectory, manifest: HostManifest) -> None:
    """Write what a supervisor reads: the manifest, and the secrets where only this user can read them."""
    with open(run.manifest, "w", opener=_private) as file:
        file.write(json.dumps(manifest.to_dict()))  # dumps, not dump, which is written in Python
    if manifest.secrets or manifest.keys:
        copy_secrets(manifest.secrets, run.secrets)
    for name, key in generate(manifest.keys).items():
        with open(run.secrets / name, "w", opener=_private) as file:
            file.write(key)


def copy_secrets(secrets: Mapping[str, str], folder: Path) -> None:
    """Copy files into a new folder that only this user can enter."""
    folder.mkdir(mode=0o700)
    for name, source in secrets.items():
        with open(folder / name, "wb", opener=_private) as target, open(source, "rb") as origin:
            shutil.copyfileobj(origin, target)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
