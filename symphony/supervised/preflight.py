"""Checking a manifest before a launch, and writing the files that the supervisor needs."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from symphony.errors import BackendError, SpecError
from symphony.plan.resolution.encryption_keys import generate
from symphony.plan.resolution.process_settings import secret_text
from symphony.plan.resolution.services import service_requests
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.render import CONFIG_VARIABLE, HostManifest

if TYPE_CHECKING:
    from symphony.code.snapshot import CodeArchives
    from symphony.model import Experiment

# A port has two descriptors: its lease and its hold.
PORT_DESCRIPTORS = 2
# The numbers of descriptors that are kept free for other purposes, such as logs, pipes, probes and
# imports.
LAUNCHER_DESCRIPTORS, SUPERVISOR_DESCRIPTORS = 16, 32


def check_open_files(experiment: Experiment, process_descriptors: int) -> None:
    """Check that the launcher and the supervisor can open enough files for a launch.

    ``process_descriptors`` is the number of descriptors that the supervisor needs for each process.
    Raises BackendError if a limit of this process, which the supervisor inherits, is too low.
    """
    ports = PORT_DESCRIPTORS * len(service_requests(experiment))
    processes = process_descriptors * len(experiment.list_all_processes())
    already_open = len(os.listdir("/proc/self/fd"))
    for_launcher = already_open + ports + LAUNCHER_DESCRIPTORS
    for_supervisor = ports + processes + SUPERVISOR_DESCRIPTORS
    needed = max(for_launcher, for_supervisor)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    message = f"experiment {experiment.name!r} needs up to {needed} open files"
    # The supervisor raises its soft limit to the hard limit.
    if hard < needed:
        raise BackendError(
            f"{message}, but the hard limit is {hard} (ulimit -Hn); raise it as an administrator, "
            "for example in /etc/security/limits.conf, or launch fewer processes and services"
        )
    if soft < for_launcher:
        raise BackendError(
            f"{message}, but the limit is {soft} (ulimit -n); raise it with: ulimit -n {needed}"
        )


def check(manifest: HostManifest) -> None:
    """Check that the directories, secrets and commands in a manifest exist and can be used.

    Raises SpecError if one of them does not exist or cannot be used, and PluginError if the keys of
    encrypted services cannot be generated.
    """
    for name, source in manifest.secrets.items():
        # The methods of Path raise an error if a name is too long for the file system.
        if not os.access(source, os.F_OK) or not Path(source).is_file():
            raise SpecError(f"secret {name!r}: there is no file {source}", path=("secrets", name))
        if not os.access(source, os.R_OK):
            raise SpecError(
                f"secret {name!r}: {source} cannot be read by this user", path=("secrets", name)
            )
    # This call checks that this machine can generate the keys. The generated keys are discarded.
    generate(manifest.keys)
    _check_env_secrets(manifest)
    checked: set[tuple[str, str, str | None]] = set()
    for spec in manifest.processes:
        search_path = spec.env.get("PATH", manifest.env.get("PATH", os.environ.get("PATH")))
        command = (spec.argv[0], spec.cwd, search_path)
        # Many processes can run the same program, and each check accesses the file system. Each
        # combination of program, directory and search path is therefore checked only once.
        if command not in checked:
            checked.add(command)
            _check_command(spec, search_path)


def check_processes(manifest: HostManifest, names: Collection[str]) -> None:
    """Make the checks of `check` for some of the processes, and for the secrets."""
    chosen = tuple(process for process in manifest.processes if process.name in names)
    check(replace(manifest, processes=chosen))


def _check_env_secrets(manifest: HostManifest) -> None:
    """Check that every secret used as an environment variable has a valid value."""
    used = {name for spec in manifest.processes for name in spec.env_secrets.values()}
    for name in used.difference(manifest.keys):
        secret_text(name, Path(manifest.secrets[name]).read_bytes())


def _check_command(spec: ProcessSpec, search_path: str | None) -> None:
    cwd = _checked_directory(spec)
    if cwd is None:
        return
    process = f"process {spec.path!r}"
    if not os.access(cwd, os.F_OK) or not Path(cwd).is_dir():
        raise SpecError(
            f"{process}: start_dir {cwd} is not a directory",
            path=(*spec.document_path, "start_dir"),
        )
    problem = _problem_with_program(spec.argv[0], cwd, search_path)
    if problem:
        raise SpecError(f"{process}: {problem}", path=(*spec.document_path, "command"))


def _problem_with_program(program: str, cwd: str, search_path: str | None) -> str:
    """Return why a program cannot be run in the directory ``cwd``, or an empty string."""
    if not program:
        return "the command is empty"
    if "/" not in program:
        if shutil.which(program, path=search_path) is not None:
            return ""
        hint = _fix_for_missing(program, search_path)
        return f"command {program!r} was not found on the PATH{hint}"
    path = Path(cwd, program)
    if not os.access(path, os.F_OK):
        return f"there is no {path}"
    if path.is_dir():
        return f"{path} is a directory; name a program in it"
    if not os.access(path, os.X_OK):
        return f"{path} is not executable; run chmod +x on it, or name its interpreter"
    return ""


def _fix_for_missing(program: str, search_path: str | None) -> str:
    """Return the end of the error message for a program that is not on the PATH of a process."""
    if len(program.split()) > 1:
        return f"; for a shell line use cmd={program!r}"
    if search_path is not None and "$" in search_path:
        return f" {search_path!r}; variables in env are not replaced: write the directories"
    return ""


def _checked_directory(spec: ProcessSpec) -> str | None:
    """Return the directory in which the command of a process is checked.

    The copy of its code may not exist yet, so the command is checked in the source of the copy. If
    this is the archive of an earlier snapshot, the command is not checked.
    """
    code = spec.code
    if code is None or code["directory"] == code["source"]:
        return spec.cwd
    if not Path(code["source"]).is_dir():
        return None
    return str(Path(code["source"], os.path.relpath(spec.cwd, code["directory"])))


def write_code(run: RunDirectory, manifest: HostManifest, archives: CodeArchives) -> None:
    """Write the archives of the code, and unpack them if processes run from copies."""
    from symphony.archive.code_archives import write_archives

    codes = [spec.code for spec in manifest.processes if spec.code is not None]
    unpacks = any(code["directory"] != code["source"] for code in codes)
    write_archives(run.file("."), archives, unpacks=unpacks)


def write_configs(
    run: RunDirectory, manifest: HostManifest, names: Collection[str] | None = None
) -> None:
    """Write the configuration files of the processes with the given names, or of all processes.

    Only this user can read the files.
    """
    for spec in manifest.processes:
        texts = manifest.configs.get(spec.name, {})
        if not texts or (names is not None and spec.name not in names):
            continue
        directory = run.configs(spec.name, Path(spec.env[CONFIG_VARIABLE]).name)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in texts.items():
            with _open_private(directory / name) as file:
                file.write(text.encode())


def write_secrets(run: RunDirectory, manifest: HostManifest) -> None:
    """Write the secrets to the run directory. Only this user can read these files.

    The secrets include keys that are generated for encrypted services.
    """
    if manifest.secrets or manifest.keys:
        copy_secrets(manifest.secrets, run.secrets)
    for name, key in generate(manifest.keys).items():
        with _open_private(run.secrets / name) as file:
            file.write(key.encode())


def copy_secrets(secrets: Mapping[str, str], directory: Path) -> None:
    """Copy files into a new directory that only this user can access.

    ``secrets`` maps the name of each copy to the path of its source.
    """
    directory.mkdir(mode=0o700)
    for name, source in secrets.items():
        with Path(source).open("rb") as file, _open_private(directory / name) as copy:
            shutil.copyfileobj(file, copy)


def _open_private(path: Path) -> BinaryIO:
    """Create a file that only this user can read, and open it for writing."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
