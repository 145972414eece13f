"""The example's own command line: all symphony commands, and the ``train`` command.

python3 launch.py train --agents 8 --follow
python3 launch.py train -b kube --config gke.yml --build --agents 64 --group-size 4
python3 launch.py ps rl
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import configuration
import experiment
from configuration import Build, Configuration

from symphony import Cluster, Experiment, SpecError
from symphony.commandline import SymphonyParser

HERE = Path(__file__).parent


class Rl(SymphonyParser):
    """Launch and manage the example. All symphony commands are available."""

    def setup(self) -> None:
        """Add the ``train`` command."""
        train = self.add_subparser("train")
        train.add_argument(
            "--name", default=experiment.NAME, help="the experiment's name (default: rl)"
        )
        train.add_argument(
            "--config", metavar="FILE", type=Path, help="the configuration (default: config.yml)"
        )
        train.add_argument("--agents", metavar="N", type=int, help="how many agents")
        train.add_argument(
            "--group-size", metavar="K", type=int, help="agents in groups of K; 1: alone"
        )
        train.add_argument("--evaluators", metavar="M", type=int, help="how many evaluators")
        train.add_argument("--updates", metavar="N", type=int, help="end after so many updates")
        train.add_argument(
            "--target", metavar="RETURN", type=float, help="end when the mean return is this"
        )
        train.add_argument(
            "--forever", action="store_true", default=None, help="go on until it is deleted"
        )
        train.add_argument(
            "--pace", metavar="SECONDS", type=float, help="how long an update takes at least"
        )
        train.add_argument(
            "--results", metavar="FOLDER", help="keep checkpoints and results in this folder"
        )
        train.add_argument(
            "--nfs", metavar="SERVER:/PATH", help="in a cluster, mount this as the folder"
        )
        train.add_argument(
            "--host-path",
            metavar="FOLDER",
            help="in a cluster, mount this folder of the node as it",
        )
        train.add_argument(
            "--repository",
            metavar="IMAGE",
            help="the image of all roles; with --build what is pushed",
        )
        train.add_argument(
            "--base",
            metavar="IMAGE",
            help="base image for --build (default: symphony:1)",
        )
        train.add_argument("--build", action="store_true", help="build and push the image first")
        train.add_argument(
            "--force", action="store_true", help="replace a live experiment of that name"
        )
        train.add_argument(
            "--follow", action="store_true", help="show the logs; Ctrl-C stops the experiment"
        )
        self.add_dry_run(train)

    def action_train(self, args: argparse.Namespace) -> int:
        """Launch the experiment.

        The configuration file and the options of this command define the experiment. On Kubernetes,
        a dispatcher places the processes if the configuration describes the nodes.

        For example:
          symphony train --agents 8 --follow
          symphony train --forever --pace 0.02
          symphony train -b kube --config gke.yml --agents 64 --group-size 4 --dry-run
        """
        with in_own_words():
            return self._train(args)

    def _train(self, args: argparse.Namespace) -> int:
        wanted = read(args)
        if args.build and wanted.image is None and not self.cluster.commands_run_here:
            raise SpecError(
                "--build pushes the image, so it needs a repository: add --repository IMAGE"
            )
        exp = described(self.cluster, args.name, wanted)
        code = self.launch(
            exp, force=args.force, dry_run=args.dry_run, build=args.build, follow=args.follow
        )
        if not args.dry_run and not args.follow:
            visit = " ".join([self.prog, "visit", *self.cluster_arguments, exp.name, "page"])
            print(f"launched {exp.name}; the page: {visit}")
        return code


@contextlib.contextmanager
def in_own_words() -> Iterator[None]:
    """Rephrase an error about a missing image in terms of this command line's options."""
    try:
        yield
    except SpecError as exc:
        if exc.path[-1:] != ("container_image",):
            raise
        raise SpecError(
            "the programs need an image: add --repository IMAGE, or image: in the configuration"
        ) from exc


def read(args: argparse.Namespace) -> Configuration:
    """Return the configuration after applying the command-line options."""
    over = {
        "agents": args.agents,
        "group_size": args.group_size,
        "evaluators": args.evaluators,
        "image": args.repository,
        "run": {
            "updates": args.updates,
            "target": args.target,
            "forever": args.forever,
            "pace": args.pace,
        },
        "results": {"folder": args.results, "nfs": args.nfs, "host_path": args.host_path},
        "build": {"base": args.base},
    }
    if args.base and not args.build:
        raise SpecError("--base sets the base image of --build: add --build, or remove --base")
    wanted = configuration.load(args.config or HERE / "config.yml", over)
    if args.build and wanted.build is None and wanted.image is not None:
        return dataclasses.replace(wanted, build=Build())
    return wanted


def described(cluster: Cluster, name: str, wanted: Configuration) -> Experiment:
    """Return the experiment to launch on ``cluster``. Paths in the experiment are relative to this
    file's directory.
    """
    exp = cluster.new_experiment(name)
    exp.base_dir = HERE.absolute()
    experiment.build(exp, wanted, dispatcher(cluster, wanted))
    return exp


def dispatcher(cluster: Cluster, wanted: Configuration) -> Any:
    """Return the dispatcher, or None if the backend is not Kubernetes or the configuration does not
    describe the nodes.
    """
    if cluster.backend != "kube" or wanted.nodes is None:
        return None
    from symphony.kube import GKEDispatcher, KubeCluster, NodePoolDispatcher

    if wanted.nodes.terraform:
        return GKEDispatcher(wanted.nodes.terraform)
    if not isinstance(cluster, KubeCluster):
        raise SpecError(f"the nodes of {type(cluster).__name__} cannot be listed")
    return NodePoolDispatcher.from_cluster(cluster, label=wanted.nodes.label)


if __name__ == "__main__":
    Rl().main()
