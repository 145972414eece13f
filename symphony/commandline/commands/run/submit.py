"""``submit``: run a single command as a job."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.next_steps import next_commands
from symphony.commandline.commands.shared_arguments import check_timeout
from symphony.commandline.commands.show_manifest import show_dry_run
from symphony.commandline.exit_codes import OK, UsageError
from symphony.commandline.output.terminal import print_note, print_text
from symphony.commandline.parsing.arguments import parse_count
from symphony.commandline.parsing.command import Command
from symphony.errors import SymphonyError

if TYPE_CHECKING:
    from symphony.commandline.commands.job_options import JobRequest
    from symphony.commandline.commands.line import Line
    from symphony.config import Configuration
    from symphony.model import Experiment

COMMAND = Command(
    changes=True,
    json="JSON: the manifest or, with --follow, each log line and the final status",
    remainder=True,
)

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.usage = f"{parser.prog} [options] -- COMMAND..."
    # A backend option can have the same name as a ``submit`` option. For example, the kube
    # backend's ``--image`` is the default image of all processes. The ``submit`` option then
    # takes precedence.
    parser.conflict_handler = "resolve"
    _add_job_options(parser)
    _add_lifecycle_options(parser)
    shared_arguments.add_dry_run(parser)
    parser.add_argument("misplaced", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace, line: Line) -> int | None:
    r"""Run a single command as a job.

    The command consists of all words after the first --, which are passed on unchanged. The job
    is an experiment with one process: ps, logs, wait, exec and delete accept its name. On
    Kubernetes, it is a Job, and --cpu and --memory set both the request and the limit. On
    Slurm, it is a job, and --time is also its time limit.

    Without --name, the job is named after its program, with a number if that name is in use.
    Kubernetes does not allow changes to a Job. If a running or finished job has the name in
    --name, pass --force to replace it.

    When the time limit expires, the job receives SIGTERM, and by default SIGKILL 30 seconds
    later (see --grace). The program can use this time to save its results.

    For example:
      symphony submit --follow -- python train.py --epochs 3
      symphony submit --gpu 1 --queue -- python train.py
      symphony submit -b kube --image sim:2 --time 2h -- ./sim
      symphony submit -b slurm --partition gpu --gpu 1 \
        --time 2h -- python train.py
      symphony submit -b slurm --replicas 8 --retries 1 \
        -- python train.py --seed '${index}'
      symphony submit -b kube --image IMG --cpu 2 --memory 4Gi \
        --gpu 1 --mount /home/me/data:/data --time 30:00 \
        -- python train.py
    """
    if args.misplaced or not args.remainder:
        raise _missing_command(line.prog, args)
    check_timeout(args)
    request = _request(args, line.configuration)
    if args.name or args.force:
        return _submit(line, args, request)
    return _submit_with_free_name(line, args, request)


def _add_job_options(parser: argparse.ArgumentParser) -> None:
    import os

    from symphony.commandline.commands import job_options

    add = parser.add_argument_group("the job").add_argument
    memory = _argument_type(job_options.parse_memory)
    cpu = _argument_type(job_options.parse_cpu)
    add("--name", metavar="NAME", help="job name (default: derived from the program)")
    add(
        "--replicas",
        metavar="N",
        type=_argument_type(job_options.parse_replicas),
        help="run the command N times at the same time; "
        "${index} in it is the number of the replica, from 0",
    )
    add("--image", metavar="IMAGE", help="container image; required on Kubernetes")
    add("--cpu", metavar="N", type=cpu, help="processors: 2, 0.5, 500m")
    add("--memory", metavar="SIZE", type=memory, help="memory: 4Gi, 500Mi")
    add("--gpu", metavar="N", type=parse_count, help="number of GPUs")
    add("--limit-cpu", metavar="N", type=cpu, help="CPU limit (default: --cpu)")
    add("--limit-memory", metavar="SIZE", type=memory, help="memory limit (default: --memory)")
    add("--shm", metavar="SIZE", type=memory, help="size of /dev/shm, which data loaders use")
    add(
        "--mount",
        metavar="MOUNT",
        type=_argument_type(job_options.parse_mount),
        action="append",
        default=[],
        help="mount a directory from the node: HOST:TARGET[:ro]; "
        "HOST can also be nfs://SERVER/PATH or pvc://CLAIM; repeatable",
    )
    add(
        "--env",
        metavar="VARIABLE",
        type=_argument_type(lambda text: job_options.parse_variable(text, os.environ)),
        action="append",
        default=[],
        help="set a variable: KEY=VALUE, or KEY to copy its current value; repeatable",
    )
    add(
        "--secret",
        metavar="FILE",
        type=_argument_type(job_options.parse_secret),
        action="append",
        default=[],
        help="provide a file in $SYMPHONY_SECRETS_DIR: FILE or NAME=FILE; repeatable",
    )
    add(
        "--workdir",
        metavar="DIRECTORY",
        help="working directory (default: the current one; on Kubernetes, the image's)",
    )
    add(
        "--node-selector",
        metavar="LABEL",
        type=_argument_type(job_options.parse_label),
        action="append",
        default=[],
        help="run only on nodes with this label: KEY=VALUE; repeatable",
    )
    add(
        "--toleration",
        metavar="TAINT",
        type=_argument_type(job_options.parse_toleration),
        action="append",
        default=[],
        help="allow nodes with this taint: KEY[=VALUE][:EFFECT]; repeatable",
    )


def _add_lifecycle_options(parser: argparse.ArgumentParser) -> None:
    from symphony.commandline.commands import job_options

    group = parser.add_argument_group("lifecycle")
    add = group.add_argument
    whole_seconds = _argument_type(job_options.parse_whole_seconds)
    add(
        "--time",
        metavar="TIME",
        type=_argument_type(job_options.parse_time_limit),
        help="time limit: minutes, M:SS, H:MM:SS or D-HH:MM:SS as in Slurm, or "
        "a number with a unit, such as 90s, 5m or 2h (default: none)",
    )
    add(
        "--grace",
        metavar="TIME",
        type=whole_seconds,
        help="time between SIGTERM and SIGKILL, in seconds or with a unit, such as 2m "
        "(default: 30)",
    )
    add(
        "--retries",
        metavar="N",
        type=parse_count,
        default=0,
        help="number of retries after a failure (default: 0)",
    )
    add(
        "--keep",
        metavar="TIME",
        type=whole_seconds,
        help="delete the Job this long after it finishes, in seconds or with a unit, such as 2h",
    )
    add(
        "--force",
        action="store_true",
        help="replace a running or finished job of the same name",
    )
    shared_arguments.add_queue(group)
    waiting = group.add_mutually_exclusive_group()
    waiting.add_argument(
        "--follow",
        action="store_true",
        help="follow the log and exit with the job's exit code; Ctrl-C stops the job",
    )
    waiting.add_argument(
        "--wait",
        action="store_true",
        help="wait until the job finishes, and exit with its exit code",
    )
    shared_arguments.add_timeout(parser, "--wait")


def _submit_with_free_name(line: Line, args: argparse.Namespace, request: JobRequest) -> int:
    """Submit a job with the first numbered name that is not in use."""
    from dataclasses import replace

    from symphony.commandline.commands.job_options import numbered_names
    from symphony.errors import AlreadyExists

    names = numbered_names(request.name or "")
    name = next(names)
    in_use: Collection[str] = ()
    while True:
        try:
            return _submit(line, args, replace(request, name=name))
        except AlreadyExists:
            # The list avoids a query for each name. It can be incomplete, because jobs can be
            # submitted at the same time, and because not every user may list experiments.
            in_use = in_use or _experiment_names(line)
        name = next(other for other in names if other not in in_use)


def _submit(line: Line, args: argparse.Namespace, request: JobRequest) -> int:
    """Submit a job, or show the dry run. Raise `AlreadyExists` if its name is in use."""
    from symphony.commandline.commands import job_options

    experiment = job_options.build_experiment(request)
    # A dry run that does not query the cluster must also work without access to it.
    queries_backend = line.cluster.dry_run_checks_name or args.dry_run in (False, "server")
    if queries_backend and not args.force:
        _refuse_existing(line, experiment.name)
    try:
        if args.dry_run:
            show_dry_run(line, experiment, args)
            return OK
        _report_ignored_options(line, request, experiment)
        return _launch_job(line, args, experiment)
    except SymphonyError as exc:
        # The user set options of ``submit``, so the message must refer to these options.
        exc.args = (job_options.message_for_options(exc),)
        raise


def _experiment_names(line: Line) -> Collection[str]:
    """Return the names of the existing experiments, or none if they cannot be listed."""
    try:
        return frozenset(line.cluster.list_experiments())
    except SymphonyError:
        return ()


def _launch_job(line: Line, args: argparse.Namespace, experiment: Experiment) -> int:
    from symphony.commandline.commands import foreground

    name = experiment.name
    if args.follow:
        return foreground.launch_and_follow(
            line.cluster, experiment, force=args.force, as_json=args.json, queue=args.queue
        )
    manifest = foreground.launch_with_progress(
        line.cluster, experiment, force=args.force, queue=args.queue
    )
    summary = f"submitted {name} on {line.cluster.backend}"
    if args.wait:
        print_note(summary)
        return foreground.wait_until_finished(
            line.cluster, name, timeout=args.timeout, as_json=args.json
        )
    if args.json:
        from symphony.commandline.output.printing import show_json

        show_json(manifest.to_dict())
    else:
        print_text("\n".join([summary, *next_commands(line, name)]))
    return OK


def _report_ignored_options(line: Line, request: JobRequest, experiment: Experiment) -> None:
    """Print the given options that the backend ignores."""
    from symphony.commandline.commands.job_options import ignored_options

    settings = {item.setting for item in line.cluster.manifest(experiment).ignored}
    options = ignored_options(request, settings)
    if options:
        print_note(f"{line.prog}: ignored on {line.cluster.backend}: {', '.join(options)}")


def _refuse_existing(line: Line, name: str) -> None:
    """Raise `AlreadyExists` if an experiment with this name exists, even a finished one.

    Replacing a finished job deletes its logs and its exit code, which the user may still need.
    """
    from symphony.errors import AlreadyExists, NotFound

    try:
        status = line.cluster.describe_experiment(name)
    except NotFound:
        return
    state = status.displayed_state
    raise AlreadyExists(
        f"job {name!r} already exists ({state}) and cannot be changed; "
        "pass --force to replace it, or choose another --name"
    )


def _request(args: argparse.Namespace, configuration: Configuration) -> JobRequest:
    """Return a request with the values of the command-line options."""
    from dataclasses import fields

    from symphony.commandline.commands.job_options import JobRequest, default_name

    options = {
        field.name: getattr(args, field.name)
        for field in fields(JobRequest)
        if field.name != "command"
    }
    name = args.name or default_name(args.remainder)
    options["name"] = configuration.experiment_name(name)
    return JobRequest(command=tuple(args.remainder), **options)


def _missing_command(prog: str, args: argparse.Namespace) -> UsageError:
    """Return the error for a command that is missing or does not follow ``--``."""
    import shlex

    command = shlex.join([*args.misplaced, *args.remainder]) or "python train.py"
    return UsageError(
        "the command must follow --, and options must precede it: "
        f"{prog} submit --name NAME -- {command}"
    )


def _argument_type(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return an argparse type that preserves the message of a `SpecError`.

    `SpecError` is a subclass of ValueError, and argparse replaces the message of a ValueError with
    a generic message.
    """
    from symphony.errors import SpecError

    def parse_argument(text: str) -> T:
        try:
            return parse(text)
        except SpecError as exc:
            raise argparse.ArgumentTypeError(str(exc)) from None

    return parse_argument
