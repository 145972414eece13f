"""The verbs that begin with a file: launch, render."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.exits import OK
from symphony.commandline.terminal import note
from symphony.commandline.verbs import Verbs

if TYPE_CHECKING:
    from symphony.spec import Experiment


class LaunchVerbs(Verbs):
    """launch, render."""

    def _add_launch(self) -> None:
        parser = self.add_subparser("launch")
        self._add_file(parser)
        self.add_dry_run(parser)
        parser.add_argument("--build", action="store_true", help="build and push the experiment's images first")
        parser.add_argument("--force", action="store_true", help="replace a live experiment of that name")
        parser.add_argument("--follow", action="store_true", help="show the logs; Ctrl-C stops the experiment")
        parser.add_argument("--wait", choices=("started", "ready"), help="return when all have started, or are ready")
        self._add_json(parser, "the manifest as JSON; with --follow, each line and at last the status")

    def action_launch(self, args: argparse.Namespace) -> int | None:
        """Launch an experiment.

        Returns once all is created; the experiment goes on when the terminal is closed. With --follow it
        shows the logs until all has ended, and Ctrl-C stops the experiment, a second Ctrl-C kills it. Exits
        then as the experiment does. With --wait it returns when all have started, or are ready or have ended.

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
            from symphony.commandline.building import with_built_images

            experiment = with_built_images(self.cluster, experiment, dry_run=bool(args.dry_run), force=args.force)
        if args.dry_run:
            self._show_manifest(experiment, args.json, check=args.dry_run == "server")
            return OK
        from symphony.commandline import launching

        if args.follow:
            return launching.launch_and_follow(self.cluster, experiment, force=args.force, as_json=args.json)
        manifest = launching.launch(self.cluster, experiment, force=args.force)
        if args.wait:
            launching.wait(self.cluster, experiment.name, args.wait)
        if args.json:
            from symphony.commandline.printing import show_json

            show_json(manifest.to_dict())
        else:
            print("\n".join([launching.launched(self.cluster, experiment), *self._how_to_go_on(experiment.name)]))
        return OK

    def _add_render(self) -> None:
        parser = self.add_subparser("render")
        self._add_file(parser)
        parser.add_argument(
            "--with-secrets",
            metavar="FILE",
            help="write it, the values of secrets included, to a file of yours",
        )
        parser.add_argument("--dry-run", action="store_true", help="with --with-secrets: write nothing")
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
        if args.with_secrets:
            manifest = self.cluster.manifest(experiment)
            if args.dry_run:
                from symphony.commandline import would

                note(would.write(manifest, args.with_secrets))
                return OK
            manifest.write(args.with_secrets)
            note(f"{self.prog}: wrote {args.with_secrets}; it holds the values of secrets")
        else:
            self._show_manifest(experiment, args.json)
        return OK

    def _load(self, args: argparse.Namespace) -> Experiment:
        from pathlib import Path

        from symphony.commandline.files import load

        return load(self.cluster, Path(args.file), args.name, dict(args.parameters))

    def _show_manifest(self, experiment: Experiment, as_json: bool, *, check: bool = False) -> None:
        if not as_json:
            self.cluster.launch(experiment, dry_run="server" if check else True)
            return
        from symphony.commandline.printing import show_json

        manifest = self.cluster.manifest(experiment)
        if check:
            self.cluster.check(manifest)
        show_json(manifest.to_dict())

    def _how_to_go_on(self, name: str) -> list[str]:
        from symphony.commandline.views import indented

        where = "".join(f" {word}" for word in self.where)
        return indented(
            [
                (f"{self.prog} ps{where} {name}", "how they are"),
                (f"{self.prog} logs{where} -f {name}", "what they write"),
                (f"{self.prog} delete{where} {name}", "stop them and remove all of it"),
            ]
        )
