"""The JSON Schema (draft 2020-12) of the file form, for editors.

`build` returns the schema from the tables of settings and options. The package contains the schema
as ``experiment.schema.json``, which ``python -m symphony.model.schema`` writes. A YAML file refers
to the schema in its first line: ``# yaml-language-server: $schema=<path>``.

The schema accepts everything that the loader accepts. It cannot express rules that concern several
parts of a document; for example, it accepts services that no process binds.
"""

from __future__ import annotations

import json
from pathlib import Path

from symphony.model import parameters, replicas, validators
from symphony.model.experiment_options import EXPERIMENT_OPTIONS
from symphony.model.group import GROUP_OPTIONS
from symphony.model.images import IMAGE_FIELDS
from symphony.model.process import PROCESS_OPTIONS
from symphony.model.settings import SETTINGS
from symphony.model.value_types import (
    DEFINITIONS,
    NAME,
    Schema,
    definition,
    described,
    mapping_of,
    not_both,
    object_schema,
    or_null,
    or_reference,
    whole_match,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_COUNT: Schema = described(
    "The number of copies: name-0, name-1, ... In a copy, ${index} is its number.",
    definition("copies"),
)
_MEMBERS: Schema = described(
    "The processes of the group by name. Only a group has this key.",
    mapping_of(NAME.schema, definition("process")),
)
_IMAGES: Schema = described(
    "Images that a launch with --build builds, by repository.",
    mapping_of(
        {"pattern": or_reference(whole_match(validators.REPOSITORY_PATTERN))},
        or_null(object_schema(IMAGE_FIELDS)),
    ),
)
_PROCESSES: Schema = described(
    "Processes and groups by name. A group has processes of its own.",
    mapping_of(NAME.schema, definition("member")),
)
_PARAMETERS: Schema = described(
    "Values that --set or the environment can replace, by name. Other values refer to them with "
    "${name}. A parameter whose default is null must be given.",
    mapping_of(
        {"pattern": whole_match(parameters.PARAMETER_NAME_PATTERN)},
        {"type": ["string", "number", "boolean", "null"]},
    ),
)


def path() -> Path:
    """Return the path of the schema file in the package."""
    return Path(__file__).with_name("experiment.schema.json")


def build() -> Schema:
    """Return the schema of an experiment file."""
    settings = {f"setting-{name}": or_null(setting.schema) for name, setting in SETTINGS.items()}
    options = object_schema(EXPERIMENT_OPTIONS)
    properties = {
        "name": described("The name of the experiment.", NAME.schema),
        **options["properties"],
        "images": or_null(_IMAGES),
        "processes": or_null(_PROCESSES),
        parameters.KEY: or_null(_PARAMETERS),
    }
    return {
        "$schema": DIALECT,
        "title": "symphony experiment",
        "description": "Processes that are launched together, and the services that connect them.",
        **options,
        "properties": properties,
        "required": ["name"],
        "$defs": {
            **DEFINITIONS,
            **settings,
            "member": _member_schema(),
            "group": _group_schema(),
            "process": _process_schema(),
        },
    }


def write(target: Path) -> None:
    """Write the schema file."""
    text = json.dumps(build(), indent=2, ensure_ascii=False)
    target.write_text(f"{text}\n", encoding="utf-8")


def _process_schema() -> Schema:
    """Return the schema of a process, which is null for a process without options."""
    schema = object_schema(
        {name: option for name, option in PROCESS_OPTIONS.items() if name not in SETTINGS}
    )
    return {
        **schema,
        "properties": {
            **schema["properties"],
            replicas.KEY: or_null(_COUNT),
            **_setting_references(),
        },
        "type": ["object", "null"],
        "allOf": [not_both("cmd", "cmds", "command", "args"), not_both("cmds", "command", "args")],
    }


def _group_schema() -> Schema:
    schema = object_schema(GROUP_OPTIONS)
    return {
        **schema,
        "properties": {
            **schema["properties"],
            replicas.MEMBERS: or_null(_MEMBERS),
            replicas.KEY: or_null(_COUNT),
            **_setting_references(),
        },
    }


def _setting_references() -> dict[str, Schema]:
    return {name: definition(f"setting-{name}") for name in SETTINGS}


def _member_schema() -> Schema:
    """Return the schema of a group if the key ``processes`` is present, or else of a process."""
    return {
        "properties": {replicas.MEMBERS: {"description": _MEMBERS["description"]}},
        "if": {"type": "object", "required": [replicas.MEMBERS]},
        "then": definition("group"),
        "else": definition("process"),
    }


if __name__ == "__main__":
    write(path())
