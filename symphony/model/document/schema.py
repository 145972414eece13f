"""The JSON Schema (draft 2020-12) that editors use to check experiment files.

`build` creates the schema from the tables of settings and options. The package contains the schema
in the file ``experiment.schema.json``, which ``python -m symphony.model.document.schema``
generates. A YAML file can refer to the schema in its first line:
``# yaml-language-server: $schema=<path>``.

The schema accepts everything that the loader accepts. The schema cannot express rules that concern
several parts of a document. For example, it accepts a connection to a service that no process
binds.
"""

from __future__ import annotations

import json
from pathlib import Path

from symphony.model.document import parameters, replicas
from symphony.model.document_path import COUNT, RANKS, REPLICAS
from symphony.model.experiment.group import GROUP_OPTIONS
from symphony.model.experiment.images import IMAGE_FIELDS
from symphony.model.experiment.process import PROCESS_OPTIONS
from symphony.model.settings import validators
from symphony.model.settings.experiment_options import EXPERIMENT_OPTIONS
from symphony.model.settings.table import SETTINGS
from symphony.model.settings.value_types import (
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
from symphony.support.names import OWN_KEY_PREFIX

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_REPLICAS: dict[str, Schema] = {
    REPLICAS: or_null(
        described(
            "The number of replicas, which are named name-0, name-1 and so on. In a replica, "
            "${index} is the replica's number.",
            definition("copies"),
        )
    ),
    COUNT: or_null(described("A synonym for replicas.", definition("copies"))),
}
_RANKS: dict[str, Schema] = {
    RANKS: or_null(
        described(
            "The number of ranks, which are named name-0, name-1 and so on. They start, restart "
            "and fail together, and each receives the variables of a distributed program, such as "
            "RANK and MASTER_ADDR.",
            definition("copies"),
        )
    )
}
_ONE_NUMBER_OF_REPLICAS = not_both(REPLICAS, COUNT)
_MEMBERS: Schema = described(
    "A mapping from names to the group's processes. Only groups have this key.",
    mapping_of(NAME.schema, definition("process")),
)
_IMAGES: Schema = described(
    "Images that launch --build builds, as a mapping from repositories to image descriptions.",
    mapping_of(
        {"pattern": or_reference(whole_match(validators.REPOSITORY_PATTERN))},
        or_null(object_schema(IMAGE_FIELDS)),
    ),
)
_PROCESSES: Schema = described(
    "A mapping from names to processes and groups. A group contains further processes.",
    mapping_of(NAME.schema, definition("member")),
)
_PARAMETERS: Schema = described(
    "Parameters and their default values, which --set or environment variables can override. Other "
    "values refer to a parameter with ${name}. A parameter whose default is null must be given a "
    "value.",
    mapping_of(
        {"pattern": whole_match(parameters.PARAMETER_NAME_PATTERN)},
        {"type": ["string", "number", "boolean", "null"]},
    ),
)


def path() -> Path:
    """Return the path of the schema file in the package."""
    return Path(__file__).parent.with_name("experiment.schema.json")


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
        "patternProperties": {f"^{OWN_KEY_PREFIX}": {}},
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
    """Write the schema to the file ``target``."""
    text = json.dumps(build(), indent=2, ensure_ascii=False)
    target.write_text(f"{text}\n", encoding="utf-8")


def _process_schema() -> Schema:
    """Return the schema of a process. The description of a process without options can be null."""
    schema = object_schema(
        {name: option for name, option in PROCESS_OPTIONS.items() if name not in SETTINGS}
    )
    return {
        **schema,
        "properties": {
            **schema["properties"],
            **_REPLICAS,
            **_RANKS,
            **_setting_references(),
        },
        "type": ["object", "null"],
        "allOf": [
            not_both("cmd", "cmds", "command", "args"),
            not_both("cmds", "command", "args"),
            _ONE_NUMBER_OF_REPLICAS,
        ],
    }


def _group_schema() -> Schema:
    schema = object_schema(GROUP_OPTIONS)
    return {
        **schema,
        "properties": {
            **schema["properties"],
            replicas.MEMBERS: or_null(_MEMBERS),
            **_REPLICAS,
            **_setting_references(),
        },
        "allOf": [_ONE_NUMBER_OF_REPLICAS],
    }


def _setting_references() -> dict[str, Schema]:
    return {name: definition(f"setting-{name}") for name in SETTINGS}


def _member_schema() -> Schema:
    """Return the schema of a group or a process. Only a group has the key ``processes``."""
    return {
        "properties": {replicas.MEMBERS: {"description": _MEMBERS["description"]}},
        "if": {"type": "object", "required": [replicas.MEMBERS]},
        "then": definition("group"),
        "else": definition("process"),
    }


if __name__ == "__main__":
    write(path())
