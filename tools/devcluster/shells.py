"""Shells for the completion tests.

The shells may not be installed, so their Debian packages are unpacked into the cache.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from devcluster.paths import Paths
from machines import packages, store
from machines.console import Console
from machines.packages import Apt

# These are the shells and those of their dependencies that a minimal system lacks. Packages that
# only the shells' help needs are omitted.
PACKAGES = ("fish", "fish-common", "libpcre2-32-0", "zsh", "zsh-common")


def cache_entry(cache: Path) -> Path:
    """Return the path of the cache entry, which may not exist yet."""
    return cache / "packages" / f"shells-{store.key(packages.RELEASE, PACKAGES)}"


def prepare(paths: Paths, *, console: Console) -> Path:
    """Return the directory whose `usr` contains the shells.

    Create the directory if it is missing or damaged. Creating it requires Debian and root
    permissions.
    """
    paths.logs.mkdir(parents=True, exist_ok=True)
    apt = Apt(paths.cache / "apt", log=paths.logs / "apt.log", console=console)
    entry = cache_entry(paths.cache)
    store.ensure(entry, partial(_unpack, apt), report=console.report)
    return entry / "root"


def _unpack(apt: Apt, directory: Path) -> None:
    root = directory / "root"
    packages.unpack_only(apt, PACKAGES, root)
    # fish searches this path relative to its own location.
    (root / "usr" / "etc").symlink_to("../etc")
