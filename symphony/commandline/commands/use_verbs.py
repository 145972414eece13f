"""The verbs that use a running experiment, and the one that ends it: exec, attach, cp, forward, visit, delete."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence

from symphony.commandline.commands.shared_arguments import Verbs
from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_note


class UseVerbs(Verbs):
    """exec, attach, cp, forward, visit, delete."""

    def _add_exec(self) -> None:
        parser = self.add_subparser("exec", remainder=True)
        parser.usage = f"{self.prog} exec [options] EXPERIMENT PROCESS -- CMD..."
        self._add_experiment_name(parser)
        self._add_component_arg(parser)
        parser.add_argument("misplaced", nargs="*", help=argparse.SUPPRESS)
        self._add_plain_dry_run(parser)
        self._add_json(parser, "exit code and output as JSON")

    def action_exec(self, args: argparse.Namespace) -> int | None:
        """Run a command beside a process, in its environment and folder.

        What follows the first -- is the command, untouched. Exits with the command's exit code.

        For example:
          symphony exec rl learner -- env
          symphony exec rl agents/agent-1 -- bash
        """
        if args.misplaced or not args.remainder:
            command = shlex.join([*args.misplaced, *args.remainder]) or "CMD..."
            raise UsageError(
                f"the command stands after --: {self.prog} exec {args.experiment} {args.process} -- {command}"
            )
        from symphony.commandline.commands import names as choosing
        from symphony.commandline.commands.exec import run

        status = choosing.experiment(self.cluster, args.experiment)
        process = choosing.process(status, args.process)
        if args.dry_run:
            print_note(
                f"would run beside {process.path} of {status.name}: {shlex.join(args.remainder)}"
            )
            return OK
        return run(
            self.cluster,
            status.name,
            process.name,
            process.group,
            args.remainder,
            as_json=args.json,
        )

    def _add_attach(self) -> None:
        parser = self.add_subparser("attach")
        self._add_experiment_name(parser)
        self._add_component_arg(parser)
        self._add_plain_dry_run(parser)

    def action_attach(self, args: argparse.Namespace) -> int | None:
        """Attach the terminal to a process, to look at it and type into it.

        In tmux, detach with the prefix and d (Ctrl-b d): the process goes on. On Kubernetes it is a shell beside
        the process, in its container. The local backend has no terminal to attach: exec runs a command beside the
        process, logs -f follows it.

        For example:
          symphony attach -b tmux rl learner
          symphony ssh -b tmux rl agents/agent-1
        """
        from symphony.commandline.commands import names as choosing

        status = choosing.experiment(self.cluster, args.experiment)
        process = choosing.process(status, args.process)
        if args.dry_run:
            from symphony.commandline.output import dry_run

            print_note(dry_run.preview_attach(self.cluster, status, process))
            return OK
        self.cluster.login(status.name, process.name, process.group)
        return OK

    def _add_cp(self) -> None:
        parser = self.add_subparser("cp")
        self._add_experiment_name(parser)
        parser.add_argument("source", metavar="SOURCE", help="a path, or PROCESS:PATH")
        parser.add_argument(
            "target", metavar="TARGET", help="the same; one of the two is beside a process"
        )
        self._add_plain_dry_run(parser)

    def action_cp(self, args: argparse.Namespace) -> int | None:
        """Copy files or folders from or to a process.

        A path beside a process is PROCESS:PATH or GROUP/PROCESS:PATH; it begins in the folder of the process.
        Works as cp -r does: into a folder that is there, else under that name; FOLDER/. is what is in a folder. What
        stands there is replaced only when all has arrived. On Kubernetes the process has to run.

        For example:
          symphony cp rl learner:out/model.pt .
          symphony cp rl config.yml agents/agent-1:
        """
        from symphony.commandline.commands import names as choosing
        from symphony.commandline.commands import use

        status = choosing.experiment(self.cluster, args.experiment)
        source, target = (use.beside(status, text) for text in (args.source, args.target))
        if args.dry_run:
            from symphony.commandline.output import dry_run

            print_note(dry_run.preview_copy(self.cluster, status, source, target))
            return OK
        return use.copy(self.cluster, status.name, source, target)

    def _add_forward(self) -> None:
        parser = self.add_subparser("forward")
        self._add_experiment_name(parser)
        parser.add_argument("target", metavar="PROCESS", help="a process, or a service")
        parser.add_argument(
            "ports", metavar="PORT[:LOCAL]", nargs="?", help="its port, and that of this machine"
        )
        self._add_plain_dry_run(parser)

    def action_forward(self, args: argparse.Namespace) -> int | None:
        """Lead a port of this machine to one of a process, until Ctrl-C.

        Only this machine can connect to it. A service has a port of its own, which need not be said. It goes on
        when the process is restarted.

        For example:
          symphony forward rl db 5432
          symphony forward rl tensorboard 6006:8080
        """
        from symphony.commandline.commands import names as choosing
        from symphony.commandline.commands import use

        status = choosing.experiment(self.cluster, args.experiment)
        if args.dry_run:
            from symphony.commandline.output import dry_run

            print_note(
                dry_run.preview_forward(
                    self.cluster, status, args.target, *use.port_numbers(args.ports)
                )
            )
            return OK
        return use.forward(self.cluster, status.name, args.target, args.ports)

    def _add_visit(self) -> None:
        parser = self.add_subparser("visit")
        self._add_experiment_name(parser)
        parser.add_argument("service", metavar="SERVICE", help="a service that is exposed")
        self._add_plain_dry_run(parser)

    def action_visit(self, args: argparse.Namespace) -> int | None:
        """Print where an exposed service is reached.

        Where nothing leads to it from outside, a port of this machine does, until Ctrl-C.

        For example:
          symphony visit rl tensorboard
        """
        from symphony.commandline.commands import names as choosing
        from symphony.commandline.commands import use

        status = choosing.experiment(self.cluster, args.experiment)
        if args.dry_run:
            from symphony.commandline.output import dry_run

            print_note(dry_run.preview_visit(self.cluster, status, args.service))
            return OK
        return use.visit(self.cluster, status.name, args.service)

    def _add_delete(self) -> None:
        parser = self.add_subparser("delete")
        parser.add_argument("experiments", metavar="EXPERIMENT", nargs="+", help="names")
        self._add_deleting(parser)

    def _add_delete_batch(self) -> None:
        parser = self.add_subparser("delete-batch")
        parser.add_argument(
            "patterns", metavar="PATTERN", nargs="*", help="names, or patterns such as 'rl-*'"
        )
        parser.add_argument(
            "--all", action="store_true", help="every experiment that symphony launched"
        )
        self._add_deleting(parser)

    def _add_deleting(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "-f", "--force", action="store_true", help="do not ask; what is not there is fine"
        )
        self._add_plain_dry_run(parser)
        self._add_json(parser, "the names that were deleted as JSON")

    def _add_switch_experiment(self) -> None:
        parser = self.add_subparser("switch-experiment")
        self._add_experiment_name(parser, required=False)
        self._add_plain_dry_run(parser)
        self._add_json(parser)

    def action_delete(self, args: argparse.Namespace) -> int | None:
        """Stop experiments and remove all of them, their logs too.

        Asks first, on a terminal; a script says --force, and then a name that is not there is no error.

        For example:
          symphony delete rl
          symphony delete -f rl rl-2
        """
        return self._delete(args, args.experiments)

    def action_delete_batch(self, args: argparse.Namespace) -> int | None:
        """Stop and remove all experiments whose names fit.

        In a pattern * stands for any text, ? for one character, [ab] for one of several. Asks first, as delete does.

        For example:
          symphony delete-batch 'sweep-*'
          symphony delete-batch --all --dry-run
        """
        from symphony.commandline.commands.delete import fitting

        if bool(args.patterns) == args.all:
            raise UsageError("say which experiments: patterns such as 'rl-*', or --all")
        names = fitting(self.cluster, args.patterns or ["*"], needed=not (args.force or args.all))
        if not names:
            print_note("no experiment fits; nothing to delete")
        return self._delete(args, names)

    def _delete(self, args: argparse.Namespace, names: Sequence[str]) -> int:
        from symphony.commandline.commands.delete import Deleting

        force = args.force or not names
        return Deleting(
            self.cluster, names, force=force, as_json=args.json, dry_run=args.dry_run
        ).run()

    def action_switch_experiment(self, args: argparse.Namespace) -> int | None:
        """Choose the current experiment, or tell which it is.

        The verbs that take an experiment mean the current one where none is named, or where a dot stands for it.
        Each backend has one of its own.

        For example:
          symphony switch-experiment rl
          symphony ps
          symphony logs . learner
          symphony switch-experiment
        """
        from symphony.commandline.commands import current_experiment
        from symphony.commandline.commands import names as choosing

        backend = self.cluster.backend
        if args.experiment is None:
            name = current_experiment.name(backend)
        else:
            name = choosing.experiment(self.cluster, args.experiment).name
            if not args.dry_run:
                current_experiment.choose(backend, name)
        if args.json:
            from symphony.commandline.output.printing import show_json

            show_json({"backend": backend, "experiment": name})
        else:
            print(name)
        return OK
