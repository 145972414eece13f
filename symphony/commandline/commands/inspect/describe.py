"""``describe``: show details of processes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.lookup.find_experiment import find_experiment
from symphony.commandline.commands.lookup.find_run import use_run
from symphony.commandline.commands.lookup.resolve_names import resolve_processes
from symphony.commandline.commands.show_statuses import print_status_note
from symphony.commandline.exit_codes import OK, error_message
from symphony.commandline.output.terminal import print_text
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line
    from symphony.support.hidden_values import HiddenValues

COMMAND = Command(
    aliases=("inspect", "info"),
    json="a JSON object, or a list of objects if there are several processes",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    shared_arguments.add_processes(parser)
    shared_arguments.add_run_option(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Show details of processes.

    The details are the state and the reason for that state, the command, location, resources,
    service addresses and events, and, without --json, the last lines of the output. A PROCESS
    can be a group, a replicated process or a pattern, as for ps. Without one, all processes are
    described.

    For example:
      symphony describe rl learner
      symphony describe rl 'agent-*'
      symphony describe rl agents/agent-1 --json | jq .events
    """
    from symphony.cluster.hidden_output import details_without_secrets
    from symphony.commandline.output import describe
    from symphony.commandline.output.printing import show_json

    use_run(line, args)
    status = find_experiment(line, args)
    hidden = line.cluster.hidden_values(status.name)
    found = []
    for process in resolve_processes(status, args.processes, exact=COMMAND.changes):
        details = line.cluster.explain_process(status.name, process.name, process.group)
        found.append(details_without_secrets(details, hidden))
    print_status_note(status)
    if args.json:
        data = [{"experiment": status.name, **details.to_dict()} for details in found]
        show_json(data[0] if len(data) == 1 else data)
        return OK
    for number, details in enumerate(found):
        log = _last_lines(line, status.name, details.status.name, hidden)
        lines = describe.description_lines(status.name, details, log, status.now())
        print_text("\n".join(lines if number == 0 else ["", *lines]))
    return OK


def _last_lines(line: Line, experiment: str, process: str, hidden: HiddenValues) -> list[str]:
    """Return the last lines of a log, or an error message if reading it fails."""
    from symphony.commandline.commands.last_lines import last_lines
    from symphony.errors import SymphonyError

    try:
        return last_lines(line.cluster, experiment, process, hidden)
    except SymphonyError as exc:
        # The other details are useful even if the log is not available.
        return [f"({error_message(exc)})"]
