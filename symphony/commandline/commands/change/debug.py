"""``debug``: restart a process under a debugger."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.forwarding import end_as_interrupt, report_error
from symphony.commandline.commands.lookup.find_experiment import find_experiment
from symphony.commandline.commands.lookup.resolve_names import resolve_process
from symphony.commandline.exit_codes import INTERRUPTED, OK, UsageError
from symphony.commandline.output.terminal import print_note, print_text, show_progress
from symphony.commandline.parsing.command import Command
from symphony.errors import NotFound, SymphonyError

if TYPE_CHECKING:
    import queue

    from symphony.cluster import Cluster
    from symphony.cluster.debug.debugging import Listening
    from symphony.commandline.commands.line import Line
    from symphony.model import Experiment
    from symphony.status import ProcessStatus
    from symphony.supervised.access.relay import Relay

COMMAND = Command(
    changes=True,
    json="the address and the configuration, or the stacks, as JSON",
    no_tool="it needs a debugger or a terminal",
)

# A debugger that restarts its session disconnects, and connects again at once.
_RECONNECT_SECONDS = 1.0
_DISCONNECTED, _EXITED = "the debugger has disconnected", "the process has exited"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    shared_arguments.add_process(parser)
    parser.add_argument(
        "--pdb", action="store_true", help="run the process under pdb, and attach the terminal"
    )
    parser.add_argument(
        "--stack",
        action="store_true",
        help="print the stack of each thread with py-spy; restart nothing",
    )
    parser.add_argument(
        "--port",
        metavar="PORT",
        type=_parse_port,
        help="local port for the debugger (default: 5678, or any free port if it is in use)",
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        default=True,
        help="start the program when a debugger has connected (default)",
    )
    parser.add_argument(
        "--no-wait", dest="wait", action="store_false", help="start the program at once"
    )
    parser.add_argument(
        "--write", action="store_true", help="add the configuration to .vscode/launch.json"
    )


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Restart a process under a debugger, and put it back afterwards.

    The process restarts under debugpy, which must be installed in its Python. The command
    forwards a local port to debugpy, and prints a configuration for VS Code, which --write adds
    to .vscode/launch.json in the working directory. All other processes keep running. When the
    debugger disconnects, when the process exits, or with Ctrl-C, the process restarts with its
    ordinary command. If this command is killed, restart or up puts the process back.

    With --pdb, the process restarts under pdb, and the terminal is attached to it. When you
    leave the terminal, the process is put back. With --stack, py-spy prints what the process is
    doing, and nothing is restarted.

    For example:
      symphony debug rl learner
      symphony debug rl agents/agent-1 --no-wait --write
      symphony debug rl learner --pdb
      symphony debug rl learner --stack
    """
    _check_options(args)
    status = find_experiment(line, args)
    process = resolve_process(status, args.process, exact=COMMAND.changes)
    if args.stack:
        return _show_stacks(line, args, status.name, process)
    if args.pdb:
        return _debug_in_terminal(line, args, status.name, process)
    return _debug_with_client(line, args, status.name, process)


def _show_stacks(
    line: Line, args: argparse.Namespace, experiment: str, process: ProcessStatus
) -> int:
    from symphony.cluster.debug.debugging import stacks

    if args.dry_run:
        print_note(f"would print the stacks of {process.path} of {experiment}")
        return OK
    text = stacks(line.cluster, experiment, process)
    if args.json:
        from symphony.commandline.output.printing import show_json

        show_json({"experiment": experiment, "process": process.path, "stacks": text})
    else:
        print_text(text.rstrip("\n"))
    return OK


def _debug_in_terminal(
    line: Line, args: argparse.Namespace, experiment: str, process: ProcessStatus
) -> int:
    from symphony.cluster.described import python_command
    from symphony.errors import SpecError, Unsupported
    from symphony.support.raw_terminal import has_terminal

    ordinary = _ordinary_experiment(line, experiment, process)
    if python_command(ordinary, process.name).is_code:
        raise SpecError(
            f"pdb cannot run the program of {process.path!r}, which is an argument of -c; "
            "put it into a file"
        )
    if args.dry_run:
        return _preview(line, ordinary, process, ["pdb"], tty=True)
    if not has_terminal():
        raise Unsupported("debug --pdb requires a terminal; without one, use debug")
    with (
        end_as_interrupt(),
        _under_debugger(line.cluster, ordinary, process, ["pdb"], tty=True),
    ):
        line.cluster.wait(experiment, until="started", processes=[process.name])
        with contextlib.suppress(NotFound):
            line.cluster.login(experiment, process.name, process.group)
    return OK


