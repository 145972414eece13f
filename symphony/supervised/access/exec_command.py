"""Running a command in a process's environment: its directory, variables and preamble."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.supervised.processes.identity import RUN_ID_VARIABLE, ProcessStat, read_stat
from symphony.supervised.processes.mark import mark_process
from symphony.supervised.processes.membership import COMMAND_VARIABLE

if TYPE_CHECKING:
    from symphony.supervised.processes.spec import ProcessSpec
    from symphony.supervised.record.directory import RunDirectory

CompletedProcess = subprocess.CompletedProcess[str]

# Shells exit with these codes if they cannot run a command. A command can also use these codes.
_SHELL_ERROR_CODES = (126, 127)


class CommandNotRunError(Exception):
    """The command was not run. The message gives the reason without naming the command."""


def _run_subprocess(
    argv: Sequence[str], *, capture_output: bool = False, input: str | None = None, **options: Any
) -> CompletedProcess:
    """Run a command with options of `subprocess.run`.

    The command belongs to the same run as the process whose environment is the option ``env``.
    """
    from symphony.support.inherited_signals import observable_exits

    if capture_output:
        options.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if input is not None:
        options["stdin"] = subprocess.PIPE
    env: Mapping[str, str] = options["env"]
    with (
        observable_exits(),
        subprocess.Popen(argv, text=True, errors="replace", **options) as process,
    ):
        mark_process(process.pid, env.get(RUN_ID_VARIABLE, ""))
        try:
            stdout, stderr = process.communicate(input)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


def run(
    spec: ProcessSpec,
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    start: Callable[..., CompletedProcess] = _run_subprocess,
    **options: Any,
) -> CompletedProcess:
    """Run ``argv`` in the environment of the process ``spec``, and wait until ``argv`` exits.

    ``argv`` runs in the process's directory, after its preamble. ``env`` is the complete
    environment of the process before its preamble. The preamble runs again, in the same shell as
    ``argv``, without input and with its output on standard error. ``start`` is called with the
    command's arguments, ``cwd``, ``env`` and ``options``, which are options of `subprocess.run`.

    Raises CommandNotRunError if ``argv`` was not run.
    """
    # The variable distinguishes the command from programs that the process has left behind.
    marked_env = {**env, COMMAND_VARIABLE: "1"}
    start_options: dict[str, Any] = {"cwd": spec.cwd, "env": marked_env, **options}
    try:
        if not spec.preamble:
            return start(argv, **start_options)
        with tempfile.NamedTemporaryFile(prefix="symphony-") as report_file:
            shell = spec.argv[0]
            script = _preamble_script(spec.preamble, report_file.name)
            completed = start([shell, "-c", script, shell, *argv], **start_options)
            report = report_file.read()
    except OSError as exc:
        if not Path(spec.cwd).is_dir():
            raise CommandNotRunError(f"its directory {spec.cwd} does not exist") from exc
        search_path = env.get("PATH", os.defpath)
        reason = explain_not_executable(argv[0], spec.cwd, search_path)
        raise CommandNotRunError(reason or exc.strerror or str(exc)) from exc
    if not report:
        raise CommandNotRunError(_preamble_error_message(completed))
    if completed.returncode in _SHELL_ERROR_CODES:
        directory, search_path = map(os.fsdecode, report.split(b"\0")[:2])
        reason = explain_not_executable(argv[0], directory, search_path)
        if reason:
            raise CommandNotRunError(reason)
    return completed


def initial_environment(
    run: RunDirectory, manifest: Mapping[str, Any], spec: ProcessSpec, pid: int | None
) -> dict[str, str] | None:
    """Return a process's environment before its preamble, or None if the process belongs to another
    user.

    If ``pid`` is None, or the process has exited, the environment is the one in which the process
    would start. When the experiment has finished, the environment of the launcher is not recorded
    any more. The environment of the caller then replaces it.
    """
    from symphony.supervised.processes.spec import DIRECTORY_VARIABLE, directory_value

    stat = None if pid is None else read_stat(pid)
    if stat is None:
        environment: dict[str, str] | None = _environment_of_launch(run, manifest, spec)
    else:
        environment = _recorded_environment(run, manifest, spec, stat)
    if environment is None or DIRECTORY_VARIABLE in {**manifest["env"], **spec.env}:
        return environment
    # The shell of a tmux window, which executes the program of the process, starts elsewhere.
    return {**environment, DIRECTORY_VARIABLE: directory_value(spec.cwd)}


def _environment_of_launch(
    run: RunDirectory, manifest: Mapping[str, Any], spec: ProcessSpec
) -> dict[str, str]:
    from symphony.supervised.record import launch_settings

    settings = launch_settings.load(run)
    inherited = os.environ if settings is None else settings.environment
    return {**inherited, **manifest["env"], **spec.with_secrets(run.secrets).env}


def _recorded_environment(
    run: RunDirectory, manifest: Mapping[str, Any], spec: ProcessSpec, stat: ProcessStat
) -> dict[str, str] | None:
    """Return an environment as `initial_environment` does, except for the variable PWD.

    The caller runs the preamble again. If the preamble ran in an environment that it has already
    changed, it would, for example, extend PATH twice. If the process's parent is a supervisor or
    the shell of a tmux window, it has the launcher's environment, and the initial environment is
    derived from that environment. Otherwise, return the environment after the preamble.

    If the process has overwritten its environment and there is no such parent, the environment of
    the caller replaces that of the launcher.
    """
    from symphony.supervised.processes.environment import read_environment

    current = read_environment(stat.process.pid)
    if current is None:
        return None
    if current.is_intact and not spec.preamble:
        return current.variables
    inherited = _launcher_environment(run, manifest, stat.parent)
    if inherited is None and current.is_intact:
        return current.variables
    if inherited is None:
        inherited = dict(os.environ)
    return {**inherited, **manifest["env"], **spec.with_secrets(run.secrets).env}


def _launcher_environment(
    run: RunDirectory, manifest: Mapping[str, Any], parent: int
) -> dict[str, str] | None:
    """Return the environment of a process's parent, which is based on the launcher's environment.

    Return None if the parent is neither the supervisor nor the shell of a tmux window.
    """
    from symphony.supervised.processes.environment import read_environment

    environment = read_environment(parent)
    if environment is None:
        return None
    supervisor = run.supervisor()
    is_supervisor = supervisor is not None and supervisor.pid == parent
    if is_supervisor or environment.variables.get(RUN_ID_VARIABLE) == manifest["run_id"]:
        return environment.variables
    return None


def _preamble_script(preamble: Sequence[str], report: str) -> str:
    """Return a shell script that runs a preamble, and then the command in the script's arguments.

    The preamble runs as in `symphony.plan.shell.argv`. Before the command starts, the shell writes
    its directory and its PATH to the file ``report``. These values can explain why a command is not
    found.
    """
    lines = [f"{{ {line}\n}} </dev/null >&2 || exit" for line in preamble]
    # Appending with >> also works if the preamble has set noclobber (set -C).
    lines.append(f'printf \'%s\\0\' "$PWD" "${{PATH-}}" >>{shlex.quote(report)}')
    lines.append('exec "$@"')
    return "\n".join(lines)


def _preamble_error_message(completed: CompletedProcess) -> str:
    code = completed.returncode
    exit_code = 128 - code if code < 0 else code
    message = f"its preamble failed with exit code {exit_code}"
    error_lines = (completed.stderr or "").strip().splitlines()
    return f"{message}: {error_lines[-1]}" if error_lines else message


def explain_not_executable(program: str, directory: str, search_path: str) -> str | None:
    """Return the reason why ``program`` cannot be run, or None if no reason is apparent.

    ``directory`` is the program's working directory, and ``search_path`` is its PATH.
    """
    if "/" not in program:
        # PATH can contain relative entries, which refer to the directory of the process.
        entries = [str(Path(directory, entry)) for entry in search_path.split(os.pathsep)]
        if program and shutil.which(program, path=os.pathsep.join(entries)):
            return None
        return "it was not found on the PATH of the process"
    path = Path(directory, program)
    if not path.exists():
        return "No such file or directory"
    if path.is_dir():
        return "it is a directory"
    if not os.access(path, os.X_OK):
        return "Permission denied"
    return None
