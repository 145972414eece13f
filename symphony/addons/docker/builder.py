"""Building an image from files in arbitrary locations, and pushing the image."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from symphony.addons.docker.context import build_context
from symphony.addons.docker.detect_engine import check_choice, find
from symphony.addons.docker.engines import Engine
from symphony.addons.docker.subprocesses import Output
from symphony.config.locations import expand_user
from symphony.errors import BackendError, SpecError, error_path, shown
from symphony.model.experiment.images import context_entries
from symphony.model.settings import validators
from symphony.support.attribute_checks import CheckedAttributes
from symphony.support.names import did_you_mean

KEYS = ("dockerfile", "context_directories", "temp_directory", "verbose", "engine", "build_options")
# The keys without which a build uses different files.
_FILE_KEYS = KEYS[:3]
# The grammar for tags in the OCI Distribution Specification.
_TAG = re.compile(r"[A-Za-z0-9_][-.A-Za-z0-9_]{0,127}")

_Paths = str | os.PathLike[str]


class DockerBuilder(CheckedAttributes):
    """A builder that builds one image with docker or podman.

    ``context_directories`` is a list of ``{"name": ..., "path": ..., "force_update": ...}``. Each
    file or directory is placed in the build context under its ``name``. By default, the context is
    empty. Files that a ``.dockerignore`` file in such a directory excludes are omitted. The context
    is created in a subdirectory of ``temp_directory``, using hard links if possible. Files that
    have not changed since the last build are not linked or copied again, unless ``force_update`` is
    set. If ``temp_directory`` is not set, each build uses a new temporary directory, which is
    removed after the build. Relative paths are relative to the current working directory, and ``~``
    is the user's home directory.

    The engine's output is passed to ``output`` line by line. Without ``output``, the engine's
    output goes to standard error if ``verbose`` is set, and is discarded otherwise. ``engine`` is
    ``docker``, ``docker-buildx``, ``docker-buildkit``, ``docker-classic`` or ``podman``. If neither
    ``engine`` nor SYMPHONY_CONTAINER_ENGINE is set, the first engine that responds is used.
    ``build_options`` are additional arguments for the engine's ``build`` command.

    The constructor accesses neither files nor the engine. If a step fails, `BackendError` is raised
    with the last lines of the step's output. After a failed build, no image can be tagged or pushed
    until a build succeeds.
    """

    def __init__(
        self,
        dockerfile: _Paths,
        context_directories: Iterable[Mapping[str, Any]] = (),
        temp_directory: _Paths | None = None,
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
        self._temp_directory: Path | None = None
        if temp_directory is not None:
            self._temp_directory = _absolute(temp_directory, "temp_directory")
        self._options = validators.strings(build_options, "build_options")
        if not isinstance(verbose, bool):
            raise SpecError(f"verbose must be true or false, not {shown(verbose)}")
        validators.optional_function(output, "output")
        self._choice = check_choice(engine, {})
        self._output = output or (_to_stderr if verbose else _discard)
        self._found: Engine | None = None
        self._image: str | None = None

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> DockerBuilder:
        """Return a builder with the given ``settings``.

        The keys are the names of the constructor's arguments except ``output``. Only ``dockerfile``
        is required. Other keys, such as ``name``, are ignored. Raises `SpecError` if ``dockerfile``
        is missing, or if a key looks like a misspelled ``dockerfile``, ``context_directories`` or
        ``temp_directory``.
        """
        settings = validators.mapping(settings, "settings")
        given = {key: settings[key] for key in KEYS if settings.get(key) is not None}
        absent = [key for key in _FILE_KEYS if key not in settings]
        for key in settings:
            if key not in KEYS and did_you_mean(key, absent):
                raise validators.unknown_key(key, absent, "a DockerBuilder")
        if "dockerfile" not in given:
            raise SpecError(
                "a DockerBuilder needs a dockerfile; set it to the path of a Dockerfile",
                path=("dockerfile",),
            )
        return cls(**given)

    @property
    def image_id(self) -> str | None:
        """The ID of the most recently built image, as ``sha256:...``. It is None before the first
        build and after a failed build.
        """
        return self._image

    def build(self, tag: str | None = None) -> str:
        """Create the build context, build the image, and return the image ID as ``sha256:...``.
        ``tag`` is an optional name for the image in the form ``name`` or ``name:tag``.

        Raises `SpecError` if the Dockerfile or a context entry does not exist, and `BackendError`
        if the build fails.
        """
        self._image = None
        if tag is not None:
            _check_reference(tag)
        if not self._dockerfile.is_file():
            raise SpecError(f"there is no Dockerfile {self._dockerfile}")
        engine = self._engine()
        with build_context(self._entries, self._temp_directory) as context:
            self._output(
                f"collected {_file_count(context.files)}: "
                f"{context.linked} linked, {context.copied} copied\n"
            )
            found = engine.build(
                context.directory,
                self._dockerfile,
                context.id_file,
                tag,
                self._options,
                self._output,
            )
        if found is None:
            raise BackendError(
                f"{engine.kind} built {self._dockerfile} but did not keep the image: "
                "give the build a tag, or choose a builder that loads the image"
            )
        self._image = found
        return found

    def tag(self, repository: str, tag: str) -> str:
        """Tag the image as ``repository:tag``, and return this name."""
        reference, image = _reference(repository, tag), self._built_image()
        self._engine().tag(image, reference)
        return reference

    def push(self, repository: str, tag: str) -> str:
        """Push the image as ``repository:tag``, and return its digest in the registry as
        ``sha256:...``. Raises `BackendError` if the image has not been tagged with this name.
        """
        reference, image = _reference(repository, tag), self._built_image()
        engine = self._engine()
        if engine.image_id(reference) != image:
            raise BackendError(
                f"{reference} is not the image that was built: "
                f"tag it first with tag({repository!r}, {tag!r})"
            )
        with tempfile.TemporaryDirectory(prefix="symphony-push-") as directory:
            digest = engine.push(reference, Path(directory, "digest"), self._output)
        if digest is None:
            raise BackendError(
                f"{reference} was pushed, but {engine.kind} did not report its digest"
            )
        return digest

    def build_and_push(self, repository: str, tag: str) -> str:
        """Build the image, tag and push it as ``repository:tag``, and return its digest in the
        registry as ``sha256:...``.
        """
        _reference(repository, tag)
        self.build()
        self.tag(repository, tag)
        return self.push(repository, tag)

    def _engine(self) -> Engine:
        if self._found is None:
            self._found = find(self._choice)
        return self._found

    def _built_image(self) -> str:
        if self._image is None:
            raise BackendError(
                f"no image was built from {self._dockerfile}: "
                "call build() first, and fix the errors that it reports"
            )
        return self._image


def _absolute(path: _Paths, what: str) -> Path:
    return Path(os.path.abspath(expand_user(validators.path(path, what))))  # noqa: PTH100


def _reference(repository: str, tag: str) -> str:
    name, text = validators.repository(repository), validators.text(tag, "a tag")
    if not _TAG.fullmatch(text):
        raise SpecError(
            f"tag {text!r} is not valid: use at most 128 letters, digits, '_', '-' and '.', "
            "and start with neither '-' nor '.'"
        )
    return f"{name}:{text}"


def _check_reference(reference: str) -> None:
    """Raise `SpecError` unless ``reference`` has the form ``name`` or ``name:tag``."""
    reference = validators.text(reference, "tag")
    name, colon, tag = reference.rpartition(":")
    if colon and "/" not in tag:
        _reference(name, tag)
    else:
        validators.repository(reference)


def _file_count(files: int) -> str:
    return f"{files} file{'' if files == 1 else 's'}"


def _to_stderr(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _discard(_: str) -> None:
    pass
