"""The table of the settings that processes and groups have in common.

Each setting is declared once, as a field of `Settings`. The declaration contains the setting's
schema, level and description, and the name of the `Component` method that sets it. The loader, the
JSON Schema, the dump and the list of ignored settings are based on this table.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from symphony.errors import SpecError, error_path, shown
from symphony.model.settings import validators
from symphony.model.settings.code import CODE
from symphony.model.settings.value_types import (
    ABSOLUTE_PATH,
    DURATION,
    ENV,
    ENV_FILES,
    FILES,
    FLAG,
    HTTP_TEST,
    LABELS,
    LOG_SIZE,
    MEMORY,
    NAME,
    NONEMPTY_TEXT,
    PROGRAM_OR_LINE,
    QUANTITY,
    REGULAR_EXPRESSION,
    RESOURCE_NAME,
    SERVICE_NAMES,
    SERVICES,
    STOP_SIGNAL,
    TEXT,
    TIMEOUT,
    WHOLE_NUMBER,
    WHOLE_SECONDS,
    Field,
    Schema,
    ValueType,
    any_of,
    choice,
    described,
    field_table,
    has_key,
    list_of,
    mapping_of,
    not_both,
    object_schema,
    or_null,
    or_reference,
    pairs,
    parse_list,
    parse_record,
    policy_fields,
    policy_type,
    policy_word,
    whole_match,
)
from symphony.support.names import check_name, did_you_mean

# The levels of settings. A Pod setting applies to the group as a whole, a container setting applies
# to every member of the group, and any other setting applies only to the component on which it is
# set.
POD, CONTAINER, OWN = "pod", "container", "own"

CONDITIONS = ("ready", "started", "succeeded")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
RESTART_POLICIES = ("Always", "OnFailure", "Never")
RESTARTING_POLICIES = ("Always", "OnFailure")
PULL_POLICY = policy_word(PULL_POLICIES)
TOLERATION_OPERATORS = ("Equal", "Exists")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
HOST_PATH_TYPES = (
    "",
    "DirectoryOrCreate",
    "Directory",
    "FileOrCreate",
    "File",
    "Socket",
    "CharDevice",
    "BlockDevice",
)
UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
SHARED_MEMORY = "/dev/shm"
# The label by which the nodes themselves are distinguished.
NODE_TOPOLOGY = "kubernetes.io/hostname"
# The default time within which all ranks of a unit must be scheduled.
TOGETHER_SECONDS = 60


class FileForm(enum.Enum):
    """The rule for converting a setting's value in a file to calls of the setting's method."""

    VALUE = "one call with the value"
    PAIRS = "one call with each key and value of a mapping"
    KEYWORDS = "one call with the mapping as keywords"
    KEYWORDS_OR_WORD = "as KEYWORDS; a word is the value of the first keyword"
    KEYWORDS_OR_FLAG = "as KEYWORDS; true is an empty mapping, and false is no call"
    LIST_OF_KEYWORDS = "one call for each mapping of a list"
    VOLUMES = "one call of mount_<kind> for each volume of a list"
    CONDITIONS = "one call for each name of a list, or as PAIRS"
    ATTRIBUTE = "an assignment to the attribute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The declaration of a setting.

    ``method`` is the name of the `Component` method or attribute that sets the value. ``schema`` is
    the JSON Schema of the value in a file. ``parse`` takes the value in the form that `Settings`
    contains, and its name for error messages; it returns the value in its normalized form, or
    raises `SpecError`. ``fields`` contains the keys of the value if the value is a mapping with
    fixed keys.
    """

    name: str
    level: str
    description: str
    schema: Schema
    parse: Callable[[Any, str], Any]
    method: str
    form: FileForm
    fields: dict[str, Field]
    reports_parts: bool

    def reported_names(self, value: Any) -> list[str]:
        """Return the names under which a backend lists the value as supported or ignored."""
        if not self.reports_parts:
            return [self.name]
        if self.form is FileForm.VOLUMES:
            parts = [next(iter(volume)) for volume in value]
        elif self.form is FileForm.KEYWORDS_OR_WORD and isinstance(value, str):
            parts = [next(iter(self.fields))]
        else:
            parts = list(value)
        return [f"{self.name}.{part}" for part in dict.fromkeys(parts)]


