"""Files, ports and services of what runs, and logs as files."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from symphony.commandline.commands import names as choosing
from symphony.commandline.exit_codes import INTERRUPTED, OK, UsageError
from symphony.commandline.output.terminal import print_note, show_progress

if TYPE_CHECKING:
    from symphony.cluster import Cluster, Tunnel
    from symphony.status import ExperimentStatus


def save(cluster: Cluster, args: argparse.Namespace, names: Sequence[str]) -> int:
    """Write logs to a folder; with ``--follow`` until all have ended. Prints the files."""
    if args.json:
        raise UsageError("--save writes logs as they are; leave --json or --save out")
    code = OK
    try:
        cluster.save_logs(
            args.experiment, args.save, names, follow=args.follow, since=args.since, tail=args.tail
        )  # fmt: skip
    except KeyboardInterrupt:  # the usual way to end following
        if not args.follow:
            raise
        code = INTERRUPTED
    from pathlib import Path

    for name in names:
        print(Path(args.save) / f"{name}.log")
    return code


def previous_logs(cluster: Cluster, args: argparse.Namespace, names: Sequence[str]) -> int:
    """Show what processes wrote before their last restart, one after the other."""
    from symphony.commandline.output.printing import log_formatter, show_lines, show_text
    from symphony.commandline.output.terminal import has_colour
    from symphony.errors import NotFound, Unsupported
    from symphony.status import LogLine

    if args.follow or args.save:
        raise UsageError("--previous shows what has ended; leave --follow and --save out")
    form = log_formatter(names, as_json=args.json, colour=has_colour(sys.stdout))
    found = False
    for name in names:
        try:
            text = cluster.get_log(
                args.experiment, name, since=args.since, tail=args.tail, previous=True
            )
        except Unsupported:
            raise
        except NotFound:  # of several, those that were restarted are shown
            if len(names) == 1:
                raise
            continue
        found = True
        if len(names) == 1 and not args.json:
            show_text(text)
        else:
            lines = (
                LogLine(process=name, text=line)
                for line in text.removesuffix("\n").split("\n")
                if text
            )
            show_lines(lines, form, at_once=False)
    if not found and names:
        raise NotFound(
            f"no process of experiment {args.experiment!r} has been restarted: there are no previous logs"
        )
    return OK


def beside(status: ExperimentStatus, text: str) -> str:
    """``PROCESS:PATH`` with the process that was meant, as ``GROUP/PROCESS:PATH``; a path is left as it is."""
    whose, colon, path = text.partition(":")
    if not colon or not whose or whose.startswith((".", "/")):
        return text
    return f"{choosing.process(status, whose).path}:{path}"


def copy(cluster: Cluster, experiment: str, source: str, target: str) -> int:
    """Copy from or to a process, telling on a terminal how far it is."""
    with show_progress() as shown:
        tell = _telling(shown.say)
        cluster.transfer_file(experiment, source, target, progress=tell)
    return OK


def _telling(say: Callable[[str], None]) -> Callable[[int, int | None], None]:
    shown = -1

    def tell(done: int, of: int | None) -> None:
        nonlocal shown
        if done >> 20 != shown:
            shown = done >> 20
            say(f"copied {shown} of {of >> 20} MiB" if of is not None else f"copied {shown} MiB")

    return tell


def forward(cluster: Cluster, experiment: str, target: str, ports: str | None) -> int:
    """Forward a port until Ctrl-C."""
    port, local = port_numbers(ports)
    with _interruptible():
        tunnel = cluster.port_forward(experiment, target, port, local_port=local, on_error=_told)
        return _stay(tunnel, tunnel.address)


def visit(cluster: Cluster, experiment: str, service: str) -> int:
    """Print the address of a service; stay while it is forwarded."""
    with _interruptible():
        tunnel = cluster.visit(experiment, service, on_error=_told)
        if not tunnel.forwarded:
            print(f"http://{tunnel.address}")
            return OK
        return _stay(tunnel, f"http://{tunnel.address}")


def _told(why: str) -> None:
    print_note(f"symphony: {why}")


def _stay(tunnel: Tunnel, shown: str) -> int:
    """Print where to connect, and keep it open until Ctrl-C or until told to end."""
    with tunnel:
        print(shown, flush=True)
        print_note("forwarding; Ctrl-C ends it")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return INTERRUPTED
    return OK


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let TERM end it as Ctrl-C does, so that what is open is closed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def port_numbers(text: str | None) -> tuple[int | None, int | None]:
    """The port of ``5432`` or ``5432:8080``, and that of this machine; None where none is said."""
    if text is None:
        return None, None
    port, colon, local = text.partition(":")
    if not port.isdecimal() or (colon and not local.isdecimal()):
        raise UsageError(f"a port is a number, or PORT:LOCAL, not {text!r}")
    return int(port), int(local) if colon else None
