"""Unpack Slurm of a Debian suite into the cache so that its programs run from there.

Each program and library finds its libraries and its loader in the unpacked packages, by what is
written in the file itself. Slurm of a newer suite therefore runs beside an older C library, and no
environment variable is necessary, which jobs would inherit.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from machines import packages, store
from machines.console import Console, ToolError
from machines.packages import Apt

# The Debian suite of each version of Slurm that the tests can use.
SUITES = {"22.05": "bookworm", "24.11": "trixie", "26.05": "forky"}

PACKAGES = (
    "bindfs",
    "munge",
    "patchelf",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurmctld",
    "slurmd",
)
# The accounting of all versions uses MariaDB 10.11, because slurmdbd does not run with 11.8, which
# newer suites contain.
DATABASE_VERSION = "22.05"
ACCOUNTING_PACKAGES = ("slurm-wlm-mysql-plugin", "slurmdbd")
DATABASE_PACKAGE = "mariadb-server-core"
# These packages contain what the programs load. Shells and documentation are not unpacked.
_PREFIXES = (
    "bindfs_",
    "gcc-",
    "lib",
    f"{DATABASE_PACKAGE}_",
    "munge_",
    "patchelf_",
    "slurm",
    "zlib1g_",
)
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
# The loader and the C library must not be changed.
_UNCHANGED = (
    "ld-linux",
    "libc.so",
    "libdl.so",
    "libgcc_s",
    "libm.so",
    "libpthread.so",
    "libresolv.so",
    "librt.so",
    "libstdc++",
)
_ELF = b"\x7fELF"


def prepare(cache: Path, version: str, *, accounting: bool, log: Path, console: Console) -> Path:
    """Return the directory into which Slurm was unpacked. Unpack it if it is missing or damaged.

    ``accounting`` adds slurmdbd and, if ``version`` is DATABASE_VERSION, its database.
    """
    suite = SUITES[version]
    names: tuple[str, ...] = PACKAGES
    if accounting:
        names += ACCOUNTING_PACKAGES
        if version == DATABASE_VERSION:
            names += (DATABASE_PACKAGE,)
    entry = cache / f"{suite}-{store.key(names, _PREFIXES)}"
    make = partial(
        _unpack, names=names, suite=suite, log=log, console=console, apt_directory=cache / "apt"
    )
    store.ensure(entry, make, report=console.report)
    return entry / "root"


def plugin_directory(root: Path) -> Path:
    """Return the directory of Slurm's plugins."""
    for name in ("slurm-wlm", "slurm"):
        directory = root / _LIBRARIES / name
        if (directory / "auth_munge.so").exists():
            return directory
    raise ToolError(f"{root} contains no plugins of Slurm")


def _unpack(
    directory: Path,
    *,
    names: Sequence[str],
    suite: str,
    log: Path,
    console: Console,
    apt_directory: Path,
) -> None:
    mirror = packages.main_mirror()
    apt = Apt(
        apt_directory / suite,
        log=log,
        console=console,
        mirrors=[(mirror, suite)],
        all_dependencies=True,
    )
    for old in apt.archives.glob("*.deb"):
        old.unlink()
    apt.run("install", "--yes", "--download-only", "--no-install-recommends", *names)
    root = directory / "root"
    for name in packages.MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for archive in sorted(apt.archives.glob("*.deb")):
        if archive.name.startswith(_PREFIXES):
            packages.extract(archive, root)
        archive.unlink()
    for path in (root / "usr/share").iterdir():
        if path.name != "mysql":  # the messages of MariaDB, without which it does not start
            shutil.rmtree(path)
    _patch(root, log)
    for daemon in ("slurmctld", "slurmd", "slurmstepd"):
        # Debian's alternatives system would create these links during installation.
        program = root / "usr/sbin" / daemon
        if not program.exists():
            program.symlink_to(f"{daemon}-wlm")


def _patch(root: Path, log: Path) -> None:
    """Write the paths of the loader and the libraries into each program and library."""
    libraries = root / _LIBRARIES
    loader = root / "lib64/ld-linux-x86-64.so.2"
    if not loader.exists():
        loader = libraries / "ld-linux-x86-64.so.2"
    # The cache entry has another name until it is complete.
    final = Path(str(root).replace(".part/", "/"))
    final_libraries = final / _LIBRARIES
    search_path = f"{final_libraries}:{final_libraries}/slurm-wlm:{final_libraries}/slurm"
    patchelf = [str(loader), "--library-path", str(libraries), str(root / "usr/bin/patchelf")]
    # patchelf cannot change itself while it is running.
    changed = patchelf[-1]
    with log.open("ab") as output:
        for path in sorted(_programs(root)):
            if str(path) == changed:
                continue
            arguments = ["--force-rpath", "--set-rpath", search_path]
            if ".so" not in path.name:
                arguments += ["--set-interpreter", str(final / loader.relative_to(root))]
            subprocess.run([*patchelf, *arguments, str(path)], stdout=output, stderr=output)


def _programs(root: Path) -> list[Path]:
    libraries = root / _LIBRARIES
    candidates = [
        *(root / "usr/bin").iterdir(),
        *(root / "usr/sbin").iterdir(),
        *libraries.glob("*.so*"),
        *libraries.glob("slurm*/*.so*"),
    ]
    return [
        path
        for path in candidates
        if path.is_file()
        and not path.is_symlink()
        and not path.name.startswith(_UNCHANGED)
        and path.read_bytes()[:4] == _ELF
    ]
