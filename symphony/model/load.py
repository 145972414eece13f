"""From the file form to an experiment.

Each key of the file form is a keyword of a constructor or the name of a method, and its value that method's
arguments: a file goes through the same checks as Python does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from symphony.errors import SpecError, error_path
from symphony.model import parameters, replicas, validators
from symphony.model.component import Component
from symphony.model.experiment import Experiment
from symphony.model.group import ProcessGroup
from symphony.model.images import IMAGE_KEYS
from symphony.model.process import OPTIONS, Process

SCHEMA_KEY = "$schema"  # for editors, which look there for what may stand in a JSON file
EXPERIMENT_KEYS = (
    "name", "secrets", "port_range", "preamble_cmds", "start_dir", "env", "images", "processes", parameters.KEY,
)  # fmt: skip
GROUP_OPTIONS = ("start_dir", "preamble_cmds")


def experiment(
    data: Mapping[str, Any], given_parameters: Mapping[str, object] | None = None
) -> Experiment:
    """Build the experiment that ``data`` describes.

    Its parameters have their values from ``given_parameters``, else from the environment, else from their declaration.
    """
    given = validators.mapping(data, "an experiment")
    given.pop(SCHEMA_KEY, None)
    validators.refuse_unknown(given, EXPERIMENT_KEYS, "an experiment")
    given = parameters.filled_in(given, given_parameters or {}, os.environ)
    if "name" not in given:
        raise SpecError("an experiment needs a name; for example name: my-experiment")
    members = _named(given.pop("processes", None))
    images = given.pop("images", None)
    with error_path("name"):
        result = Experiment(validators.text(given["name"], "the name of an experiment"))
    result = Experiment(**given)
    _images(result, images)
    with error_path("processes"):
        for entry in replicas.entries(members):
            with error_path(entry.origin):
                if entry.members is None:
                    result.add_process(_process(entry.name, entry.data))
                else:
                    result.add_process_group(_group(entry.name, entry.data, entry.members))
    return result


def _images(result: Experiment, images: Any) -> None:
    with error_path("images"):
        for repository, described in validators.mapping(
            {} if images is None else images, "images"
        ).items():
            with error_path(repository):
                given = validators.mapping(
                    {} if described is None else described, f"image {repository!r}"
                )
                validators.refuse_unknown(given, IMAGE_KEYS, f"image {repository!r}")
                result.build_image(
                    repository, **{key: value for key, value in given.items() if value is not None}
                )


def _named(members: Any) -> dict[str, Any]:
    with error_path("processes"):
        return {} if members is None else validators.mapping(members, "processes")


def _process(name: str, data: dict[str, Any]) -> Process:
    validators.refuse_unknown(data, (*OPTIONS, *APPLY, replicas.KEY), f"process {name!r}")
    result = Process(name, **{key: value for key, value in data.items() if key in OPTIONS})
    _apply(result, {key: value for key, value in data.items() if key not in OPTIONS})
    return result


def _group(name: str, data: dict[str, Any], members: list[replicas.Entry]) -> ProcessGroup:
    validators.refuse_unknown(
        data, (*GROUP_OPTIONS, *APPLY, replicas.KEY, replicas.MEMBERS), f"group {name!r}"
    )
    result = ProcessGroup(
        name, **{key: value for key, value in data.items() if key in GROUP_OPTIONS}
    )
    _apply(result, {key: value for key, value in data.items() if key not in GROUP_OPTIONS})
    for member in members:
        with error_path("processes", member.origin):
            result.add_process(_process(member.name, member.data))
    return result


def _apply(component: Component, data: dict[str, Any]) -> None:
    for key, value in data.items():
        if value is None:
            continue
        with error_path(key):
            APPLY[key](component, value)


def _keywords(component: Component, method: str, value: Any) -> None:
    """Call a method with a mapping as its keywords, and say which keyword it does not know."""
    call = getattr(component, method)
    names = call.__code__.co_varnames[
        1 : call.__code__.co_argcount + call.__code__.co_kwonlyargcount
    ]
    given = validators.mapping(value, method)
    validators.refuse_unknown(given, names, method)
    try:
        call(**given)
    except TypeError as exc:
        raise SpecError(f"{method}: {str(exc).partition(') ')[2] or exc}") from exc


def _method(method: str) -> Callable[[Component, Any], None]:
    return lambda component, value: getattr(component, method)(value) and None


def _with_keywords(method: str) -> Callable[[Component, Any], None]:
    return lambda component, value: _keywords(component, method, value)


def _pairs(method: str) -> Callable[[Component, Any], None]:
    def apply(component: Component, value: Any) -> None:
        for key, item in validators.mapping(value, method).items():
            with error_path(key):
                getattr(component, method)(key, item)

    return apply


def _volumes(component: Component, value: Any) -> None:
    for index, volume in enumerate(_items(value, "volumes")):
        with error_path(index):
            described = validators.mapping(volume, "a volume")
            if len(described) != 1:
                raise SpecError(
                    f"a volume is one kind with its settings, such as nfs: {{...}}, not {volume!r}"
                )
            kind, details = next(iter(described.items()))
            validators.refuse_unknown([kind], VOLUME_KINDS, "volumes")
            with error_path(kind):
                _keywords(component, f"mount_{kind}", {} if details is None else details)


def _tolerations(component: Component, value: Any) -> None:
    for index, toleration in enumerate(_items(value, "tolerations")):
        with error_path(index):
            _keywords(component, "add_toleration", toleration)


def _job(component: Component, value: Any) -> None:
    if value is False:
        return
    _keywords(component, "job", {} if value is True else value)


def _starts_after(component: Component, value: Any) -> None:
    if isinstance(value, Mapping):
        _pairs("starts_after")(component, value)
        return
    for name in validators.strings(value, "starts_after"):
        component.starts_after(name)


def _yml(key: str) -> Callable[[Component, Any], None]:
    return lambda component, value: setattr(component, key, value)


def _items(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise SpecError(f"{what} is a list, not {value!r}")
    return value


VOLUME_KINDS = (
    "nfs",
    "host_path",
    "pvc",
    "empty_dir",
    "shared_memory",
    "secret",
    "config",
    "git_repo",
)

APPLY: dict[str, Callable[[Component, Any], None]] = {
    "env": _method("set_envs"),
    "env_secrets": _pairs("set_env_secret"),
    "binds": _method("binds"),
    "connects": _method("connects"),
    "exposes": _method("exposes"),
    "encrypted": _method("encrypts"),
    "resource_request": _with_keywords("resource_request"),
    "resource_limit": _with_keywords("resource_limit"),
    "image_pull_policy": _method("image_pull_policy"),
    "restart_policy": _method("restart_policy"),
    "termination_grace_period": _method("termination_grace_period"),
    "ready": _with_keywords("ready"),
    "starts_after": _starts_after,
    "job": _job,
    "volumes": _volumes,
    "node_selector": _pairs("node_selector"),
    "tolerations": _tolerations,
    "labels": _method("add_labels"),
    "pod_yml": _yml("pod_yml"),
    "container_yml": _yml("container_yml"),
}
