#!/usr/bin/env python3
"""Check that the devcluster stays within limits, and that `down` leaves the machine unchanged.

    benchmarks/devcluster.py            from a full cache: up, memory, a Pod, down
    benchmarks/devcluster.py --cold     with an empty cache of its own: the build as well (minutes)

The program prints the figures as JSON. The exit code is 1 if a figure exceeds its limit or if
anything remains on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

DEVCLUSTER = Path(__file__).resolve().parents[1] / "scripts/devcluster"
# The largest allowed value of each figure: in MiB for memory, and in seconds for the others. With
# Kubernetes 1.37 on two cores, a start takes 28 s, and a build 15 minutes, or 24 minutes beside
# other programs. With 1,000 Pods, the cluster with the controllers of JobSet and Kueue takes
# 2800 MiB.
LIMITS = {"up": 35.0, "build": 2700.0, "memory": 2048.0, "down": 15.0}


def run(*arguments: str, env: Mapping[str, str]) -> tuple[str, float]:
    """Run ``scripts/devcluster``. Return its output and its duration in seconds."""
    begun = time.monotonic()
    done = subprocess.run([DEVCLUSTER, *arguments], env=env, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode(), round(time.monotonic() - begun, 2)


def traces() -> dict[str, list[str]]:
    """List the machine's processes, mounts and other items that a cluster could leave behind."""
    return {
        "processes": sorted(filter(None, map(_program, Path("/proc").glob("[0-9]*")))),
        "mounts": sorted(Path("/proc/mounts").read_text().splitlines()),
        "links": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "routes": _lines("ip", "route"),
        "namespaces": _lines("ip", "netns"),
        "groups": sorted(str(path) for path in Path("/sys/fs/cgroup").glob("*/*") if path.is_dir()),
        "forwarding": [Path("/proc/sys/net/ipv4/ip_forward").read_text()],
        "netfilter": sorted(Path("/proc/net/ip_tables_names").read_text().split()),
    }


def _program(process: Path) -> str:
    """Return the name of the devcluster's program that a process runs, followed by the pid.

    Return an empty string if the process runs any other program.
    """
    try:
        name = (process / "comm").read_text().strip()
    except OSError:
        return ""
    known = (
        "etcd",
        "kube",
        "containerd",
        "dockerd",
        "docker-registr",
        "pause",
        "nsenter",
        "unshare",
    )
    return f"{name} {process.name}" if name.startswith(known) else ""


def _lines(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()


def measure(env: Mapping[str, str], *, cold: bool) -> dict[str, float]:
    """Start and stop a cluster once, and return the figures."""
    figures: dict[str, float] = {}
    if cold:
        _, figures["build"] = run("images", "--quiet", env=env)
    timings, figures["up"] = run("up", "--timings", "--quiet", env=env)
    figures |= {f"up: {step}": seconds for step, seconds in json.loads(timings).items()}
    _, figures["up again"] = run("up", "--quiet", env=env)
    status, _ = run("status", "--json", env=env)
    figures["memory"] = json.loads(status)["memory_mib"]
    _, figures["down"] = run("down", "--quiet", env=env)
    return figures


def main() -> int:
    """Measure, print the figures, and compare them with the limits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cold", action="store_true", help="begin with an empty cache")
    cold = parser.parse_args().cold
    run("down", "--quiet", env=os.environ)
    before = traces()
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "XDG_CACHE_HOME": cache} if cold else os.environ
        figures = measure(env, cold=cold)
    after = traces()
    left = {
        kind: sorted(set(after[kind]) - set(before[kind]))
        for kind in before
        if set(after[kind]) - set(before[kind])
    }
    broken = {name: limit for name, limit in LIMITS.items() if figures.get(name, 0) > limit}
    print(
        json.dumps({"figures": figures, "limits": LIMITS, "broken": broken, "left": left}, indent=1)
    )
    return 1 if broken or left else 0


if __name__ == "__main__":
    sys.exit(main())
