"""``exec``: run a command in the environment of a process."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.lookup.find_experiment import find_experiment
from symphony.commandline.commands.lookup.resolve_names import resolve_process, resolve_processes
from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_note
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.cluster import ExecResult
    from symphony.commandline.commands.line import Line
    from symphony.status import ExperimentStatus, ProcessStatus

COMMAND = Command(
    changes=True,
    json="the exit code and the output as JSON",
    remainder=True,
    command_index=2,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.usage = f"{parser.prog} [options] [EXPERIMENT] PROCESS -- CMD"
    shared_arguments.add_experiment(parser)
    shared_arguments.add_process(parser)
    for flags in (("-i", "--interactive", "--stdin"), ("-t", "--tty")):
        # A terminal is used if there is one.
        parser.add_argument(*flags, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--all",
        action="store_true",
        help="run the command in each process if PROCESS selects several",
    )
    parser.add_argument("misplaced", nargs="*", help=argparse.SUPPRESS)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Run a command in the environment and working directory of a process.

    The command consists of all words after the first --, which are passed on unchanged. If both
    EXPERIMENT and PROCESS are given, -- can be omitted. On Kubernetes, the command runs in the
    process's container. The exit code is that of the command.

    The process can have exited, for example to find out why it has failed. On Slurm, the
    command then runs on the node of the process or, if the job has ended, on this machine. On
    Kubernetes, the process must be running.

    With --all, PROCESS can be a group, a replicated process, such as agent for agent-0 to
    agent-7, or a pattern, such as 'agent-*'. The command runs in one process after another, and
    each line of its output begins with the name of the process. The exit code is the first one
    that is not 0.

    For example:
      symphony exec rl learner -- env
      symphony exec rl agents/agent-1 -- bash
      symphony exec rl agent --all -- nvidia-smi
    """
    if args.misplaced:
        import shlex

        command = shlex.join([*args.misplaced, *args.remainder])
        raise UsageError(
            "the command must follow --: "
            f"{line.prog} exec {args.experiment} {args.process} -- {command}"
        )
    if not args.remainder:
        raise UsageError(f"the command is missing: {_exec_forms(line, args)}")
    if args.all:
        return _exec_in_all(line, args)
    status = find_experiment(line, args)
    process = resolve_process(
        status,
        args.process,
        fix="name one process, or run the command in each with --all",
        exact=COMMAND.changes,
    )
    if args.dry_run:
        _preview_exec(status, process, args.remainder)
        return OK
    if args.json:
        return _exec_as_json(line, status.name, process, args.remainder)
    return _exec_interactive(line, status.name, process, args.remainder)


def _exec_forms(line: Line, args: argparse.Namespace) -> str:
    """Return the possible corrections of a line without a command."""
    if args.experiment is None:
        return f"{line.prog} exec {args.process} -- CMD..."
    return (
        f"{line.prog} exec {args.experiment} {args.process} -- CMD... or, for the experiment "
        f"of this directory, {line.prog} exec {args.experiment} -- {args.process}"
    )


def _exec_in_all(line: Line, args: argparse.Namespace) -> int:
    """Run a command in the environment of each selected process, and return the first exit code
    that is not 0.
    """
    from symphony.commandline.output.printing import LogFormatter, show_json, show_output
    from symphony.log_blocks import LogBlock

    status = find_experiment(line, args)
    selected = resolve_processes(status, [args.process], exact=COMMAND.changes)
    if args.dry_run:
        for process in selected:
            _preview_exec(status, process, args.remainder)
        return OK
    formatter = LogFormatter([process.path for process in selected], as_json=False)
    results = []
    for process in selected:
        result = line.cluster.exec_command(status.name, process.name, args.remainder, process.group)
        results.append({"process": process.path, **_exec_result(result)})
        if not args.json:
            texts = [*result.stdout.splitlines(), *result.stderr.splitlines()]
            blocks = [LogBlock(process.path, f"{text}\n") for text in texts]
            show_output(blocks, formatter, at_once=True)
    if args.json:
        show_json(results)
    return next((result["exit_code"] for result in results if result["exit_code"]), OK)


def _exec_as_json(line: Line, experiment: str, process: ProcessStatus, command: list[str]) -> int:
    """Run a command and print its exit code and output as JSON."""
    from symphony.commandline.output.printing import show_json

    result = line.cluster.exec_command(experiment, process.name, command, process.group)
    show_json(_exec_result(result))
    return result.exit_code


def _exec_interactive(
    line: Line, experiment: str, process: ProcessStatus, command: list[str]
) -> int:
    """Run a command with this program's standard streams, and return its exit code."""
    # The command writes to the same stream, so earlier output must be flushed first.
    sys.stdout.flush()
    signals: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if line.cluster.commands_run_here:
        signals = _keyboard_signals_left_to_command()
    with signals:
        result = line.cluster.exec_command(
            experiment, process.name, command, process.group, interactive=True
        )
    return result.exit_code


def _preview_exec(status: ExperimentStatus, process: ProcessStatus, command: list[str]) -> None:
    import shlex

    text = shlex.join(command)
    print_note(f"would run in the environment of {process.path} of {status.name}: {text}")


def _exec_result(result: ExecResult) -> dict[str, Any]:
    return {"exit_code": result.exit_code, "stdout": result.stdout, "stderr": result.stderr}


@contextlib.contextmanager
def _keyboard_signals_left_to_command() -> Iterator[None]:
    r"""Ignore Ctrl-C and Ctrl-\ in this program while a command runs on the same terminal.

    The terminal sends both signals to this program and to the command, but only the command should
    react to them. An empty handler is installed instead of SIG_IGN, because the command would
    inherit SIG_IGN.
    """
    import signal

    previous = {}
    for number in (signal.SIGINT, signal.SIGQUIT):
        previous[number] = signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
