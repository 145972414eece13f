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
    archives, root = directory / "archives", directory / "root"
    archives.mkdir()
    apt.run("download", *PACKAGES, cwd=archives)
    (root / "usr").mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")  # On this machine, /bin is also a link to usr/bin.
    for archive in sorted(archives.iterdir()):
        packages.extract(archive, root)
        archive.unlink()
    archives.rmdir()
    # fish searches this path relative to its own location.
    (root / "usr" / "etc").symlink_to("../etc")
