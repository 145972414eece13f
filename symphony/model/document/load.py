"""Build an experiment from a document: a dictionary with the keys of an experiment file.

Apart from structural keys such as ``processes``, ``replicas`` and ``parameters``, each key of a
document is a constructor's keyword argument or a setting that `symphony.model.settings.table`
declares. A file is therefore checked in the same way as calls in Python. Loading continues after an
error, so that all errors in a document are reported together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from symphony.errors import SpecError, shown
from symphony.model.document import parameters, replicas
from symphony.model.document.scaling import Source
from symphony.model.document_path import REPLICA_KEYS
from symphony.model.error_collector import ErrorCollector
from symphony.model.experiment.component import Component
from symphony.model.experiment.given_options import GivenOptions
from symphony.model.experiment.group import GROUP_OPTIONS, ProcessGroup
from symphony.model.experiment.images import IMAGE_FIELDS
from symphony.model.experiment.process import PROCESS_OPTIONS, Process
from symphony.model.experiment.setting_calls import SettingCalls
from symphony.model.settings import validators
from symphony.model.settings.experiment_options import EXPERIMENT_OPTIONS
from symphony.model.settings.table import SETTINGS
from symphony.model.settings.value_types import Field
from symphony.support.names import OWN_KEY_PREFIX, did_you_mean

if TYPE_CHECKING:
    from symphony.model.experiment.experiment import Experiment

T = TypeVar("T")

# The key under which editors look for a JSON file's schema.
SCHEMA_KEY = "$schema"
EXPERIMENT_KEYS = ("name", *EXPERIMENT_OPTIONS, "images", "processes", parameters.KEY)
# The keys of a process and of a group, as dictionaries, in which a key is found quickly.
_PROCESS_KEYS: dict[str, None] = dict.fromkeys((*PROCESS_OPTIONS, *SETTINGS, *REPLICA_KEYS))
_GROUP_KEYS: dict[str, None] = dict.fromkeys(
    (*GROUP_OPTIONS, *SETTINGS, *REPLICA_KEYS, replicas.MEMBERS)
)
# An experiment without a valid name has this name while its other errors are collected.
_PLACEHOLDER_NAME = "experiment"


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The valid parts of an experiment, and the errors in the other parts.

    ``experiment`` is None if the document is not a mapping or contains no valid name.
    """

    experiment: Experiment | None
    errors: list[SpecError]

    def experiment_or_error(self) -> Experiment:
        """Return the experiment, or raise the first error if there is one."""
        for error in self.errors:
            raise error
        if self.experiment is None:
            raise SpecError("the document describes no experiment")
        return self.experiment


def load_experiment(
    experiment_class: type[Experiment],
    data: Mapping[str, Any],
    given_parameters: Mapping[str, object] | None = None,
    *,
    default_name: str | None = None,
) -> LoadResult:
    """Return the experiment that a document describes, and all errors in the document.

    ``default_name`` is the name of the experiment if the document contains none.
    ``experiment_class`` is `Experiment` or a subclass. It is an argument because the module that
    defines `Experiment` imports this module. The value of a document parameter comes from the first
    of these that contains it: ``given_parameters``, the environment, and the parameter's
    declaration.
    """
    errors = ErrorCollector()
    experiment = None
    with errors.at():
        document = validators.mapping(data, "an experiment")
        if default_name is not None and "name" not in document:
            document = {"name": default_name, **document}
        given = {} if given_parameters is None else given_parameters
        experiment = _Loader(experiment_class, errors).load(
            document, validators.mapping(given, "parameters")
        )
    return LoadResult(experiment, errors.errors)


