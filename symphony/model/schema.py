"""The JSON Schema (draft 2020-12) of the file form, for editors: built from the one table below.

``experiment.schema.json`` beside this module is what `build` returns; ``python -m symphony.model.schema`` writes it
again. A YAML file asks for it with a first line ``# yaml-language-server: $schema=<path>``.

The schema accepts what the loader accepts. It cannot say what only the whole shows (a service that nobody binds,
a name that stands twice), and it lets numbers and booleans stand where text is meant, since in YAML the loader
takes those as they are written. A reference to a parameter may stand for any value.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from symphony import names
from symphony.model import component, parameters, replicas, validators

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NULL: Schema = {"type": "null"}
_REFERENCE = r"\$\{"


def path() -> Path:
    """Where the shipped schema file is."""
    return Path(__file__).with_name("experiment.schema.json")


def build() -> Schema:
    """The schema of an experiment's file."""
    return {
        "$schema": DIALECT,
        "title": "symphony experiment",
        "description": "Processes that are launched together, and the services that join them.",
        **_closed(EXPERIMENT, required=("name",)),
        "$defs": {
            **_SHARED,
            **_settings(),
            "member": _member(),
            "group": _group(),
            "process": _process(),
        },
    }


def write(target: Path) -> None:
    """Write the schema as it is shipped."""
    target.write_text(json.dumps(build(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# --- how a schema is put together ---


def _whole_match(pattern: re.Pattern[str]) -> str:
    return f"^({pattern.pattern})$"


def _or_reference(pattern: str = "") -> str:
    """The pattern, or that there is a reference to a parameter in the text."""
    return rf"{pattern}|{_REFERENCE}" if pattern else _REFERENCE


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _any(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _closed(
    properties: dict[str, Schema], *, required: tuple[str, ...] = (), filled: tuple[str, ...] = ()
) -> Schema:
    """An object with these properties and no others; null is unset, but for the required and the filled ones."""
    exact = {*required, *filled}
    result: Schema = {
        "type": "object",
        "properties": {
            key: item if key in exact else _or_null(item) for key, item in properties.items()
        },
        "additionalProperties": False,
    }
    return {**result, "required": list(required)} if required else result


def _or_null(schema: Schema) -> Schema:
    """The same, or null: said in the plainest way, since editors quote it."""
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if "type" in schema and "oneOf" not in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return {**schema, "type": [*types, "null"]}
    about: Schema = {"description": schema["description"]} if "description" in schema else {}
    rest = {key: item for key, item in schema.items() if key not in about}
    choices = rest["anyOf"] if rest.keys() == {"anyOf"} else [rest]
    return {**about, "anyOf": [*choices, _NULL]}


def _map(keys: Schema, items: Schema) -> Schema:
    return {"type": "object", "propertyNames": keys, "additionalProperties": items}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _about(description: str, schema: Schema) -> Schema:
    return {"description": description, **schema}


def _word(words: tuple[str, ...]) -> Schema:
    return {"enum": list(words)}


def _choice(words: tuple[str, ...]) -> Schema:
    return _any(_word(words), {"type": "string", "pattern": _or_reference()})


def _given(key: str) -> Schema:
    """That a key is there and not null."""
    return {"type": "object", "required": [key], "properties": {key: {"not": _NULL}}}


def _not_both(first: str, *others: str) -> Schema:
    return {"not": {"allOf": [_given(first), _any(*(_given(other) for other in others))]}}


# --- the kinds of values ---

_SHARED: dict[str, Schema] = {
    "name": {
        "type": "string",
        "description": "a-z, 0-9 and '-', a letter first and no '-' last",
        "pattern": _or_reference(_whole_match(names._LABEL)),
        "maxLength": names.MAX_LENGTH,
    },
    "text": {"type": ["string", "number", "boolean"]},
    "filled": {"type": ["string", "number", "boolean"], "minLength": 1},
    "strings": {"type": ["string", "number", "boolean", "array"], "items": _ref("text")},
    "line": {"type": ["string", "number", "boolean"], "pattern": r"\S"},
    "lines": {
        "type": ["string", "number", "boolean", "array"],
        "pattern": r"\S",
        "items": _ref("line"),
    },
    "absolute": {"type": "string", "pattern": _or_reference("^/")},
    "port": {
        "type": ["integer", "string"],
        "minimum": 1,
        "maximum": 65535,
        "pattern": _or_reference(),
    },
    "count": {"type": ["integer", "string"], "minimum": 0, "pattern": _or_reference()},
    "copies": {
        "type": ["integer", "string"],
        "minimum": 0,
        "maximum": replicas.MOST,
        "pattern": _or_reference(),
    },
    "quantity": {
        "description": "an amount: 2, 0.5, '500m', '4Gi'",
        "type": ["number", "string"],
        "minimum": 0,
        "pattern": _or_reference(_whole_match(validators._QUANTITY)),
    },
    "env": {
        **_map({"pattern": _or_reference(_whole_match(validators._ENV_NAME))}, _ref("text")),
        "description": "Variables by name; a value is text and taken as it is written.",
    },
    "labels": _map(
        {"pattern": _or_reference(_whole_match(validators._LABEL_KEY))},
        {
            "type": ["string", "number", "boolean"],
            "pattern": _or_reference(_whole_match(validators._LABEL_VALUE)),
        },
    ),
    "services": _any(
        _ref("name"), _list(_ref("name")), _map(_ref("name"), _any(_ref("port"), _NULL))
    ),
    "files": _any(
        _ref("filled"),
        _list(_ref("filled")),
        _map(
            {"pattern": _or_reference(r"^[-._a-zA-Z0-9]+$"), "not": _word((".", ".."))},
            _ref("filled"),
        ),
    ),
}

_NAME, _TEXT, _FILLED, _QUANTITY = _ref("name"), _ref("text"), _ref("filled"), _ref("quantity")
_COUNT, _PATH, _FILES = _ref("count"), _ref("absolute"), _ref("files")
_FLAG: Schema = {"type": ["boolean", "string"], "pattern": _or_reference()}

_RESOURCES: dict[str, Schema] = {
    "cpu": _about("cores", _QUANTITY),
    "memory": _about("bytes, or with a unit: '4Gi'", _QUANTITY),
    "mem": _about("another word for memory", _QUANTITY),
}
_ONE_MEMORY = {"allOf": [_not_both("memory", "mem")]}

_SECONDS: Schema = {
    "type": ["number", "string"],
    "exclusiveMinimum": 0,
    "pattern": _or_reference(),
    "default": 60,
}

READY: dict[str, Schema] = {
    "tcp": _about("a service of its own accepts a connection", _NAME),
    "http": _about(
        "[service, path]: a GET of the path is answered with 200",
        {"type": "array", "prefixItems": [_NAME, _PATH], "items": False, "minItems": 2},
    ),
    "command": _about(
        "exits 0 in the process's environment and folder",
        {**_ref("strings"), "minLength": 1, "minItems": 1, "prefixItems": [{"minLength": 1}]},
    ),
    "log": _about("a regular expression that is found in a line of its output", _TEXT),
    "timeout": _about("how many seconds it may take", _SECONDS),
}

JOB: dict[str, Schema] = {
    "backoff_limit": _about("tries after a failure", _COUNT),
    "active_deadline": _about("seconds allowed in all", _COUNT),
    "ttl": _about("seconds kept afterwards", _COUNT),
}

_OPERATORS = component.TOLERATION_OPERATORS
TOLERATION: dict[str, Schema] = {
    "key": _about("the key of the taint", _TEXT),
    "operator": _about(
        "Equal compares the value, Exists takes any; Equal unless set", _choice(_OPERATORS)
    ),
    "value": _about("the value of the taint", _TEXT),
    "effect": _about(
        "the effect of the taint; all of them unless set", _choice(component.TAINT_EFFECTS)
    ),
    "toleration_seconds": _about("how long a NoExecute taint is tolerated", _COUNT),
}

_EXISTS: Schema = {"required": ["operator"], "properties": {"operator": {"const": "Exists"}}}

_MOUNT: dict[str, Schema] = {
    "mount_path": _about("where it appears to the process", _PATH),
    "name": _about("the name of the volume; chosen unless given", _NAME),
}
_READ_ONLY: dict[str, Schema] = {
    "read_only": _about("it cannot be written to", {"default": False, **_FLAG})
}
_SIZE: dict[str, Schema] = {"size": _about("how much it may hold: '8Gi'", _QUANTITY)}
_MADE_FROM = "what it is made from; without them it is one that exists"

# By kind: what it is, its settings, and which of them it cannot do without.
VOLUMES: dict[str, tuple[str, dict[str, Schema], tuple[str, ...]]] = {
    "nfs": (
        "A folder that an NFS server exports.",
        {
            "server": _about("its name or address", _FILLED),
            "path": _about("the folder there", _PATH),
            **_MOUNT,
        },
        ("server", "path", "mount_path"),
    ),
    "host_path": (
        "A folder or file of the node.",
        {
            "path": _about("where it is on the node", _PATH),
            "type": _about(
                "what Kubernetes demands of it; nothing unless set",
                _choice(component.HOST_PATH_TYPES),
            ),
            **_MOUNT,
            **_READ_ONLY,
        },
        ("path", "mount_path"),
    ),
    "pvc": (
        "A persistent volume claim.",
        {"claim": _about("its name", _FILLED), **_MOUNT, **_READ_ONLY},
        ("claim", "mount_path"),
    ),
    "empty_dir": (
        "An empty folder that lives as long as the Pod.",
        {"memory": _about("keep it in memory", _FLAG), **_SIZE, **_MOUNT},
        ("mount_path",),
    ),
    "shared_memory": ("A /dev/shm of a given size, or of as much as there is.", _SIZE, ()),
    "secret": (
        "A Secret: one that exists, or one made from files.",
        {"secret": _about("its name", _FILLED), "files": _about(_MADE_FROM, _FILES), **_MOUNT},
        ("secret", "mount_path"),
    ),
    "config": (
        "A ConfigMap: one that exists, or one made from files.",
        {"config": _about("its name", _FILLED), "files": _about(_MADE_FROM, _FILES), **_MOUNT},
        ("config", "mount_path"),
    ),
    "git_repo": (
        "A git repository, checked out before the process starts.",
        {
            "repository": _about("where git finds it", _FILLED),
            "revision": _about("a branch, tag or commit", _FILLED),
            **_MOUNT,
        },
        ("repository", "mount_path"),
    ),
}
_FLAGS = ("read_only", "memory", "type")  # of these the default is a value, and null is none


def _volume() -> Schema:
    """One kind with its settings."""
    kinds: dict[str, Schema] = {}
    for kind, (description, settings, required) in VOLUMES.items():
        details = _closed(settings, required=required, filled=_FLAGS)
        kinds[kind] = _about(description, details if required else _or_null(details))
    return {
        "type": "object",
        "properties": kinds,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


def _ready() -> Schema:
    tests = [key for key in READY if key != "timeout"]
    return {**_closed(READY, filled=("timeout",)), "oneOf": [_given(key) for key in tests]}


# --- the table ---

SETTINGS: dict[str, Schema] = {
    "env": _about("Environment variables; those of addresses win over them.", _ref("env")),
    "env_secrets": _about(
        "Variables with the content of one of the experiment's secrets: {variable: file name}.",
        _map({"pattern": _or_reference(_whole_match(validators._ENV_NAME))}, _FILLED),
    ),
    "binds": _about(
        "Services that it listens on: a name, names, or {name: port or null}.", _ref("services")
    ),
    "connects": _about(
        "Services of other processes that it uses: a name or names.",
        _any(_NAME, _list(_NAME), _map(_NAME, _NULL)),
    ),
    "exposes": _about(
        "Services offered to the world outside the experiment, in the forms of binds.",
        _ref("services"),
    ),
    "encrypted": _about(
        "Services that it binds and that only those can use who get the keys, which are they who connect to it.",
        _any(_NAME, _list(_NAME), _map(_NAME, _NULL)),
    ),
    "resource_request": _about(
        "What must be free for it to start.", {**_closed(_RESOURCES), **_ONE_MEMORY}
    ),
    "resource_limit": _about(
        "What it may use at most.",
        {**_closed({**_RESOURCES, "gpu": _about("whole devices", _COUNT)}), **_ONE_MEMORY},
    ),
    "image_pull_policy": _about("When its image is pulled.", _choice(component.PULL_POLICIES)),
    "restart_policy": _about(
        "When it is started again; Never unless set.", _choice(component.RESTART_POLICIES)
    ),
    "termination_grace_period": _about("Seconds between TERM and KILL; 30 unless set.", _COUNT),
    "ready": _about("When it counts as ready: one test, with its timeout.", _ready()),
    "starts_after": _about(
        "What it waits for: processes or groups that must be ready, or {name: ready | started | succeeded}.",
        _any(_NAME, _list(_NAME), _map(_NAME, _choice(component.CONDITIONS))),
    ),
    "job": _about("Run to completion.", _any(_FLAG, _closed(JOB))),
    "volumes": _about(
        "What is mounted: a list of one kind with its settings each.", _list(_volume())
    ),
    "node_selector": _about("Labels that its node must have.", _ref("labels")),
    "tolerations": _about(
        "Taints of nodes that it accepts.",
        _list({**_closed(TOLERATION), **_any(_given("key"), _EXISTS)}),
    ),
    "labels": _about("Labels of its Pod.", _ref("labels")),
    "pod_yml": _about("Merged over the rendered Pod last.", {"type": "object"}),
    "container_yml": _about("Merged over the rendered container last.", {"type": "object"}),
}

OPTIONS: dict[str, Schema] = {
    "container_image": _about("The image it runs from on Kubernetes.", _FILLED),
    "command": _about(
        "The program: one argument (never split) or a list of them.", _ref("strings")
    ),
    "args": _about("Arguments after the command, in the same forms.", _ref("strings")),
    "cmd": _about("One shell line instead of command and args.", _ref("line")),
    "cmds": _about("Shell lines joined by && instead of command and args.", _ref("lines")),
    "env": SETTINGS["env"],
    "start_dir": _about(
        "The folder it starts in, relative to those of group and experiment.", _FILLED
    ),
    "preamble_cmds": _about(
        "Shell lines run before it in the same shell, outermost first.", _ref("lines")
    ),
}

COUNT: dict[str, Schema] = {
    replicas.KEY: _about(
        "How many there are: name-0, name-1, ...; ${index} is the number of each.", _ref("copies")
    ),
}


GROUP: dict[str, Schema] = {
    "start_dir": OPTIONS["start_dir"],
    "preamble_cmds": OPTIONS["preamble_cmds"],
    "processes": _about(
        "Its members by name, which make this a group.", _map(_NAME, _ref("process"))
    ),
    **COUNT,
}


_CONTEXT_ENTRY: dict[str, Schema] = {
    "name": _about(
        "what it is called in the context: no '/' in it",
        {
            "type": ["string", "number", "boolean"],
            "pattern": r"^[^/\\]+$",
            "not": _word((".", "..")),
        },
    ),
    "path": _about("a file or folder", _FILLED),
    "force_update": _about("gather all of it anew at each build", _FLAG),
}

IMAGE: dict[str, Schema] = {
    "dockerfile": _about("The file that says how; Dockerfile unless set.", _FILLED),
    "context_directories": _about(
        "The files and folders that it can copy from.",
        _list(_closed(_CONTEXT_ENTRY, required=("name", "path"))),
    ),
    "temp_directory": _about("The folder in which its context is gathered.", _FILLED),
    "build_options": _about("Further words for the engine's build.", _ref("strings")),
}


def _settings() -> dict[str, Schema]:
    """What can be set on a process or a group, said once."""
    return {f"setting-{key}": _or_null(schema) for key, schema in SETTINGS.items()}


def _component(own: dict[str, Schema]) -> Schema:
    result = _closed({key: schema for key, schema in own.items() if key not in SETTINGS})
    result["properties"].update({key: _ref(f"setting-{key}") for key in SETTINGS})
    return result


def _process() -> Schema:
    """A process; null is one of which nothing is said."""
    exclusive = [_not_both("cmd", "cmds", "command", "args"), _not_both("cmds", "command", "args")]
    return {**_component({**OPTIONS, **COUNT}), "type": ["object", "null"], "allOf": exclusive}


def _group() -> Schema:
    return _component(GROUP)


def _member() -> Schema:
    """A group where it has processes, else a process."""
    return {
        "properties": {"processes": {"description": GROUP["processes"]["description"]}},
        "if": {"type": "object", "required": ["processes"]},
        "then": _ref("group"),
        "else": _ref("process"),
    }


EXPERIMENT: dict[str, Schema] = {
    "name": _about("The name of the experiment.", _NAME),
    "secrets": _about("Files that every process can read, below SYMPHONY_SECRETS_DIR.", _FILES),
    "port_range": _about(
        f"First and last port of those that are given out; {list(validators.DEFAULT_PORTS)} unless set.",
        {"type": "array", "items": _ref("port"), "minItems": 2, "maxItems": 2},
    ),
    "preamble_cmds": _about("Shell lines run before every process.", _ref("lines")),
    "start_dir": _about("The folder that every process starts in.", _FILLED),
    "env": _about("Variables of every process; those of groups and processes win.", _ref("env")),
    "images": _about(
        "Images that a launch with --build makes, by repository.",
        _map({"pattern": _or_reference(_whole_match(validators._REPOSITORY))}, _or_null(_closed(IMAGE))),
    ),
    "processes": _about("Processes, and groups (which have processes of their own), by name.",
                        _map(_NAME, _ref("member"))),
    parameters.KEY: _about(
        "Values that --set or the environment may change, by name; ${name} stands for them elsewhere. "
        "null: one has to be given.",
        _map({"pattern": _whole_match(parameters._NAME)}, {"type": ["string", "number", "boolean", "null"]}),
    ),
}  # fmt: skip


if __name__ == "__main__":
    write(path())
