"""Trust in configuration files that symphony finds by searching.

A project file applies to every command in its directory, so a directory from another person could
contain a file that runs commands or that changes which experiments a command acts on. The settings
with which this is possible are ignored until the user trusts the file. A file of another user is
ignored completely. The record of a trusted file contains the digest of its contents, so that trust
ends when the file changes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from symphony.config import fields, file_formats, locations
from symphony.config.merging import ConfigSource, SourcedValue, UntrustedFile
from symphony.errors import SpecError, dotted
from symphony.model.document.documents import read_bytes
from symphony.model.limits import MAX_CONFIGURATION_BYTES
from symphony.support.directories import private as private_directories
from symphony.support.replace_file import replace_file

# The settings that can run commands or determine where the state of experiments is. A kubeconfig
# can contain commands that return credentials. The options of a backend include `preamble_cmds` and
# `state_dir`, and a third-party backend can have any option. The limits in `runs` determine which
# records of the user are removed.
_NEED_TRUST = ("context", "kubeconfig", "options", "runs")
# These settings and those that need trust name a cluster together. If one of the latter is ignored,
# these are ignored, too, because they would name another cluster.
_DEPENDENT = ("backend", "namespace", "profile")

Values = Mapping[fields.KeyPath, SourcedValue]


# --- reading ---


def read_project_file(path: Path, environ: Mapping[str, str]) -> ConfigSource:
    """Read a project file, without the settings that are ignored because the file is not trusted.

    If settings are ignored, the result's ``untrusted`` is set. Raises `SpecError` if the contents
    of the file are invalid, unless the file belongs to another user and is not trusted.
    """
    owner = other_owner(path)
    if owner is not None and not _has_record(path, environ):
        return _ignored(UntrustedFile(path=path, owner=owner))
    data = read_bytes(path, MAX_CONFIGURATION_BYTES)
    if owner is not None:
        if not _is_trusted(path, data, environ):
            return _ignored(UntrustedFile(path=path, owner=owner))
        return file_formats.parse_file(path, data, is_found_file=True)
    source = file_formats.parse_file(path, data, is_found_file=True)
    if not settings_that_need_trust(source) or _is_trusted(path, data, environ):
        return source
    return _without_untrusted_settings(path, source)


def read_user_file(path: Path) -> ConfigSource:
    """Read the user's own file. The file is ignored if it belongs to another user."""
    owner = other_owner(path)
    if owner is None:
        return file_formats.read_file(path, is_found_file=True)
    fix = (
        "if you use sudo, use sudo -H; or set XDG_CONFIG_HOME to a directory of your own, or "
        f"{locations.FILE_VARIABLE} to a file that you trust"
    )
    return _ignored(UntrustedFile(path=path, owner=owner, fix=fix))


def other_owner(path: Path) -> str | None:
    """Return the user to whom a file or a link belongs, such as ``user sarah``.

    Return None if it belongs to this user or to root.
    """
    for uid in (path.lstat().st_uid, path.stat().st_uid):
        if uid not in (0, os.geteuid()):
            return private_directories.user_name(uid)
    return None


def settings_that_need_trust(source: ConfigSource) -> dict[str, SourcedValue]:
    """Return the settings of a source, such as ``profiles.gke.kubeconfig``, that need trust."""
    found = {dotted(key): value for key, value in source.values.items() if _needs_trust(key)}
    for name, values in source.profiles.items():
        for key, value in values.items():
            if _needs_trust(key):
                found[dotted((fields.PROFILES, name, *key))] = value
    return found


def _needs_trust(key: fields.KeyPath) -> bool:
    return key[0] in _NEED_TRUST


def _without_untrusted_settings(path: Path, source: ConfigSource) -> ConfigSource:
    """Return a source without the settings that need trust and those that depend on them."""
    profiles: dict[str, Values] = {}
    if any(map(_needs_trust, source.values)):
        # The settings outside the profiles apply to every profile, too.
        ignored_keys = [key for key in source.values if key[0] in (*_NEED_TRUST, *_DEPENDENT)]
    else:
        ignored_keys = []
        for name, values in source.profiles.items():
            if not any(map(_needs_trust, values)):
                profiles[name] = values
        selected = source.values.get(("profile",))
        if selected is not None and selected.value not in profiles:
            ignored_keys = [("profile",)]
    kept = {key: value for key, value in source.values.items() if key not in ignored_keys}
    untrusted = UntrustedFile(
        path=path,
        settings=tuple(dotted(key) for key in ignored_keys),
        profiles=tuple(name for name in source.profiles if name not in profiles),
    )
    return replace(source, values=kept, profiles=profiles, untrusted=untrusted)


def _ignored(file: UntrustedFile) -> ConfigSource:
    return ConfigSource(values={}, is_found_file=True, untrusted=file)


# --- the records ---


def trust(path: Path, environ: Mapping[str, str], *, dry_run: bool = False) -> ConfigSource:
    """Trust the current contents of a project file, and return them.

    With ``dry_run``, nothing is recorded. Raises `NotFound` or `SpecError` if the file does not
    exist or is invalid, if symphony never reads it because every user may create files in its
    directory, or if another user could change the record.
    """
    data = read_bytes(path, MAX_CONFIGURATION_BYTES)
    if locations.is_passed_over(path):
        raise SpecError(
            f"{path}: belongs to another user, in a directory that every user may write to; to use "
            f"this file, set {locations.FILE_VARIABLE}={path}"
        )
    source = file_formats.parse_file(path, data, is_found_file=True)
    if not dry_run:
        record = _record(path, environ)
        _check_directory(record.parent)
        private_directories.create(record.parent)
        content = _digest(data).encode() + b"  " + os.fsencode(path.resolve()) + b"\n"
        replace_file(record, [content])
    return source


def withdraw(path: Path, environ: Mapping[str, str], *, dry_run: bool = False) -> bool:
    """Stop trusting a project file. Return whether the file was trusted."""
    was_trusted = _has_record(path, environ)
    if was_trusted and not dry_run:
        _record(path, environ).unlink(missing_ok=True)
    return was_trusted


def _is_trusted(path: Path, data: bytes, environ: Mapping[str, str]) -> bool:
    if not _has_record(path, environ):
        return False
    digest, _, _ = _record(path, environ).read_bytes().partition(b" ")
    return digest.decode(errors="replace") == _digest(data)


def _has_record(path: Path, environ: Mapping[str, str]) -> bool:
    """Return whether there is a record that no other user could have written."""
    record = _record(path, environ)
    try:
        _check_directory(record.parent)
    except SpecError:
        return False
    return record.exists()


def _check_directory(directory: Path) -> None:
    private_directories.check(
        directory,
        "directory of trusted files",
        "use a directory of your own, for example with XDG_CONFIG_HOME, or with sudo -H if you use "
        "sudo",
    )


def _record(path: Path, environ: Mapping[str, str]) -> Path:
    """Return the path of the record of a trusted file."""
    name = _digest(os.fsencode(path.resolve()))[:32]
    return locations.user_directory(environ).absolute() / "trusted" / name


def _digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()