def _debug_with_client(
    line: Line, args: argparse.Namespace, experiment: str, process: ProcessStatus
) -> int:
    from symphony.cluster.debug.debugging import DEBUGGER_HOST, await_debugpy, find_debugpy
    from symphony.cluster.plugins import backend_supports
    from symphony.errors import Unsupported

    if not backend_supports(line.cluster.backend, "debug"):
        raise Unsupported(
            f"the {line.cluster.backend} backend cannot forward a port to debugpy, which "
            "accepts connections only from its own machine; use --pdb or --stack"
        )
    ordinary = _ordinary_experiment(line, experiment, process)
    port = find_debugpy(line.cluster, ordinary, process)
    module = ["debugpy", "--listen", f"{DEBUGGER_HOST}:{port}"]
    if args.wait:
        module.append("--wait-for-client")
    if args.dry_run:
        return _preview(line, ordinary, process, module)
    # Each start of the program imports this module.
    import queue

    reasons: queue.SimpleQueue[str] = queue.SimpleQueue()
    with (
        end_as_interrupt(),
        _under_debugger(line.cluster, ordinary, process, module),
        contextlib.ExitStack() as stack,
    ):
        with show_progress(f"waiting for debugpy in {process.path}"):
            listening = await_debugpy(line.cluster, ordinary, process, port)
        tunnel = stack.enter_context(
            line.cluster.port_forward(
                experiment, process.path, listening.port, on_error=report_error
            )
        )
        relay = _open_relay(args.port, tunnel.address, reasons)
        stack.callback(relay.close)
        # The access tokens of debugpy are for its own connections, not for those of debuggers.
        # It refuses --adapter-access-token together with --listen.
        print_note(
            f"until your debugger has connected to {relay.address}, other users of this "
            "machine can do so, and run any code as you"
        )
        _show_connection(line, args, ordinary, process, relay.address, listening)
        _report_exit(line.cluster, experiment, process.name, reasons)
        try:
            print_note(f"{process.path}: {_wait_for_end(relay, reasons)}")
        except KeyboardInterrupt:
            return INTERRUPTED
    return OK


def _ordinary_experiment(line: Line, name: str, process: ProcessStatus) -> Experiment:
    """Return the description of a running experiment in which a process has its ordinary
    command. Raises `SpecError` if this command does not run Python.
    """
    from symphony.cluster.described import python_command, without_debugger

    described = line.cluster.described_experiment(name)
    ordinary = without_debugger(described, [process.name])
    python_command(ordinary, process.name)
    return ordinary


def _preview(
    line: Line,
    ordinary: Experiment,
    process: ProcessStatus,
    module: Sequence[str],
    *,
    tty: bool = False,
) -> int:
    from symphony.cluster.debug.debugging import change_only
    from symphony.cluster.described import under_debugger

    changed = under_debugger(ordinary, process.name, module, "", tty=tty)
    changes = change_only(line.cluster, changed, [process.name], dry_run=True)
    print_text(str(changes).rstrip("\n"))
    return OK


def _show_connection(
    line: Line,
    args: argparse.Namespace,
    ordinary: Experiment,
    process: ProcessStatus,
    address: str,
    listening: Listening,
) -> None:
    """Print how a debugger connects, and write the configuration if it is requested."""
    from symphony.commandline.commands.vscode import (
        LAUNCH_FILE,
        attach_configuration,
        write_configuration,
    )

    host, _, port = address.rpartition(":")
    roots = _path_mapping(line.cluster, ordinary, process.name, listening)
    name = f"symphony: {ordinary.name}/{process.path}"
    configuration = attach_configuration(name, host, int(port), *roots)
    if args.write:
        write_configuration(LAUNCH_FILE, configuration)
    if args.json:
        result = {
            "experiment": ordinary.name,
            "process": process.path,
            "host": host,
            "port": int(port),
            "waiting": args.wait,
            "configuration": configuration,
            "file": str(LAUNCH_FILE) if args.write else None,
        }
        # The command continues, so the reader must see the end of the object.
        print_text(json.dumps(result), flush=True)
        return
    state = "waits for a debugger" if args.wait else "accepts a debugger"
    lines = [f"{process.path} of {ordinary.name} {state} at {address}"]
    if args.write:
        lines.append(f"select {name!r} in VS Code, which is in {LAUNCH_FILE}")
    else:
        lines += [f"configuration for {LAUNCH_FILE}:", json.dumps(configuration)]
    print_text("\n".join(lines), flush=True)
    print_note(f"to restart {process.path} as before, disconnect or press Ctrl-C")


@contextlib.contextmanager
def _under_debugger(
    cluster: Cluster,
    ordinary: Experiment,
    process: ProcessStatus,
    module: Sequence[str],
    *,
    tty: bool = False,
) -> Iterator[None]:
    """Restart a process under a debugger, and put it back at the end of the block."""
    import secrets

    from symphony.cluster.debug.debugging import change_only
    from symphony.cluster.described import under_debugger
    from symphony.commandline.commands.kill_report import KillReport

    kills = KillReport(cluster, ordinary.name, time.time())
    session = secrets.token_hex(8)
    changed = under_debugger(ordinary, process.name, module, session, tty=tty)
    try:
        with show_progress(f"restarting {process.path} under {module[0]}"):
            change_only(cluster, changed, [process.name])
        kills.print_report()
        for note in _notes(ordinary, process):
            print_note(note)
        yield
    finally:
        _put_back(cluster, ordinary.name, process, session)


