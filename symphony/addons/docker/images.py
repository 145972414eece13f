"""Building and pushing the images that an experiment declares, and using their digests in the
experiment.
"""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from symphony.addons.docker.builder import DockerBuilder
from symphony.addons.docker.subprocesses import Output
from symphony.config.locations import expand_user
from symphony.errors import SpecError
from symphony.model import Experiment
from symphony.model.experiment.images import ContextEntry, ImageBuild
from symphony.model.settings import validators
from symphony.support.directories.home import home_directory
from symphony.support.names import did_you_mean, join_names

OnStep = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedImage:
    """An image to be built and pushed as ``repository:tag``, and the processes that will use the
    image.

    All paths are absolute.
    """

    repository: str
    tag: str
    dockerfile: str
    entries: tuple[ContextEntry, ...]
    temp_directory: str
    build_options: tuple[str, ...]
    processes: tuple[str, ...]

    @property
    def reference(self) -> str:
        """The image reference ``repository:tag``."""
        return f"{self.repository}:{self.tag}"

    def __str__(self) -> str:
        entries = ", ".join(f"{entry.name} ({entry.path})" for entry in self.entries)
        source = f"{self.dockerfile} with {entries or 'an empty context'}"
        users = join_names(self.processes)
        return f"{self.reference} from {source}, and push it; used by {users}"


def plan_images(experiment: Experiment) -> tuple[PlannedImage, ...]:
    """Return the images that would be built for an experiment. Their tag is the experiment's name.
    This function changes nothing.

    A process uses a declared image if its ``container_image`` is that image's repository, either
    without a tag or tagged with the experiment's name. A repository with another tag or a digest
    refers to a different image. Raises `SpecError` if the experiment declares no images, or if a
    declared image is not used by any process.
    """
    images = validators.instance(experiment, Experiment, "experiment").list_images()
    if not images:
        raise SpecError(
            f"experiment {experiment.name!r} declares no image to build: "
            "add images: to its file, call its build_image, or remove --build"
        )
    return tuple(_planned(experiment, image) for image in images)


def build_images(
    experiment: Experiment,
    *,
    engine: str | None = None,
    output: Output | None = None,
    on_step: OnStep | None = None,
) -> Experiment:
    """Build and push the images that an experiment declares, and return a copy of the experiment
    that uses the pushed images.

    All images are built before the first one is pushed. ``output`` is called with each line of the
    engine's output. By default, the lines are written to standard error. ``on_step`` is called with
    a message before each build and after each push. See `plan_images` for the images that are
    built. Raises the same errors as `plan_images` and `DockerBuilder`.
    """
    planned = plan_images(experiment)
    for name, function in (("output", output), ("on_step", on_step)):
        validators.optional_function(function, name)
    report = on_step or (lambda _: None)
    builders = [_builder(image, engine, output) for image in planned]
    for image, builder in zip(planned, builders, strict=True):
        report(f"building {image.reference} from {image.dockerfile}")
        builder.build()
    digests: dict[str, str] = {}
    for image, builder in zip(planned, builders, strict=True):
        builder.tag(image.repository, image.tag)
        digest = builder.push(image.repository, image.tag)
        digests[image.repository] = f"{image.repository}@{digest}"
        report(f"pushed {image.reference} as {digest}")
    return with_images(experiment, planned, digests)


def with_images(
    experiment: Experiment, planned: tuple[PlannedImage, ...], names: Mapping[str, str]
) -> Experiment:
    """Return a copy of an experiment in which processes refer to each planned image by its name in
    ``names``. ``names`` maps the repositories of the planned images to image names. The original
    experiment is not changed.
    """
    result = copy.deepcopy(experiment)
    for image in planned:
        for process in result.list_all_processes():
            if process.path in image.processes:
                process.container_image = names[image.repository]
    return result


def _builder(image: PlannedImage, engine: str | None, output: Output | None) -> DockerBuilder:
    return DockerBuilder(
        image.dockerfile,
        [
            {"name": entry.name, "path": entry.path, "force_update": entry.force_update}
            for entry in image.entries
        ],
        image.temp_directory,
        engine=engine,
        build_options=image.build_options,
        output=output,
    )


def _planned(experiment: Experiment, image: ImageBuild) -> PlannedImage:
    base = experiment.base_dir or Path.cwd()
    own = {image.repository, f"{image.repository}:{experiment.name}"}
    processes = tuple(
        process.path
        for process in experiment.list_all_processes()
        if process.container_image in own
    )
    if not processes:
        images = [process.container_image for process in experiment.list_all_processes()]
        used = list(dict.fromkeys(name for name in images if name))
        hint = did_you_mean(image.repository, used)
        if not hint and used:
            hint = f"; they use {join_names(used)}"
        raise SpecError(
            f"experiment {experiment.name!r} declares to build {image.repository!r}, "
            f"but no process has it as container_image{hint}"
        )
    if image.temp_directory is None:
        temp_directory = _cache(base, image.repository)
    else:
        temp_directory = _absolute(base, image.temp_directory)
    return PlannedImage(
        repository=image.repository,
        tag=experiment.name,
        dockerfile=_absolute(base, image.dockerfile),
        entries=tuple(
            ContextEntry(
                name=entry.name, path=_absolute(base, entry.path), force_update=entry.force_update
            )
            for entry in image.context_directories
        ),
        temp_directory=temp_directory,
        build_options=image.build_options,
        processes=processes,
    )


def _absolute(base: Path, path: str) -> str:
    # Unlike Path.resolve, os.path.abspath does not resolve symbolic links.
    return os.path.abspath(base / expand_user(path))  # noqa: PTH100


def _cache(base: Path, repository: str) -> str:
    """Return the default ``temp_directory`` for an image. Each combination of base directory and
    repository has its own directory.
    """
    home = os.environ.get("XDG_CACHE_HOME") or home_directory() / ".cache"
    key = hashlib.sha256(f"{base}\0{repository}".encode()).hexdigest()[:16]
    return str(Path(home, "symphony", "images", key).absolute())
