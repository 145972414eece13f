"""The verbs. Each imports what it needs, so that a quick one stays quick."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from symphony.commandline.arguments import DRY_RUN_SERVER, count, seconds
from symphony.commandline.dispatch import CommandLine
from symphony.commandline.exits import INTERRUPTED, OK, UsageError, exit_code, message
from symphony.commandline.terminal import has_colour, is_terminal, note, progress

if TYPE_CHECKING:
    from symphony.spec import Experiment
    from symphony.status import ExperimentStatus, LogLine


class SymphonyParser(CommandLine):
    """Describe a multi-process experiment once, launch it on local processes, in tmux or on Kubernetes.

    An experiment is a YAML or JSON file, or a Python file with a
    function build(exp). A process is named by itself or as group/process.

    For example:
      symphony launch rl.yml
      symphony ps rl
      symphony logs -f rl
      symphony delete rl

    Exit codes: 0 fine, 1 failed, 2 wrong use or bad input, 3 trouble with the backend, 130 after Ctrl-C.
    wait and launch --follow exit as the experiment does: 0 when all succeeded, else as the first failure.
    """

    def __init__(self, prog: str | None = None) -> None:
        super().__init__(prog)
        self._add_verbs()
        self.setup()

    def setup(self) -> None:
        """For a subclass: add commands and arguments."""

    # --- arguments that several verbs have ---

    def _add_experiment_name(self, parser: argparse.ArgumentParser, *, required: bool = True) -> None:
        parser.add_argument("experiment", metavar="EXPERIMENT", nargs=None if required else "?", help="its name")

    def _add_component_arg(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("process", metavar="PROCESS", help="a process: its name, or group/name")

    def add_dry_run(self, parser: argparse.ArgumentParser) -> None:
        """Give a command ``--dry-run``."""
        parser.add_argument(
            "--dry-run", action="store_const", const=True, default=False, help="show what would be done; change nothing"
        )
        parser.add_argument(
            DRY_RUN_SERVER,
            dest="dry_run",
            action="store_const",
            const="server",
            help="the same, with every object checked by the backend's server (also: --dry-run=server)",
        )

    def _add_file(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="YAML, JSON, or Python with build(exp)")
        parser.add_argument("--name", metavar="NAME", help="the experiment's name, in place of the file's")

    def _add_json(self, parser: argparse.ArgumentParser, what: str = "JSON") -> None:
        parser.add_argument("--json", action="store_true", help=f"print {what}")

    def _add_verbs(self) -> None:
        self._unmade.update(
            launch=self._add_launch,
            render=self._add_render,
            ls=lambda: self._add_json(self.add_subparser("ls")),
            ps=self._add_ps,
            logs=self._add_logs,
            wait=self._add_wait,
            exec=self._add_exec,
            attach=self._add_attach,
            cp=self._add_cp,
            forward=self._add_forward,
            visit=self._add_visit,
            delete=self._add_delete,
            backends=lambda: self._add_json(self.add_subparser("backends")),
        )

    def _add_launch(self) -> None:
        parser = self.add_subparser("launch")
        self._add_file(parser)
        self.add_dry_run(parser)
        parser.add_argument("--force", action="store_true", help="replace a live experiment of that name")
        parser.add_argument("--follow", action="store_true", help="show the logs; Ctrl-C stops the experiment")
        parser.add_argument("--wait", choices=("started", "ready"), help="return when all have started, or are ready")
        self._add_json(parser, "the manifest as JSON; with --follow, each line and at last the status")

    def _add_render(self) -> None:
        parser = self.add_subparser("render")
        self._add_file(parser)
        parser.add_argument(
            "--with-secrets",
            metavar="FILE",
            help="write it, the values of secrets included, to a file of yours",
        )
        self._add_json(parser)

    def _add_ps(self) -> None:
        parser = self.add_subparser("ps")
        self._add_experiment_name(parser)
        self._add_json(parser)

    def _add_logs(self) -> None:
        parser = self.add_subparser("logs")
        self._add_experiment_name(parser)
        parser.add_argument("processes", metavar="PROCESS", nargs="*", help="names, or group/name (default: all)")
        parser.add_argument("-f", "--follow", action="store_true", help="go on until they have ended")
        parser.add_argument("--since", metavar="TIME", help="only what is newer: 90s, 5m, 2h, or an ISO 8601 time")
        parser.add_argument("--tail", metavar="N", type=count, help="only the last N lines of each process")
        parser.add_argument("--previous", action="store_true", help="what was written before the last restart")
        parser.add_argument("--save", metavar="FOLDER", help="write a file for each process, PROCESS.log")
        self._add_json(parser, "each line as JSON")

    def _add_wait(self) -> None:
        parser = self.add_subparser("wait")
        self._add_experiment_name(parser)
        parser.add_argument("--timeout", metavar="TIME", type=seconds, help="give up after that: seconds, or 90s, 5m")
        self._add_json(parser, "the final status as JSON")

    def _add_exec(self) -> None:
        parser = self.add_subparser("exec", remainder=True)
        parser.usage = f"{self.prog} exec [options] EXPERIMENT PROCESS -- CMD..."
        self._add_experiment_name(parser)
        self._add_component_arg(parser)
        parser.add_argument("misplaced", nargs="*", help=argparse.SUPPRESS)
        self._add_json(parser, "exit code and output as JSON")

    def _add_attach(self) -> None:
        parser = self.add_subparser("attach", ["ssh"])
        self._add_experiment_name(parser)
        self._add_component_arg(parser)

    def _add_cp(self) -> None:
        parser = self.add_subparser("cp")
        self._add_experiment_name(parser)
        parser.add_argument("source", metavar="SOURCE", help="a path, or PROCESS:PATH")
        parser.add_argument("target", metavar="TARGET", help="the same; one of the two is beside a process")

    def _add_forward(self) -> None:
        parser = self.add_subparser("forward")
        self._add_experiment_name(parser)
        parser.add_argument("target", metavar="PROCESS", help="a process, or a service")
        parser.add_argument("ports", metavar="PORT[:LOCAL]", nargs="?", help="its port, and that of this machine")

    def _add_visit(self) -> None:
        parser = self.add_subparser("visit", ["url"])
        self._add_experiment_name(parser)
        parser.add_argument("service", metavar="SERVICE", help="a service that is exposed")

    def _add_delete(self) -> None:
        parser = self.add_subparser("delete")
        parser.add_argument("experiments", metavar="EXPERIMENT", nargs="+", help="names")
        parser.add_argument("-f", "--force", action="store_true", help="do not ask; what is not there is fine")
        self._add_json(parser, "the names that were deleted as JSON")

    # --- launching ---

    def action_launch(self, args: argparse.Namespace) -> int | None:
        """Launch an experiment.

        Returns once all is created; the experiment goes on when the terminal is closed. With --follow it
        shows the logs until all has ended, and Ctrl-C stops the experiment, a second Ctrl-C kills it. Exits
        then as the experiment does. With --wait it returns when all have started, or are ready or have ended.

        A Python file names its experiment by NAME = "...", or is named after itself.

        For example:
          symphony launch rl.yml
          symphony launch experiment.py --name rl-2 --follow
          symphony launch rl.yml -b tmux --dry-run
        """
        experiment = self._load(args)
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
            self.cluster.manifest(experiment).write(args.with_secrets)
            note(f"{self.prog}: wrote {args.with_secrets}; it holds the values of secrets")
        else:
            self._show_manifest(experiment, args.json)
        return OK

    def _load(self, args: argparse.Namespace) -> Experiment:
        from pathlib import Path

        from symphony.commandline.files import load

        return load(self.cluster, Path(args.file), args.name)

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

        where = f" -b {self.args.backend}" if self.args.backend else ""
        return indented(
            [
                (f"{self.prog} ps{where} {name}", "how they are"),
                (f"{self.prog} logs{where} -f {name}", "what they write"),
                (f"{self.prog} delete{where} {name}", "stop them and remove all of it"),
            ]
        )

    # --- looking ---

    def action_ls(self, args: argparse.Namespace) -> int | None:
        """List the experiments that symphony launched.

        AGE is counted from the launch. The columns are aligned and hold no spaces, but for the last one; an
        empty one is "-".

        For example:
          symphony ls
          symphony ls -b tmux --json
        """
        from symphony.commandline.printing import show_json, show_table
        from symphony.commandline.views import EXPERIMENTS, experiment_row

        found, code = self._describe_all()
        if args.json:
            show_json([status.to_dict() for status in found])
        else:
            now = time.time()
            show_table(EXPERIMENTS, [experiment_row(status, now) for status in found])
        return code

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
                note(f"{self.prog}: error: {message(exc)}")
                code = code or exit_code(exc)
        return found, code

    def action_ps(self, args: argparse.Namespace) -> int | None:
        """Show the processes of an experiment.

        EXIT is the exit code (128 + n for signal n), AGE is counted from the latest start. The columns are
        aligned and hold no spaces, but for the last one; an empty one is "-".

        For example:
          symphony ps rl
          symphony ps rl --json | jq '.processes[].pid'
        """
        from symphony.commandline.printing import show_json, show_table
        from symphony.commandline.views import PROCESSES, process_row

        status = self.cluster.describe_experiment(args.experiment)
        if args.json:
            show_json(status.to_dict())
            return OK
        now = time.time()
        show_table(PROCESSES, [process_row(process, now) for process in status])
        if status.note:
            note(f"{status.name}: {status.note}")
        return OK

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
        from symphony.commandline.printing import log_format, show_lines, show_text

        asked = [self.cluster.find_process(args.experiment, name).name for name in args.processes]
        names = list(dict.fromkeys(asked))
        names = names or [process.name for process in self.cluster.describe_experiment(args.experiment)]
        if args.previous or args.save:
            from symphony.commandline import using

            return (
                using.previous_logs(self.cluster, args, names)
                if args.previous
                else using.save(self.cluster, args, names)
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
        form = log_format(names, as_json=args.json, colour=has_colour(sys.stdout))
        if args.follow:
            return self._follow(lines, form)
        show_lines(lines, form, at_once=False)
        return OK

    def _follow(self, lines: Iterable[LogLine], form: Callable[[LogLine], str]) -> int:
        from symphony.commandline.closing import noticing_closed_output
        from symphony.commandline.printing import show_lines

        try:
            with noticing_closed_output():
                show_lines(lines, form, at_once=True)
        except KeyboardInterrupt:  # the usual way to end this: nothing to be told
            return INTERRUPTED
        return OK

    def _explain_silence(self, experiment: str, process: str) -> None:
        if is_terminal(sys.stderr):
            status = self.cluster.describe_process(experiment, process)
            why = f": {status.reason}" if status.reason else ""
            note(f"{status.path} has written nothing ({status.state}{why})")

    def action_wait(self, args: argparse.Namespace) -> int | None:
        """Wait until every process of an experiment has ended.

        Exits as the experiment does: 0 when all succeeded, else as the first failure; 1 when the time is up.

        For example:
          symphony wait rl
          symphony wait rl --timeout 10m
        """
        from symphony.commandline import views
        from symphony.commandline.printing import show_json

        with progress() as shown:
            status = self.cluster.wait(
                args.experiment, timeout=args.timeout, on_change=lambda now: shown.say(views.going_on(now))
            )
        if args.json:
            show_json({**status.to_dict(), "exit_code": status.exit_code})
        else:
            print(views.summary(status))
        for line in views.failures(status):
            note(line)
        return status.exit_code

    # --- using ---

    def action_exec(self, args: argparse.Namespace) -> int | None:
        """Run a command beside a process, in its environment and folder.

        What follows the first -- is the command, untouched. Exits with the command's exit code.

        For example:
          symphony exec rl learner -- env
          symphony exec rl agents/agent-1 -- bash
        """
        if args.misplaced or not args.remainder:
            import shlex

            command = shlex.join([*args.misplaced, *args.remainder]) or "CMD..."
            raise UsageError(
                f"the command stands after --: {self.prog} exec {args.experiment} {args.process} -- {command}"
            )
        from symphony.commandline.running import run

        group, _, name = args.process.rpartition("/")
        return run(self.cluster, args.experiment, name, group or None, args.remainder, as_json=args.json)

    def action_attach(self, args: argparse.Namespace) -> int | None:
        """Attach the terminal to a process, to look at it and type into it.

        In tmux, detach with the prefix and d (Ctrl-b d): the process goes on. On Kubernetes it is a shell beside
        the process, in its container.

        For example:
          symphony attach -b tmux rl learner
          symphony ssh -b tmux rl agents/agent-1
        """
        group, _, name = args.process.rpartition("/")
        self.cluster.login(args.experiment, name, group or None)
        return OK

    def action_cp(self, args: argparse.Namespace) -> int | None:
        """Copy files or folders from or to a process.

        A path beside a process is PROCESS:PATH or GROUP/PROCESS:PATH; it begins in the folder of the process.
        Works as cp -r does, and compares what arrived with what was sent.

        For example:
          symphony cp rl learner:out/model.pt .
          symphony cp rl config.yml agents/agent-1:
        """
        from symphony.commandline import using

        return using.copy(self.cluster, args.experiment, args.source, args.target)

    def action_forward(self, args: argparse.Namespace) -> int | None:
        """Lead a port of this machine to one of a process, until Ctrl-C.

        Only this machine can connect to it. A service has a port of its own, which need not be said. It goes on
        when the process is restarted.

        For example:
          symphony forward rl db 5432
          symphony forward rl tensorboard 6006:8080
        """
        from symphony.commandline import using

        return using.forward(self.cluster, args.experiment, args.target, args.ports)

    def action_visit(self, args: argparse.Namespace) -> int | None:
        """Print where an exposed service is reached.

        Where nothing leads to it from outside, a port of this machine does, until Ctrl-C.

        For example:
          symphony visit rl tensorboard
        """
        from symphony.commandline import using

        return using.visit(self.cluster, args.experiment, args.service)

    def action_delete(self, args: argparse.Namespace) -> int | None:
        """Stop experiments and remove all of them, their logs too.

        Asks first, on a terminal; a script says --force, and then a name that is not there is no error.

        For example:
          symphony delete rl
          symphony delete -f rl rl-2
        """
        from symphony.commandline.deleting import Deleting

        return Deleting(self.cluster, args.experiments, force=args.force, as_json=args.json).run()

    def action_backends(self, args: argparse.Namespace) -> int | None:
        """List the backends that are installed.

        For example:
          symphony backends
          symphony backends --json
        """
        from symphony.commandline.printing import show_json, show_table
        from symphony.commandline.views import BACKENDS, backend_dict, backend_row
        from symphony.plugins import backends

        found = backends()
        if args.json:
            show_json([backend_dict(info) for info in found])
        else:
            show_table(BACKENDS, [backend_row(info) for info in found])
        return OK
