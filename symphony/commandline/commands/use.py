"""The commands that use a launched experiment.

These commands are ``exec``, ``attach``, ``cp``, ``forward``, ``visit`` and ``switch-experiment``.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from symphony.commandline.commands.base_commands import BaseCommands
from symphony.commandline.exit_codes import INTERRUPTED, OK, UsageError
from symphony.commandline.output.byte_progress import ByteProgress
from symphony.commandline.output.terminal import print_note, print_text, show_progress
from symphony.commandline.output.views import align_pairs
from symphony.errors import NotFound

if TYPE_CHECKING:
    from symphony.cluster import ExecResult
    from symphony.status import ExperimentStatus, ProcessStatus


class UseCommands(BaseCommands):
    """The commands that use a launched experiment."""

    def _add_exec(self) -> None:
        parser = self.add_subparser("exec", remainder=True)
        parser.usage = f"{self.prog} exec [options] [EXPERIMENT] PROCESS -- CMD"
        # Without --, the third argument begins the command.
        self._command_indices["exec"] = 2
        self._add_experiment(parser)
        self._add_component_arg(parser)
        for flags in (("-i", "--interactive", "--stdin"), ("-t", "--tty")):
            # A terminal is used if there is one.
            parser.add_argument(*flags, action="store_true", help=argparse.SUPPRESS)
        parser.add_argument(
            "--all",
            action="store_true",
            help="run the command in each process if PROCESS selects several",
        )
        parser.add_argument("misplaced", nargs="*", help=argparse.SUPPRESS)
        self._add_client_dry_run(parser)
        self._add_json(parser, "the exit code and the output as JSON")

    def action_exec(self, args: argparse.Namespace) -> int | None:
        """Run a command in the environment and working directory of a process.

        The command consists of all words after the first --, which are passed on unchanged. If both
        EXPERIMENT and PROCESS are given, -- can be omitted. On Kubernetes, the command runs in the
        process's container. The exit code is that of the command.

        The process can have exited, for example to find out why it has failed. On Slurm, the
        command then runs on the node of the process or, if the job has ended, on this machine. On
        Kubernetes, the process must be running.

        With --all, PROCESS can be a group, a replicated process, such as agent for agent-0 to
        agent-7, or a pattern, such as 'agent-*'. The command runs in one process after another, and
        each line of its output begins with the name of the process. The exit code is the first one
        that is not 0.

        For example:
          symphony exec rl learner -- env
          symphony exec rl agents/agent-1 -- bash
          symphony exec rl agent --all -- nvidia-smi
        """
        if args.misplaced:
            import shlex

            command = shlex.join([*args.misplaced, *args.remainder])
            raise UsageError(
                "the command must follow --: "
                f"{self.prog} exec {args.experiment} {args.process} -- {command}"
            )
        if not args.remainder:
            raise UsageError(f"the command is missing: {self._exec_forms(args)}")
        if args.all:
            return self._exec_in_all(args)
        status = self._find_experiment(args)
        process = self._resolve_process(
            status, args.process, fix="name one process, or run the command in each with --all"
        )
        if args.dry_run:
            _preview_exec(status, process, args.remainder)
            return OK
        if args.json:
            return self._exec_as_json(status.name, process, args.remainder)
        return self._exec_interactive(status.name, process, args.remainder)

    def _exec_forms(self, args: argparse.Namespace) -> str:
        """Return the possible corrections of a line without a command."""
        if args.experiment is None:
            return f"{self.prog} exec {args.process} -- CMD..."
        return (
            f"{self.prog} exec {args.experiment} {args.process} -- CMD... or, for the experiment "
            f"of this directory, {self.prog} exec {args.experiment} -- {args.process}"
        )

    def _exec_in_all(self, args: argparse.Namespace) -> int:
        """Run a command in the environment of each selected process, and return the first exit code
        that is not 0.
        """
        from symphony.commandline.output.printing import LogFormatter, show_json, show_output
        from symphony.log_blocks import LogBlock

        status = self._find_experiment(args)
        selected = self._resolve_processes(status, [args.process])
        if args.dry_run:
            for process in selected:
                _preview_exec(status, process, args.remainder)
            return OK
        formatter = LogFormatter([process.path for process in selected], as_json=False)
        results = []
        for process in selected:
            result = self.cluster.exec_command(
                status.name, process.name, args.remainder, process.group
            )
            results.append({"process": process.path, **_exec_result(result)})
            if not args.json:
                texts = [*result.stdout.splitlines(), *result.stderr.splitlines()]
                blocks = [LogBlock(process.path, f"{text}\n") for text in texts]
                show_output(blocks, formatter, at_once=True)
        if args.json:
            show_json(results)
        return next((result["exit_code"] for result in results if result["exit_code"]), OK)

    def _exec_as_json(self, experiment: str, process: ProcessStatus, command: list[str]) -> int:
        """Run a command and print its exit code and output as JSON."""
        from symphony.commandline.output.printing import show_json

        result = self.cluster.exec_command(experiment, process.name, command, process.group)
        show_json(_exec_result(result))
        return result.exit_code

    def _exec_interactive(self, experiment: str, process: ProcessStatus, command: list[str]) -> int:
        """Run a command with this program's standard streams, and return its exit code."""
        # The command writes to the same stream, so earlier output must be flushed first.
        sys.stdout.flush()
        signals: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self.cluster.commands_run_here:
            signals = _keyboard_signals_left_to_command()
        with signals:
            result = self.cluster.exec_command(
                experiment, process.name, command, process.group, interactive=True
            )
        return result.exit_code

    def _add_attach(self) -> None:
        parser = self.add_subparser("attach")
        self._add_experiment(parser)
        self._add_component_arg(parser)
        self._add_client_dry_run(parser)

    def action_attach(self, args: argparse.Namespace) -> int | None:
        """Attach the terminal to a process.

        On local and Kubernetes, the process needs the setting `tty: true`. Leave its terminal with
        Ctrl-P Ctrl-Q; the process keeps running. Without this setting, the command opens a shell in
        the process's container on Kubernetes, and fails on local: use exec to run a command in the
        environment of the process, or logs -f to follow its output.

        In tmux, the terminal shows the process's window. Detach with the prefix key followed by d
        (by default, Ctrl-b d); the process keeps running.

        For example:
          symphony attach rl learner
          symphony ssh -b tmux rl agents/agent-1
        """
        status = self._find_experiment(args)
        process = self._resolve_process(status, args.process)
        if args.dry_run:
            from symphony.commandline.output import dry_run

            print_note(dry_run.preview_attach(self.cluster, status, process))
            return OK
        self.cluster.login(status.name, process.name, process.group)
        return OK

    def _add_cp(self) -> None:
        parser = self.add_subparser("cp")
        self._add_experiment(parser)
        parser.add_argument("source", metavar="SOURCE", help="a local path, or PROCESS:PATH")
        parser.add_argument(
            "target",
            metavar="TARGET",
            help="a local path, or PROCESS:PATH; exactly one of the two must be local",
        )
        self._add_client_dry_run(parser)

    def action_cp(self, args: argparse.Namespace) -> int | None:
        """Copy files or directories to or from a process.

        A path in a process is written as PROCESS:PATH or GROUP/PROCESS:PATH. A pattern that matches
        one process can replace PROCESS. A relative PATH is relative to the process's working
        directory.

        The command works like cp -r: if TARGET is an existing directory, the copy is created in it.
        Write DIRECTORY/. to copy the contents of a directory. An existing file is replaced only
        after the copy is complete. On Kubernetes, the process must be running.

        For example:
          symphony cp rl learner:out/model.pt .
          symphony cp rl config.yml agents/agent-1:
          symphony cp rl 'eval*:best.pt' .
        """
        status = self._find_experiment(args)
        source = self._resolve_path(status, args.source)
        target = self._resolve_path(status, args.target)
        if args.dry_run:
            from symphony.commandline.output import dry_run

            print_note(dry_run.preview_copy(self.cluster, status, source, target))
            return OK
        with show_progress() as shown:
            progress = partial(ByteProgress(shown).report, "copied")
            self.cluster.transfer_file(status.name, source, target, progress=progress)
        return OK

    def _resolve_path(self, status: ExperimentStatus, text: str) -> str:
        """Return ``PROCESS:PATH`` with the path of the process. Return a local path unchanged."""
        name, colon, path = text.partition(":")
        if not colon or not name or name.startswith((".", "/")):
            return text
        return f"{self._resolve_process(status, name).path}:{path}"

    def _add_forward(self) -> None:
        parser = self.add_subparser("forward")
        self._add_experiment(parser)
        parser.add_argument("target", metavar="PROCESS", help="a process or a service")
        parser.add_argument(
            "ports",
            metavar="PORT[:LOCAL]",
            nargs="?",
            help="the process's port, and the local port (default: any free port)",
        )
        self._add_client_dry_run(parser)

    def action_forward(self, args: argparse.Namespace) -> int | None:
        """Forward a local port to a process or a service until Ctrl-C.

        Only programs on this machine can connect to the local port. For a service, PORT may be
        omitted: the default is the service's port. Forwarding continues when the process restarts.

        On local and tmux, every port is a port of this machine already, so the command prints the
        address and exits. With a LOCAL port, it relays connections until Ctrl-C.

        For example:
          symphony forward rl db 5432
          symphony forward rl tensorboard 6006:8080
        """
        status = self._find_experiment(args)
        port, local_port = _parse_ports(args.ports)
        if args.dry_run:
            from symphony.commandline.output import dry_run

            print_note(dry_run.preview_forward(self.cluster, status, args.target, port, local_port))
            return OK
        with (
            end_as_interrupt(),
            self.cluster.port_forward(
                status.name, args.target, port, local_port=local_port, on_error=report_error
            ) as tunnel,
        ):
            if not tunnel.forwarded:
                print_text(tunnel.address)
                return OK
            return _keep_open(tunnel.address)

    def _add_visit(self) -> None:
        parser = self.add_subparser("visit")
        self._add_experiment(parser)
        parser.add_argument(
            "service",
            metavar="SERVICE",
            nargs="?",
            help="an exposed service (default: all exposed services)",
        )
        self._add_client_dry_run(parser)

    def action_visit(self, args: argparse.Namespace) -> int | None:
        """Print the URL of an exposed service, or the names and URLs of all exposed services.

        If a service cannot be reached from outside the cluster, the command forwards a local port
        to it until Ctrl-C.

        For example:
          symphony visit rl
          symphony visit rl tensorboard
        """
        status = self._find_experiment(args)
        services = [args.service] if args.service else self._all_exposed(status.name)
        if args.dry_run:
            from symphony.commandline.output import dry_run

            for service in services:
                print_note(dry_run.preview_visit(self.cluster, status, service))
            return OK
        with end_as_interrupt(), contextlib.ExitStack() as stack:
            tunnels = {
                service: stack.enter_context(
                    self.cluster.visit(status.name, service, on_error=report_error)
                )
                for service in services
            }
            urls = {service: f"http://{tunnel.address}" for service, tunnel in tunnels.items()}
            lines = list(urls.values()) if args.service else align_pairs(urls.items())
            is_forwarded = any(tunnel.forwarded for tunnel in tunnels.values())
            text = "\n".join(line.strip() for line in lines)
            if is_forwarded:
                return _keep_open(text)
            print_text(text)
            return OK

    def _all_exposed(self, experiment: str) -> list[str]:
        """Return the names of all exposed services. Raises `NotFound` if there are none."""
        services = list(self.cluster.exposed_services(experiment))
        if not services:
            raise NotFound(
                f"experiment {experiment!r} exposes no service; expose one with: "
                "exposes: {NAME: PORT}"
            )
        return services

    def _add_switch_experiment(self) -> None:
        parser = self.add_subparser("switch-experiment")
        self._add_experiment_name(parser, required=False)
        self._add_client_dry_run(parser)
        self._add_json(parser)

    def action_switch_experiment(self, args: argparse.Namespace) -> int | None:
        """Set the current experiment, or show it.

        Commands use the current experiment if the name is a dot. Commands that read also use it if
        no experiment is named and none was launched from the working directory. With -b, they use
        the current experiment of that backend. Without an argument, the command prints the current
        experiment.

        For example:
          symphony switch-experiment rl
          symphony ps
          symphony logs . learner
          symphony switch-experiment
        """
        from symphony.commandline.commands.current_experiment import require_current, set_current

        if args.experiment is None:
            backend = self.cluster.backend
            name = require_current(backend)
        else:
            name = self._find_experiment(args).name
            backend = self.cluster.backend
            if not args.dry_run:
                set_current(backend, name, selected=self.selected_cluster.backend)
        if args.json:
            from symphony.commandline.output.printing import show_json

            show_json({"backend": backend, "experiment": name})
        else:
            print_text(name)
        return OK


