"""The sources of a configuration, each as a layer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from symphony.config import fields, finding
from symphony.config.merging import Given, Layer
from symphony.errors import NotFound, SpecError, error_path

# The options of the command line that set a field.
TYPED = {"--backend": "backend", "--profile": "profile"}


def of_command_line(typed: Mapping[str, str]) -> Layer:
    """What was typed, by option."""
    return Layer(values={(TYPED[option],): Given(value, option) for option, value in typed.items()})


def of_program(settings: Mapping[str, Any], source: str, own: Collection[str] = ()) -> Layer:
    """What the program says, in the form of a file. Raises `SpecError`, which names the key."""
    try:
        content = fields.read(settings, finding.working_folder() or Path("/"), own)
    except SpecError as exc:
        place = ".".join(map(str, exc.path))
        raise SpecError(f"{place}: {exc}" if place else str(exc), path=exc.path) from exc
    return Layer(
        values=_said(content.values, source),
        profiles={name: _said(settings, source) for name, settings in content.profiles.items()},
    )


def _said(settings: fields.Values, source: str) -> dict[fields.Place, Given]:
    return {place: Given(value, source) for place, value in settings.items()}


def of_environment(environ: Mapping[str, str]) -> Layer:
    """What variables say; an empty one takes away what sources further down say. Raises `SpecError`."""
    found: dict[fields.Place, Given] = {}
    for variable, field in finding.VARIABLES.items():
        written = environ.get(variable)
        if written is None:
            continue
        try:
            with error_path(field):
                value = (
                    fields.FIELDS[field].read(written, finding.working_folder() or Path("/"))
                    if written
                    else None
                )
        except SpecError as exc:
            raise SpecError(f"{variable}: {exc}", path=exc.path) from exc
        found[(field,)] = Given(value, variable)
    return Layer(values=found)


def of_surroundings(
    environ: Mapping[str, str], project: Sequence[Path], named: str | None, user: Sequence[Path]
) -> list[Layer]:
    """The environment and the files, those first that win; one file that is found twice counts once."""
    environment = of_environment(environ)
    found = _of_files(project, named, user) if project or named or user else []
    return [*([environment] if environment.values else []), *found]


def _of_files(project: Sequence[Path], named: str | None, user: Sequence[Path]) -> list[Layer]:
    from symphony.config import files

    found: dict[Path, Layer] = {}
    for path in [
        *([files.only(project)] if project else []),
        *_named(named),
        *([files.only(user)] if user else []),
    ]:
        real = path.resolve()
        if real not in found:
            if path in project:
                files.refuse_strangers(path)
            found[real] = files.layer(path, found=True)
    return list(found.values())


def _named(named: str | None) -> list[Path]:
    """The file that the variable names."""
    if not named:
        return []
    path = Path(named).expanduser()
    if not path.exists():
        raise NotFound(f"{finding.FILE_VARIABLE} names {path}, and there is no such file")
    return [path]


def places(environ: Mapping[str, str]) -> list[tuple[str, Path, bool]]:
    """Where files are looked for, those first that win: which it is, its path, and whether it is there."""
    folder, home = finding.working_folder(), finding.home_folder(environ)
    project = [] if folder is None else finding.project_files(folder, home)
    nearest = (folder or Path()) / finding.PROJECT_NAMES[0]
    named = environ.get(finding.FILE_VARIABLE)
    user, own = finding.user_files(environ), finding.user_folder(environ) / finding.USER_NAMES[0]
    return [
        *[("project", path, True) for path in project or ()],
        *([] if project else [("project", nearest, False)]),
        *(
            [(finding.FILE_VARIABLE, Path(named).expanduser(), Path(named).expanduser().exists())]
            if named
            else []
        ),
        *[("user", path, True) for path in user],
        *([] if user else [("user", own, False)]),
    ]
