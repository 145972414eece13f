"""The command line: `devcluster up|down|status|kubeconfig|images|torch|logs`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

from devcluster import access, build, cluster, host, network, parts, report, torch
from devcluster import paths as directories
from devcluster.network import Addresses
from devcluster.paths import Paths
from machines import processes, record
from machines.console import Console, RequirementError, ToolError

PROJECT = Path(__file__).resolve().parents[2]

EXAMPLES = """\
examples:
  devcluster up                        start the cluster (the first time takes minutes to build it)
  devcluster up --kubernetes 1.37      start a certain version of Kubernetes
  devcluster up --ipv6                 start a cluster that has only IPv6 addresses
  export KUBECONFIG=$(devcluster kubeconfig)
  kubectl get nodes                    as an administrator
  kubectl --kubeconfig $(devcluster kubeconfig researcher) get pods
  devcluster images                    rebuild the test image from the current sources
  devcluster logs kube-apiserver -n 50
  devcluster status --json
  devcluster down                      stop the cluster and remove everything except the cache

exit codes: 0 success; 1 failure, or status found no cluster; 2 wrong usage or an unmet requirement
"""


def main(argv: Sequence[str]) -> int:
    """Run one command and return the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    # After 'su' without a hyphen, root's PATH lacks the directories that contain ip and iptables.
    os.environ["PATH"] = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"
    arguments = _parser().parse_args(argv)
    console = Console(quiet=getattr(arguments, "quiet", False))
    try:
        paths = directories.find(os.environ, Path.home())
        code: int = arguments.run(arguments, paths, console)
    except RequirementError as exc:
        print(f"devcluster: {exc}", file=sys.stderr)
        return 2
    except ToolError as exc:
        print(f"devcluster: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("devcluster: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="devcluster",
        description="Run a real Kubernetes cluster on this machine, for the tests.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start the cluster; does nothing if it is running")
    images = commands.add_parser("images", help="rebuild the test image and load it on the nodes")
    for command in (up, images):
        command.add_argument("--wheel", type=Path, help="install this wheel instead of the sources")
        command.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    up.add_argument(
        "--kubernetes",
        choices=build.versions(),
        metavar="VERSION",
        help=f"the version of Kubernetes: {', '.join(build.versions())} (default: the newest)",
    )
    up.add_argument(
        "--ipv6", action="store_true", help="use only IPv6 addresses, and not only IPv4 addresses"
    )
    up.add_argument("--timings", action="store_true", help="print the seconds of each step as JSON")
    up.set_defaults(run=_up)
    images.set_defaults(run=_images)
    down = commands.add_parser(
        "down", help="stop the cluster and remove everything except the cache"
    )
    down.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    down.set_defaults(run=_down)
    status = commands.add_parser("status", help="show what is running and how to reach it")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.set_defaults(run=_status)
    config = commands.add_parser("kubeconfig", help="print the path of a user's kubeconfig")
    config.add_argument("user", nargs="?", choices=access.PEOPLE, default="admin")
    config.set_defaults(run=_kubeconfig)
    pytorch = commands.add_parser(
        "torch", help="unpack PyTorch into the cache, and print the path of its Python"
    )
    pytorch.add_argument("-q", "--quiet", action="store_true", help="print only the path")
    pytorch.set_defaults(run=_torch)
    logs = commands.add_parser("logs", help="print the end of a log, or the names of all logs")
    logs.add_argument("name", nargs="?", help="such as kube-apiserver or node1-kubelet")
    logs.add_argument(
        "-n", "--lines", type=_positive, default=20, help="number of lines (default: 20)"
    )
    logs.set_defaults(run=_logs)
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number of lines")
    return int(text)


def _up(arguments: argparse.Namespace, paths: Paths, console: Console) -> int:
    wheel = _wheel(arguments)
    addresses = network.IPV6 if arguments.ipv6 else network.IPV4
    host.check_user(os.geteuid())
    with record.exclusive(paths.state, "devcluster"):
        running = record.load(paths.record)
        if running is not None and cluster.healthy(paths, running):
            kubernetes = _running_version(paths, wanted=arguments.kubernetes)
            _check_addresses(running, addresses)
            _refresh(paths, running, kubernetes=kubernetes, wheel=wheel, console=console)
        else:
            if cluster.stop(paths):
                console.report("removed the remains of a cluster that is no longer running")
            kubernetes = arguments.kubernetes or build.versions()[0]
            host.check_making(paths, building=not parts.complete(paths, kubernetes))
            host.check_running(paths, addresses)
            _start(paths, addresses, kubernetes=kubernetes, wheel=wheel, console=console)
    if arguments.timings:
        print(json.dumps(console.timings, indent=1))
    console.report(f"the cluster is up; export KUBECONFIG={paths.kubeconfig('admin')}")
    return 0


