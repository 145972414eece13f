"""Measure how long it takes to complete a name on a cluster.

The peer is kubectl, which completes the names of the experiment's Pods.

    python benchmarks/kube_completion.py [--quick] [--json]

The first completion queries the cluster. For the next minute, the names come from a cache. The
benchmark needs kubectl and a Kubernetes cluster that exists only for tests, because the benchmark
adds nodes to the cluster. If KUBECONFIG is set, the benchmark uses the cluster that it selects.
Otherwise, the benchmark uses the devcluster.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from _kube import kubeconfig, kubectl
from _pairs import Figure, Options, Side, at_most, in_turns, main
from _sleepers import temporary_directory
from command_line import symphony
from kube_describe import launched
from startup import program

COUNT = 20
LONGEST = 0.15


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    config, runs = kubeconfig(), options.pick(31, 5)
    with launched(config, COUNT) as (_, name), temporary_directory() as home:
        env = {
            **os.environ,
            "HOME": str(home),
            "KUBECONFIG": str(config),
            "SYMPHONY_BACKEND": "kube",
        }
        env.pop("XDG_CACHE_HOME", None)
        theirs = [kubectl(), "__complete", "-n", name, "get", "pods", "p-"]
        for what, words in {
            "an experiment": ("ps", name[:-2]),
            "a process": ("logs", name, "p-"),
        }.items():
            command = [*symphony(), "__complete", *words]
            for when, ours in {
                "known": program(command, env),
                "the first time": first(command, env, home),
            }.items():
                found = subprocess.run(
                    command, env=env, capture_output=True, text=True, check=True
                ).stdout
                if not found.strip():
                    raise SystemExit(f"nothing was completed: {' '.join(command)}")
                mine, peer = in_turns(
                    runs, ours, program(["/bin/sh", "-c", f"{' '.join(theirs)} 2>/dev/null"], env)
                )
                yield at_most(
                    f"completing {what} on kube, {when}",
                    "s",
                    mine,
                    LONGEST,
                    peer=peer,
                    peer_name="kubectl, of Pods",
                )


def first(command: list[str], env: Mapping[str, str], home: Path) -> Side:
    """Return a function that measures one completion with an empty cache."""
    run = program(command, env)

    def once() -> float:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(home / ".cache" / "symphony")
        return run()

    return once


if __name__ == "__main__":
    main(__doc__, measure)