class _Loader:
    """A loader for one document, which adds the document's errors to a collector."""

    def __init__(self, experiment_class: type[Experiment], errors: ErrorCollector) -> None:
        self._experiment_class = experiment_class
        self._errors = errors
        self._calls = SettingCalls(errors)

    def load(
        self, document: dict[str, Any], given_parameters: Mapping[str, object]
    ) -> Experiment | None:
        own = [key for key in document if key == SCHEMA_KEY or key.startswith(OWN_KEY_PREFIX)]
        for key in own:
            del document[key]
        document = self._calls.known_keys(
            document, EXPERIMENT_KEYS, "an experiment", _hint_for_experiment_key
        )
        given_document = document
        document = parameters.substitute(document, given_parameters, os.environ, self._errors)
        name = self._experiment_name(document)
        options = {key: value for key, value in document.items() if key in EXPERIMENT_OPTIONS}
        experiment = self._construct(
            self._experiment_class, name or _PLACEHOLDER_NAME, EXPERIMENT_OPTIONS, options
        )
        if experiment is None:
            return None
        with self._errors.at("images"):
            self._load_images(experiment, document.get("images"))
        with self._errors.at("processes"):
            self._load_processes(experiment, document.get("processes"))
        values = parameters.values(given_document, given_parameters, os.environ)
        experiment.source = Source(given_document, values)
        given = {
            name: value
            for name, value in values.items()
            if name in given_parameters or name in os.environ
        }
        experiment.given = GivenOptions(parameters=given)
        return None if name is None else experiment

    def _experiment_name(self, document: Mapping[str, Any]) -> str | None:
        """Return the experiment's name, or None if it is missing or not valid."""
        if "name" not in document:
            self._errors.add(
                SpecError(
                    "an experiment needs a name; for example name: my-experiment, or the option "
                    "--name of a command"
                )
            )
            return None
        with self._errors.at("name"):
            name = validators.text(document["name"], "the name of an experiment")
            return self._experiment_class(name).name
        return None

    def _load_images(self, experiment: Experiment, value: Any) -> None:
        images = {} if value is None else validators.mapping(value, "images")
        for repository, item in images.items():
            with self._errors.at(repository):
                subject = f"image {repository!r}"
                options = {} if item is None else validators.mapping(item, subject)
                known = self._calls.known_keys(options, IMAGE_FIELDS, subject)
                given = {key: option for key, option in known.items() if option is not None}
                experiment.build_image(repository, **given)

    def _load_processes(self, experiment: Experiment, value: Any) -> None:
        described = {} if value is None else _mapping_of_processes(value)
        expansion = replicas.expand(described, self._errors)
        experiment.replicas = expansion.copies
        for name, data in expansion.absent.items():
            with self._errors.at(name):
                experiment._declare_absent(name, replicas.replicated_services(data))
        for entry in expansion.entries:
            with self._errors.at(entry.origin):
                if entry.members is None:
                    process = self._load_process(entry)
                    if process is not None:
                        experiment.add_process(process)
                else:
                    group = self._load_group(entry, entry.members)
                    if group is not None:
                        experiment.add_process_group(group)

    def _load_process(self, entry: replicas.Entry) -> Process | None:
        data = self._component_keys(entry, _PROCESS_KEYS, "process")
        options = {key: value for key, value in data.items() if key in PROCESS_OPTIONS}
        process = self._construct(Process, entry.name, PROCESS_OPTIONS, options)
        if process is not None:
            self._apply_settings(process, data, options)
        return process

    def _load_group(
        self, entry: replicas.Entry, members: Iterable[replicas.Entry]
    ) -> ProcessGroup | None:
        data = self._component_keys(entry, _GROUP_KEYS, "group")
        options = {key: value for key, value in data.items() if key in GROUP_OPTIONS}
        group = self._construct(ProcessGroup, entry.name, GROUP_OPTIONS, options)
        if group is None:
            return None
        self._apply_settings(group, data, options)
        for member in members:
            with self._errors.at(replicas.MEMBERS, member.origin):
                process = self._load_process(member)
                if process is not None:
                    group.add_process(process)
        return group

    def _component_keys(
        self, entry: replicas.Entry, known: Mapping[str, None], kind: str
    ) -> dict[str, Any]:
        """Return the items of a process or group with known keys, and add an error for each
        unknown key. If another program has the key, the error contains the key of symphony.
        """

        def hint(key: str, value: Any) -> str:
            # A file without errors needs no hints.
            from symphony.model.document.other_formats.hints import process_hint

            foreign = process_hint(key, value, entry.origin, frozenset(known))
            return foreign or _hint_for_position(key, value, kind)

        return self._calls.known_keys(entry.data, known, f"{kind} {entry.name!r}", hint)

    def _construct(
        self,
        constructor: Callable[..., T],
        name: str,
        fields: Mapping[str, Field],
        options: Mapping[str, Any],
    ) -> T | None:
        """Return a new object with the valid options, or None if no object can be created."""
        try:
            return constructor(name, **options)
        except SpecError as exc:
            first_error = exc
        valid = self._calls.valid_options(fields, options)
        if len(valid) == len(options):
            # Every option is valid by itself, so the error is in the combination of the options or
            # in the name.
            self._errors.add(first_error)
            valid = {}
        with self._errors.at():
            return constructor(name, **valid)
        return None

    def _apply_settings(
        self, component: Component, data: Mapping[str, Any], options: Mapping[str, Any]
    ) -> None:
        self._calls.apply(
            component,
            {
                key: value
                for key, value in data.items()
                if value is not None and key in SETTINGS and key not in options
            },
        )


def _hint_for_experiment_key(key: str, value: Any) -> str:
    from symphony.model.document.other_formats.hints import experiment_hint

    hint = experiment_hint(key)
    is_process = isinstance(value, Mapping) and not _PROCESS_KEYS.keys().isdisjoint(value)
    if is_process and not hint:
        return f"; if {shown(key)} is a process, indent it below processes"
    return hint


def _hint_for_position(key: str, value: Any, kind: str) -> str:
    """Return the end of the error message for a key that is probably at the wrong position."""
    if kind == "group" and key in _PROCESS_KEYS:
        return f"; a group runs only its members: write {key} on a member, below {replicas.MEMBERS}"
    if not isinstance(value, Mapping):
        is_variable = key.isupper() and not isinstance(value, list)
        return f"; if {key} is a variable, indent it below env" if is_variable else ""
    if not _PROCESS_KEYS.keys().isdisjoint(value):
        place = f"below {replicas.MEMBERS} of the group" if kind == "group" else "below processes"
        return f"; if {shown(key)} is a process, write it one level higher, {place}"
    return did_you_mean(key, [replicas.MEMBERS])


def _mapping_of_processes(value: Any) -> dict[str, Any]:
    """Return the processes by name. Raises `SpecError` if ``value`` is not a mapping."""
    is_list_of_mappings = isinstance(value, list) and isinstance(next(iter(value), None), Mapping)
    if is_list_of_mappings:
        raise SpecError(
            "processes must be a mapping from names to processes, not a list; write 'NAME:' "
            "instead of '- NAME:'"
        )
    return validators.mapping(value, "processes")
