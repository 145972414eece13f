"""Define the cluster's users, their tokens and their kubeconfig files.

`admin` has all permissions. `researcher` has the permissions that shared research clusters usually
grant in one namespace: it may manage Jobs, and read Pods and their logs. `stranger` has no
permissions. The other users are components of the cluster itself.
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

# The groups to which each user belongs.
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
    """Return a mapping with a new random token for each user, including each node's user."""
    names = [*_USERS, *(f"system:node:{node}" for node in nodes)]
    return {name: secrets.token_hex(16) for name in names}


def token_file(tokens: Mapping[str, str]) -> str:
    """Return the contents of the file for the API server's option --token-auth-file.

    Each line contains a token, a user name, a user ID and the user's groups.
    """
    return "".join(
        f'{token},{user},{user},"{_USERS.get(user, "system:nodes")}"\n'
        for user, token in tokens.items()
    )


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    path.touch(mode=0o600)
    path.write_text(text)


def kubeconfig(*, server: str, authority: bytes, user: str, token: str) -> str:
    """Return a kubeconfig for one user as JSON, which is valid YAML."""
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
