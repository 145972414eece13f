"""The verbs that begin with a file: launch, render."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands.shared_arguments import Verbs
from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_note

if TYPE_CHECKING:
    from symphony.cluster import Manifest
    from symphony.model import Experiment


class LaunchVerbs(Verbs):
    """launch, render."""

    def _add_launch(self) -> None:
        parser = self.add_subparser("launch")
        self._add_file(parser)
        self.add_dry_run(parser)
        parser.add_argument(
            "--build", action="store_true", help="build and push the experiment's images first"
        )
        parser.add_argument(
            "--force", action="store_true", help="replace a live experiment of that name"
        )
        parser.add_argument(
            "--follow", action="store_true", help="show the logs; Ctrl-C stops the experiment"
        )
        parser.add_argument(
            "--wait",
            choices=("started", "ready"),
            help="return when all have started, or are ready; fail if one fails",
        )
        self._add_json(
            parser, "the manifest as JSON; with --follow, each line and at last the status"
        )

    def action_launch(self, args: argparse.Namespace) -> int | None:
        """Launch an experiment.

        Returns once all is created; the experiment goes on when the terminal is closed. With --follow it
        shows the logs until all has ended, and Ctrl-C stops the experiment, a second Ctrl-C kills it. Exits
        then as the experiment does. With --wait it returns when each has started, or is ready, has ended, or
        was not ready in time, and exits as the first that failed by then: with 1 for one that was not ready in time.

        A Python file names its experiment by NAME = "...", or is named after itself.

        With --build the images that the experiment declares are built, tagged with its name and pushed, and its
        processes run from just what was pushed.

        For example:
          symphony launch rl.yml
          symphony launch experiment.py --name rl-2 --follow
          symphony launch rl.yml --set agents=64 --profile gke
          symphony launch rl.yml -b tmux --dry-run
        """
        experiment = self._load(args)
        if args.build:
            from symphony.commandline.commands.build_images import with_built_images

            experiment = with_built_images(
                self.cluster, experiment, dry_run=bool(args.dry_run), force=args.force
            )
        if args.dry_run:
            self._show_dry_run(experiment, args)
            return OK
        from symphony.commandline.commands import foreground

        if args.follow:
            return foreground.launch_and_follow(
                self.cluster, experiment, force=args.force, as_json=args.json
            )
        manifest = foreground.launch(self.cluster, experiment, force=args.force)
        status = foreground.wait(self.cluster, experiment.name, args.wait) if args.wait else None
        if args.json:
            from symphony.commandline.output.printing import show_json

            show_json(manifest.to_dict())
        else:
            print(
                "\n".join(
                    [
                        foreground.launched(self.cluster, experiment),
                        *self._how_to_go_on(experiment.name),
                    ]
                ),
                flush=True,
            )
        return OK if status is None else foreground.came_up(status, args.wait)

    def _add_render(self) -> None:
        parser = self.add_subparser("render")
        self._add_file(parser)
        parser.add_argument(
            "--with-secrets",
            metavar="FILE",
            help="write it, the values of secrets included, to a file of yours",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="with --with-secrets: write nothing"
        )
        self._add_json(parser)

    def action_render(self, args: argparse.Namespace) -> int | None:
        """Show what a launch would make of an experiment.

        Nothing is started. What the backend cannot honour is listed as ignored. Values of secrets are not shown;
        --with-secrets FILE writes all to a file instead.

        For example:
          symphony render rl.yml
          symphony render rl.yml -b local --json
          symphony render rl.yml -b kube | kubectl diff -f -
        """
        experiment = self._load(args)
        if args.with_secrets is not None:
            self._see_other_file(args)
            manifest = self.cluster.manifest(experiment)
            if args.dry_run:
                from symphony.commandline.output import dry_run

                print_note(dry_run.preview_secrets_file(manifest, args.with_secrets))
                return OK
            manifest.write(args.with_secrets)
            print_note(f"{self.prog}: wrote {args.with_secrets}; it holds the values of secrets")
        else:
            self._show_manifest(self.cluster.manifest(experiment), args.json)
        return OK

    def _see_other_file(self, args: argparse.Namespace) -> None:
        from pathlib import Path

        target = Path(args.with_secrets)
        if target.exists() and target.samefile(args.file):
            raise UsageError(
                f"{target} is the file of the experiment itself; choose another for --with-secrets"
            )

    def _load(self, args: argparse.Namespace) -> Experiment:
        from pathlib import Path

        from symphony.commandline.commands.experiment_files import load

        return load(self.cluster, Path(args.file), args.name, dict(args.parameters))

    def _show_dry_run(self, experiment: Experiment, args: argparse.Namespace) -> None:
        server = args.dry_run == "server"
        self._show_manifest(
            self.cluster.dry_run(experiment, force=args.force, server=server), args.json
        )

    def _show_manifest(self, manifest: Manifest, as_json: bool) -> None:
        from symphony.commandline.output.printing import show_json, show_text

        if as_json:
            show_json(manifest.to_dict())
        else:
            show_text(str(manifest))

    def _how_to_go_on(self, name: str) -> list[str]:
        from symphony.commandline.output.views import align_pairs

        where = "".join(f" {word}" for word in self.cluster_arguments)
        return align_pairs(
            [
                (f"{self.prog} ps{where} {name}", "how they are"),
                (f"{self.prog} logs{where} -f {name}", "what they write"),
                (f"{self.prog} delete{where} {name}", "stop them and remove all of it"),
            ]
        )
