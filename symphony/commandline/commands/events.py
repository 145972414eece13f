"""The command that shows what has happened in an experiment: ``events``."""

from __future__ import annotations

import argparse

from symphony.commandline.commands.select_experiment import ReadingCommands
from symphony.commandline.exit_codes import INTERRUPTED, OK
from symphony.commandline.output.terminal import print_text


class EventsCommands(ReadingCommands):
    """The ``events`` command."""

    def _add_events(self) -> None:
        parser = self.add_subparser("events")
        self._add_hidden_dry_run(parser)
        self._add_experiment(parser)
        self._add_processes(parser)
        parser.add_argument(
            "-f",
            "--follow",
            action="store_true",
            help="show new events until the experiment has finished",
        )
        self._add_since(parser, "events")
        self._add_run_option(parser)
        self._add_json(parser, "each event as JSON")

    def action_events(self, args: argparse.Namespace) -> int | None:
        """Show what has happened: launches, starts, exits, restarts and stops.

        With a PROCESS, only the events of the selected processes are shown. On Kubernetes, events
        are derived from the states of Pods, which contain only the last two executions of each
        process, and from the events of Kubernetes.

        For example:
          symphony events rl
          symphony events rl learner --since 5m
          symphony events rl -f --json | jq -r .text
          symphony events --run rl-20261122-093011-7f3a
        """
        from symphony.cluster.hidden_output import events_without_secrets
        from symphony.commandline.output.events import event_json, event_row

        status = self._read_status(args, "events")
        names = None
        if args.processes:
            selected, removed = self._resolve_with_removed(status, args.processes)
            names = [*(process.name for process in selected), *removed]
            names = self._names_to_follow(status, args.processes, names)
        found = self.cluster.iter_events(status.name, names, follow=args.follow, since=args.since)
        events = events_without_secrets(found, self.cluster.hidden_values(status.name))
        try:
            for event in events:
                print_text(event_json(event) if args.json else event_row(event), flush=args.follow)
        except KeyboardInterrupt:
            if not args.follow:
                raise
            # Ctrl-C is the usual way to stop following, so no message is printed.
            return INTERRUPTED
        return OK