# --- the fields of settings that are mappings ---

RESOURCE_FIELDS = field_table(
    Field(name="cpu", type=QUANTITY, description="the number of CPU cores"),
    Field(
        name="memory",
        type=MEMORY,
        description="the number of bytes, or an amount with a unit such as '4Gi'",
    ),
    Field(name="mem", type=MEMORY, description="a synonym for memory", subject="memory"),
)
LIMIT_FIELDS = {
    **RESOURCE_FIELDS,
    **field_table(
        Field(name="gpu", type=WHOLE_NUMBER, description="the number of whole GPUs"),
        Field(
            name="gpu_resource",
            type=RESOURCE_NAME,
            description="the resource of Kubernetes that the GPUs are, for example "
            "nvidia.com/mig-1g.5gb, amd.com/gpu or google.com/tpu; the default is the option "
            "gpu_resource of the cluster",
        ),
    ),
}
_ONE_MEMORY: Schema = {"allOf": [not_both("memory", "mem")]}

READY_FIELDS = field_table(
    Field(
        name="tcp",
        type=NAME,
        description="a service of the process; the test succeeds when the service accepts a "
        "connection",
        subject="service",
    ),
    Field(
        name="http",
        type=HTTP_TEST,
        description="[service, path]; the test succeeds when the service answers a GET request for "
        "the path with a status from 200 to 399",
    ),
    Field(
        name="command",
        type=PROGRAM_OR_LINE,
        description="a shell line, or a command as a list, that runs in the process's environment "
        "and directory; the test succeeds when the command exits with 0",
        subject="ready command",
    ),
    Field(
        name="log",
        type=REGULAR_EXPRESSION,
        description="a regular expression; the test succeeds when the expression matches "
        "part of an output line, without its colours and other control characters",
    ),
    Field(
        name="timeout",
        type=TIMEOUT,
        description="the time within which the process must become ready, in seconds or as in '2m'",
        subject="the timeout of ready",
        nullable=False,
    ),
)
READY_TESTS = tuple(name for name in READY_FIELDS if name != "timeout")

_USE_NEVER = "use never"
_RESTART_HINTS = {
    "unless-stopped": "use always, which does not restart a process after 'symphony stop'",
    "any": "use always",
    "no": _USE_NEVER,
    "none": _USE_NEVER,
    "false": _USE_NEVER,
}
RESTART_FIELDS = policy_fields(
    RESTART_POLICIES, "the condition under which the process is restarted", _RESTART_HINTS
)

JOB_FIELDS = field_table(
    Field(
        name="backoff_limit",
        type=WHOLE_NUMBER,
        description="the number of retries after a failure",
    ),
    Field(
        name="active_deadline",
        type=WHOLE_SECONDS,
        description="the time limit for all attempts together",
    ),
    Field(
        name="ttl",
        type=WHOLE_SECONDS,
        description="the time after which a finished Job is deleted",
    ),
)


def _label_key(value: object, subject: str) -> str:
    return validators.label_key(value, subject)


_LABEL_KEY = ValueType(TEXT.schema, _label_key)

TOLERATION_FIELDS = field_table(
    Field(name="key", type=_LABEL_KEY, description="the key of the taint"),
    Field(
        name="operator",
        type=choice(TOLERATION_OPERATORS),
        description="Equal requires the same value, and Exists accepts any value; "
        "the default is Equal",
    ),
    Field(name="value", type=TEXT, description="the value of the taint"),
    Field(
        name="effect",
        type=choice(TAINT_EFFECTS),
        description="the effect of the taint; the default is every effect",
    ),
    Field(
        name="toleration_seconds",
        type=WHOLE_SECONDS,
        description="the time for which a NoExecute taint is tolerated",
    ),
)
_HAS_EXISTS_OPERATOR: Schema = {
    "required": ["operator"],
    "properties": {"operator": {"const": "Exists"}},
}

