"""The parts that a cluster needs: packages, binaries and images.

All parts are in the cache, and are created and checked before the cluster is started.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from devcluster import build, images
from devcluster.paths import Paths
from machines import packages, store
from machines.console import Console
from machines.packages import Apt

# The packages that a running cluster needs, and those that only the build of Kubernetes needs.
RUNTIME = (
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "debootstrap",
    "docker-registry",
    "docker.io",
    "etcd-server",
    "iproute2",
    "iptables",
    "kubernetes-client",
    "openssl",
    "python3-pip",
    "runc",
)
BUILD = ("golang-go", "make", "rsync")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The paths of the packages, the binaries and the two images in the cache."""

    packages: Path
    binaries: Path
    pause_image: Path
    image: Path
    has_wheel: bool


def complete(paths: Paths) -> bool:
    """Return whether the packages and binaries, which take minutes to create, exist.

    Their contents are not checked.
    """
    return runtime(paths.cache).exists() and build.cache_entry(paths.cache).exists()


def prepare(paths: Paths, *, project: Path, wheel: Path | None, console: Console) -> Parts:
    """Return all parts. Create those that are missing or damaged."""
    paths.logs.mkdir(parents=True, exist_ok=True)
    apt = Apt(paths.cache / "apt", log=paths.logs / "apt.log", console=console)
    unpacked = runtime(paths.cache)
    with console.step("packages"):
        store.ensure(unpacked, partial(_unpack, apt), report=console.report)
    binaries = build.cache_entry(paths.cache)
    with console.step("Kubernetes binaries", "built once, some 5 minutes on 2 cores"):
        make = partial(_build, paths=paths, apt=apt, console=console)
        store.ensure(binaries, make, report=console.report)
    with console.step("images"):
        return _images(
            paths,
            tools=unpacked / "root",
            binaries=binaries,
            project=project,
            wheel=wheel,
            console=console,
        )


def runtime(cache: Path) -> Path:
    """Return the cache entry for the packages that a running cluster needs."""
    return cache / "packages" / f"runtime-{store.key(packages.RELEASE, RUNTIME)}"


def _unpack(apt: Apt, directory: Path) -> None:
    packages.unpack(apt, RUNTIME, directory / "root")


def _build(directory: Path, *, paths: Paths, apt: Apt, console: Console) -> None:
    tools = directory / "tools"
    packages.unpack(apt, BUILD, tools)
    build.make(directory, apt=apt, tools=tools, console=console, log=paths.logs / "build.log")


def _images(
    paths: Paths,
    *,
    tools: Path,
    binaries: Path,
    project: Path,
    wheel: Path | None,
    console: Console,
) -> Parts:
    log = paths.logs / "images.log"
    base = images.base_cache_entry(paths.cache)
    make_base = partial(images.make_base, tools=tools, console=console, log=log)
    store.ensure(base, make_base, report=console.report)
    pause = paths.cache / "pause" / binaries.name
    make_pause = partial(images.make_pause, pause=binaries / "pause")
    store.ensure(pause, make_pause, report=console.report)
    found = images.find_wheel(
        project, paths.cache, given=wheel, tools=tools, log=log, report=console.report
    )
    # The image is also that of supervisors in the cluster, which use the kube backend.
    requirements = images.extra_requirements(found, "kube") if found is not None else ()
    libraries = None
    if requirements:
        libraries = images.libraries_cache_entry(paths.cache, requirements)
        make_libraries = partial(
            images.make_libraries, requirements=requirements, tools=tools, log=log
        )
        store.ensure(libraries, make_libraries, report=console.report)
    image = images.cache_entry(paths.cache, base=base, libraries=libraries, wheel=found)
    make_image = partial(
        images.make, base=base, libraries=libraries, wheel=found, tools=tools, log=log
    )
    store.ensure(image, make_image, report=console.report)
    for entry in (base, pause, image, *([libraries] if libraries else [])):
        store.prune(entry.parent, keep=entry)
    return Parts(
        packages=tools,
        binaries=binaries,
        pause_image=pause / "image.tar",
        image=image / "image.tar",
        has_wheel=found is not None,
    )
