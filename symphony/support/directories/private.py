"""Directories whose contents no other user can replace.

The state directory, for example, contains the commands and process identifiers that ``delete`` and
``exec`` use. If another user could change it, that user could make this user run any command.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from symphony.errors import SpecError

# The variable with the names or numbers of groups whose members may write to parent directories,
# separated by commas.
TRUSTED_GROUPS_VARIABLE = "SYMPHONY_TRUSTED_GROUPS"

_ROOT_UID = 0
# The mode of the directories that `create` creates.
_PRIVATE_MODE = 0o700
# The number of symbolic links that Linux follows in a path.
_MAX_LINKS = 40


def create(directory: Path) -> None:
    """Create a directory and its missing parents, all with the mode 0700 whatever the umask is."""
    missing = []
    path = directory
    while not path.exists():
        missing.append(path)
        path = path.parent
    for path in reversed(missing):
        try:
            path.mkdir(_PRIVATE_MODE)
        except FileExistsError:
            # Another process has created the directory, unless the path is a broken link.
            if not path.is_dir():
                raise
        else:
            # The umask can remove permissions of the owner.
            path.chmod(_PRIVATE_MODE)


def check(directory: Path, what: str, fix: str) -> None:
    """Raise `SpecError` if another user can change or replace ``directory``.

    Every existing component of the path is checked, and every symbolic link in it. A component must
    belong to this user or to root. Other users must not be able to write to it, unless it is a
    parent directory with the sticky bit, such as /tmp. Members of the user's own group, which has
    no other members, may write to it, and so may the groups that the user trusts; see
    `TRUSTED_GROUPS_VARIABLE`. If ``directory`` does not exist, only the existing components are
    checked.

    ``what`` and ``fix`` are parts of the error message: what the directory is, and what the user
    can do.
    """
    components = []
    exists = True
    try:
        for component in _components(directory):
            components.append(component)
    except OSError:
        # A component does not exist or cannot be read. In the latter case, the operation for which
        # the caller needs the directory reports the error.
        exists = False
    for number, (path, info) in enumerate(components, 1):
        problem = _problem(path, info, is_last=exists and number == len(components))
        if problem is not None:
            raise _not_used(directory, what, problem, fix)


def check_access(directory: Path, what: str, fix: str) -> None:
    """Raise `SpecError` if ``directory`` belongs to another user and this user has no access to it.

    If the directory does not exist, do nothing. ``what`` and ``fix`` are those of `check`.
    """
    path = directory
    found = None
    while found is None:
        try:
            found = path.stat()
        except PermissionError:
            # A parent directory cannot be searched.
            path = path.parent
        except OSError:
            return
    rights = os.R_OK | os.W_OK | os.X_OK
    has_access = path == directory and os.access(path, rights, effective_ids=True)
    if has_access or found.st_uid == os.geteuid():
        return
    problem = f"{path} belongs to {user_name(found.st_uid)}, and only this user has access to it"
    raise _not_used(directory, what, problem, fix)


def _not_used(directory: Path, what: str, problem: str, fix: str) -> SpecError:
    return SpecError(f"the {what} {directory} is not used, because {problem}; {fix}")


def _components(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the path and the status of each directory and each symbolic link on the way to a
    directory. Raises OSError if one of them does not exist.
    """
    current = Path("/")
    yield current, current.lstat()
    pending = os.fspath(directory).split("/")[::-1]
    links = 0
    while pending:
        name = pending.pop()
        if name == "..":
            current = current.parent
        if name in ("", ".", ".."):
            continue
        path = current / name
        info = path.lstat()
        yield path, info
        if not stat.S_ISLNK(info.st_mode):
            current = path
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = os.fspath(path.readlink())
        pending += target.split("/")[::-1]
        if target.startswith("/"):
            current = Path("/")


def _problem(path: Path, info: os.stat_result, *, is_last: bool) -> str | None:
    """Return how another user can change the directory or link at ``path``, or None if no other
    user can.
    """
    if info.st_uid not in (_ROOT_UID, os.geteuid()) and (is_last or not _is_unmapped(info.st_uid)):
        return f"{path} belongs to {user_name(info.st_uid)}, who can change its contents"
    if stat.S_ISLNK(info.st_mode):
        return None
    others = stat.S_IWGRP | stat.S_IWOTH
    if not info.st_mode & others or (info.st_mode & stat.S_ISVTX and not is_last):
        return None
    fix = _fix_of_mode(path, info, is_last=is_last)
    if info.st_mode & stat.S_IWOTH:
        return f"other users may write to {path} ({fix})"
    if _is_own_group(info.st_gid) or _is_trusted_group(info.st_gid):
        return None
    group = _group_name(info.st_gid)
    trust = f"if you trust them, set {TRUSTED_GROUPS_VARIABLE}={group}"
    return f"members of group {group} may write to {path} ({fix}; {trust})"


def _fix_of_mode(path: Path, info: os.stat_result, *, is_last: bool) -> str:
    """Return how the mode of a directory must be changed so that the directory can be used."""
    # With the sticky bit, other users can still create files in a parent directory, but they cannot
    # replace the directories of this user.
    command = f"chmod go-w {path}" if is_last else f"chmod +t {path}"
    if os.geteuid() in (_ROOT_UID, info.st_uid):
        return f"to change this, run: {command}"
    return f"its owner can change this with: {command}"


def user_name(uid: int) -> str:
    """Return ``user NAME`` for a user identifier, or ``user NUMBER`` if the user has no name."""
    import pwd

    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def _group_name(gid: int) -> str:
    """Return the name of a group, or its number if it has no name."""
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _is_trusted_group(gid: int) -> bool:
    """Return whether the user trusts the members of a group."""
    words = os.environ.get(TRUSTED_GROUPS_VARIABLE, "").split(",")
    trusted = {word.strip() for word in words}
    return str(gid) in trusted or _group_name(gid) in trusted


def _is_own_group(gid: int) -> bool:
    """Return whether a group is this user's own group, which has the user's name and no other
    members. Some Linux distributions create such groups, and make new files writable for them.
    """
    import grp
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return (
        gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    )


def _is_unmapped(uid: int) -> bool:
    """Return whether ``uid`` stands for all users that do not exist in this user namespace.

    In some containers, root itself is such a user, so that even / does not belong to root.
    """
    try:
        overflow = Path("/proc/sys/kernel/overflowuid").read_text()
        mapped = Path("/proc/self/uid_map").read_text().split()
    except OSError:
        return False
    # The fields are the first identifier inside, the first identifier outside, and the number of
    # identifiers. Outside of containers, all identifiers are mapped.
    is_container = mapped[:2] != ["0", "0"] or len(mapped) > 3
    return uid == int(overflow) and is_container
