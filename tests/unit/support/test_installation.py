"""The command that installs an extra matches the way in which symphony was installed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from symphony.support import install_hints

COMMIT = "0123456789abcdef0123456789abcdef01234567"
URL = "https://example.org/symphony"


@pytest.mark.parametrize(
    ("direct_url", "arguments"),
    [
        ({}, ["symphony-launcher[kube]"]),
        ({"url": "file:///no/such/directory", "dir_info": {}}, ["symphony-launcher[kube]"]),
        (
            {"url": f"{URL}.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            [f"symphony-launcher[kube] @ git+{URL}.git@{COMMIT}"],
        ),
        (
            {"url": f"{URL}.whl", "archive_info": {"hash": "sha256=0"}},
            [f"symphony-launcher[kube] @ {URL}.whl"],
        ),
    ],
)
def test_arguments_of_pip(direct_url: dict[str, Any], arguments: list[str]) -> None:
    assert install_hints.pip_arguments(direct_url, "kube") == arguments


def install(directory: Path, direct_url: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Create the metadata of an installed distribution, and put it first on the import path."""
    metadata = directory / "symphony_launcher-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: symphony-launcher\n")
    (metadata / "direct_url.json").write_text(json.dumps(direct_url))
    monkeypatch.syspath_prepend(str(directory))


@pytest.mark.parametrize(
    ("info", "options"),
    [
        ({"dir_info": {}}, []),
        ({"dir_info": {"editable": True}}, ["--editable"]),
        ({"archive_info": {}}, []),
    ],
)
def test_installation_from_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, info: dict[str, Any], options: list[str]
) -> None:
    source = tmp_path / "a clone"
    source.mkdir()
    install(tmp_path / "site", {"url": source.as_uri(), **info}, monkeypatch)
    expected = ["pip", "install", *options, f"{source}[zmq]"]
    assert shlex.split(install_hints.install_command("zmq")) == expected


def test_installation_from_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, {}, monkeypatch)
    (tmp_path / "symphony_launcher-0.1.0.dist-info" / "direct_url.json").unlink()
    assert install_hints.install_command("zmq") == "pip install 'symphony-launcher[zmq]'"