TOPOLOGY_SPREAD_FIELDS = field_table(
    Field(
        name="key",
        type=_LABEL_KEY,
        description="the node label whose values are the domains, such as "
        "topology.kubernetes.io/zone",
        required=True,
    ),
    Field(
        name="max_skew",
        type=WHOLE_NUMBER,
        description="how many more Pods one domain can have than another; the default is 1",
    ),
    Field(
        name="when_unsatisfiable",
        type=choice(UNSATISFIABLE),
        description="DoNotSchedule waits for a node that satisfies the constraint, and "
        "ScheduleAnyway prefers such nodes; the default is DoNotSchedule",
    ),
)

_MOUNT_PATH = Field(
    name="mount_path",
    type=ABSOLUTE_PATH,
    description="the path at which the volume is mounted",
    required=True,
)
_VOLUME_NAME = Field(
    name="name",
    type=NAME,
    description="the name of the volume; symphony chooses one by default",
    subject="volume",
)
_READ_ONLY = Field(
    name="read_only",
    type=ValueType({"default": False, **FLAG.schema}, FLAG.parse),
    description="mount the volume read-only; the default is false",
    nullable=False,
)
_SIZE = Field(name="size", type=QUANTITY, description="the maximum size, such as '8Gi'")
_FILES = Field(
    name="files",
    type=FILES,
    description="the files from which the Secret or ConfigMap is created; without files, it must "
    "already exist",
    subject="the files of the volume",
)

# The volume kinds, each with its description and its fields.
VOLUME_KINDS: dict[str, tuple[str, dict[str, Field]]] = {
    "nfs": (
        "A directory that an NFS server exports.",
        field_table(
            _MOUNT_PATH,
            Field(
                name="server",
                type=NONEMPTY_TEXT,
                description="the name or the address of the server",
                subject="the NFS server",
                required=True,
            ),
            Field(
                name="path",
                type=ABSOLUTE_PATH,
                description="the exported directory",
                subject="the NFS path",
                required=True,
            ),
            _VOLUME_NAME,
        ),
    ),
    "host_path": (
        "A file or directory on the node.",
        field_table(
            _MOUNT_PATH,
            Field(
                name="path",
                type=ABSOLUTE_PATH,
                description="the path on the node",
                subject="the host path",
                required=True,
            ),
            Field(
                name="type",
                type=choice(HOST_PATH_TYPES),
                description="the type of the path, which Kubernetes checks before it mounts the "
                "path; the default is no check",
                nullable=False,
            ),
            _READ_ONLY,
            _VOLUME_NAME,
        ),
    ),
    "pvc": (
        "A persistent volume claim.",
        field_table(
            _MOUNT_PATH,
            Field(
                name="claim",
                type=NONEMPTY_TEXT,
                description="the name of the claim",
                subject="the claim",
                required=True,
            ),
            _READ_ONLY,
            _VOLUME_NAME,
        ),
    ),
    "empty_dir": (
        "A directory that is empty when the Pod starts and is deleted with the Pod.",
        field_table(
            _MOUNT_PATH,
            Field(
                name="memory", type=FLAG, description="store the files in memory", nullable=False
            ),
            _SIZE,
            _VOLUME_NAME,
        ),
    ),
    "shared_memory": (
        "A /dev/shm directory with a maximum size; the default is no limit.",
        field_table(_SIZE),
    ),
    "secret": (
        "An existing Secret, or a Secret that is created from files.",
        field_table(
            _MOUNT_PATH,
            Field(
                name="secret",
                type=NONEMPTY_TEXT,
                description="the name of the Secret",
                subject="the secret",
                required=True,
            ),
            _FILES,
            _VOLUME_NAME,
        ),
    ),
    "config": (
        "An existing ConfigMap, or a ConfigMap that is created from files.",
        field_table(
            _MOUNT_PATH,
            Field(
                name="config",
                type=NONEMPTY_TEXT,
                description="the name of the ConfigMap",
                subject="the config",
                required=True,
            ),
            _FILES,
            _VOLUME_NAME,
        ),
    ),
    "git_repo": (
        "A git repository that is checked out before the process starts.",
        field_table(
            _MOUNT_PATH,
            Field(
                name="repository",
                type=NONEMPTY_TEXT,
                description="the URL of the repository",
                subject="the repository",
                required=True,
            ),
            Field(
                name="revision",
                type=NONEMPTY_TEXT,
                description="a branch, a tag or a commit",
                subject="the revision",
            ),
            _VOLUME_NAME,
        ),
    ),
}


