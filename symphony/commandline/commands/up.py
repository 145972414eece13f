"""The commands that change a running experiment as a whole: ``up``, ``diff`` and ``scale``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from symphony.commandline.commands.experiment_options import ExperimentOptions
from symphony.commandline.exit_codes import FAILED, INTERRUPTED, OK, UsageError
from symphony.commandline.output.terminal import (
    ProgressLine,
    print_note,
    print_text,
    show_progress,
)

if TYPE_CHECKING:
    from symphony.commandline.commands.watching import WatchedExperiment
    from symphony.model import Experiment
    from symphony.plan.changes import Changes
    from symphony.support.hidden_values import HiddenValues

# After this time, an update that an unreachable cluster has prevented is tried again.
RETRY_SECONDS = 10.0


class UpCommands(ExperimentOptions):
    """The ``up``, ``diff`` and ``scale`` commands."""

    def _add_up(self) -> None:
        parser = self.add_subparser("up")
        self._add_file(parser)
        self._add_policies(parser)
        self._add_reset(parser)
        self._add_client_dry_run(parser, "show what would be changed, as diff; change nothing")
        parser.add_argument(
            "--build", action="store_true", help="build and push the experiment's images first"
        )
        parser.add_argument(
            "--force",
            action="store_true",
            help="launch the experiment again if it cannot be changed while it is running",
        )
        parser.add_argument(
            "--wait",
            choices=("started", "ready"),
            help="wait until all processes have started or are ready; fail if one fails",
        )
        self._add_timeout(parser, "--wait")
        parser.add_argument(
            "--watch",
            action="store_true",
            help="repeat the command when the code or the experiment file changes, until Ctrl-C",
        )
        self._add_show_secrets(parser)
        self._add_json(parser, "the changes as JSON; with --watch, one object in each line")

    def action_up(self, args: argparse.Namespace) -> int | None:
        """Make a running experiment equal to its file, or launch it.

        New processes are started, processes that are no longer in the file are stopped and removed,
        and changed processes are restarted in start order. Processes that have failed, were stopped
        or were never started are started; those that have succeeded are not. All others keep
        running, with the same pids or Pods, ports and GPUs. Restart policies, grace periods and the
        rules for the end of the experiment are changed without a restart. If the experiment does
        not exist or has finished, it is launched.

        The options of the launch, such as --set, --deadline and --image, are kept unless other
        values are given; the command shows which. With --reset, the file alone counts.

        The command shows the changes, and returns when they are done. If it is interrupted, run it
        again; it completes the changes.

        An experiment that runs from the file of another directory is not changed. The files of one
        Git worktree count as one directory.

        With --watch, the command then follows the files of the code and the experiment file, and
        makes the experiment equal to them after each edit. Ignored files have no effect. After an
        error, the command waits for the next edit. Ctrl-C leaves the experiment running. This needs
        the extra watch.

        For example:
          symphony up rl.yml
          symphony up rl.yml --dry-run
          symphony up rl.yml --set rate=0.1 --wait ready
          symphony up rl.yml --watch
        """
        self._check_timeout(args)
        self._choose_file(args)
        if args.watch:
            return self._up_after_edits(args)
        return self._up(self._load_for_change(args), args)

    def _up(self, experiment: Experiment, args: argparse.Namespace) -> int:
        if args.build:
            from symphony.commandline.commands.build_images import with_built_images

            experiment = with_built_images(
                self.cluster, experiment, dry_run=args.dry_run, may_be_running=True
            )
        code = self._change(experiment, args)
        if args.dry_run or not args.wait:
            return code
        from symphony.commandline.commands import foreground

        status = foreground.wait_for_start(
            self.cluster, experiment.name, args.wait, timeout=args.timeout
        )
        return foreground.report_failures(status, args.wait)

    def _up_after_edits(self, args: argparse.Namespace) -> int:
        """Change the experiment after each edit, until Ctrl-C."""
        from pathlib import Path

        from symphony.commandline.commands.watching import WatchedExperiment

        if args.dry_run:
            raise UsageError(
                "--dry-run changes nothing, so there is nothing to repeat: "
                "remove --watch or --dry-run"
            )
        with WatchedExperiment(Path(args.file), lambda: self._load_for_change(args)) as watched:
            experiment = watched.load()
            self._up(experiment, args)
            count = "1 file" if watched.count == 1 else f"{watched.count} files"
            print_note(f"watching {count} of {experiment.name}; press Ctrl-C to stop")
            try:
                self._follow_edits(watched, args)
            except KeyboardInterrupt:
                print_note(f"{self.prog}: stopped watching; {experiment.name!r} keeps running")
                return INTERRUPTED

    def _follow_edits(self, watched: WatchedExperiment, args: argparse.Namespace) -> NoReturn:
        from symphony.commandline.commands.watching import RepeatedChanges, changed_line
        from symphony.errors import SymphonyError, Unreachable

        is_unreachable = False
        repeated = RepeatedChanges()
        while True:
            changed = watched.wait(RETRY_SECONDS if is_unreachable else None)
            if changed:
                changed = repeated.wait(watched, changed)
                print_note(changed_line(changed))
            try:
                self._up(watched.load(), args)
                is_unreachable = False
            except (SymphonyError, TimeoutError) as exc:
                was_unreachable = is_unreachable
                is_unreachable = isinstance(exc, Unreachable)
                # An outage is reported once.
                if changed or not (is_unreachable and was_unreachable):
                    self.print_error(self.explained_error(exc))
            repeated.note_update()

    def _add_diff(self) -> None:
        parser = self.add_subparser("diff")
        self._add_file(parser)
        self._add_policies(parser)
        self._add_reset(parser)
        self._add_hidden_dry_run(parser)
        self._add_show_secrets(parser)
        self._add_json(parser)

    def action_diff(self, args: argparse.Namespace) -> int | None:
        """Show how a running experiment differs from its file.

        For each process that up would add, remove, restart, start or update, the command shows why.
        The exit code is 0 if there is no difference, and 1 if there is one. The options of the
        launch are kept as by up.

        For example:
          symphony diff rl.yml
          symphony diff rl.yml --set rate=0.1 --json
        """
        self._choose_file(args)
        experiment = self._load_for_change(args)
        changes = self.cluster.diff(experiment)
        _show(changes, args, self._hidden_values(changes, experiment, args))
        return OK if changes.is_empty else FAILED

    def _add_scale(self) -> None:
        parser = self.add_subparser("scale")
        self._add_experiment(parser)
        parser.add_argument(
            "counts",
            metavar="NAME=NUMBER",
            nargs="+",
            help="replicated process or group and its number of replicas, such as agent=16; +2 and "
            "-2 add and remove replicas",
        )
        parser.set_defaults(force=False, watch=False)
        self._add_client_dry_run(parser)
        self._add_show_secrets(parser)
        self._add_json(parser, "the changes as JSON")

    def action_scale(self, args: argparse.Namespace) -> int | None:
        """Change the number of replicas of a running experiment.

        Only the replicas with the highest numbers are added or removed. The other replicas are
        started if they have failed or were stopped. If the file takes the
        number from a parameter, the parameter is changed, so processes that use it elsewhere are
        restarted. The file itself does not change: up with the file restores its number.

        For example:
          symphony scale rl agent=16
          symphony scale rl agent=+2 actor=4 --dry-run
          symphony scale agent=16
        """
        from symphony.cluster.scale import replica_names

        name = self._find_experiment(args).name
        counts = _counts(args.counts)
        experiment = self.cluster.scaled_experiment(name, counts)
        return self._change(experiment, args, start=replica_names(experiment, counts))

    def _change(
        self,
        experiment: Experiment,
        args: argparse.Namespace,
        *,
        start: Sequence[str] | None = None,
    ) -> int:
        """Show what `Cluster.up` will change, let it do so, and report the result.

        ``start`` contains the processes that are started if they have exited; None means all.
        """
        from symphony.code.take_snapshots import packing_once
        from symphony.commandline.output.byte_progress import ByteProgress

        with show_progress() as shown, packing_once(ByteProgress(shown).report):
            changes = self.cluster.diff(experiment, start=start)
            shown.clear()
            if not changes.launch:
                self.cluster.check_origin(experiment)
            # After the change, the values that it has replaced are not known any more.
            hidden = self._hidden_values(changes, experiment, args)
            if args.dry_run or changes.is_empty:
                _show(changes, args, hidden)
                if not args.dry_run and not args.json:
                    self._show_addresses(experiment)
                return OK
            if not args.json:
                print_text(str(_for_display(changes, hidden)).rstrip("\n"), flush=True)
            changes = self._make(changes, experiment, shown, force=args.force, start=start)
        return self._report(changes, experiment, args, hidden)

    def _show_addresses(self, experiment: Experiment) -> None:
        lines = self._address_lines(experiment)
        if lines:
            print_text("\n".join(lines), flush=True)

    def _make(
        self,
        changes: Changes,
        experiment: Experiment,
        shown: ProgressLine,
        *,
        force: bool,
        start: Sequence[str] | None,
    ) -> Changes:
        """Make the changes, and return what was changed."""
        from symphony.commandline.output import views
        from symphony.commandline.output.pending_reasons import reporting_progress

        name = changes.experiment
        action = "launching" if changes.launch else "changing"
        shown.update(f"{action} {name}")
        try:
            with reporting_progress(
                shown, lambda status: f"{action} {views.startup_line(status)}"
            ) as on_change:
                return self.cluster.up(experiment, force=force, on_change=on_change, start=start)
        except KeyboardInterrupt:
            print_note(
                f"{self.prog}: {name!r} has its previous or its new description; run the command "
                "again to complete the change"
            )
            raise

    def _report(
        self,
        changes: Changes,
        experiment: Experiment,
        args: argparse.Namespace,
        hidden: HiddenValues | None,
    ) -> int:
        """Report what was changed, and return the exit code."""
        from symphony.commandline.output import views
        from symphony.commandline.parsing import completion_cache

        completion_cache.clear_cached_names()
        name = changes.experiment
        if args.json:
            _show(changes, args, hidden)
        else:
            done = "launched" if changes.launch or changes.relaunch else "changed"
            print_text(f"{done} {name} on {changes.backend}: {changes.summary}", flush=True)
            self._show_addresses(experiment)
        for note in changes.notes:
            print_note(f"symphony: {note}")
        from symphony.cluster.hidden_output import shown_status

        status = shown_status(self.cluster, self.cluster.describe_experiment(name))
        affected = set(changes.names("added", "restarted", "started"))
        failed = [process for process in status if process.failed and process.name in affected]
        for process in failed:
            print_note(views.failure_line(process))
        return FAILED if failed else OK

    def _hidden_values(
        self, changes: Changes, experiment: Experiment, args: argparse.Namespace
    ) -> HiddenValues | None:
        """Return the values to hide in changes to the description ``experiment``, or None if all
        are shown.
        """
        from symphony.support.hidden_values import HiddenValues

        if args.show_secrets:
            return None
        if not any(process.settings for process in changes.processes):
            return HiddenValues([])
        return self.cluster.hidden_values(experiment.name, experiment)


def _show(changes: Changes, args: argparse.Namespace, hidden: HiddenValues | None) -> None:
    """Print changes as text or JSON."""
    from symphony.commandline.output.printing import show_json, show_text

    shown = _for_display(changes, hidden)
    if args.json:
        show_json(shown.to_dict(), compact=getattr(args, "watch", False))
    else:
        show_text(str(shown))


def _for_display(changes: Changes, hidden: HiddenValues | None) -> Changes:
    return changes if hidden is None else changes.with_hidden_secrets(hidden)


def _counts(words: Sequence[str]) -> dict[str, str]:
    """Return the numbers of replicas in words such as ``agent=16``, or ``agent`` and ``16``."""
    counts: dict[str, str] = {}
    rest = list(words)
    while rest:
        name, equals, number = rest.pop(0).partition("=")
        if not equals and rest and rest[0].lstrip("+-").isdecimal():
            number = rest.pop(0)
        if not name or not number:
            text = f"{name}{equals}{number}"
            raise UsageError(
                f"{text!r} is not valid; write NAME=NUMBER, such as agent=16 or agent=+2"
            )
        counts[name] = number
    return counts