def _running_version(paths: Paths, *, wanted: str | None) -> str:
    """Return the version of the running cluster, such as `1.37`. Raises RequirementError if it is
    not the wanted one, or one that cannot be built.
    """
    running = cluster.version(paths).rpartition(".")[0]
    if running not in ([wanted] if wanted else build.versions()):
        raise RequirementError(
            f"a cluster with Kubernetes {running} is running: run 'devcluster down' to stop it, "
            "and then this command again"
        )
    return running


def _check_addresses(running: record.Record, wanted: Addresses) -> None:
    """Raise RequirementError if a running cluster has addresses of the other family."""
    if cluster.addresses_of(running) != wanted:
        raise RequirementError(
            "a cluster with addresses of the other family, IPv4 or IPv6, is running: run "
            "'devcluster down' to stop it, and then this command again"
        )


def _start(
    paths: Paths,
    addresses: Addresses,
    *,
    kubernetes: str,
    wheel: Path | None,
    console: Console,
) -> None:
    for old in paths.logs.glob("*.log"):
        old.unlink()
    found = parts.prepare(
        paths, kubernetes=kubernetes, project=PROJECT, wheel=wheel, console=console
    )
    parts.remove_old(paths.cache, kubernetes)
    try:
        cluster.start(paths, found, addresses, console)
    except BaseException:
        console.report(f"the start failed: stopping everything; the logs are kept in {paths.logs}")
        cluster.stop(paths)
        raise


def _refresh(
    paths: Paths,
    running: record.Record,
    *,
    kubernetes: str,
    wheel: Path | None,
    console: Console,
) -> None:
    found = parts.prepare(
        paths, kubernetes=kubernetes, project=PROJECT, wheel=wheel, console=console
    )
    if str(found.image) == running.image:
        return
    with console.step("load the new image on the nodes"), ThreadPoolExecutor() as pool:
        cluster.refresh_image(running, found, pool=pool, run=paths.run)
    running.finish(image=str(found.image), timings=console.timings)


def _images(arguments: argparse.Namespace, paths: Paths, console: Console) -> int:
    wheel = _wheel(arguments)
    host.check_user(os.geteuid())
    with record.exclusive(paths.state, "devcluster"):
        running = record.load(paths.record)
        if running is not None and cluster.healthy(paths, running):
            kubernetes = _running_version(paths, wanted=None)
            _refresh(paths, running, kubernetes=kubernetes, wheel=wheel, console=console)
        else:
            kubernetes = build.versions()[0]
            host.check_making(paths, building=not parts.complete(paths, kubernetes))
            parts.prepare(
                paths, kubernetes=kubernetes, project=PROJECT, wheel=wheel, console=console
            )
    print(report.images_text(paths))
    return 0


def _wheel(arguments: argparse.Namespace) -> Path | None:
    wheel: Path | None = arguments.wheel
    if wheel is not None and not wheel.is_file():
        raise RequirementError(
            f"{wheel} is not a file: create a wheel with 'pip wheel --no-deps .'"
        )
    return wheel


def _down(_arguments: argparse.Namespace, paths: Paths, console: Console) -> int:
    host.check_user(os.geteuid())
    with record.exclusive(paths.state, "devcluster"), console.step("down"):
        stopped = cluster.stop(paths)
    console.report("the cluster is down" if stopped else "there was no cluster")
    return 0


def _status(arguments: argparse.Namespace, paths: Paths, _console: Console) -> int:
    host.check_user(os.geteuid())
    status = report.collect(paths)
    print(json.dumps(status, indent=1) if arguments.json else report.text(status))
    return 0 if status["up"] else 1


def _kubeconfig(arguments: argparse.Namespace, paths: Paths, _console: Console) -> int:
    path = paths.kubeconfig(arguments.user)
    if not path.exists():
        raise RequirementError("the cluster is not up: run 'devcluster up' first")
    print(path)
    return 0


def _torch(_arguments: argparse.Namespace, paths: Paths, console: Console) -> int:
    host.check_user(os.geteuid())
    with record.exclusive(paths.state, "devcluster"):
        print(torch.prepare(paths, console=console))
    return 0


def _logs(arguments: argparse.Namespace, paths: Paths, _console: Console) -> int:
    names = sorted(path.stem for path in paths.logs.glob("*.log"))
    if arguments.name is None:
        print("\n".join(names))
        return 0
    if arguments.name not in names:
        raise RequirementError(
            f"no log '{arguments.name}': the logs are: {', '.join(names) or 'none yet'}"
        )
    print(processes.tail(paths.logs / f"{arguments.name}.log", arguments.lines))
    return 0
