"""Define the users of the cluster, their tokens and their kubeconfig files.

`admin` may do everything. `researcher` has the rights that shared research clusters usually grant
in one namespace: creating Jobs, and reading Pods and their logs. `stranger` has no rights. The
other users are components of the cluster itself.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from pathlib import Path

TEAM_NAMESPACE = "team-a"
PEOPLE = ("admin", "researcher", "stranger")
DNS_USER = "symphony-dns"

# Maps each user to its groups.
_USERS = {
    "admin": "system:masters",
    "researcher": "",
    "stranger": "",
    DNS_USER: "",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    "system:kube-proxy": "",
}


def make_tokens(nodes: list[str]) -> dict[str, str]:
    """Return a new random token for every user and every node."""
    names = [*_USERS, *(f"system:node:{node}" for node in nodes)]
    return {name: secrets.token_hex(16) for name in names}


def token_file(tokens: Mapping[str, str]) -> str:
    """Return the content of the API server's --token-auth-file: token, user, user ID, "groups"."""
    return "".join(
        f'{token},{user},{user},"{_USERS.get(user, "system:nodes")}"\n'
        for user, token in tokens.items()
    )


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    path.touch(mode=0o600)
    path.write_text(text)


def kubeconfig(*, server: str, authority: bytes, user: str, token: str) -> str:
    """Return a kubeconfig (JSON, which is YAML) for one user."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "devcluster",
                "cluster": {
                    "server": server,
                    "certificate-authority-data": base64.b64encode(authority).decode(),
                },
            }
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [
            {
                "name": f"{user}@devcluster",
                "context": {
                    "cluster": "devcluster",
                    "user": user,
                    "namespace": TEAM_NAMESPACE if user == "researcher" else "default",
                },
            }
        ],
        "current-context": f"{user}@devcluster",
    }
    return json.dumps(content, indent=1) + "\n"
