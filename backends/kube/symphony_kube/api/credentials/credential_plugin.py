"""Run the credential plug-in of a kubeconfig: a program that prints a token or a certificate.

The protocol is described at
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from symphony.errors import BackendError
from symphony.support.inherited_signals import observable_exits
from symphony_kube.api.connection_settings import IssuedCredential
from symphony_kube.api.errors import one_line


def run_plugin(
    settings: Mapping[str, Any], cluster: Mapping[str, Any], directory: Path, owner: str
) -> IssuedCredential:
    """Run a plug-in and return its credential.

    ``settings`` is the value of ``exec`` in the kubeconfig, and ``cluster`` describes the server to
    plug-ins that ask for it. A relative path of the program is relative to ``directory``. In
    messages, ``owner`` describes what the credential belongs to. Raises `BackendError` if the
    plug-in fails.
    """
    try:
        return _parse(_run(settings, cluster, directory), settings["apiVersion"])
    except _PluginFailed as exc:
        fix = "install it, or log in again"
        if isinstance(exc.__cause__, FileNotFoundError) and settings.get("installHint"):
            fix = one_line(str(settings["installHint"]))
        raise BackendError(
            f"the credential plug-in for {owner} failed: {one_line(str(exc))}; {fix}"
        ) from exc


class _PluginFailed(Exception):
    """The plug-in has no usable result. The message is the cause."""


def _run(settings: Mapping[str, Any], cluster: Mapping[str, Any], directory: Path) -> str:
    """Return the output of the plug-in."""
    for key in ("command", "apiVersion"):
        if not settings.get(key):
            raise _PluginFailed(f"the kubeconfig does not contain its {key!r}")
    command = str(settings["command"])
    if os.sep in command:
        command = str(directory / command)
    interactive = _is_interactive(str(settings.get("interactiveMode") or "IfAvailable"))
    spec: dict[str, Any] = {"interactive": interactive}
    if settings.get("provideClusterInfo"):
        spec["cluster"] = dict(cluster)
    request = {"kind": "ExecCredential", "apiVersion": settings["apiVersion"], "spec": spec}
    arguments, variables = _arguments(settings), _variables(settings)
    try:
        with observable_exits():
            done = subprocess.run(
                [command, *arguments],
                env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(request)},
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                # A plug-in that asks the user to log in prints its questions here.
                stderr=None if interactive else subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
            )
    except OSError as exc:
        raise _PluginFailed(f"{command}: {exc.strerror or exc}") from exc
    if done.returncode != 0:
        cause = (done.stderr or "").strip() or "see its own error message above"
        raise _PluginFailed(f"{command} exited with code {done.returncode}: {cause}")
    return done.stdout


def _arguments(settings: Mapping[str, Any]) -> list[str]:
    arguments = settings.get("args") or []
    if not isinstance(arguments, list):
        raise _PluginFailed("its args in the kubeconfig are not a list")
    return [str(argument) for argument in arguments]


def _variables(settings: Mapping[str, Any]) -> dict[str, str]:
    try:
        return {str(item["name"]): str(item["value"]) for item in settings.get("env") or ()}
    except (KeyError, TypeError) as exc:
        raise _PluginFailed("its env in the kubeconfig is not a list of names and values") from exc


def _is_interactive(mode: str) -> bool:
    """Return whether the plug-in may ask the user."""
    # Completion in shells discards standard error, and must not wait for an answer.
    has_terminal = all(
        stream is not None and not stream.closed and stream.isatty()
        for stream in (sys.stdin, sys.stderr)
    )
    if mode == "Always" and not has_terminal:
        raise _PluginFailed("it requires a terminal (interactiveMode: Always)")
    return has_terminal and mode != "Never"


def _parse(output: str, version: str) -> IssuedCredential:
    try:
        answer = json.loads(output)
    except ValueError as exc:
        raise _PluginFailed(f"its output cannot be decoded as JSON: {exc}") from exc
    for key in ("apiVersion", "kind", "status"):
        if not isinstance(answer, dict) or not answer.get(key):
            raise _PluginFailed(f"its output has the missing key {key!r}")
    if answer["apiVersion"] != version:
        raise _PluginFailed(
            f"its output has the apiVersion {answer['apiVersion']!r} instead of {version!r}"
        )
    status = answer["status"]
    if not isinstance(status, dict):
        raise _PluginFailed("the status in its output is not an object")
    token, certificate = status.get("token"), status.get("clientCertificateData")
    private_key = status.get("clientKeyData")
    if not token and not certificate:
        raise _PluginFailed("its output has neither token nor clientCertificateData")
    if bool(certificate) != bool(private_key):
        raise _PluginFailed("its output has only one of clientCertificateData and clientKeyData")
    return IssuedCredential(
        token=token or None,
        certificate=certificate.encode() if certificate else None,
        key=private_key.encode() if private_key else None,
        expires=_seconds(status.get("expirationTimestamp")),
    )


def _seconds(timestamp: str | None) -> float | None:
    """Return a time in the format of RFC 3339 in seconds since the epoch."""
    if not timestamp:
        return None
    try:
        # Python 3.10 accepts neither "Z" nor every number of digits after the seconds.
        text = re.sub(r"\.\d+", "", timestamp.upper().replace("Z", "+00:00"))
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError as exc:
        raise _PluginFailed(f"its expirationTimestamp is {timestamp!r}, which is no time") from exc