def _put_back(cluster: Cluster, experiment: str, process: ProcessStatus, session: str) -> None:
    """Restart a process with its ordinary command if it is still under this debugger."""
    from symphony.cluster.debug.debugging import put_back
    from symphony.commandline.commands.kill_report import KillReport

    kills = KillReport(cluster, experiment, time.time())
    try:
        with show_progress(f"restarting {process.path} with its ordinary command"):
            changed = put_back(cluster, experiment, [process.name], session)
    except NotFound:
        print_note(f"{experiment} was deleted")
    except (SymphonyError, KeyboardInterrupt) as exc:
        print_note(
            f"symphony: {process.path} of {experiment} is still described with the "
            f"debugger; put it back with: symphony restart {experiment} {process.path}"
        )
        if isinstance(exc, KeyboardInterrupt):
            raise
        print_note(f"symphony: {exc}")
    else:
        if changed:
            print_note(f"restarted {process.path} of {experiment} with its ordinary command")
            kills.print_report()


def _check_options(args: argparse.Namespace) -> None:
    """Raise `UsageError` if the options contradict each other."""
    if args.pdb and args.stack:
        raise UsageError("--pdb and --stack exclude each other; remove one of them")
    if not args.pdb and not args.stack:
        return
    mode = "--pdb" if args.pdb else "--stack"
    given = {"--port": args.port is not None, "--no-wait": not args.wait, "--write": args.write}
    given["--json"] = args.json and args.pdb
    for option, is_given in given.items():
        if is_given:
            raise UsageError(f"{option} has no effect with {mode}; remove one of them")


def _open_relay(port: int | None, address: str, reasons: queue.SimpleQueue[str]) -> Relay:
    """Return a relay from a local port to debugpy, which reports that a debugger disconnects."""
    from symphony.cluster.debug.debugging import DEFAULT_PORT
    from symphony.errors import BackendError
    from symphony.supervised.access.relay import Relay

    host, _, remote_port = address.rpartition(":")
    target = (host, int(remote_port))

    def relay(local_port: int) -> Relay:
        return Relay(local_port, target, report_error, on_idle=lambda: reasons.put(_DISCONNECTED))

    if port is not None:
        return relay(port)
    try:
        return relay(DEFAULT_PORT)
    except BackendError:
        return relay(0)


def _report_exit(
    cluster: Cluster, experiment: str, process: str, reasons: queue.SimpleQueue[str]
) -> None:
    """Report, from another thread, that a process has exited and is not restarted."""
    import threading

    def wait() -> None:
        with contextlib.suppress(SymphonyError):
            cluster.wait(experiment, processes=[process])
        reasons.put(_EXITED)

    threading.Thread(target=wait, daemon=True, name="exit").start()


def _wait_for_end(relay: Relay, reasons: queue.SimpleQueue[str]) -> str:
    """Wait until the debugger has disconnected or the process has exited, and return which."""
    while True:
        reason = reasons.get()
        if reason == _EXITED:
            return reason
        time.sleep(_RECONNECT_SECONDS)
        if relay.is_idle:
            return reason


def _notes(experiment: Experiment, process: ProcessStatus) -> Iterator[str]:
    """Yield the effects of a process that is stopped at a breakpoint."""
    component = next(p for p in experiment.list_all_processes() if p.name == process.name)
    settings = component.settings if component.group is None else component.group.settings
    if "log" in (component.settings.ready or {}):
        yield (
            f"{process.path} counts as ready while it is under the debugger, because its readiness "
            "test searches its log"
        )
    elif component.settings.ready:
        yield (
            f"{process.path} has a readiness test: processes that start after it wait until it is "
            "ready, for any time, and it can count as not ready while it is stopped"
        )
    if (settings.job or {}).get("active_deadline") is not None:
        yield f"the deadline of {process.path} also applies while it is stopped"
    if experiment.deadline is not None:
        yield f"the deadline of {experiment.name} also applies while {process.path} is stopped"


def _path_mapping(
    cluster: Cluster, experiment: Experiment, name: str, listening: Listening
) -> tuple[str, str] | tuple[()]:
    """Return the local directory with the program, and the directory that the process has instead.

    The result is empty if both are the same.
    """
    from symphony.commandline.commands.vscode import workspace_path
    from symphony.model.settings.code import code_source

    workspace = Path.cwd()
    process = next(item for item in experiment.list_all_processes() if item.name == name)
    source = code_source(process)
    if source is None or listening.code is None:
        # Without a snapshot, the program of a container is in its image.
        return () if cluster.ports_are_here else ("${workspaceFolder}", listening.directory)
    local = (experiment.base_dir or workspace) / source.path
    if local.resolve() == Path(listening.code).resolve():
        return ()
    return workspace_path(local.resolve(), workspace.resolve()), listening.code


def _parse_port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise UsageError(f"a port must be a number in the range 1 to 65535, not {text!r}")
    return int(text)