def _preview_exec(status: ExperimentStatus, process: ProcessStatus, command: list[str]) -> None:
    import shlex

    text = shlex.join(command)
    print_note(f"would run in the environment of {process.path} of {status.name}: {text}")


def _exec_result(result: ExecResult) -> dict[str, Any]:
    return {"exit_code": result.exit_code, "stdout": result.stdout, "stderr": result.stderr}


@contextlib.contextmanager
def _keyboard_signals_left_to_command() -> Iterator[None]:
    r"""Ignore Ctrl-C and Ctrl-\ in this program while a command runs on the same terminal.

    The terminal sends both signals to this program and to the command, but only the command should
    react to them. An empty handler is installed instead of SIG_IGN, because the command would
    inherit SIG_IGN.
    """
    import signal

    previous = {}
    for number in (signal.SIGINT, signal.SIGQUIT):
        previous[number] = signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _parse_ports(text: str | None) -> tuple[int | None, int | None]:
    """Parse ``5432`` or ``5432:8080``, and return the remote and the local port.

    A missing port is None. Raises `UsageError` if a port is not a number.
    """
    if text is None:
        return None, None
    port, colon, local_port = text.partition(":")
    if not port.isdecimal() or (colon and not local_port.isdecimal()):
        raise UsageError(f"a port must be a number, or PORT:LOCAL, not {text!r}")
    return int(port), int(local_port) if colon else None


def report_error(error: str) -> None:
    """Report that a connection could not be forwarded."""
    print_note(f"symphony: {error}")


def _keep_open(addresses: str) -> int:
    """Print the addresses of tunnels, wait until Ctrl-C, and return the exit code."""
    import threading

    print_text(addresses, flush=True)
    print_note("forwarding; press Ctrl-C to stop")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return INTERRUPTED
    return OK


@contextlib.contextmanager
def end_as_interrupt() -> Iterator[None]:
    """Convert SIGTERM, and the SIGHUP of a closed terminal, to KeyboardInterrupt, so that forwarded
    ports are closed properly. Ignored signals stay ignored, as with nohup.
    """
    import signal

    previous = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            previous[number] = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
