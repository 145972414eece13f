"""The packages of third parties, each installed in a directory of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("symphony-example-backend")
DETACHED_SOURCE = Path(__file__).parents[2] / "examples" / "backend"


def install(source: Path, factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of a package, unpack it and return the directory.

    Unpacking is all that pip does with a pure wheel, and takes a fraction of its time.
    """
    copy = shutil.copytree(source, factory.mktemp("source") / source.name)
    target = factory.mktemp("site")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(command, cwd=copy, check=True, timeout=100, capture_output=True)
    (wheel,) = target.glob("*.whl")
    shutil.unpack_archive(wheel, target, format="zip")
    return target


def put_on_path(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a directory on the import path of this process and of its child processes."""
    monkeypatch.syspath_prepend(installed)
    paths = [str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return installed


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package of the test, and return its directory."""
    return install(SOURCE, tmp_path_factory)


@pytest.fixture
def example(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the package of the tests on the import path, and return its directory."""
    return put_on_path(installed, monkeypatch)


@pytest.fixture(scope="session")
def installed_detached(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the example of a backend, and return its directory."""
    return install(DETACHED_SOURCE, tmp_path_factory)


@pytest.fixture
def detached(installed_detached: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the example of a backend on the import path, and return its directory."""
    return put_on_path(installed_detached, monkeypatch)