def _volume_schema() -> Schema:
    """Return the schema of one volume: a mapping whose only key is the kind."""
    kinds: dict[str, Schema] = {}
    for kind, (description, volume_fields) in VOLUME_KINDS.items():
        schema = object_schema(volume_fields)
        kinds[kind] = described(description, schema if "required" in schema else or_null(schema))
    return {
        "type": "object",
        "properties": kinds,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


def one_ready_test(given: Mapping[str, Any]) -> None:
    """Raise `SpecError` unless exactly one readiness test is given."""
    tests = [name for name in READY_TESTS if given.get(name) is not None]
    if len(tests) != 1:
        raise SpecError(f"ready takes exactly one of {', '.join(READY_TESTS)}, not {len(tests)}")


def _record(fields: dict[str, Field]) -> Callable[[Any, str], dict[str, Any]]:
    def parse(value: object, subject: str) -> dict[str, Any]:
        return parse_record(fields, value, subject)

    return parse


def _ready(value: object, subject: str) -> dict[str, Any]:
    result = parse_record(READY_FIELDS, value, subject)
    one_ready_test(result)
    return result


def _volume(value: object, subject: str) -> dict[str, Any]:
    kinds = validators.mapping(value, subject)
    validators.refuse_unknown(kinds, VOLUME_KINDS, subject)
    if len(kinds) != 1:
        raise SpecError(f"{subject} must have one kind, such as nfs: {{...}}, not {shown(value)}")
    ((kind, details),) = kinds.items()
    _, fields = VOLUME_KINDS[kind]
    with error_path(kind):
        return {kind: parse_record(fields, details, f"a volume of kind {kind}")}


def _volumes(value: object, subject: str) -> list[dict[str, Any]]:
    return parse_list(_volume, value, subject)


def _topology(value: object, subject: str) -> str | None:
    """Return the node label whose values are the domains, or None for the value false."""
    if isinstance(value, bool):
        return NODE_TOPOLOGY if value else None
    return validators.label_key(value, subject)


def _scheduling_seconds(value: Any, subject: str) -> float | None:
    """Return the time within which all ranks must be scheduled, or None for the value false."""
    if isinstance(value, bool):
        return TOGETHER_SECONDS if value else None
    return DURATION.parse(value, subject)  # type: ignore[no-any-return]


def _topology_spreads(value: object, subject: str) -> list[dict[str, Any]]:
    return parse_list(_record(TOPOLOGY_SPREAD_FIELDS), value, subject)


def _tolerations(value: object, subject: str) -> list[dict[str, Any]]:
    return parse_list(_record(TOLERATION_FIELDS), value, subject)


def _condition_pair(name: object, condition: object) -> tuple[str, str]:
    condition = validators.one_of(condition, CONDITIONS, "the condition of starts_after")
    return check_name(name, "process"), condition


def _env_secret_pair(key: object, secret: object) -> tuple[str, str]:
    name = validators.env_name(key)
    return name, validators.nonempty_text(secret, f"the secret of variable {name!r}")


_READY = ValueType(
    {**object_schema(READY_FIELDS), "oneOf": [has_key(test) for test in READY_TESTS]}, _ready
)
_TOLERATION_SCHEMA: Schema = {
    **object_schema(TOLERATION_FIELDS),
    **any_of(has_key("key"), _HAS_EXISTS_OPERATOR),
}
_ENV_SECRETS = ValueType(
    mapping_of(
        {"pattern": or_reference(whole_match(validators.ENV_NAME_PATTERN))}, NONEMPTY_TEXT.schema
    ),
    pairs(_env_secret_pair),
)
_CONDITIONS = ValueType(
    any_of(NAME.schema, list_of(NAME.schema), mapping_of(NAME.schema, choice(CONDITIONS).schema)),
    pairs(_condition_pair),
)
TOPOLOGY = ValueType(any_of(FLAG.schema, TEXT.schema), _topology)
SCHEDULING_TIME = ValueType(any_of(FLAG.schema, DURATION.schema), _scheduling_seconds)
_JOB = ValueType(any_of(FLAG.schema, object_schema(JOB_FIELDS)), _record(JOB_FIELDS))
_OBJECT_NAME = ValueType(
    {"type": "string", "pattern": or_reference(whole_match(validators.OBJECT_NAME_PATTERN))},
    validators.object_name,
)
_OBJECT = ValueType({"type": "object"}, validators.plain_mapping)


# --- the table ---


def _setting(
    level: str,
    description: str,
    value_type: ValueType,
    *,
    method: str = "",
    form: FileForm = FileForm.VALUE,
    unset: Callable[[], Any] | None = dict,
    fields: dict[str, Field] | None = None,
    reports_parts: bool = False,
) -> Any:
    """Declare a setting as a field of `Settings`. ``unset`` creates the field's initial value,
    which is None if ``unset`` is None.
    """
    declaration = {
        "level": level,
        "description": description,
        "schema": described(description, value_type.schema),
        "parse": value_type.parse,
        "method": method,
        "form": form,
        "fields": fields or {},
        "reports_parts": reports_parts,
    }
    if unset is None:
        return field(default=None, metadata=declaration)
    return field(default_factory=unset, metadata=declaration)


@dataclass(kw_only=True)
class Settings:
    """The settings of one process or group, in the form in which `dump` returns them."""

    env: dict[str, str] = _setting(
        CONTAINER,
        "Environment variables of the process. Variables that symphony sets, such as service "
        "addresses, take precedence.",
        ENV,
        method="set_envs",
    )
    env_file: list[str] = _setting(
        CONTAINER,
        "Files with environment variables, in the dotenv format: a path or a list of paths. The "
        "variables in env take precedence.",
        ENV_FILES,
        method="add_env_file",
        unset=list,
    )
    configs: dict[str, str] = _setting(
        CONTAINER,
        "Text files that the process finds in the directory SYMPHONY_CONFIG_DIR: {name: path}, a "
        "path, or a list of paths. References to the addresses of services in them are replaced, "
        "and a line with ${service.*.addr} is repeated for each replica.",
        FILES,
        method="configs",
    )
    code: dict[str, Any] | bool | None = _setting(
        CONTAINER,
        "The code of the process, of which a launch takes a snapshot: a directory, such as '.', "
        "{path: ..., include: [...], exclude: [...]}, or false for none. The default is the code "
        "of the group or the experiment.",
        CODE,
        method="code",
        unset=None,
    )
    env_secrets: dict[str, str] = _setting(
        CONTAINER,
        "Environment variables that contain the values of the experiment's secrets: "
        "{variable: secret name}.",
        _ENV_SECRETS,
        method="set_env_secret",
        form=FileForm.PAIRS,
    )
    binds: dict[str, int | None] = _setting(
        OWN,
        "Services that the process listens on: a name, a list of names, or {name: port or null}.",
        SERVICES,
        method="binds",
    )
    connects: list[str] = _setting(
        CONTAINER,
        "Services that the process connects to: a name or a list of names.",
        SERVICE_NAMES,
        method="connects",
        unset=list,
    )
    exposes: dict[str, int | None] = _setting(
        OWN,
        "Services that clients outside the experiment can reach: a name, a list of names, or "
        "{name: port or null}.",
        SERVICES,
        method="exposes",
    )
    encrypted: list[str] = _setting(
        OWN,
        "Services that the process binds and encrypts. Only processes that bind or connect to an "
        "encrypted service receive its encryption keys.",
        SERVICE_NAMES,
        method="encrypts",
        unset=list,
    )
    replicated: list[str] = _setting(
        OWN,
        "Services that several processes bind, each with its own address. The services that "
        "replicas bind are added automatically.",
        SERVICE_NAMES,
        method="replicates",
        unset=list,
    )
    rank_of: str | None = _setting(
        OWN,
        "The unit of which the process is a rank. The copies of a process with ranks have this "
        "setting automatically. The ranks of a unit restart and fail together.",
        NAME,
        method="rank_of",
        unset=None,
    )
    per_pod: int | None = _setting(
        OWN,
        "The number of ranks that one Pod runs. Their resources are added up.",
        WHOLE_NUMBER,
        method="per_pod",
        unset=None,
    )
    resource_request: dict[str, str] = _setting(
        CONTAINER,
        "The resources that must be available for the process to start.",
        ValueType({**object_schema(RESOURCE_FIELDS), **_ONE_MEMORY}, _record(RESOURCE_FIELDS)),
        method="resource_request",
        form=FileForm.KEYWORDS,
        fields=RESOURCE_FIELDS,
        reports_parts=True,
    )
    resource_limit: dict[str, Any] = _setting(
        CONTAINER,
        "The maximum amounts of resources that the process can use.",
        ValueType({**object_schema(LIMIT_FIELDS), **_ONE_MEMORY}, _record(LIMIT_FIELDS)),
        method="resource_limit",
        form=FileForm.KEYWORDS,
        fields=LIMIT_FIELDS,
        reports_parts=True,
    )
    image_pull_policy: str | None = _setting(
        CONTAINER,
        "The condition under which Kubernetes pulls the image.",
        PULL_POLICY,
        method="image_pull_policy",
        unset=None,
    )
    restart_policy: str | dict[str, Any] | None = _setting(
        POD,
        "The condition under which the process is restarted; the default is Never. To limit the "
        "restarts, use on-failure:5 or {policy: ..., max_restarts: ..., backoff: ...}.",
        policy_type(RESTART_FIELDS, RESTART_POLICIES, restarting=RESTARTING_POLICIES),
        method="restart_policy",
        form=FileForm.KEYWORDS_OR_WORD,
        fields=RESTART_FIELDS,
        unset=None,
        reports_parts=True,
    )
    termination_grace_period: int | None = _setting(
        POD,
        "The time between SIGTERM and SIGKILL; the default is 30s.",
        WHOLE_SECONDS,
        method="termination_grace_period",
        unset=None,
    )
    stop_signal: str | None = _setting(
        CONTAINER,
        "The signal that stops the process, such as INT; the default is TERM.",
        STOP_SIGNAL,
        method="stop_signal",
        unset=None,
    )
    stop_command: list[str] | str | None = _setting(
        CONTAINER,
        "A command that stops the process instead of a signal: a list of arguments, or a shell "
        "line. The command runs in the process's environment and directory.",
        PROGRAM_OR_LINE,
        method="stop_command",
        unset=None,
    )
    signal_group: bool | None = _setting(
        CONTAINER,
        "Send the signal that stops the process to all programs of its process group, instead of "
        "only to the programs that handle it.",
        FLAG,
        method="signal_group",
        unset=None,
    )
    ready: dict[str, Any] | None = _setting(
        CONTAINER,
        "The test that determines when the process is ready, and the timeout of the test.",
        _READY,
        method="ready",
        form=FileForm.KEYWORDS,
        fields=READY_FIELDS,
        unset=None,
    )
    starts_after: dict[str, str] = _setting(
        POD,
        "Processes or groups that must be ready before the process starts. To set the conditions, "
        "use {name: ready | started | succeeded}.",
        _CONDITIONS,
        method="starts_after",
        form=FileForm.CONDITIONS,
    )
    log_limit: str | None = _setting(
        CONTAINER,
        "The maximum size of the process's log, in bytes or with a unit such as '100Mi'. The "
        "oldest lines are removed when the log is larger; the default is 1Gi, and the minimum is "
        "64Ki.",
        LOG_SIZE,
        method="log_limit",
        unset=None,
    )
    tty: bool | None = _setting(
        CONTAINER,
        "Run the process on a terminal, which 'symphony attach' joins and leaves.",
        FLAG,
        method="tty",
        unset=None,
    )
    job: dict[str, Any] | None = _setting(
        POD,
        "Run the process to completion.",
        _JOB,
        method="job",
        form=FileForm.KEYWORDS_OR_FLAG,
        fields=JOB_FIELDS,
        unset=None,
        reports_parts=True,
    )
    volumes: list[dict[str, Any]] = _setting(
        CONTAINER,
        "The volumes to mount, as a list. The only key of each element is the kind of the volume.",
        ValueType(list_of(_volume_schema()), _volumes),
        method="mount_",
        form=FileForm.VOLUMES,
        unset=list,
        reports_parts=True,
    )
    node_selector: dict[str, str] = _setting(
        POD,
        "Labels that the node must have.",
        LABELS,
        method="node_selector",
        form=FileForm.PAIRS,
    )
    tolerations: list[dict[str, Any]] = _setting(
        POD,
        "The node taints that the Pod tolerates.",
        ValueType(list_of(_TOLERATION_SCHEMA), _tolerations),
        method="add_toleration",
        form=FileForm.LIST_OF_KEYWORDS,
        fields=TOLERATION_FIELDS,
        unset=list,
    )
    spread: str | None = _setting(
        POD,
        "Run the ranks of a unit, or the replicas of a process, on different nodes: true, or the "
        "node label whose values must differ, such as topology.kubernetes.io/zone.",
        TOPOLOGY,
        method="spread",
        unset=None,
    )
    together: str | None = _setting(
        POD,
        "Run the ranks of a unit, or the replicas of a process, on one node: true, or the node "
        "label whose value must be the same.",
        TOPOLOGY,
        method="together",
        unset=None,
    )
    topology_spread: list[dict[str, Any]] = _setting(
        POD,
        "How evenly the ranks of a unit, or the replicas of a process, are spread over the nodes.",
        ValueType(list_of(object_schema(TOPOLOGY_SPREAD_FIELDS)), _topology_spreads),
        method="add_topology_spread",
        form=FileForm.LIST_OF_KEYWORDS,
        fields=TOPOLOGY_SPREAD_FIELDS,
        unset=list,
    )
    priority_class: str | None = _setting(
        POD,
        "The PriorityClass of the Pod.",
        _OBJECT_NAME,
        method="priority_class",
        unset=None,
    )
    queue: str | None = _setting(
        POD,
        "The queue of Kueue in which the Pod waits for quota.",
        _OBJECT_NAME,
        method="queue",
        unset=None,
    )
    together_or_not: float | None = _setting(
        OWN,
        "The time within which all ranks of a unit must be scheduled, in seconds or as in '5m': "
        "true is 60 seconds. If it is exceeded, all ranks are stopped and tried again later.",
        SCHEDULING_TIME,
        method="together_or_not",
        unset=None,
    )
    jobset: bool | None = _setting(
        OWN,
        "Run the ranks of the unit as a JobSet, whose controller restarts and fails them together.",
        FLAG,
        method="jobset",
        unset=None,
    )
    labels: dict[str, str] = _setting(
        POD, "Labels that are added to the Pod.", LABELS, method="add_labels"
    )
    pod_yml: dict[str, Any] = _setting(
        POD,
        "Fields that are merged into the rendered Pod and override its fields.",
        _OBJECT,
        method="pod_yml",
        form=FileForm.ATTRIBUTE,
    )
    container_yml: dict[str, Any] = _setting(
        CONTAINER,
        "Fields that are merged into the rendered container and override its fields.",
        _OBJECT,
        method="container_yml",
        form=FileForm.ATTRIBUTE,
    )

    def dump(self) -> dict[str, Any]:
        """Return copies of the values that differ from the initial values, in the table's order."""
        # Each launch calls this method several times for each process, and many processes have no
        # settings.
        return {name: _copied(value) for name, value in self.given().items()}

    def given(self) -> dict[str, Any]:
        """Return the values that differ from the initial values, in the table's order."""
        # Most processes have few settings, and each launch calls this method several times for each
        # process. The identity is compared first because it is the faster comparison.
        values = vars(self)
        return {
            name: value
            for name, unset in _UNSET.items()
            if (value := values[name]) is not unset and value != unset
        }

    def copied(self) -> Settings:
        """Return a copy."""
        return Settings(**self.dump())

    def at_level(self, level: str) -> Settings:
        """Return a copy that contains only the settings at the given level."""
        values = self.given()
        return Settings(
            **{
                name: _copied(value)
                for name, value in values.items()
                if SETTINGS[name].level == level
            }
        )

    def under(self, inner: Settings) -> Settings:
        """Return a copy of ``inner`` in which these settings are the defaults.

        Mappings other than ``ready`` and ``code`` are merged, and lists other than ``stop_command``
        are joined without duplicates. Any other value in ``inner`` replaces the default.
        """
        return Settings(**_merged(self.dump(), inner.dump()))


SETTINGS: dict[str, Setting] = {
    item.name: Setting(name=item.name, **item.metadata) for item in fields(Settings)
}
_UNSET: dict[str, Any] = vars(Settings())


class OwnSettings(Settings):
    """The settings of a component. In contrast to `Settings`, values are validated when an
    attribute is set.
    """

    def __init__(self) -> None:
        # This is faster than setting the attributes one by one.
        vars(self).update(vars(Settings()))

    # mypy accepts any attribute of a class that has __setattr__.
    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: object) -> None:
            setting = SETTINGS.get(name)
            if setting is None:
                hint = did_you_mean(name, SETTINGS)
                raise SpecError(f"there is no setting {shown(name)}{hint}")
            if not _is_unset(name, value):
                value = setting.parse(value, name)
            object.__setattr__(self, name, value)

    def check(self) -> None:
        """Raise `SpecError` if the program has changed a value in place, and the new value is not
        in its normalized form.
        """
        for name, value in vars(self).items():
            # Most values are None, which is compared faster here.
            if value is not _UNSET[name] and not _is_unset(name, value):
                check_unchanged(SETTINGS[name].parse(value, name), value, name)


