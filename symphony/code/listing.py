"""Listing the files of a directory that belong to the code."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import subprocess
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from symphony.code.git import GIT, git_environment, is_in_repository
from symphony.code.ignore import Ignore, Matches, parse_git_rules
from symphony.errors import SpecError
from symphony.model.limits import (
    MAX_BYTES,
    MAX_CODE_FILES,
    MAX_DIRECTORY_LEVELS,
    TOO_MANY_DIRECTORIES,
)
from symphony.model.settings.code import CodeSource

IGNORE_FILE = ".symphonyignore"
# Files that a program creates again. They belong to the code only if git tracks them.
WASTE = (
    ".git",
    ".hg",
    ".svn",
    ".venv",
    "venv",
    "node_modules",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    ".ipynb_checkpoints",
    ".tox",
    ".nox",
    ".DS_Store",
)
# Files that editors create while a file is edited. They are treated in the same way.
TEMPORARY = ("*.swp", "*.swx", "*~", ".#*", "#*#")
_IS_TEMPORARY = re.compile("|".join(map(fnmatch.translate, TEMPORARY))).match
_KINDS = frozenset({stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR})
_EVERYTHING = parse_git_rules(["*"], "").patterns


@dataclass(frozen=True, slots=True)
class CodeFile:
    """A regular file or a symbolic link: its path in the code, and its file status."""

    path: str
    info: os.stat_result

    @property
    def is_link(self) -> bool:
        """True for a symbolic link."""
        return stat.S_ISLNK(self.info.st_mode)


def list_files(directory: Path, source: CodeSource) -> list[CodeFile]:
    """Return the files of the code in ``directory``, sorted by the bytes of their paths.

    In a git repository, these are the tracked files and the untracked files that git does not
    ignore, also in submodules. Elsewhere, these are all files except `WASTE`, `TEMPORARY` and
    virtual environments. The patterns in `IGNORE_FILE` and in ``source`` are then applied. Sockets,
    devices and other special files are omitted. Raises `SpecError` if a pattern is invalid, if
    there are too many files, or if git cannot list the files. Raises OSError if a directory cannot
    be read.
    """
    _refuse_root(directory)
    rules = _read_rules(directory, source)
    if is_in_repository(directory.resolve()):
        files = _files_in_repository(str(directory), "", rules)
    else:
        files = _files(str(directory), _paths_below(str(directory), "", rules, 0))
    # git lists a file with a merge conflict several times.
    unique: dict[str, CodeFile] = {}
    for file in files:
        unique[file.path] = file
        if len(unique) > MAX_CODE_FILES:
            raise SpecError(
                f"code: {directory} has more than {MAX_CODE_FILES} files; set code to the "
                f"directory of the project, or exclude files in {directory / IGNORE_FILE}"
            )
    return sorted(unique.values(), key=lambda file: os.fsencode(file.path))


def list_directories(directory: Path, source: CodeSource) -> Iterator[str]:
    """Yield the paths of the directories in which new files would belong to the code.

    Directories that are ignored as a whole are omitted, unless a file in them was included again.
    """
    _refuse_root(directory)
    root = str(directory)
    ignored: frozenset[str] = frozenset()
    if is_in_repository(directory.resolve()):
        found = _git_paths(root, "", "--others", "--ignored", "--exclude-standard", "--directory")
        ignored = frozenset(path.rstrip("/") for path in found)
    yield from _directories_below(root, "", _read_rules(directory, source), ignored, 0)


def _refuse_root(directory: Path) -> None:
    """Raise `SpecError` for the root of the file system, which contains every other directory."""
    if directory.resolve() == Path("/"):
        raise SpecError(
            f"code: {directory} is the root of the file system; set code to the directory of the "
            "project"
        )


def _directories_below(
    root: str, below: str, rules: _Rules, ignored: Collection[str], depth: int
) -> Iterator[str]:
    directory = f"{root}/{below}".rstrip("/")
    try:
        with os.scandir(directory) as found:
            entries = [entry for entry in found if entry.name not in WASTE]
    except (FileNotFoundError, PermissionError):
        return
    if below and any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    yield directory
    for entry in entries:
        path = f"{below}{entry.name}"
        is_left_out = path in ignored or not entry.is_dir(follow_symlinks=False)
        if is_left_out or depth > MAX_DIRECTORY_LEVELS or rules.excludes_directory(path):
            continue
        yield from _directories_below(root, f"{path}/", rules, ignored, depth + 1)


def _ignore_lines(directory: Path) -> list[str]:
    """Return the lines of `IGNORE_FILE`, which can be a link to another file of the directory.

    A cloned repository can contain any link. Patterns are quoted in error messages, so the file
    must not show what another file on this machine contains. Raises `SpecError` if it could.
    """
    path = directory / IGNORE_FILE
    try:
        resolved = path.resolve(strict=True)
        if not resolved.is_relative_to(directory.resolve()):
            raise SpecError(f"code: {path} leads outside the directory; replace it with a file")
        # Opening a named pipe would wait for a writer.
        descriptor = os.open(resolved, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return []
    except RuntimeError:
        raise SpecError(f"code: {path} is a link to itself; replace it with a file") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SpecError(f"code: {path} is not a regular file; replace it with a file")
        content = os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_BYTES:
        raise SpecError(f"code: {path} is larger than {MAX_BYTES >> 20} MiB; remove patterns")
    return content.decode("utf-8-sig", errors="surrogateescape").splitlines()


def _files(root: str, paths: Iterable[str]) -> Iterator[CodeFile]:
    """Yield the regular files, links and directories at paths that are relative to ``root``.

    Paths that lead out of ``root`` are omitted. The index of a repository can contain ``..``, and a
    tracked directory can have been replaced by a link to another one.
    """
    real_directories = {"": True}
    for path in paths:
        parent = path.rstrip("/").rpartition("/")[0]
        if not _is_real_directory(root, parent, real_directories) or path.startswith("/"):
            continue
        try:
            info = os.lstat(f"{root}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            # git also lists tracked files that were deleted.
            continue
        if stat.S_IFMT(info.st_mode) in _KINDS:
            yield CodeFile(path, info)


def _is_real_directory(root: str, path: str, known: dict[str, bool]) -> bool:
    """Return whether a path below ``root`` consists of directories, and not of links or ``..``.

    ``known`` contains the results of earlier calls.
    """
    if path not in known:
        parent, _, name = path.rpartition("/")
        is_real = name not in ("", ".", "..") and _is_real_directory(root, parent, known)
        if is_real:
            try:
                is_real = stat.S_ISDIR(os.lstat(f"{root}/{path}").st_mode)
            except (FileNotFoundError, NotADirectoryError):
                is_real = False
        known[path] = is_real
    return known[path]


# --- patterns ---


@dataclass(slots=True, kw_only=True)
class _Rules:
    """The patterns of the user. The matches of each directory are determined once."""

    exclude: Ignore
    include: Ignore
    _matches: dict[tuple[bool, str], Matches] = field(default_factory=dict)

    @property
    def includes_again(self) -> bool:
        """True if a pattern can include files again that git ignores."""
        return any(pattern.exception for pattern in self.exclude.patterns)

    def select(self, paths: Iterable[str], *, ignored: bool = False) -> Iterator[str]:
        """Yield the paths that belong to the code. ``ignored`` paths must be included again."""
        exclude = self.exclude
        if ignored:
            exclude = replace(exclude, patterns=(*_EVERYTHING, *exclude.patterns))
        if not exclude.patterns and not self.include.patterns:
            yield from paths
            return
        for path in paths:
            if exclude.patterns and self._is_matched(exclude, path, ignored):
                continue
            if self.include.patterns and not self._is_included(path):
                continue
            yield path

    def excludes_directory(self, path: str) -> bool:
        """Return whether no file in a directory belongs to the code."""
        if not self.exclude.patterns or self.exclude.may_include_again(path):
            return False
        return self._is_matched(self.exclude, path, False)

    def _is_matched(self, rules: Ignore, path: str, ignored: bool) -> bool:
        return rules.excludes(rules.matches(path, self._above(rules, path, ignored)))

    def _above(self, rules: Ignore, path: str, ignored: bool) -> Matches | None:
        """Return the matches of the directory that contains ``path``."""
        parent = path.rpartition("/")[0]
        if not parent:
            return None
        key = (ignored, parent)
        if key not in self._matches:
            above = self._above(rules, parent, ignored)
            self._matches[key] = rules.matches(parent, above)
        return self._matches[key]

    def _is_included(self, path: str) -> bool:
        above: Matches | None = None
        names = path.split("/")
        for count in range(1, len(names) + 1):
            above = self.include.matches("/".join(names[:count]), above)
        return above is not None and self.include.excludes(above)


def _read_rules(directory: Path, source: CodeSource) -> _Rules:
    """Return the patterns in `IGNORE_FILE` and in ``source``."""
    return _Rules(
        exclude=parse_git_rules(
            [*_ignore_lines(directory), *source.exclude], f"{directory / IGNORE_FILE}, or exclude"
        ),
        include=parse_git_rules(source.include, "include"),
    )


# --- git ---


def _files_in_repository(root: str, below: str, rules: _Rules) -> Iterator[CodeFile]:
    """Yield the files in the repository that contains the directory ``root/below``.

    ``below`` is empty, or the path of a submodule with a slash at its end.
    """
    options = [f"--exclude={name}" for name in (*WASTE, *TEMPORARY)]
    listed = _git_paths(root, below, "--cached", "--others", "--exclude-standard", *options)
    for file in _files(root, rules.select(listed)):
        if not stat.S_ISDIR(file.info.st_mode):
            yield file
        elif Path(root, file.path, ".git").exists():
            # A submodule or another repository is a directory for git.
            yield from _files_in_repository(root, f"{file.path.rstrip('/')}/", rules)
    if rules.includes_again:
        others = _git_paths(root, below, "--others", "--ignored", "--exclude-standard")
        yield from _files(root, rules.select(others, ignored=True))


def _git_paths(root: str, below: str, *options: str) -> list[str]:
    directory = Path(root, below)
    command = [*GIT, "ls-files", "-z", *options]
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=git_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise SpecError(
            f"the code in {directory} is in a git repository, and git is needed to list its files; "
            "install git"
        ) from None
    if done.returncode != 0:
        message = os.fsdecode(done.stderr).strip().splitlines()
        reason = message[0] if message else f"git exited with {done.returncode}"
        raise SpecError(f"git cannot list the files of the code in {directory}: {reason}")
    paths = os.fsdecode(done.stdout).split("\0")[:-1]
    return [f"{below}{path}" for path in paths] if below else paths


# --- without git ---


def _paths_below(directory: str, below: str, rules: _Rules, depth: int) -> Iterator[str]:
    if depth > MAX_DIRECTORY_LEVELS:
        raise SpecError(f"the code in {directory}: {TOO_MANY_DIRECTORIES}")
    try:
        with os.scandir(directory) as found:
            entries: Sequence[os.DirEntry[str]] = list(found)
    except FileNotFoundError:
        return
    if below and any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        if entry.name in WASTE or _IS_TEMPORARY(entry.name):
            continue
        path = f"{below}{entry.name}"
        if not entry.is_dir(follow_symlinks=False):
            yield from rules.select([path])
        elif not rules.excludes_directory(path):
            yield from _paths_below(entry.path, f"{path}/", rules, depth + 1)
