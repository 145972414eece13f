"""The pip command that adds an extra, such as ``kube``, to the installation that is in use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

DISTRIBUTION = "symphony-launcher"


def install_command(extra: str) -> str:
    """Return the shell command that installs the packages of an extra.

    If symphony was installed from a directory, an archive or a repository, the command installs it
    from there, because a package index does not necessarily contain the same version.
    """
    import shlex

    words = pip_arguments(_direct_url(), extra)
    return f"pip install {shlex.join(words)}"


def pip_arguments(direct_url: Mapping[str, Any], extra: str) -> list[str]:
    """Return the arguments of ``pip install`` for an extra.

    ``direct_url`` is the content of the file ``direct_url.json`` in the metadata of the
    distribution, which pip writes (PEP 610). It is empty after an installation from a package
    index.
    """
    from urllib.parse import unquote, urlsplit

    requirement = f"{DISTRIBUTION}[{extra}]"
    url = str(direct_url.get("url", ""))
    parts = urlsplit(url)
    vcs = direct_url.get("vcs_info", {})
    if vcs:
        return [f"{requirement} @ {vcs['vcs']}+{url}@{vcs['commit_id']}"]
    if parts.scheme != "file":
        return [f"{requirement} @ {url}" if url else requirement]
    path = unquote(parts.path)
    if not os.path.exists(path):  # noqa: PTH110
        return [requirement]
    is_editable = direct_url.get("dir_info", {}).get("editable", False)
    return [*(["--editable"] if is_editable else []), f"{path}[{extra}]"]


def _direct_url() -> Mapping[str, Any]:
    """Return the content of ``direct_url.json``, or an empty mapping if there is no such file."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json")
        found: Any = json.loads(text or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