def _is_unset(name: str, value: object) -> bool:
    unset = _UNSET[name]
    # The comparison of an object of another type can raise an error.
    return value is unset or (type(value) is type(unset) and value == unset)


def check_unchanged(parsed: object, value: object, subject: str) -> None:
    """Raise `SpecError` if ``value`` differs from its normalized form ``parsed``."""
    if parsed != value:
        with error_path(subject):
            raise SpecError(f"{subject} must be {shown(parsed)}, not {shown(value)}")


_SCALAR_TYPES = frozenset({str, int, float, bool, type(None)})


def _copied(value: Any) -> Any:
    """Return a deep copy. Most values are scalars, or contain only scalars, and are copied fast."""
    kind = type(value)
    if kind in _SCALAR_TYPES:
        return value
    if kind is list and _SCALAR_TYPES.issuperset(map(type, value)):
        return value.copy()
    if kind is dict and _SCALAR_TYPES.issuperset(map(type, value.values())):
        return value.copy()
    return copy.deepcopy(value)


# A readiness test has exactly one kind, code has one directory, and a stop command is one command.
_NOT_MERGED = frozenset({"ready", "code", "stop_command"})


def _merged(outer: dict[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
    result = dict(outer)
    for name, value in inner.items():
        if name in _NOT_MERGED:
            result[name] = value
        elif isinstance(value, list):
            inherited = outer.get(name, [])
            result[name] = [*inherited, *(item for item in value if item not in inherited)]
        elif isinstance(value, dict):
            result[name] = deep_merged(outer.get(name, {}), value)
        else:
            result[name] = value
    return result


def deep_merged(outer: dict[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of ``outer`` updated from ``inner``, with mappings merged at every depth."""
    result = dict(outer)
    for key, value in inner.items():
        existing = result.get(key)
        if isinstance(existing, dict) and isinstance(value, dict):
            result[key] = deep_merged(existing, value)
        else:
            result[key] = value
    return result
