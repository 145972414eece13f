"""``launch``: launch an experiment."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.experiment_file.chosen_file import choose_file
from symphony.commandline.commands.experiment_file.experiment_options import (
    add_policies,
    add_subset,
    load_selected,
)
from symphony.commandline.commands.next_steps import address_lines, next_commands
from symphony.commandline.commands.shared_arguments import check_timeout
from symphony.commandline.commands.show_manifest import show_dry_run
from symphony.commandline.exit_codes import OK
from symphony.commandline.output.terminal import print_text
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(
    changes=True, json="JSON: the manifest or, with --follow, each log line and the final status"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_file(parser)
    add_subset(parser)
    add_policies(parser)
    shared_arguments.add_dry_run(parser)
    parser.add_argument(
        "--build", action="store_true", help="build and push the experiment's images first"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace a running experiment of the same name"
    )
    shared_arguments.add_queue(parser)
    parser.add_argument(
        "--follow", action="store_true", help="follow the logs; Ctrl-C stops the experiment"
    )
    parser.add_argument(
        "--wait",
        choices=("started", "ready"),
        help="wait until all processes have started or are ready; fail if one fails",
    )
    shared_arguments.add_timeout(parser, "--wait")


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Launch an experiment, or some of its processes.

    A PROCESS is a process, group/process, a group, a replicated process, such as agent for
    agent-0 to agent-7, or a pattern, such as 'agent-*'. The processes whose services it
    connects to, and those that it starts after, are launched too.

    The command returns when all processes have been created that do not wait for others. The
    experiment keeps running when the terminal is closed. It prints the addresses of the exposed
    services.

    If an experiment of this name is running, the launch is refused. --force replaces it, also
    if it runs from the file of another directory. The new experiment is checked, as with
    --dry-run=server, before the running one is deleted. --copy launches a copy of its own for
    this directory, called NAME-DIRECTORY, which NAME means from then on in this directory.

    --queue waits until enough GPUs are free for all processes, in the order in which such
    launches began, and then launches. Ctrl-C ends the wait. The file is read, and its code is
    packed, before. Kubernetes and Slurm have their own queues, so there --queue has no effect.

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
      symphony launch rl.yml --name rl-2 --set seed=2 --queue
    """
    check_timeout(args)
    choose_file(line, args)
    experiment = load_selected(line, args)
    if args.build:
        from symphony.commandline.commands.experiment_file.build_images import with_built_images

        experiment = with_built_images(
            line.cluster,
            experiment,
            dry_run=bool(args.dry_run),
            may_be_running=args.force,
        )
    if args.dry_run:
        show_dry_run(line, experiment, args)
        return OK
    from symphony.commandline.commands import foreground

    if args.follow:
        return foreground.launch_and_follow(
            line.cluster, experiment, force=args.force, as_json=args.json, queue=args.queue
        )
    manifest = foreground.launch_with_progress(
        line.cluster, experiment, force=args.force, queue=args.queue
    )
    status = None
    timeout_error = None
    if args.wait:
        try:
            status = foreground.wait_for_start(
                line.cluster, experiment.name, args.wait, timeout=args.timeout
            )
        except TimeoutError as exc:
            timeout_error = exc
    if args.json:
        from symphony.commandline.output.printing import show_json

        show_json(manifest.to_dict())
    else:
        lines = [foreground.launch_summary(line.cluster, experiment)]
        lines += address_lines(line, experiment)
        lines += next_commands(line, experiment.name)
        print_text("\n".join(lines), flush=True)
    if timeout_error is not None:
        raise timeout_error
    if status is None:
        return OK
    return foreground.report_failures(line.cluster, status, args.wait)
