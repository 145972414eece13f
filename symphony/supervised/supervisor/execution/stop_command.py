"""Run the command that stops a process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symphony.supervised.processes.process_groups import signal_group

if TYPE_CHECKING:
    from symphony.supervised.access import exec_command
    from symphony.supervised.processes.spec import ProcessSpec
    from symphony.supervised.supervisor.execution.stopper import StopOrder

_LAST_LINE_CHARACTERS = 200


def run_stop_command(spec: ProcessSpec, order: StopOrder, env: Mapping[str, str]) -> str:
    """Run the command that stops a process, in the environment of the process.

    Return why the command failed, or ``""``. It is killed at the end of the grace period.
    """
    from symphony.supervised.access import exec_command

    name = f"the stop_command of {spec.name!r}"
    try:
        completed = exec_command.run(spec, order.command, env, start=_run, timeout=order.grace)
    except exec_command.CommandNotRunError as exc:
        return f"{name} cannot be run: {exc}"
    except subprocess.TimeoutExpired:
        return f"{name} takes longer than the grace period of {order.grace:g} s"
    if completed.returncode == 0:
        return ""
    lines = (completed.stdout or "").strip().splitlines()
    detail = f": {lines[-1][:_LAST_LINE_CHARACTERS]}" if lines else ""
    return f"{name} failed with exit code {_exit_code(completed.returncode)}{detail}"


def _exit_code(code: int) -> int:
    return 128 - code if code < 0 else code


def _run(argv: Sequence[str], *, timeout: float, **options: Any) -> exec_command.CompletedProcess:
    """Run a command with empty standard input, and return its output.

    If it takes longer than ``timeout`` seconds, kill its process group and raise
    `subprocess.TimeoutExpired`.
    """
    # A server that the command has started or that it signals can keep a pipe open, so the output
    # is written to a file.
    with (
        open(os.memfd_create("stop-command"), "r+", errors="replace") as output,  # noqa: PTH123
        subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            **options,
        ) as process,
    ):
        try:
            code = process.wait(timeout)
        except BaseException:
            signal_group(process.pid, signal.SIGKILL)
            raise
        output.seek(0)
        return subprocess.CompletedProcess(argv, code, output.read())
