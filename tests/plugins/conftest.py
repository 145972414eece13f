"""The example package, installed by pip into a directory of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("symphony-example-backend")


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package and return the directory.

    This needs no network if hatchling is installed.
    """
    source = shutil.copytree(SOURCE, tmp_path_factory.mktemp("source") / SOURCE.name)
    target = tmp_path_factory.mktemp("site")
    offline = ["--no-build-isolation", "--no-index"] if find_spec("hatchling") else []
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *offline]
    subprocess.run([*command, "--target", str(target), str(source)], check=True, timeout=100)
    return target


@pytest.fixture
def example(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the package on the import path of this process and of its child processes."""
    monkeypatch.syspath_prepend(installed)
    paths = [str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return installed
