"""``init``: write a starter project."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import OK
from symphony.commandline.output.terminal import print_note, print_text
from symphony.commandline.parsing.command import Command
from symphony.errors import AlreadyExists, SpecError
from symphony.support.names import check_name, join_names, suggested_name

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(
    changes=True,
    json="the paths of the written files as JSON",
    no_tool="it only writes files, which agents can do themselves",
)

# The files in the starter project, in the order in which the command reports them.
FILES = ("experiment.yml", "collector.py", "worker.py", "Dockerfile", ".dockerignore", "README.md")
_TEMPLATE_DIRECTORY = "starter"
# The experiment name in the template files.
_TEMPLATE_NAME = "my-experiment"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "directory",
        metavar="DIRECTORY",
        nargs="?",
        default=".",
        help="project directory (default: the current directory)",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="experiment name (default: derived from the directory name)",
    )


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Create a small starter project.

    The project contains an experiment with two processes that communicate through a service,
    their programs, a Dockerfile and a README. The programs need only Python. Existing files are
    never overwritten: if one of the files already exists, nothing is written.

    For example:
      symphony init pi
      cd pi && symphony launch experiment.yml --follow
    """
    directory = Path(args.directory)
    name = experiment_name(directory.absolute(), args.name)
    texts = file_contents(name)
    if args.dry_run:
        paths = target_paths(directory, texts)
    else:
        paths = write_files(directory, texts)
    if args.json:
        from symphony.commandline.output.printing import show_json

        show_json({"experiment": name, "files": [str(path) for path in paths]})
    elif args.dry_run:
        for path in paths:
            print_note(f"would write {path}")
    else:
        from symphony.commandline.output.views import align_pairs

        hints = [text.rstrip() for text in align_pairs(_first_commands(line, args.directory, name))]
        print_text("\n".join([*(f"wrote {path}" for path in paths), *hints]))
    return OK


def _first_commands(line: Line, directory: str, name: str) -> list[tuple[str, str]]:
    """Return the first commands to run in the new project, each with a description."""
    import shlex

    commands = [
        (f"{line.prog} launch experiment.yml --follow", "run it on this machine"),
        (f"{line.prog} delete {name}", "delete it"),
        (f"docker build --tag {name}:1 .", "build its image for Kubernetes; see README.md"),
    ]
    if directory == ".":
        return commands
    return [(f"cd {shlex.quote(directory)}", ""), *commands]


def experiment_name(directory: Path, given: str | None) -> str:
    """Return ``given``, or a name derived from the directory name if ``given`` is None.

    Raises `SpecError` if ``given`` is not a valid name or no name can be derived.
    """
    if given is not None:
        return check_name(given, "experiment")
    name = suggested_name(directory.name)
    if not name:
        raise SpecError(
            f"cannot derive an experiment name from the directory {str(directory)!r}; pass --name"
        )
    return name


def file_contents(name: str) -> dict[str, str]:
    """Return the contents of the project files for the experiment ``name``, keyed by file name."""
    from importlib.resources import files

    templates = files("symphony.commandline").joinpath(_TEMPLATE_DIRECTORY)
    contents = {}
    for file in FILES:
        template = templates.joinpath(file).read_text(encoding="utf-8")
        contents[file] = template.replace(_TEMPLATE_NAME, name)
    return contents


def target_paths(directory: Path, names: Iterable[str]) -> list[Path]:
    """Return the path in ``directory`` of each file in ``names``.

    Raises `AlreadyExists` if any of the files already exists.
    """
    paths = [directory / name for name in names]
    existing = [str(path) for path in paths if path.is_symlink() or path.exists()]
    if existing:
        raise AlreadyExists(
            f"nothing was written because these files exist: {join_names(existing)}; "
            "choose another directory, or move the files away"
        )
    return paths


def write_files(directory: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write all files or none, and return their paths. Create missing directories.

    Raises `AlreadyExists` if any of the files already exists, and `SpecError` if a file or
    directory cannot be created.
    """
    paths = target_paths(directory, texts)
    texts_by_path = dict(zip(paths, texts.values(), strict=True))
    try:
        with _removed_on_error() as created:
            _create_files(directory, texts_by_path, created)
    except OSError as exc:
        raise SpecError(f"{exc.filename or directory}: cannot be written: {exc.strerror}") from exc
    return paths


def _create_files(directory: Path, texts: Mapping[Path, str], created: list[Path]) -> None:
    """Create the files and all missing directories. Append each created path to ``created``."""
    for parent in reversed([directory, *directory.parents]):
        if parent.is_dir():
            continue
        if parent.exists():
            raise SpecError(f"{parent} is not a directory, so {directory} cannot be created")
        parent.mkdir()
        created.append(parent)
    for path, text in texts.items():
        with path.open("x", encoding="utf-8") as file:
            created.append(path)
            file.write(text)


@contextlib.contextmanager
def _removed_on_error() -> Iterator[list[Path]]:
    """Yield a list for the paths that the block creates. If the block raises an error, remove the
    files and directories at these paths.
    """
    created: list[Path] = []
    try:
        yield created
    except BaseException:
        for path in reversed(created):
            with contextlib.suppress(OSError):
                if path.is_dir():
                    path.rmdir()
                else:
                    path.unlink()
        raise
