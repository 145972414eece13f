"""Shells for the tests of completion, which the machine may lack. They are Debian's, unpacked into
the cache.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from devcluster import packages, store
from devcluster.console import Console
from devcluster.packages import Apt
from devcluster.paths import Paths

# The shells with their dependencies beyond a minimal system, without the packages that only their
# help needs.
PACKAGES = ("fish", "fish-common", "libpcre2-32-0", "zsh", "zsh-common")


def cache_entry(cache: Path) -> Path:
    """Return the cache entry, which need not exist."""
    return cache / "packages" / f"shells-{store.key(packages.RELEASE, PACKAGES)}"


def prepare(paths: Paths, *, console: Console) -> Path:
    """Return the directory with the `usr` of the shells. Creates it if it is missing or damaged,
    which needs Debian and root.
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
    (root / "bin").symlink_to("usr/bin")  # Merge /usr as on the machine.
    for archive in sorted(archives.iterdir()):
        packages.extract(archive, root)
        archive.unlink()
    archives.rmdir()
    # fish searches this path relative to its own location.
    (root / "usr" / "etc").symlink_to("../etc")
