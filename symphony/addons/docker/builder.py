"""Building an image from files that lie anywhere, and pushing it."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from symphony.addons.docker.context import gathered
from symphony.addons.docker.detect_engine import check_choice, find
from symphony.addons.docker.engines import Engine
from symphony.addons.docker.subprocesses import Output
from symphony.errors import BackendError, SpecError, error_path
from symphony.model import validators
from symphony.model.images import context_entries

KEYS = ("dockerfile", "context_directories", "temp_directory", "verbose", "engine", "build_options")
_NEEDED = KEYS[:3]
# The OCI distribution's reference grammar
_TAG = re.compile(r"[A-Za-z0-9_][-.A-Za-z0-9_]{0,127}")

_Paths = str | os.PathLike[str]


class DockerBuilder:
    """Builds one image by docker or podman.

    ``context_directories`` are ``{"name": ..., "path": ..., "force_update": ...}``: each file or folder appears in the
    build's context under its name, less what the ``.dockerignore`` in such a folder leaves out. They are gathered in
    a sub-folder of ``temp_directory``, by hard links where that is possible; what has not changed since the last build
    is kept, unless ``force_update`` says to gather it anew. Relative paths are relative to the working directory of
    now, and ``~`` is the user's home.

    What the engine writes goes to ``output``, line by line, or if ``verbose`` to standard error. ``engine`` is
    ``docker``, ``docker-buildx``, ``docker-buildkit``, ``docker-classic`` or ``podman``; without it, and without
    SYMPHONY_CONTAINER_ENGINE, it is the first that answers. ``build_options`` are further words for its ``build``.

    No file and no engine is looked at before `build`. A step that fails raises `BackendError` with its last lines, and
    after a build that failed nothing can be tagged or pushed.
    """

    def __init__(
        self,
        dockerfile: _Paths,
        context_directories: Iterable[Mapping[str, Any]],
        temp_directory: _Paths,
        *,
        verbose: bool = True,
        engine: str | None = None,
        build_options: validators.Strings = (),
        output: Output | None = None,
    ) -> None:
        self._dockerfile = _absolute(dockerfile, "dockerfile")
        with error_path("context_directories"):
            self._entries = tuple(
                replace(entry, path=str(_absolute(entry.path, f"the path of {entry.name!r}")))
                for entry in context_entries(context_directories)
            )
        self._temp_directory = _absolute(temp_directory, "temp_directory")
        self._options = validators.strings(build_options, "build_options")
        if not isinstance(verbose, bool):
            raise SpecError(f"verbose is true or false, not {verbose!r}")
        self._choice = check_choice(engine, {})
        self._output = output or (_to_stderr if verbose else _nowhere)
        self._found: Engine | None = None
        self._image: str | None = None

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> DockerBuilder:
        """A builder from a configuration: its keys are the keywords of the constructor, others are passed over."""
        given = {key: settings[key] for key in KEYS if settings.get(key) is not None}
        for key in _NEEDED:
            if key not in given:
                raise SpecError(
                    f"a DockerBuilder needs {', '.join(_NEEDED)}; there is no {key}", path=(key,)
                )
        return cls(**given)

    @property
    def image_id(self) -> str | None:
        """The id of what was built last, as ``sha256:...``; None before, and after a build that failed."""
        return self._image

    def build(self, tag: str | None = None) -> str:
        """Gather the context and build; the image's id, as ``sha256:...``. ``tag`` is a name for it, ``name:tag``.

        Raises `SpecError` where the Dockerfile or an entry is not there, else `BackendError`.
        """
        self._image = None
        if tag is not None:
            _check_reference(tag)
        if not self._dockerfile.is_file():
            raise SpecError(f"there is no Dockerfile {self._dockerfile}")
        engine = self._engine()
        with gathered(self._entries, self._temp_directory) as context:
            self._output(
                f"gathered {_counted(context.files)}, {context.linked} linked and {context.copied} copied\n"
            )
            found = engine.build(
                context.folder, self._dockerfile, context.answer, tag, self._options, self._output
            )
        if found is None:
            raise BackendError(
                f"{engine.kind} built {self._dockerfile} and did not keep the image: give the build a tag, or choose a "
                "builder that loads what it builds"
            )
        self._image = found
        return found

    def tag(self, repository: str, tag: str) -> str:
        """Name what was built ``repository:tag``, which is returned."""
        reference, image = _reference(repository, tag), self._built()
        self._engine().tag(image, reference)
        return reference

    def push(self, repository: str, tag: str) -> str:
        """Push what was built and tagged so; its digest in the registry, as ``sha256:...``."""
        reference, image = _reference(repository, tag), self._built()
        engine = self._engine()
        if engine.image_id(reference) != image:
            raise BackendError(
                f"{reference} is not what was built: tag it first, with tag({repository!r}, {tag!r})"
            )
        with tempfile.TemporaryDirectory(prefix="symphony-push-") as folder:
            digest = engine.push(reference, Path(folder, "digest"), self._output)
        if digest is None:
            raise BackendError(f"{reference} was pushed, but {engine.kind} did not tell its digest")
        return digest

    def build_and_push(self, repository: str, tag: str) -> str:
        """Build, tag and push; the digest in the registry, as ``sha256:...``."""
        _reference(repository, tag)
        self.build()
        self.tag(repository, tag)
        return self.push(repository, tag)

    def _engine(self) -> Engine:
        if self._found is None:
            self._found = find(self._choice)
        return self._found

    def _built(self) -> str:
        if self._image is None:
            raise BackendError(
                f"nothing was built of {self._dockerfile}: call build() first, and mend what it says"
            )
        return self._image


def _absolute(path: _Paths, what: str) -> Path:
    return Path(os.path.abspath(Path(validators.path(path, what)).expanduser()))


def _reference(repository: str, tag: str) -> str:
    name, text = validators.repository(repository), validators.text(tag, "a tag")
    if not _TAG.fullmatch(text):
        raise SpecError(
            f"tag {text!r} is not valid: at most 128 letters, digits, '_', '-' and '.', the last two not first"
        )
    return f"{name}:{text}"


def _check_reference(reference: str) -> None:
    """Refuse what is no ``name`` or ``name:tag``."""
    name, colon, tag = reference.rpartition(":")
    if colon and "/" not in tag:
        _reference(name, tag)
    else:
        validators.repository(reference)


def _counted(files: int) -> str:
    return f"{files} file{'' if files == 1 else 's'}"


def _to_stderr(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _nowhere(_: str) -> None:
    pass
