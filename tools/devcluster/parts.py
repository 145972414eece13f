"""The parts that a cluster needs: packages, programs and images.

All parts are in the cache, and are created and checked before the cluster is started.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from devcluster import build, controllers, images, shells, torch
from devcluster.controllers import Controller
from devcluster.paths import Paths
from machines import packages, store
from machines.console import Console
from machines.packages import Apt

# The packages that a running cluster needs.
RUNTIME = (
    "conntrack",
    "debootstrap",
    "docker-registry",
    "docker.io",
    "iproute2",
    "iptables",
    "openssl",
    "python3-pip",
    "runc",
)
# The directories of the cache that only earlier versions of this program have used.
_FORMER = ("binaries",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The version of Kubernetes, and the paths of the packages, the programs and the two images in
    the cache.
    """

    kubernetes: str
    packages: Path
    programs: Mapping[str, Path]
    pause_image: Path
    image: Path
    controllers: Sequence[Controller]


def complete(paths: Paths, kubernetes: str) -> bool:
    """Return whether the packages and programs, which take minutes to create, exist.

    Their contents are not checked.
    """
    entries = [build.cache_entry(paths.cache, each) for each in build.components(kubernetes)]
    return all(entry.exists() for entry in (runtime(paths.cache), *entries))


def prepare(
    paths: Paths, *, kubernetes: str, project: Path, wheel: Path | None, console: Console
) -> Parts:
    """Return all parts. Create those that are missing or damaged."""
    paths.logs.mkdir(parents=True, exist_ok=True)
    apt = Apt(paths.cache / "apt", log=paths.logs / "apt.log", console=console)
    unpacked = runtime(paths.cache)
    with console.step("packages"):
        store.ensure(unpacked, partial(_unpack, apt), report=console.report)
    tools = unpacked / "root"
    components = build.components(kubernetes)
    programs = build.ensure(
        paths.cache,
        components,
        tools=tools,
        logs=paths.logs,
        console=console,
    )
    with console.step("images"):
        pause_image, image = _images(
            paths,
            tools=tools,
            pause=programs["pause"],
            project=project,
            wheel=wheel,
            console=console,
        )
        found = controllers.prepare(paths.cache, components, programs, console=console)
    return Parts(
        kubernetes=kubernetes,
        packages=tools,
        programs=programs,
        pause_image=pause_image,
        image=image,
        controllers=found,
    )


def remove_old(cache: Path, kubernetes: str) -> None:
    """Remove what is no longer used from the cache: what was made from other inputs, and what
    earlier versions of this program have made.

    Programs of other versions of Kubernetes that can be built are kept.
    """
    build.remove_old(cache, build.components(kubernetes))
    store.keep_only(cache / "controllers", build.module_directories())
    entries = (runtime(cache), shells.cache_entry(cache), torch.cache_entry(cache))
    store.keep_only(cache / "packages", [entry.name for entry in entries])
    for name in _FORMER:
        shutil.rmtree(cache / name, ignore_errors=True)


def runtime(cache: Path) -> Path:
    """Return the cache entry for the packages that a running cluster needs."""
    return cache / "packages" / f"runtime-{store.key(packages.RELEASE, RUNTIME)}"


def _unpack(apt: Apt, directory: Path) -> None:
    packages.unpack(apt, RUNTIME, directory / "root")


def _images(
    paths: Paths,
    *,
    tools: Path,
    pause: Path,
    project: Path,
    wheel: Path | None,
    console: Console,
) -> tuple[Path, Path]:
    """Return the paths of the pause image and the test image."""
    log = paths.logs / "images.log"
    base = images.base_cache_entry(paths.cache)
    make_base = partial(images.make_base, tools=tools, console=console, log=log)
    store.ensure(base, make_base, report=console.report)
    pause_image = paths.cache / "pause" / pause.parent.name
    make_pause = partial(images.make_pause, pause=pause)
    store.ensure(pause_image, make_pause, report=console.report)
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
    for entry in (base, pause_image, image, *([libraries] if libraries else [])):
        store.keep_only(entry.parent, [entry.name])
    return pause_image / "image.tar", image / "image.tar"
