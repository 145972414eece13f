"""The command line: `devslurm up|down|status|run|env|logs`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from devslurm import cluster, paths
from devslurm.config import ADDRESS_BYTES, LOGIN, USERS
from devslurm.packages import SUITES
from devslurm.paths import Paths
from machines import processes, record
from machines.console import Console, RequirementError, ToolError

EXAMPLES = """\
examples:
  devslurm up                          start Slurm 22.05 (the first time downloads it)
  devslurm up --version 24.11          another version, which can run at the same time
  devslurm up --cgroups --mounts       control groups, and a mount for each machine
  devslurm up --accounting             accounts and limits, which Slurm enforces
  devslurm run sinfo                   run a command on the login machine, as root
  devslurm run --user alice sbatch -N2 --wrap hostname
  devslurm run --on n1 hostname        run a command on a node
  . $(devslurm env)                    use the programs of Slurm on this machine
  devslurm logs slurmctld -n 50
  devslurm down                        stop everything and remove everything except the cache

exit codes: 0 success; 1 failure, or status found no cluster; 2 wrong usage or an unmet requirement
"""
DEFAULT_VERSION = "22.05"


def main(argv: Sequence[str]) -> int:
    """Run one command and return the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    os.environ["PATH"] = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"
    arguments = _parser().parse_args(argv)
    console = Console(quiet=getattr(arguments, "quiet", False))
    try:
        if os.geteuid() != 0:
            raise RequirementError("only root can create namespaces and mounts: run as root")
        found = paths.find(os.environ, arguments.version)
        code: int = arguments.run(arguments, found, console)
    except RequirementError as exc:
        print(f"devslurm: {exc}", file=sys.stderr)
        return 2
    except ToolError as exc:
        print(f"devslurm: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("devslurm: interrupted", file=sys.stderr)
        return 130
    return code


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="devslurm",
        description="Run a real Slurm cluster on this machine, for the tests.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, help: str, run: object) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help)
        command.add_argument(
            "--version", choices=SUITES, default=DEFAULT_VERSION, help="default: %(default)s"
        )
        command.set_defaults(run=run)
        return command

    up = add("up", "start the cluster; does nothing if it is running", _up)
    up.add_argument("--cgroups", action="store_true", help="constrain devices and processes")
    up.add_argument(
        "--mounts", action="store_true", help="mount the shared directory in each machine (FUSE)"
    )
    up.add_argument(
        "--accounting", action="store_true", help="enforce accounts and limits (slurmdbd)"
    )
    up.add_argument(
        "--visible",
        action="append",
        default=[],
        metavar="PATH",
        type=Path,
        help="let the users of the cluster reach a path below a private directory",
    )
    up.add_argument(
        "--set", action="append", default=[], metavar="LINE", help="another line of slurm.conf"
    )
    up.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    down = add("down", "stop the cluster and remove everything except the cache", _down)
    down.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    status = add("status", "show what is running and how to use it", _status)
    status.add_argument("--json", action="store_true", help="print JSON")
    run = add("run", "run a command in a machine", _run)
    run.add_argument("--on", choices=ADDRESS_BYTES, default=LOGIN, help="default: %(default)s")
    run.add_argument("--user", choices=USERS, help="the user of the command (default: root)")
    run.add_argument("command", nargs=argparse.REMAINDER)
    add("env", "print the path of a file with the variables for Slurm's programs", _env)
    logs = add("logs", "print the end of a log, or the names of all logs", _logs)
    logs.add_argument("name", nargs="?", help="such as slurmctld or n1-slurmd")
    logs.add_argument("-n", "--lines", type=int, default=20, help="number of lines (default: 20)")
    return parser


def _up(arguments: argparse.Namespace, found: Paths, console: Console) -> int:
    options = cluster.Options(
        version=arguments.version,
        cgroups=arguments.cgroups,
        mounts=arguments.mounts,
        accounting=arguments.accounting,
        visible=tuple(arguments.visible),
        extra=tuple(arguments.set),
    )
    with record.exclusive(found.state, "devslurm"):
        running = record.load(found.record)
        if running is None or not cluster.healthy(running):
            cluster.stop(found, arguments.version)
            try:
                cluster.Starter(found, options, console).start()
            except BaseException:
                cluster.stop(found, arguments.version)
                raise
    # The users of the cluster must be able to use it.
    found.state.chmod(0o755)
    console.report(f"Slurm {arguments.version} is up: . {found.env}")
    return 0


def _down(arguments: argparse.Namespace, found: Paths, console: Console) -> int:
    with record.exclusive(found.state, "devslurm"):
        stopped = cluster.stop(found, arguments.version)
    console.report("the cluster is down" if stopped else "there was no cluster")
    return 0


def _status(arguments: argparse.Namespace, found: Paths, _console: Console) -> int:
    running = record.load(found.record)
    is_up = running is not None and cluster.healthy(running)
    if arguments.json:
        status = {"up": is_up, "env": str(found.env), "shared": str(found.shared)}
        print(json.dumps(status if is_up else {"up": False}))
    elif is_up:
        print(cluster.command(found, ["sinfo"]).stdout, end="")
        print(f"use it with: . {found.env}")
    else:
        print("the cluster is not up")
    return 0 if is_up else 1


def _loaded(found: Paths) -> record.Record:
    running = record.load(found.record)
    if running is None:
        raise RequirementError("the cluster is not up: run 'devslurm up' first")
    return running


def _run(arguments: argparse.Namespace, found: Paths, _console: Console) -> int:
    command = arguments.command[arguments.command[:1] == ["--"] :]
    if not command:
        raise RequirementError("the command is missing: devslurm run sinfo")
    argv = cluster.inside(found, _loaded(found), arguments.on, command, arguments.user)
    os.execvp(argv[0], argv)


def _env(_arguments: argparse.Namespace, found: Paths, _console: Console) -> int:
    _loaded(found)
    print(found.env)
    return 0


def _logs(arguments: argparse.Namespace, found: Paths, _console: Console) -> int:
    directory = found.run / "logs"
    names = sorted(path.stem for path in directory.glob("*.log"))
    if arguments.name is None:
        print("\n".join(names))
        return 0
    if arguments.name not in names:
        raise RequirementError(
            f"no log '{arguments.name}': the logs are: {', '.join(names) or 'none yet'}"
        )
    print(processes.tail(directory / f"{arguments.name}.log", arguments.lines))
    return 0
