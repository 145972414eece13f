"""Rules that a backend itself knows: what it refuses, found part by part by having it render each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from symphony.errors import PluginError, SpecError
from symphony.lint.findings import ERROR, Finding, refused
from symphony.lint.mending import bare, each_alone, mended, parts_of_whole, without_whole
from symphony.lint.services import path_of, place_of
from symphony.lint.targets import PROBE
from symphony.plan.topology import components

if TYPE_CHECKING:
    from symphony.lint.targets import Target
    from symphony.model import Experiment


def rules(experiment: Experiment, target: Target) -> Iterator[Finding]:
    """What a backend refuses about an experiment, apart from what is wrong with it everywhere."""
    yield from _images(experiment, target)
    yield from _refusals(experiment, target)


def _images(experiment: Experiment, target: Target) -> Iterator[Finding]:
    if not target.needs_image:
        return
    for process in experiment.list_all_processes():
        group = process.group
        own = [process.settings.container_yml, group.settings.container_yml if group else {}]
        if not process.container_image and not any(yml.get("image") for yml in own):
            yield Finding(
                rule="no-image",
                level=ERROR,
                what="no container_image to run from",
                mend="set container_image, or give one for all that have none with --image",
                place=place_of(process),
                processes=(process.path,),
            )


def _refusals(experiment: Experiment, target: Target) -> Iterator[Finding]:
    """The errors of rendering, one for each part: a whole is refused with the first of its errors alone."""
    image = PROBE if target.needs_image else None
    whole = mended(experiment, image=image)
    if not whole.list_all_processes():
        return
    message = _refusal(whole, target)
    if message is None:
        return
    found = list(_long_names(experiment, target, image))
    named = {name for finding in found for name in finding.processes}
    first = whole.list_all_processes()[0].name
    of_whole = [] if found else list(_of_whole(whole, first, target, image))
    if of_whole:
        whole = without_whole(whole)
    for name, part in each_alone(whole):
        if named.isdisjoint([name, *(process.path for process in part.list_all_processes())]):
            found += _of_part(name, part, target)
    yield from of_whole
    yield from found
    if not found and not of_whole:
        yield refused("refused", message)


def _of_whole(
    whole: Experiment, first: str, target: Target, image: str | None
) -> Iterator[Finding]:
    for place, part in parts_of_whole(whole, first, image=image):
        message = _refusal(part, target)
        if message is not None:
            yield refused("refused", message, place=place)


def _of_part(name: str, part: Experiment, target: Target) -> Iterator[Finding]:
    """What is wrong with a process, or with the members of a group each by itself, or with the group."""
    message = _refusal(part, target)
    if message is None:
        return
    found = []
    group = next(iter(part.list_process_groups()), None)
    for process in group.list_processes() if group is not None else ():
        of_member = _refusal(_only(part, name, process.name), target)
        if of_member is not None:
            place = place_of(process)
            found.append(refused("refused", of_member, place=place, processes=(process.path,)))
    yield from found or [refused("refused", message, place=("processes", name), processes=(name,))]


def _only(part: Experiment, group: str, process: str) -> Experiment:
    data = part.dump_dict()
    members = data["processes"][group]["processes"]
    data["processes"][group]["processes"] = {process: members[process]}
    loaded = type(part).load_dict(data)
    loaded.base_dir = part.base_dir
    return loaded


def _long_names(experiment: Experiment, target: Target, image: str | None) -> Iterator[Finding]:
    """Names that this backend refuses even where there is nothing but a name."""
    for component in components(experiment):
        message = _refusal(bare(experiment, component.name, image=image), target)
        if message is not None:
            yield refused(
                "name", message, place=place_of(component), processes=(path_of(component),)
            )
        for key, services in (
            ("binds", component.settings.binds),
            ("exposes", component.settings.exposes),
        ):
            for service in services:
                message = _refusal(bare(experiment, "a", image=image, service=service), target)
                if message is not None:
                    place = (*place_of(component), key, service)
                    yield refused("name", message, place=place, processes=(path_of(component),))


def _refusal(experiment: Experiment, target: Target) -> str | None:
    """Why a backend would not launch it, as far as it can tell without launching."""
    try:
        manifest = target.cluster.manifest(experiment)
        if not target.elsewhere:
            from symphony.host import preflight
            from symphony.host.render import HostManifest

            if isinstance(manifest, HostManifest):
                preflight.check(manifest)
    except (SpecError, PluginError) as exc:
        return str(exc)
    return None
