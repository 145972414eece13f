"""The commands that launch or render an experiment file: ``launch`` and ``render``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands.experiment_options import ExperimentOptions
from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_note, print_text
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.model import Experiment


class LaunchCommands(ExperimentOptions):
    """The ``launch`` and ``render`` commands."""

    def _add_subset(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "processes",
            metavar="PROCESS",
            nargs="*",
            help="launch only these processes, groups or patterns such as 'agent-*', and the "
            "processes that they need (default: all)",
        )

    def _load_selected(self, args: argparse.Namespace) -> Experiment:
        """Load the experiment, and remove the processes that the user did not select."""
        experiment = self._load_with_policies(args)
        if not args.processes:
            return experiment
        from symphony.model.experiment.subset import select

        needed = select(experiment, args.processes).needed
        if needed:
            by = join_names(dict.fromkeys(needed.values()))
            print_note(f"{self.prog}: also selected, because needed by {by}: {join_names(needed)}")
        return experiment.subset(args.processes)

    def _add_launch(self) -> None:
        parser = self.add_subparser("launch")
        self._add_file(parser)
        self._add_subset(parser)
        self._add_policies(parser)
        self.add_dry_run(parser)
        parser.add_argument(
            "--build", action="store_true", help="build and push the experiment's images first"
        )
        parser.add_argument(
            "--force", action="store_true", help="replace a running experiment of the same name"
        )
        parser.add_argument(
            "--follow", action="store_true", help="follow the logs; Ctrl-C stops the experiment"
        )
        parser.add_argument(
            "--wait",
            choices=("started", "ready"),
            help="wait until all processes have started or are ready; fail if one fails",
        )
        self._add_timeout(parser, "--wait")
        self._add_json(
            parser, "JSON: the manifest or, with --follow, each log line and the final status"
        )

    def action_launch(self, args: argparse.Namespace) -> int | None:
        """Launch an experiment, or some of its processes.

        A PROCESS is a process, group/process, a group, a replicated process, such as agent for
        agent-0 to agent-7, or a pattern, such as 'agent-*'. The processes whose services it
        connects to, and those that it starts after, are launched too.

        The command returns when all processes have been created that do not wait for others. The
        experiment keeps running when the terminal is closed. It prints the addresses of the exposed
        services.

        If an experiment of this name is running, the launch is refused. --force replaces it, also
        if it runs from the file of another directory. The new experiment is checked, as with
        --dry-run=server, before the running one is deleted.

        --follow shows the logs until all processes have exited, or until none is running and all
        others wait for processes that were stopped; the exit code is then 1. Ctrl-C stops the
        experiment; a second Ctrl-C kills it. SIGTERM and SIGHUP (a closed terminal) also stop it.
        The exit code is that of the experiment, or 128 + n after signal n: 130 after Ctrl-C, 143
        after SIGTERM.

        --wait ready blocks until every process is ready, has exited or was not ready in time;
        --wait started blocks until every process has started or has failed. The exit code is that
        of the first process that failed, 1 if a process was not ready in time, and 0 otherwise. If
        --timeout expires, the exit code is 124, and the experiment keeps running.

        --build builds and pushes the images that the experiment declares. The processes use the
        pushed images.

        --ends-with, --on-failure and --deadline replace the values in the file. After the deadline,
        the exit code is 124.

        A Python file can set the experiment name with NAME = "..."; the default is derived from the
        file name.

        For example:
          symphony launch rl.yml
          symphony launch experiment.py --name rl-2 --follow
          symphony launch rl.yml --wait ready --timeout 5m
          symphony launch rl.yml --ends-with learner --deadline 6h
          symphony launch rl.yml --set agents=64 --profile gke
          symphony launch rl.yml -b tmux --dry-run
          symphony launch rl.yml learner 'agent-*'
        """
        self._check_timeout(args)
        self._choose_file(args)
        experiment = self._load_selected(args)
        if args.build:
            from symphony.commandline.commands.build_images import with_built_images

            experiment = with_built_images(
                self.cluster,
                experiment,
                dry_run=bool(args.dry_run),
                may_be_running=args.force,
            )
        if args.dry_run:
            self._show_dry_run(experiment, args)
            return OK
        from symphony.commandline.commands import foreground

        if args.follow:
            return foreground.launch_and_follow(
                self.cluster, experiment, force=args.force, as_json=args.json
            )
        manifest = foreground.launch_with_progress(self.cluster, experiment, force=args.force)
        status = None
        timeout_error = None
        if args.wait:
            try:
                status = foreground.wait_for_start(
                    self.cluster, experiment.name, args.wait, timeout=args.timeout
                )
            except TimeoutError as exc:
                timeout_error = exc
        if args.json:
            from symphony.commandline.output.printing import show_json

            show_json(manifest.to_dict())
        else:
            lines = [foreground.launch_summary(self.cluster, experiment)]
            lines += self._address_lines(experiment)
            lines += self._next_commands(experiment.name)
            print_text("\n".join(lines), flush=True)
        if timeout_error is not None:
            raise timeout_error
        if status is None:
            return OK
        return foreground.report_failures(status, args.wait)

    def _add_render(self) -> None:
        parser = self.add_subparser("render")
        self._add_file(parser)
        self._add_subset(parser)
        self._add_policies(parser)
        parser.add_argument(
            "--with-secrets",
            metavar="FILE",
            help="write the manifest, including secret values, to FILE",
        )
        self._add_client_dry_run(parser, "with --with-secrets, do not write the file")
        self._add_json(parser)

    def action_render(self, args: argparse.Namespace) -> int | None:
        """Show the manifest of an experiment.

        Nothing is started. Settings that the backend does not support are listed as ignored. Secret
        values are not shown; --with-secrets FILE writes the manifest, including them, to a file.

        For example:
          symphony render rl.yml
          symphony render rl.yml -b local --json
          symphony render rl.yml learner
          symphony render rl.yml -b kube | kubectl diff -f -
        """
        self._choose_file(args)
        experiment = self._load_selected(args)
        if args.with_secrets is None:
            self._show_manifest(self.cluster.manifest(experiment), args.json)
            return OK
        _check_output_file(args.file, args.with_secrets)
        manifest = self.cluster.manifest(experiment)
        if args.dry_run:
            from symphony.commandline.output import dry_run

            print_note(dry_run.preview_secrets_file(manifest, args.with_secrets))
            return OK
        manifest.write(args.with_secrets)
        print_note(f"{self.prog}: wrote {args.with_secrets}; it contains secret values")
        return OK


def _check_output_file(experiment_file: str, output: str) -> None:
    """Raise `UsageError` if writing to ``output`` would overwrite the experiment file."""
    from pathlib import Path

    target = Path(output)
    if target.exists() and target.samefile(experiment_file):
        raise UsageError(
            f"{target} is the experiment file itself; choose another file for --with-secrets"
        )
