"""The verbs that begin without a file: submit, init."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from symphony.commandline.commands.inspect import LookVerbs
from symphony.commandline.commands.launch import LaunchVerbs
from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_note
from symphony.commandline.parsing.arguments import parse_count
from symphony.errors import SymphonyError

if TYPE_CHECKING:
    from symphony.commandline.commands.job_options import Request
    from symphony.model import Experiment

T = TypeVar("T")


class SubmitVerbs(LaunchVerbs, LookVerbs):
    """submit, init."""

    def _add_submit(self) -> None:
        parser = self.add_subparser("submit", remainder=True)
        parser.usage = f"{self.prog} submit [options] -- COMMAND..."
        # A backend that has an option of the same name, as kube has --image for all, leaves it to this verb.
        parser.conflict_handler = "resolve"
        self._add_what_it_needs(parser)
        self._add_how_it_goes(parser)
        self.add_dry_run(parser)
        self._add_json(
            parser, "the manifest as JSON; with --follow, each line and at last the status"
        )
        parser.add_argument("misplaced", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    def _add_what_it_needs(self, parser: argparse.ArgumentParser) -> None:
        import os

        from symphony.commandline.commands import job_options as read

        add = parser.add_argument_group("the job").add_argument
        memory, cores = _typed(read.memory), _typed(read.cores)
        mount, label, toleration = _typed(read.mount), _typed(read.label), _typed(read.toleration)
        variable = _typed(lambda text: read.variable(text, os.environ))
        add("--name", metavar="NAME", help="what the job is called (default: as its program)")
        add("--image", metavar="IMAGE", help="the image that it runs from, on Kubernetes")
        add("--cpu", metavar="N", type=cores, help="processors: 2, 0.5, 500m")
        add("--memory", metavar="SIZE", type=memory, help="4Gi, 500Mi")
        add("--gpu", metavar="N", type=parse_count, help="whole GPUs")
        add(
            "--limit-cpu",
            metavar="N",
            type=cores,
            help="what it may use at most (default: as --cpu)",
        )
        add("--limit-memory", metavar="SIZE", type=memory, help="the same (default: as --memory)")
        add("--shm", metavar="SIZE", type=memory, help="size of /dev/shm, which data loaders share")
        mounts = "a folder of the node, HOST:TARGET[:ro]; HOST may be nfs://SERVER/PATH or pvc://CLAIM; repeatable"
        add("--mount", metavar="MOUNT", type=mount, action="append", default=[], help=mounts)
        variables = "a variable, KEY=VALUE; KEY alone takes it over from here; repeatable"
        add("--env", metavar="VARIABLE", type=variable, action="append", default=[], help=variables)
        secrets = "a file, or NAME=FILE, to be read in $SYMPHONY_SECRETS_DIR; repeatable"
        add(
            "--secret",
            metavar="FILE",
            type=_typed(read.secret),
            action="append",
            default=[],
            help=secrets,
        )
        add(
            "--workdir",
            metavar="FOLDER",
            help="where it starts (default: here; the image's on Kubernetes)",
        )
        nodes = "only on nodes with this label, KEY=VALUE; repeatable"
        add("--node-selector", metavar="LABEL", type=label, action="append", default=[], help=nodes)
        taints = "also on nodes with this taint, KEY[=VALUE][:EFFECT]; repeatable"
        add(
            "--toleration",
            metavar="TAINT",
            type=toleration,
            action="append",
            default=[],
            help=taints,
        )

    def _add_how_it_goes(self, parser: argparse.ArgumentParser) -> None:
        from symphony.commandline.commands import job_options as read

        group = parser.add_argument_group("its life")
        add, whole = group.add_argument, _typed(read.whole_seconds)
        limit = "end it then: minutes, M:SS, H:MM:SS, D-HH:MM:SS as Slurm has them, or 90s, 5m, 2h (default: never)"
        add("--time", metavar="TIME", type=_typed(read.time_limit), help=limit)
        add(
            "--grace",
            metavar="TIME",
            type=whole,
            help="between TERM and KILL: seconds, or 2m (default: 30)",
        )
        add(
            "--retries",
            metavar="N",
            type=parse_count,
            default=0,
            help="how often it is tried again when it failed",
        )
        add(
            "--keep",
            metavar="TIME",
            type=whole,
            help="remove its Job so long after its end: seconds, or 2h",
        )
        add("--force", action="store_true", help="replace a job of that name, live or ended")
        staying = group.add_mutually_exclusive_group()
        staying.add_argument(
            "--follow", action="store_true", help="show its log, exit as it does; Ctrl-C stops it"
        )
        staying.add_argument(
            "--wait", action="store_true", help="return when it has ended, exit as it does"
        )

    def action_submit(self, args: argparse.Namespace) -> int | None:
        r"""Run one command to its end, as a job.

        What follows the first -- is the command, untouched. On Kubernetes it is a Job, and each amount is both
        requested and the limit. It is an experiment of one process: ps, logs, wait, exec and delete take its name.
        A name that is there already, live or ended, is only replaced with --force, since a Job cannot be changed.

        To be ended means TERM, and KILL 30 s later (--grace): time for the program to save what it has.

        For example:
          symphony submit --follow -- python train.py --epochs 3
          symphony submit -b kube --image sim:2 --time 2h -- ./sim
          symphony submit -b kube --image IMG --cpu 2 --memory 4Gi \
            --gpu 1 --mount /home/me/data:/data --time 30:00 \
            -- python train.py
        """
        if args.misplaced or not args.remainder:
            raise UsageError(self._where_the_command_stands(args))
        from dataclasses import fields

        from symphony.commandline.commands import job_options
        from symphony.config import SymphonyConfig

        asked = (field.name for field in fields(job_options.Request) if field.name != "command")
        given = {name: getattr(args, name) for name in asked}
        given["name"] = SymphonyConfig().experiment_name(
            args.name or job_options.default_name(args.remainder)
        )
        request = job_options.Request(command=tuple(args.remainder), **given)
        experiment = job_options.experiment(request)
        looks = self.cluster.dry_run_checks_name or args.dry_run in (False, "server")
        if not args.force and looks:
            self._refuse_taken(experiment.name)
        try:
            if args.dry_run:
                self._show_dry_run(experiment, args)
                return OK
            self._tell_ignored(request, experiment)
            return self._submit(args, experiment)
        except SymphonyError as exc:
            exc.args = (job_options.in_own_words(exc),)
            raise

    def _where_the_command_stands(self, args: argparse.Namespace) -> str:
        import shlex

        command = shlex.join([*args.misplaced, *args.remainder]) or "python train.py"
        return f"the command stands after --, and options before it: {self.prog} submit --name NAME -- {command}"

    def _submit(self, args: argparse.Namespace, experiment: Experiment) -> int:
        from symphony.commandline.commands import foreground

        name = experiment.name
        if args.follow:
            return foreground.launch_and_follow(
                self.cluster, experiment, force=args.force, as_json=args.json
            )
        manifest = foreground.launch(self.cluster, experiment, force=args.force)
        said = f"submitted {name} on {self.cluster.backend}"
        if args.wait:
            print_note(said)
            waiting = argparse.Namespace(experiment=name, timeout=None, json=args.json)
            return self.action_wait(waiting) or OK
        if args.json:
            from symphony.commandline.output.printing import show_json

            show_json(manifest.to_dict())
        else:
            print("\n".join([said, *self._how_to_go_on(name)]))
        return OK

    def _tell_ignored(self, request: Request, experiment: Experiment) -> None:
        from symphony.commandline.commands.job_options import ignored_options

        settings = {item.setting for item in self.cluster.manifest(experiment).ignored}
        options = ignored_options(request, settings)
        if options:
            print_note(f"{self.prog}: ignored on {self.cluster.backend}: {', '.join(options)}")

    def _refuse_taken(self, name: str) -> None:
        """Refuse a name that is there, ended too: what it wrote, and how it ended, would be gone."""
        from symphony.commandline.output.views import experiment_state
        from symphony.errors import AlreadyExists, NotFound

        try:
            status = self.cluster.describe_experiment(name)
        except NotFound:
            return
        raise AlreadyExists(
            f"{name!r} is there already ({experiment_state(status)}), and a job cannot be changed: replace it with "
            "--force, or give this one another --name"
        )

    def _add_init(self) -> None:
        parser = self.add_subparser("init")
        parser.add_argument(
            "folder", metavar="FOLDER", nargs="?", default=".", help="where (default: here)"
        )
        parser.add_argument(
            "--name", metavar="NAME", help="the experiment's name (default: as the folder)"
        )
        self._add_plain_dry_run(parser)
        self._add_json(parser, "the files as JSON")

    def action_init(self, args: argparse.Namespace) -> int | None:
        """Write a small project to start from.

        An experiment of two processes that talk over a service, their programs, a Dockerfile and a README. The
        programs need Python alone. No file is overwritten: where one of them is there, nothing is written.

        For example:
          symphony init pi
          cd pi && symphony launch experiment.yml --follow
        """
        from pathlib import Path

        from symphony.commandline.commands import init

        folder = Path(args.folder)
        name = init.name_for(folder.absolute(), args.name)
        texts = init.contents(name)
        written = init.places(folder, texts) if args.dry_run else init.write(folder, texts)
        if args.json:
            from symphony.commandline.output.printing import show_json

            show_json({"experiment": name, "files": [str(path) for path in written]})
        elif args.dry_run:
            for path in written:
                print_note(f"would write {path}")
        else:
            from symphony.commandline.output.views import align_pairs

            hints = (line.rstrip() for line in align_pairs(self._next(args.folder, name)))
            print("\n".join([*(f"wrote {path}" for path in written), *hints]))
        return OK

    def _next(self, folder: str, name: str) -> list[tuple[str, str]]:
        import shlex

        enter = [] if folder == "." else [(f"cd {shlex.quote(folder)}", "")]
        return [
            *enter,
            (f"{self.prog} launch experiment.yml --follow", "runs it on this machine"),
            (f"{self.prog} delete {name}", "removes it again"),
            (f"docker build --tag {name}:1 .", "an image of it, for Kubernetes: see README.md"),
        ]


def _typed(read: Callable[[str], T]) -> Callable[[str], T]:
    """A reader as argparse wants it: of a `SpecError`, which is a ValueError, it would not show the message."""
    from symphony.errors import SpecError

    def typed(text: str) -> T:
        try:
            return read(text)
        except SpecError as exc:
            raise argparse.ArgumentTypeError(str(exc)) from None

    return typed
