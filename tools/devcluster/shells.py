"""Shells that the machine may lack, for tests of completion: Debian's, unpacked beside the cluster's packages."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from devcluster import packages, store
from devcluster.console import Console
from devcluster.packages import Apt
from devcluster.paths import Paths

# With what they need beyond a minimal system, and without what only their help does.
PACKAGES = ("fish", "fish-common", "libpcre2-32-0", "zsh", "zsh-common")


def place(cache: Path) -> Path:
    """Return the cache entry, whether it is there or not."""
    return cache / "packages" / f"shells-{store.key(packages.RELEASE, PACKAGES)}"


def gather(paths: Paths, *, console: Console) -> Path:
    """Return the folder with the shells' `usr`, made first where it is missing or damaged; takes Debian and root."""
    paths.logs.mkdir(parents=True, exist_ok=True)
    apt = Apt(paths.cache / "apt", log=paths.logs / "apt.log", console=console)
    entry = place(paths.cache)
    store.ensure(entry, partial(_unpack, apt), say=console.say)
    return entry / "root"


def _unpack(apt: Apt, folder: Path) -> None:
    archives, root = folder / "archives", folder / "root"
    archives.mkdir()
    apt.run("download", *PACKAGES, cwd=archives)
    (root / "usr").mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")  # a merged /usr, as the machine's
    for archive in sorted(archives.iterdir()):
        packages.extract(archive, root)
        archive.unlink()
    archives.rmdir()
    (root / "usr" / "etc").symlink_to("../etc")  # where fish looks from its own place
