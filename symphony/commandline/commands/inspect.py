"""The verbs that look: ls, ps, describe, logs, wait, backends."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from symphony.commandline.commands.shared_arguments import Verbs
from symphony.commandline.exit_codes import INTERRUPTED, OK, error_message, exit_code
from symphony.commandline.output.terminal import has_colour, is_terminal, print_note, show_progress
from symphony.commandline.parsing.arguments import parse_count, parse_seconds, parse_since

if TYPE_CHECKING:
    from symphony.status import ExperimentStatus, LogLine


class LookVerbs(Verbs):
    """ls, ps, describe, logs, wait, backends."""

    def _add_ls(self) -> None:
        parser = self.add_subparser("ls")
        self._accept_dry_run(parser)
        self._add_watch(parser)
        self._add_json(parser)

    def action_ls(self, args: argparse.Namespace) -> int | None:
        """List the experiments that symphony launched.

        AGE is counted from the launch. The columns are aligned and hold no spaces, but for the last one; an
        empty one is "-".

        For example:
          symphony ls
          symphony ls --watch
          symphony ls -b tmux --json
        """
        from symphony.commandline.output.printing import show_json, table_lines
        from symphony.commandline.output.views import EXPERIMENT_COLUMNS, experiment_row

        def shown(found: Iterable[ExperimentStatus]) -> list[str]:
            now = time.time()
            return table_lines(
                EXPERIMENT_COLUMNS, [experiment_row(status, now) for status in found]
            )

        if args.watch:
            return self._refresh(args, lambda: shown(self._describe_all()[0]))
        found, code = self._describe_all()
        if args.json:
            show_json([status.to_dict() for status in found])
        else:
            print("\n".join(shown(found)))
        return code

    def _refresh(self, args: argparse.Namespace, look: Callable[[], list[str]]) -> int:
        from symphony.commandline.exit_codes import UsageError
        from symphony.commandline.output.watch import watch_lines

        if args.json:
            raise UsageError("--watch shows a table; leave --json or --watch out")
        return watch_lines(look)

    def _describe_all(self) -> tuple[list[ExperimentStatus], int]:
        """Every experiment that can be described; one that cannot is told and does not hide the others."""
        from symphony.errors import NotFound, SymphonyError

        found, code = [], OK
        for name in self.cluster.list_experiments():
            try:
                found.append(self.cluster.describe_experiment(name))
            except NotFound:  # deleted since it was listed
                continue
            except SymphonyError as exc:
                print_note(f"{self.prog}: error: {error_message(exc)}")
                code = code or exit_code(exc)
        return found, code

    def _add_ps(self) -> None:
        parser = self.add_subparser("ps")
        self._accept_dry_run(parser)
        self._add_experiment_name(parser, required=False)
        self._add_watch(parser)
        self._add_json(parser)

    def action_ps(self, args: argparse.Namespace) -> int | None:
        """Show the processes of an experiment.

        EXIT is the exit code (128 + n for signal n), AGE is counted from the latest start. The columns are
        aligned and hold no spaces, but for the last one; an empty one is "-".

        For example:
          symphony ps rl
          symphony ps rl --watch
          symphony ps rl --json | jq '.processes[].pid'
        """
        from symphony.commandline.commands.names import experiment
        from symphony.commandline.output.printing import show_json, table_lines
        from symphony.commandline.output.views import PROCESS_COLUMNS, process_row

        def shown(status: ExperimentStatus) -> list[str]:
            now = time.time()
            return table_lines(PROCESS_COLUMNS, [process_row(process, now) for process in status])

        status = experiment(self.cluster, args.experiment)
        if args.watch:
            return self._refresh(args, lambda: shown(self.cluster.describe_experiment(status.name)))
        if args.json:
            show_json(status.to_dict())
            return OK
        print("\n".join(shown(status)))
        if status.note:
            print_note(f"{status.name}: {status.note}")
        return OK

    def _add_describe(self) -> None:
        parser = self.add_subparser("describe")
        self._accept_dry_run(parser)
        self._add_experiment_name(parser)
        self._add_component_arg(parser)
        self._add_json(parser)

    def action_describe(self, args: argparse.Namespace) -> int | None:
        """Show what matters about one process.

        Its state with the reason, what it is and where it runs, its resources, where it reaches each service, what
        happened to it, and the last lines that it wrote.

        For example:
          symphony describe rl learner
          symphony describe rl agents/agent-1 --json | jq .events
        """
        from symphony.commandline.commands import names as choosing
        from symphony.commandline.output import describe
        from symphony.commandline.output.printing import show_json
        from symphony.errors import SymphonyError

        status = choosing.experiment(self.cluster, args.experiment)
        process = choosing.process(status, args.process)
        details = self.cluster.explain_process(status.name, process.name, process.group)
        if args.json:
            show_json({"experiment": status.name, **details.to_dict()})
            return OK
        try:
            log = self.cluster.get_log(
                status.name, process.name, tail=describe.LAST_LINES
            ).splitlines()
        except SymphonyError as exc:  # the rest is worth showing all the same
            log = [f"({error_message(exc)})"]
        print("\n".join(describe.description_lines(status.name, details, log, time.time())))
        return OK

    def _add_logs(self) -> None:
        parser = self.add_subparser("logs")
        self._add_experiment_name(parser, required=False)
        parser.add_argument(
            "processes", metavar="PROCESS", nargs="*", help="names, or group/name (default: all)"
        )
        parser.add_argument(
            "-f", "--follow", action="store_true", help="go on until they have ended"
        )
        newer = "only what is newer: 90s, 5m, 2h, or an ISO 8601 time"
        parser.add_argument("--since", metavar="TIME", type=parse_since, help=newer)
        parser.add_argument(
            "--tail", metavar="N", type=parse_count, help="only the last N lines of each process"
        )
        parser.add_argument(
            "--previous", action="store_true", help="what was written before the last restart"
        )
        parser.add_argument(
            "--save", metavar="FOLDER", help="write a file for each process, PROCESS.log"
        )
        parser.add_argument("--dry-run", action="store_true", help="with --save: write nothing")
        self._add_json(parser, "each line as JSON")

    def action_logs(self, args: argparse.Namespace) -> int | None:
        """Show what processes wrote.

        What one process wrote is shown as it is; several are merged in the order of time, each line after the
        name of its process. With --save all of it is written to files instead, which outlive the experiment.

        For example:
          symphony logs rl
          symphony logs rl agents/agent-1 --tail 20
          symphony logs rl -f --since 5m
          symphony logs rl -f --save logs/
        """
        from pathlib import Path

        from symphony.commandline.commands import names as choosing
        from symphony.commandline.output.printing import log_formatter, show_lines, show_text

        status = choosing.experiment(self.cluster, args.experiment)
        args.experiment = status.name
        asked = [choosing.process(status, name).name for name in args.processes]
        names = list(dict.fromkeys(asked)) or [process.name for process in status]
        if args.save and args.dry_run:
            for name in names:
                print_note(f"would write {Path(args.save) / f'{name}.log'}")
            return OK
        if args.previous or args.save:
            from symphony.commandline.commands import use

            return (
                use.previous_logs(self.cluster, args, names)
                if args.previous
                else use.save(self.cluster, args, names)
            )
        if len(names) == 1 and not args.follow and not args.json:
            text = self.cluster.get_log(args.experiment, names[0], since=args.since, tail=args.tail)
            if not text:
                self._explain_silence(args.experiment, names[0])
            show_text(text)
            return OK
        lines = self.cluster.iter_logs(
            args.experiment, names, follow=args.follow, since=args.since, tail=args.tail
        )  # fmt: skip
        form = log_formatter(names, as_json=args.json, colour=has_colour(sys.stdout))
        if args.follow:
            return self._follow(lines, form)
        show_lines(lines, form, at_once=False)
        return OK

    def _follow(self, lines: Iterable[LogLine], form: Callable[[LogLine], str]) -> int:
        from symphony.commandline.output.printing import show_lines

        try:
            show_lines(lines, form, at_once=True)
        except KeyboardInterrupt:  # the usual way to end this: nothing to be told
            return INTERRUPTED
        return OK

    def _explain_silence(self, experiment: str, process: str) -> None:
        if is_terminal(sys.stderr):
            status = self.cluster.describe_process(experiment, process)
            why = f": {status.reason}" if status.reason else ""
            print_note(f"{status.path} has written nothing ({status.state}{why})")

    def _add_wait(self) -> None:
        parser = self.add_subparser("wait")
        self._accept_dry_run(parser)
        self._add_experiment_name(parser, required=False)
        parser.add_argument(
            "--timeout",
            metavar="TIME",
            type=parse_seconds,
            help="give up after that: seconds, or 90s, 5m",
        )
        self._add_json(parser, "the final status as JSON")

    def action_wait(self, args: argparse.Namespace) -> int | None:
        """Wait until every process of an experiment has ended.

        Exits as the experiment does: 0 when all succeeded, else as the first failure; 1 when the time is up.

        For example:
          symphony wait rl
          symphony wait rl --timeout 10m
        """
        from symphony.commandline.commands.names import experiment
        from symphony.commandline.output import views
        from symphony.commandline.output.pending_reasons import reporting_progress
        from symphony.commandline.output.printing import show_json

        name = experiment(self.cluster, args.experiment).name
        with show_progress() as shown, reporting_progress(shown, views.waiting_line) as see:
            status = self.cluster.wait(name, timeout=args.timeout, on_change=see)
        if args.json:
            show_json({**status.to_dict(), "exit_code": status.exit_code})
        else:
            print(views.summary_line(status))
        for line in views.failure_lines(status):
            print_note(line)
        return status.exit_code

    def _add_completion(self) -> None:
        from symphony.commandline.parsing.completion_scripts import SHELLS

        parser = self.add_subparser("completion")
        self._accept_dry_run(parser)
        parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))

    def action_completion(self, args: argparse.Namespace) -> int | None:
        """Print what a shell needs to complete commands, options, and names of experiments and processes.

        For example:
          eval "$(symphony completion bash)"
          eval "$(symphony completion zsh)"
          symphony completion fish | source
        """
        from symphony.commandline.parsing.completion_scripts import completion_script

        print(completion_script(args.shell, self.prog), end="")
        return OK

    def _add_backends(self) -> None:
        parser = self.add_subparser("backends")
        self._accept_dry_run(parser)
        self._add_json(parser)

    def action_backends(self, args: argparse.Namespace) -> int | None:
        """List the backends that are installed.

        For example:
          symphony backends
          symphony backends --json
        """
        from symphony.cluster.plugins import installed_backends
        from symphony.commandline.output.printing import show_json, show_table
        from symphony.commandline.output.views import BACKEND_COLUMNS, backend_dict, backend_row

        found = installed_backends()
        if args.json:
            show_json([backend_dict(info) for info in found])
        else:
            show_table(BACKEND_COLUMNS, [backend_row(info) for info in found])
        return OK
