"""Running a command beside a process."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from symphony.commandline.output.printing import show_json

if TYPE_CHECKING:
    from symphony.cluster import Cluster


def run(
    cluster: Cluster,
    experiment: str,
    process: str,
    group: str | None,
    command: Sequence[str],
    *,
    as_json: bool,
) -> int:
    """Run a command with this program's own streams, or captured as JSON; the command's exit code."""
    if as_json:
        done = cluster.exec_command(experiment, process, list(command), group)
        show_json({"exit_code": done.exit_code, "stdout": done.stdout, "stderr": done.stderr})
        return done.exit_code
    if sys.stdout is not None:
        sys.stdout.flush()
    with _keys_go_to_the_command() if cluster.commands_run_here else contextlib.nullcontext():
        return cluster.exec_command(
            experiment, process, list(command), group, interactive=True
        ).exit_code


@contextlib.contextmanager
def _keys_go_to_the_command() -> Iterator[None]:
    r"""Leave Ctrl-C and Ctrl-\ to the command, which gets them from the terminal as this program does.

    Handled, not ignored: the command would inherit what is ignored.
    """
    before = {
        number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGQUIT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
