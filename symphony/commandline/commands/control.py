"""The commands that control processes: ``stop``, ``start``, ``restart`` and ``signal``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from symphony.commandline.commands.base_commands import BaseCommands
from symphony.commandline.exit_codes import FAILED, OK, UsageError
from symphony.commandline.output.terminal import print_note, print_text

if TYPE_CHECKING:
    from symphony.status import ExperimentStatus, ProcessStatus, State

_MAX_NAMES = 8


class ControlCommands(BaseCommands):
    """The ``stop``, ``start``, ``restart`` and ``signal`` commands."""

    def _add_stop(self) -> None:
        parser = self.add_subparser("stop")
        self._add_selection(parser)
        self._add_stop_options(parser)
        self._add_control_options(parser)

    def action_stop(self, args: argparse.Namespace) -> int | None:
        """Stop processes, and keep their logs and their status.

        A PROCESS can be a group, a replicated process or a pattern, as for ps. Without one, all
        processes are stopped. A stopped process is not restarted by its restart policy; start
        starts it again.

        The command waits until the processes have exited. Ctrl-C ends the command, but not the
        stop. A second stop with --now kills processes that are still running.

        For example:
          symphony stop rl
          symphony stop rl agent --grace 5
          symphony stop rl 'agent-*' learner --now
        """
        from symphony.status import ENDED

        grace = _grace(args)
        return self._control(
            args,
            ("stop", "stopping", "stopped"),
            lambda experiment, names: self.cluster.stop_processes(
                experiment, names, grace=grace, at_once=args.now, timeout=args.timeout
            ),
            unchanged=ENDED,
            already="not running",
        )

    def _add_start(self) -> None:
        parser = self.add_subparser("start")
        self._add_selection(parser)
        self._add_control_options(parser)

    def action_start(self, args: argparse.Namespace) -> int | None:
        """Start processes that were stopped or have exited.

        A PROCESS can be a group, a replicated process or a pattern, as for ps. Without one, all
        processes are started, except those that are running already. Each process starts when its
        start conditions are met, with the same addresses, GPUs and environment as before. Its
        output is added to its log.

        The command returns when each process has started or waits for its conditions. It prints the
        processes that it has started, and the reasons of those that wait or cannot start. The exit
        code is 1 if a process could not be started.

        For example:
          symphony start rl
          symphony start rl learner
        """
        from symphony.status import State

        return self._control(
            args,
            ("start", "starting", "started"),
            lambda experiment, names: self.cluster.start_processes(
                experiment, names, timeout=args.timeout
            ),
            starts=True,
            unchanged={State.RUNNING},
            already="running already",
        )

    def _add_restart(self) -> None:
        parser = self.add_subparser("restart")
        self._add_selection(parser)
        self._add_stop_options(parser)
        self._add_control_options(parser)

    def action_restart(self, args: argparse.Namespace) -> int | None:
        """Stop processes, and start them again.

        A PROCESS can be a group, a replicated process or a pattern, as for ps. Without one, all
        processes are restarted. A process that starts after another restarted process waits for it
        again. The processes keep their addresses, GPUs and environment, and their output is added
        to their logs. A process that symphony debug has left under a debugger gets its ordinary
        command again.

        For example:
          symphony restart rl agent-3
          symphony restart rl agent --now
        """
        from symphony.cluster.restarting import restart_with_ordinary_commands

        grace = _grace(args)

        def restart(experiment: str, names: list[str]) -> Sequence[ProcessStatus]:
            return restart_with_ordinary_commands(
                self.cluster,
                experiment,
                names,
                grace=grace,
                at_once=args.now,
                timeout=args.timeout,
            )

        return self._control(
            args, ("restart", "restarting", "restarted"), restart, starts=True, shows_addresses=True
        )

    def _add_signal(self) -> None:
        parser = self.add_subparser("signal")
        self._add_selection(parser)
        parser.add_argument(
            "-s",
            "--signal",
            metavar="SIGNAL",
            required=True,
            help="name or number, such as HUP, SIGUSR1 or 10",
        )
        parser.add_argument(
            "--force",
            action="store_true",
            help="send the signal even if no program of a process handles it and it ends them",
        )
        self._add_client_dry_run(parser)
        self._add_json(parser, "the statuses of the processes as JSON")

    def action_signal(self, args: argparse.Namespace) -> int | None:
        """Send a signal to running processes.

        A PROCESS can be a group, a replicated process or a pattern, as for ps. Without one, all
        processes receive the signal. No signal is sent if one of the processes is not running.
        The programs that handle the signal receive it, also behind a shell or a starter such as
        xargs. A program that handles it passes it on to its own child processes if it wants to. If
        no program of a process handles a signal that would end it, the command is refused unless
        --force is given. If a process exits because of the signal, the restart policy applies.

        For example:
          symphony signal rl learner --signal HUP
          symphony signal rl agent -s USR1
        """
        from symphony.support.signal_names import find_signal

        found = find_signal(args.signal)
        return self._control(
            args,
            (f"send {found.name} to", f"sending {found.name} to", f"sent {found.name} to"),
            lambda experiment, names: self.cluster.signal_processes(
                experiment, names, int(found), force=args.force
            ),
        )

    # --- arguments ---

    def _add_selection(self, parser: argparse.ArgumentParser) -> None:
        self._add_experiment(parser)
        self._add_processes(parser)

    def _add_stop_options(self, parser: argparse.ArgumentParser) -> None:
        from symphony.commandline.parsing.arguments import parse_seconds

        parser.add_argument(
            "--now", action="store_true", help="kill the processes, without a grace period"
        )
        parser.add_argument(
            "--grace",
            metavar="TIME",
            type=parse_seconds,
            help="grace period before processes are killed, instead of their own, such as 5s",
        )

    def _add_control_options(self, parser: argparse.ArgumentParser) -> None:
        self._add_timeout(parser)
        self._add_client_dry_run(parser)
        self._add_json(parser, "the statuses of the processes as JSON")

    # --- running ---

    def _control(
        self,
        args: argparse.Namespace,
        words: tuple[str, str, str],
        run: Callable[[str, list[str]], Sequence[ProcessStatus]],
        *,
        starts: bool = False,
        unchanged: Collection[State] = (),
        already: str = "",
        shows_addresses: bool = False,
    ) -> int:
        """Select processes, call ``run`` with them, and report the result.

        ``words`` describe what ``run`` does, such as ``stop``, ``stopping`` and ``stopped``.
        With ``starts``, processes that could not be started are reported. ``run`` does nothing with
        processes that are in one of the states ``unchanged``, which are reported as ``already``.
        With ``shows_addresses``, the addresses of the exposed services follow.
        """
        from dataclasses import replace

        from symphony.cluster.hidden_output import shown_status
        from symphony.cluster.matching import select_processes
        from symphony.code.take_snapshots import packing_once
        from symphony.commandline.output.byte_progress import ByteProgress
        from symphony.commandline.output.exit_progress import reporting_exits
        from symphony.commandline.output.printing import show_json
        from symphony.commandline.output.terminal import show_progress

        verb, doing, done = words
        status = self._find_experiment(args)
        selected = select_processes(status, args.processes or None)
        if starts and not args.processes:
            selected = self._without_finished_one_shots(status, selected)
        names = [process.name for process in selected]
        if args.dry_run:
            if args.json:
                show_json([process.to_dict() for process in selected])
            print_note(f"would {verb} {_description(status.name, selected)}")
            return OK
        action = f"{doing} {_description(status.name, selected)}"
        try:
            with (
                show_progress(action) as shown,
                packing_once(ByteProgress(shown).report),
                reporting_exits(self.cluster, status.name, action, shown, processes=names),
            ):
                reached = run(status.name, names)
        except KeyboardInterrupt:
            print_note(f"{self.prog}: the supervisor of {status.name!r} continues {action}")
            raise
        result = shown_status(self.cluster, replace(status, processes=tuple(reached))).processes
        if args.json:
            show_json([process.to_dict() for process in result])
        else:
            changed = [process for process in selected if process.state not in unchanged]
            rest = [process for process in selected if process.state in unchanged]
            if starts:
                started = {process.name for process in result if process.has_started}
                changed = [process for process in changed if process.name in started]
            if changed:
                print_text(f"{done} {_description(status.name, changed)}")
            if rest:
                print_text(f"{already}: {_description(status.name, rest)}")
            if shows_addresses and (lines := self._exposed_lines(status.name)):
                print_text("\n".join(lines))
        return _report_problems(result, status.now()) if starts else OK

    def _without_finished_one_shots(
        self, status: ExperimentStatus, selected: Sequence[ProcessStatus]
    ) -> list[ProcessStatus]:
        """Return the processes to start, and report those that do not have to run again."""
        finished = self.cluster.finished_one_shots(status)
        kept = [process for process in selected if process.name in finished]
        if kept:
            print_note(
                f"not started again, because others wait only for the success: "
                f"{_description(status.name, kept)}; to run it again, name it"
            )
        return [process for process in selected if process not in kept]


def _grace(args: argparse.Namespace) -> float | None:
    if args.now and args.grace is not None:
        raise UsageError("--now means that there is no grace period; remove --now or --grace")
    grace: float | None = args.grace
    return grace


def _description(experiment: str, processes: Sequence[ProcessStatus]) -> str:
    """Return the names of processes and of their experiment, such as ``learner of rl``."""
    from symphony.support.names import join_names

    names = join_names((process.path for process in processes), limit=_MAX_NAMES)
    return f"{names} of {experiment}"


def _report_problems(processes: Sequence[ProcessStatus], now: float) -> int:
    """Report the started processes that wait or have failed, and return the exit code."""
    for process in processes:
        if process.state.value == "pending" or process.failed:
            reason = process.displayed_reason(now)
            print_note(f"{process.path} is {process.displayed_state}: {reason}")
    return FAILED if any(process.failed for process in processes) else OK
