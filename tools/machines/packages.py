"""Unpack Debian packages into the cache instead of installing them.

No service from a package is started, the machine does not change, and packages that conflict with
installed packages do no harm. A sandbox mounts the unpacked `usr` over the machine's /usr (see
sandbox.py).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from machines import processes
from machines.console import Console, RequirementError

RELEASE = "bookworm"
# The directories that are links into /usr, as on the machine.
MERGED = ("bin", "sbin", "lib", "lib64")
APT_SOURCES = Path("/etc/apt")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

# Debian's alternatives system would create these links during installation.
_ALTERNATIVES = {
    "usr/sbin/xtables-nft-multi": tuple(
        f"{family}{action}"
        for family in ("iptables", "ip6tables")
        for action in ("", "-save", "-restore")
    )
}


class Apt:
    """An interface to apt-get with separate package lists and archives.

    The machine's own lists and archives are neither used nor changed. ``mirrors`` contains
    (address, suite) pairs; the default is the mirrors of the machine. If ``all_dependencies`` is
    true, no package counts as installed, and there are no source packages.
    """

    def __init__(
        self,
        directory: Path,
        *,
        log: Path,
        console: Console,
        mirrors: Sequence[tuple[str, str]] | None = None,
        all_dependencies: bool = False,
    ) -> None:
        self._directory = directory
        self._log = log
        self._console = console
        self._mirrors = mirrors
        self._all_dependencies = all_dependencies
        self._updated = False

    @property
    def archives(self) -> Path:
        """The directory for downloaded packages."""
        return self._directory / "cache" / "archives"

    def run(self, *arguments: str, cwd: Path | None = None) -> None:
        """Run apt-get. Raises ToolError with the end of the output if apt-get fails."""
        if not self._updated:
            self._prepare()
        self._apt(*arguments, cwd=cwd)

    def _prepare(self) -> None:
        for name in ("lists/partial", "cache/archives/partial"):
            (self._directory / name).mkdir(parents=True, exist_ok=True)
        mirrors = machine_mirrors() if self._mirrors is None else self._mirrors
        kinds = ("deb",) if self._all_dependencies else ("deb", "deb-src")
        (self._directory / "sources.list").write_text(sources_list(mirrors, kinds))
        if self._all_dependencies:
            (self._directory / "status").touch()
        self._apt("update")
        self._updated = True

    def _apt(self, *arguments: str, cwd: Path | None = None) -> None:
        options: dict[str, object] = {
            "Dir::Etc::SourceList": self._directory / "sources.list",
            "Dir::Etc::SourceParts": "-",
            "Dir::State::Lists": self._directory / "lists",
            "Dir::Cache": self._directory / "cache",
            "Acquire::Retries": 3,
            # The user _apt cannot access another user's cache directory.
            "APT::Sandbox::User": "root",
        }
        if self._all_dependencies:
            options["Dir::State::status"] = self._directory / "status"
        flags = [f"-o{key}={value}" for key, value in options.items()]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        processes.run(
            ["apt-get", "-qq", *flags, *arguments],
            log=self._log,
            console=self._console,
            cwd=cwd,
            env=environment,
        )


def unpack(apt: Apt, names: Iterable[str], root: Path) -> None:
    """Unpack the packages into `root`, together with those of their dependencies that are not
    installed.
    """
    for old in apt.archives.glob("*.deb"):
        old.unlink()
    apt.run("install", "--yes", "--download-only", "--no-install-recommends", *names)
    _extract_all(apt.archives, root)
    for target, links in _ALTERNATIVES.items():
        if (root / target).exists():
            for link in links:
                (root / target).with_name(link).symlink_to(Path(target).name)


def unpack_only(apt: Apt, names: Iterable[str], root: Path) -> None:
    """Unpack the packages into `root`, without their dependencies."""
    archives = root.with_name("archives")
    archives.mkdir()
    apt.run("download", *names, cwd=archives)
    _extract_all(archives, root)
    archives.rmdir()


def _extract_all(archives: Path, root: Path) -> None:
    """Unpack and remove all packages in the directory `archives`."""
    for name in MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for archive in sorted(archives.glob("*.deb")):
        extract(archive, root)
        archive.unlink()


def extract(archive: Path, root: Path) -> None:
    """Unpack one package into `root`."""
    tar = ["tar", "-x", "--keep-directory-symlink", "-C", str(root)]
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE
    ) as content:
        subprocess.run(tar, stdin=content.stdout, check=True)
    if content.returncode:
        raise RequirementError(
            f"{archive} is not a Debian package: delete {archive.parent} and try again"
        )


def machine_mirrors() -> list[tuple[str, str]]:
    """Return (address, suite) pairs for the mirrors that provide RELEASE to this machine.

    The suites are the release itself, its updates and its security updates. Raises RequirementError
    if there is no mirror for the release itself.
    """
    texts = []
    for path in (APT_SOURCES / "sources.list", *sorted(APT_SOURCES.glob("sources.list.d/*"))):
        if path.is_file() and path.suffix in (".list", ".sources"):
            texts.append((path.suffix, path.read_text()))
    mirrors = [
        found
        for suffix, text in texts
        for found in (_deb822(text) if suffix == ".sources" else _one_line(text))
        if found[1] in (RELEASE, f"{RELEASE}-updates", f"{RELEASE}-security")
    ]
    if not any(suite == RELEASE for _, suite in mirrors):
        raise RequirementError(
            f"no Debian mirror for {RELEASE} main in /etc/apt/sources.list or sources.list.d: "
            "add the line that this machine should use"
        )
    return list(dict.fromkeys(mirrors))


def main_mirror() -> str:
    """Return the address of the mirror for the release itself, not for its updates."""
    return next(address for address, suite in machine_mirrors() if suite == RELEASE)


def sources_list(
    mirrors: Iterable[tuple[str, str]], kinds: Sequence[str] = ("deb", "deb-src")
) -> str:
    """Return the contents of a sources.list, by default for binary and source packages.

    apt verifies the packages with Debian's own keys.
    """
    return "".join(
        f"{kind} [signed-by={KEYRING}] {address} {suite} main\n"
        for address, suite in mirrors
        for kind in kinds
    )


def _deb822(text: str) -> Iterator[tuple[str, str]]:
    for stanza in text.split("\n\n"):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        fields = {key: value.split() for key, _, value in (line.partition(":") for line in lines)}
        enabled = fields.get("Enabled", ["yes"]) != ["no"]
        if enabled and "deb" in fields.get("Types", []) and "main" in fields.get("Components", []):
            for address in fields.get("URIs", []):
                yield from ((address, suite) for suite in fields.get("Suites", []))


_ONE_LINE = re.compile(r"deb\s+(?:\[[^]]*]\s+)?(\S+)\s+(\S+)\s+(.*)")


def _one_line(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        match = _ONE_LINE.match(line.strip())
        if match and "main" in match[3].split():
            yield match[1], match[2]
