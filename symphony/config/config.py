"""`SymphonyConfig`: what is configured here and now, and the one object that says it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.config import finding

if TYPE_CHECKING:
    from pathlib import Path

    from symphony.config.fields import Place
    from symphony.config.merging import Given, Layer

Handler = Callable[[Any], object]

DEFAULT_BACKEND = "local"
BUILT_IN = "built-in"
PROGRAM = "the program"
BACKEND_OPTION, PROFILE_OPTION = "--backend", "--profile"


class SymphonyConfig:
    """The configuration of this program: one object, whichever call returns it.

    What holds is decided by the first of these that says anything of a field: the command line, this program (`update`
    and the other methods here), variables of the environment, the profile that is chosen, the file of the project
    (``.symphony.yml`` of the working directory or the nearest folder above), the file that ``SYMPHONY_CONFIG`` names,
    and the user's own (``~/.config/symphony/config.yml``). A profile that is chosen on the command line or by the
    program stands right below what chose it. None takes away what sources further down say.

    Files are read when a value is first asked for, and again when the working directory or the environment says
    otherwise. What is wrong in one raises `SpecError` with the file and the line.
    """

    _the_one: ClassVar[SymphonyConfig | None] = None

    _program: list[Layer]
    _typed: dict[str, str]
    _handlers: dict[str, list[Handler]]
    _read: tuple[object, list[Layer]] | None
    _merged: dict[Place, Given] | None

    def __new__(cls) -> SymphonyConfig:
        if cls._the_one is None:
            cls._the_one = super().__new__(cls)
            cls._the_one.reset()
        return cls._the_one

    def __repr__(self) -> str:
        return "SymphonyConfig()"

    # --- what holds ---

    @property
    def username(self) -> str | None:
        """The user's name, with which the names of new experiments begin."""
        return self._value("username")  # type: ignore[no-any-return]

    @property
    def experiment_folder(self) -> Path | None:
        """The folder in which every launch is saved."""
        found = self._value("experiment_folder")
        if found is None:
            return None
        from pathlib import Path

        return Path(found)

    @property
    def backend(self) -> str:
        """The backend that is used where none is named."""
        return self._value("backend") or DEFAULT_BACKEND

    @property
    def profile(self) -> str | None:
        """The profile that is chosen."""
        return self._value("profile")  # type: ignore[no-any-return]

    def get(self, field: str, default: Any = None) -> Any:
        """The value of a field, or ``default``; of ``resources`` and ``options`` the mapping of all that they hold.

        Raises `SpecError` for a field that nobody knows.
        """
        self._check_known(field)
        if field == "backend":
            return self.backend
        found = self._value(field)
        return default if found is None else found

    def settings(self) -> dict[str, Given]:
        """Everything that is set, with where it was said, by field (``resources.cpu``)."""
        from symphony.config.merging import Given

        found = {".".join(place): given for place, given in self._effective().items()}
        return {
            **({} if "backend" in found else {"backend": Given(DEFAULT_BACKEND, BUILT_IN)}),
            **found,
        }

    def experiment_name(self, name: str) -> str:
        """What a new experiment is called: with the user's name before it, where there is one."""
        username = self.username
        if username is None:
            return name
        from symphony.config.naming import with_user

        return with_user(username, name)

    def options_for(self, backend: str, names: Iterable[str]) -> dict[str, Any]:
        """What is configured for a backend: keywords for its class, of which ``names`` are those that it knows."""
        if self.is_empty():
            return {}
        from symphony.config.fields import OF_BACKENDS

        known = set(names)
        found = {field: self._value(field) for field in OF_BACKENDS if field in known}
        given = {field: value for field, value in found.items() if value is not None}
        return {**given, **(self._value("options") or {}).get(backend, {})}

    def source(self, field: str) -> str | None:
        """Where the value of a field was said: a file with its line, a variable, ``--profile``; None of a built-in."""
        found = {} if self.is_empty() else self._effective()
        given = found.get((field,))
        return None if given is None else given.source

    def profile_of(self, field: str) -> str | None:
        """The profile that says the value that holds; None where none does."""
        way = () if self.is_empty() else self._said_at((field,))[1]
        return way[-1] if way else None

    def position(self, *place: str) -> str | None:
        """Where in a file a value, or a group of values, was said (``"options", "kube"``); None of all else."""
        if self.is_empty():
            return None
        layer, way = self._said_at(place)
        return None if layer is None or layer.where is None else layer.where((*way, *place))

    def profiles(self) -> list[str]:
        """The names of the profiles that there are."""
        layers = [*self._program, *self._outside()]
        return list(dict.fromkeys(name for layer in layers for name in layer.profiles))

    def is_empty(self) -> bool:
        """Whether nothing is configured but the backend that was typed, which is quick to tell."""
        return not (self._program or PROFILE_OPTION in self._typed or self._outside())

    # --- what the program sets ---

    def set_username(self, username: str | None) -> None:
        """Let the names of new experiments begin with ``username-``. Raises `SpecError` for one that cannot."""
        self.update({"username": username})

    def set_experiment_folder(self, folder: str | os.PathLike[str] | None) -> None:
        """Save every launch in a folder of its name below ``folder``."""
        self.update({"experiment_folder": None if folder is None else os.fspath(folder)})

    def update(self, settings: Mapping[str, Any]) -> None:
        """Set several fields, in the form of a file; relative paths are relative to the working directory.

        Unknown keys raise `SpecError` with the near miss, and then nothing is set.
        """
        from symphony.config import sources

        self._set(sources.of_program(settings, PROGRAM, self._own()))

    def load_config_file(self, path: str | os.PathLike[str]) -> None:
        """Set what a YAML, JSON or TOML file says, as if the program said it. Raises `NotFound` and `SpecError`."""
        from pathlib import Path

        from symphony.config import files

        self._set(files.layer(Path(path), self._own(), found=False))

    def register_handler(self, field: str, handler: Handler) -> None:
        """Call ``handler`` with the new value whenever this program changes a field, and now if it is set already.

        A value that is no longer set is None. A field that symphony does not know becomes one of the program's own,
        which `update` and `load_config_file` take from then on; in files that are looked for, keys of your own begin
        with ``x-``. A handler that raises refuses the change, and `SpecError` says so.
        """
        from symphony.config import handling

        handling.check(field, handler)
        new = field not in self._handlers
        self._handlers.setdefault(field, []).append(handler)
        try:
            value = self._value(field)
            if value is not None:
                handling.call(field, handler, value)
        except BaseException:
            self._handlers[field].remove(handler)
            if new:
                del self._handlers[field]
            raise

    def reset(self) -> None:
        """Forget what the program set and its handlers: what files and the environment say holds again."""
        self._program = []
        self._typed = {}
        self._handlers = {}
        self._read = self._merged = None

    def set_command_line(self, typed: Mapping[str, str]) -> None:
        """What was typed, by option (``{"--profile": "gke"}``), over all else; of the command line that runs now."""
        self._typed = dict(typed)
        self._merged = None

    # --- inside ---

    def _own(self) -> list[str]:
        return [*self._handlers]

    def _check_known(self, field: str) -> None:
        from symphony.config import fields
        from symphony.errors import SpecError
        from symphony.names import did_you_mean

        known = (*fields.FIELDS, *fields.GROUPS, *self._own())
        if field not in known and not field.startswith(fields.OWN):
            raise SpecError(f"a configuration knows no {field!r}{did_you_mean(field, known)}")

    def _value(self, field: str) -> Any:
        if self.is_empty():
            return self._typed.get(BACKEND_OPTION) if field == "backend" else None
        from symphony.config.fields import GROUPS, nested

        found = self._effective()
        if field in GROUPS:
            return (
                nested(
                    {place[1:]: given.value for place, given in found.items() if place[0] == field}
                )
                or None
            )
        given = found.get((field,))
        return None if given is None else given.value

    def _effective(self) -> dict[Place, Given]:
        outside = self._outside()  # which forgets what was merged where it is no longer so
        if self._merged is None:
            from symphony.config.merging import merged
            from symphony.config.sources import of_command_line

            self._merged = merged([of_command_line(self._typed), *self._program, *outside])
        return self._merged

    def _said_at(self, place: Place) -> tuple[Layer | None, Place]:
        """What says the value that holds at a place, or the first of those below it, and where in that it is."""
        size = len(place)
        first = next((item for item in self._effective().items() if item[0][:size] == place), None)
        if first is not None:
            for layer in [*self._program, *self._outside()]:
                way = layer.way_to(*first)
                if way is not None:
                    return layer, way
        return None, ()

    def _outside(self) -> list[Layer]:
        """The environment and the files, read again where they may be others than before."""
        folder = finding.working_folder()
        key = (folder, *(os.environ.get(name) for name in finding.WATCHED))
        if self._read is None or self._read[0] != key:
            self._merged = None
            self._read = (key, _outside(folder))
        return self._read[1]

    def _set(self, layer: Layer) -> None:
        """Put a layer over the program's others and tell the handlers; where one refuses, all is as before."""
        from symphony.config import handling

        watched = self._own()
        before, program = {field: self._value(field) for field in watched}, self._program
        self._program, self._merged = [layer, *program], None
        told: list[str] = []
        try:
            for field in watched:
                value = self._value(field)
                if value != before[field]:
                    told.append(field)
                    for handler in self._handlers[field]:
                        handling.call(field, handler, value)
        except BaseException:
            self._program, self._merged = program, None
            handling.tell_again(self._handlers, {field: before[field] for field in told})
            raise


def _outside(folder: Path | None) -> list[Layer]:
    environ = os.environ
    variables = any(name in environ for name in finding.VARIABLES)
    project = [] if folder is None else finding.project_files(folder, finding.home_folder(environ))
    named, user = environ.get(finding.FILE_VARIABLE), finding.user_files(environ)
    if not (variables or project or named or user):
        return []
    from symphony.config import sources

    return sources.of_surroundings(environ, project, named, user)
