"""Running something where a process runs: in its folder, with its variables, behind its preamble."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symphony.host.processes.spec import Command
    from symphony.host.run.directory import RunDirectory

Done = subprocess.CompletedProcess[str]

# How a shell ends that cannot run the command that it was to become; the command itself may end so, too.
_REFUSED = (126, 127)


class CannotRun(Exception):
    """Something was not run. The message says why, not what."""


def _run(argv: Sequence[str], **options: Any) -> Done:
    return subprocess.run(argv, **{"check": False, "text": True, "errors": "replace", **options})


def run(
    command: Command,
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    start: Callable[..., Done] = _run,
    **options: Any,
) -> Done:
    """Run ``argv`` as the process of ``command`` was run, and wait for its end.

    ``env`` is the whole environment that the process began with, before its preamble, which runs anew: in the same
    shell, without input, and with its output where errors go. ``start`` is called with the arguments, ``cwd``, ``env``
    and the other options, which are those of `subprocess.run`. Raises `CannotRun` where ``argv`` did not run.
    """
    where: dict[str, Any] = {"cwd": command.cwd, "env": env, **options}
    try:
        if not command.preamble:
            return start(argv, **where)
        with tempfile.NamedTemporaryFile(prefix="symphony-") as report:
            shell = command.argv[0]
            done = start(
                [shell, "-c", _script(command.preamble, report.name), shell, *argv], **where
            )
            said = report.read()
    except OSError as exc:
        if not Path(command.cwd).is_dir():
            raise CannotRun(f"its folder {command.cwd} is not there") from exc
        path = env.get("PATH", os.defpath)
        raise CannotRun(why_not(argv[0], command.cwd, path) or exc.strerror or str(exc)) from exc
    if not said:
        raise CannotRun(_preamble_failed(done))
    if done.returncode in _REFUSED:
        folder, path = map(os.fsdecode, said.split(b"\0")[:2])
        why = why_not(argv[0], folder, path)
        if why:
            raise CannotRun(why)
    return done


def began_with(
    run: RunDirectory, manifest: Mapping[str, Any], command: Command, pid: int
) -> dict[str, str] | None:
    """The variables that a running process began with, before its preamble; None where it runs no more.

    A preamble that ran twice in one environment would add to PATH twice. Whoever began the process, the supervisor or
    a window, has the launcher's variables; once they have gone, the process's own are the best there is.
    """
    from symphony.host.processes.spec import MARK
    from symphony.host.processes.tree import environment, parent

    now = environment(pid)
    beginner = parent(pid)
    if now is None or not command.preamble or beginner is None:
        return now
    given, supervisor = environment(beginner), run.supervisor()
    supervised = supervisor is not None and supervisor.pid == beginner
    if given is None or not (supervised or given.get(MARK) == manifest["run_id"]):
        return now
    return {**given, **manifest["env"], **command.with_secrets(run.secrets).env}


def _script(preamble: Sequence[str], report: str) -> str:
    """The preamble as `symphony.plan.resolve.argv` has it; then the shell reports where it looks for what it becomes."""
    before = [f"{{ {line}\n}} </dev/null >&2 || exit" for line in preamble]
    found = f'printf \'%s\\0\' "$PWD" "${{PATH-}}" >>{shlex.quote(report)}'  # >> works under set -C, too
    return "\n".join([*before, found, 'exec "$@"'])


def _preamble_failed(done: Done) -> str:
    code = 128 - done.returncode if done.returncode < 0 else done.returncode
    last = (done.stderr or "").strip().splitlines()[-1:]
    return ": ".join([f"its preamble failed with exit code {code}", *last])


def why_not(program: str, folder: str, path: str) -> str | None:
    """Why a program cannot be run in a folder with that PATH, or None where it seems that it can."""
    if "/" not in program:
        search = os.pathsep.join(str(Path(folder, place)) for place in path.split(os.pathsep))
        return (
            None
            if program and shutil.which(program, path=search)
            else "it was not found on its PATH"
        )
    found = Path(folder, program)
    if not found.exists():
        return "No such file or directory"
    if found.is_dir():
        return "it is a folder"
    return None if os.access(found, os.X_OK) else "Permission denied"
