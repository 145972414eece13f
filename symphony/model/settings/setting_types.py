"""The types of the settings that are mappings, lists or words of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from symphony.errors import SpecError, shown
from symphony.model.error_collector import ErrorCollector
from symphony.model.settings import validators
from symphony.model.settings.value_types import (
    ABSOLUTE_PATH,
    DURATION,
    EXIT_CODES,
    FILES,
    FLAG,
    HTTP_TEST,
    MEMORY,
    NAME,
    NONEMPTY_TEXT,
    POSITIVE_NUMBER,
    PROGRAM_OR_LINE,
    QUANTITY,
    REGULAR_EXPRESSION,
    RESOURCE_NAME,
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
    list_of_records,
    mapping_of,
    not_both,
    object_schema,
    or_null,
    or_reference,
    pairs,
    policy_fields,
    policy_schema,
    policy_word,
    read_pairs,
    read_policy_parts,
    read_record,
    whole_match,
    whole_seconds,
    with_parts,
)
from symphony.support.names import check_name

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

_SERVER_TESTS = field_table(
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
        description="a service and a path, such as web/health or [web, /health]; the test succeeds "
        "when the service answers a GET request for the path, by default /, with a status from 200 "
        "to 399",
    ),
)


def _command_test(setting: str) -> dict[str, Field]:
    return field_table(
        Field(
            name="command",
            type=PROGRAM_OR_LINE,
            description="a shell line, or a command as a list, that runs in the process's "
            "environment and directory; the test succeeds when the command exits with 0",
            subject=f"{setting} command",
        ),
    )


_READY_TEST_FIELDS = {
    **_SERVER_TESTS,
    **_command_test("ready"),
    **field_table(
        Field(
            name="log",
            type=REGULAR_EXPRESSION,
            description="a regular expression; the test succeeds when the expression matches "
            "part of an output line, without its colours and other control characters",
        ),
    ),
}
READY_TESTS = tuple(_READY_TEST_FIELDS)
READY_FIELDS = {
    **_READY_TEST_FIELDS,
    **field_table(
        Field(
            name="timeout",
            type=TIMEOUT,
            description="the time within which the process must become ready, in seconds or as in "
            "'2m'",
            subject="the timeout of ready",
            nullable=False,
        ),
    ),
}
# The default time within which a process must become ready.
READY_SECONDS = 60

_HEALTHY_TEST_FIELDS = {**_SERVER_TESTS, **_command_test("healthy")}
HEALTHY_TESTS = tuple(_HEALTHY_TEST_FIELDS)
# The kubelet knows only whole seconds, so all backends do.
_PERIOD = whole_seconds(least=1)
HEALTHY_EVERY_SECONDS, HEALTHY_FAILURES, HEALTHY_TIMEOUT_SECONDS = 10, 3, 5
HEALTHY_FIELDS = {
    **_HEALTHY_TEST_FIELDS,
    **field_table(
        Field(
            name="every",
            type=_PERIOD,
            description="the time between the end of a test and the begin of the next one, in "
            "whole seconds or as in '2m'; the first test begins after the same time; the default "
            f"is {HEALTHY_EVERY_SECONDS}",
            subject="every of healthy",
            nullable=False,
        ),
        Field(
            name="failures",
            type=POSITIVE_NUMBER,
            description="the number of tests in a row that must fail before the process is "
            f"stopped; the default is {HEALTHY_FAILURES}",
            subject="failures of healthy",
            nullable=False,
        ),
        Field(
            name="timeout",
            type=_PERIOD,
            description="the time after which one test has failed, in whole seconds or as in "
            f"'2m'; the default is {HEALTHY_TIMEOUT_SECONDS}",
            subject="the timeout of healthy",
            nullable=False,
        ),
    ),
}

_USE_NEVER = "use never"
_RESTART_HINTS = {
    "unless-stopped": "use always, which does not restart a process after 'symphony stop'",
    "any": "use always",
    "no": _USE_NEVER,
    "none": _USE_NEVER,
    "false": _USE_NEVER,
}
RESTART_FIELDS = policy_fields(
    RESTART_POLICIES,
    "the condition under which the process is restarted",
    _RESTART_HINTS,
    Field(
        name="final_codes",
        type=EXIT_CODES,
        description="exit codes after which the process is not restarted, such as those of errors "
        "in its options; the default is none",
    ),
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
}
# The volume kinds of earlier versions, each with what to use instead.
REMOVED_VOLUME_KINDS = {
    "git_repo": "clone the repository on this machine, and set code to the directory of the clone",
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


def one_test(setting: str, kinds: Collection[str], given: Mapping[str, Any]) -> None:
    """Raise `SpecError` unless exactly one of the ``kinds`` of tests is given for a setting."""
    tests = [name for name in kinds if given.get(name) is not None]
    if len(tests) != 1:
        raise SpecError(f"{setting} takes exactly one of {', '.join(kinds)}, not {len(tests)}")


def _ready(value: object, subject: str, errors: ErrorCollector) -> dict[str, Any] | None:
    test = read_record(READY_FIELDS, value, subject, errors)
    if test is None:
        return None
    one_test("ready", READY_TESTS, test)
    return {**test, "timeout": test.get("timeout", READY_SECONDS)}


def _healthy(value: object, subject: str, errors: ErrorCollector) -> dict[str, Any] | None:
    if isinstance(value, Mapping) and value.get("log") is not None:
        raise SpecError(
            "healthy takes no log, because a line in the log does not show whether the process "
            "still works; use tcp, http or command",
            path=("log",),
        )
    test = read_record(HEALTHY_FIELDS, value, subject, errors)
    if test is None:
        return None
    one_test("healthy", HEALTHY_TESTS, test)
    return {
        **test,
        "every": test.get("every", HEALTHY_EVERY_SECONDS),
        "failures": test.get("failures", HEALTHY_FAILURES),
        "timeout": test.get("timeout", HEALTHY_TIMEOUT_SECONDS),
    }


def _job(value: object, subject: str, errors: ErrorCollector) -> dict[str, Any] | None:
    """Return the limits of a Job, or None for the value false."""
    if value is False:
        return None
    return read_record(JOB_FIELDS, {} if value is True else value, subject, errors)


def _resources_type(fields: dict[str, Field]) -> ValueType:
    def read(value: object, subject: str, errors: ErrorCollector) -> dict[str, Any] | None:
        given = validators.mapping(value, subject)
        _refuse_two_memories(given)
        amounts = read_record(fields, given, subject, errors)
        if amounts is not None and "mem" in amounts:
            amounts["memory"] = amounts.pop("mem")
        return amounts

    return with_parts({**object_schema(fields), **_ONE_MEMORY}, read)


def _refuse_two_memories(amounts: Mapping[str, Any]) -> None:
    memory, mem = amounts.get("memory"), amounts.get("mem")
    if memory is not None and mem is not None:
        raise SpecError(
            f"memory and mem are the same setting, but both are given: "
            f"{shown(memory)} and {shown(mem)}"
        )


def _volume(value: object, _: str, errors: ErrorCollector) -> dict[str, Any] | None:
    if not isinstance(value, Mapping) or len(value) != 1:
        from symphony.model.document.other_formats.hints import volume_hint

        raise SpecError(
            "a volume must have one kind with its settings, such as nfs: {...}, "
            f"not {shown(value)}{volume_hint(value)}"
        )
    ((kind, given),) = validators.mapping(value, "a volume").items()
    if kind in REMOVED_VOLUME_KINDS:
        raise SpecError(f"the volume kind {kind} was removed; {REMOVED_VOLUME_KINDS[kind]}")
    validators.refuse_unknown([kind], VOLUME_KINDS, "a volume")
    _, fields = VOLUME_KINDS[kind]
    details: dict[str, Any] | None = None
    with errors.at(kind):
        subject = f"a volume of kind {kind}"
        details = read_record(fields, {} if given is None else given, subject, errors)
    return None if details is None else {kind: _without_defaults(details)}


def _without_defaults(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of a volume that differ from the defaults, which are empty or false."""
    return {name: value for name, value in details.items() if value not in ("", False)}


def _toleration(value: object, subject: str, errors: ErrorCollector) -> dict[str, Any] | None:
    toleration = read_record(TOLERATION_FIELDS, value, subject, errors)
    if toleration is not None:
        _check_toleration(toleration)
    return toleration


def _check_toleration(toleration: Mapping[str, Any]) -> None:
    """Raise `SpecError` if the keys of a toleration contradict one another."""
    accepts_every_value = toleration.get("operator") == "Exists"
    if "key" not in toleration and not accepts_every_value:
        raise SpecError(
            "a toleration without a key tolerates every taint; set operator='Exists' to allow it"
        )
    if accepts_every_value and toleration.get("value"):
        raise SpecError(
            "a toleration with operator='Exists' accepts every value; remove value, or set "
            "operator='Equal'"
        )
    if "toleration_seconds" in toleration and toleration.get("effect") != "NoExecute":
        raise SpecError(
            "toleration_seconds has an effect only on taints that end running Pods; "
            "set effect='NoExecute', or remove it"
        )


def _topology_spread(value: object, subject: str, errors: ErrorCollector) -> dict[str, Any] | None:
    return read_record(TOPOLOGY_SPREAD_FIELDS, value, subject, errors)


def _unit(value: object, _: str) -> str:
    return check_name(value, "unit")


def _ranks_of_pod(value: object, subject: str) -> int:
    return validators.whole_number(value, subject, least=1)


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


def _condition_pair(name: object, condition: object) -> tuple[str, str]:
    condition = validators.one_of(condition, CONDITIONS, "the condition of starts_after")
    return check_name(name, "process"), condition


def _env_secret_pair(key: object, secret: object) -> tuple[str, str]:
    name = validators.env_name(key)
    return name, validators.nonempty_text(secret, f"the secret of variable {name!r}")


def _start_conditions(value: Any, subject: str, errors: ErrorCollector) -> dict[str, str]:
    if isinstance(value, Mapping):
        return read_pairs(_condition_pair, value, subject, errors)
    processes = value if isinstance(value, (list, tuple)) else [value]
    names = [check_name(process, "process") for process in processes]
    return dict.fromkeys(names, "ready")


READY = with_parts(
    {**object_schema(READY_FIELDS), "oneOf": [has_key(test) for test in READY_TESTS]}, _ready
)
HEALTHY = with_parts(
    {**object_schema(HEALTHY_FIELDS), "oneOf": [has_key(test) for test in HEALTHY_TESTS]}, _healthy
)
_TOLERATION_SCHEMA: Schema = {
    **object_schema(TOLERATION_FIELDS),
    **any_of(has_key("key"), _HAS_EXISTS_OPERATOR),
}
ENV_SECRETS = pairs(
    mapping_of(
        {"pattern": or_reference(whole_match(validators.ENV_NAME_PATTERN))}, NONEMPTY_TEXT.schema
    ),
    _env_secret_pair,
)
START_CONDITIONS = with_parts(
    any_of(NAME.schema, list_of(NAME.schema), mapping_of(NAME.schema, choice(CONDITIONS).schema)),
    _start_conditions,
)
UNIT = ValueType(NAME.schema, _unit)
RANKS_OF_POD = ValueType(WHOLE_NUMBER.schema, _ranks_of_pod)
TOPOLOGY = ValueType(any_of(FLAG.schema, TEXT.schema), _topology)
SCHEDULING_TIME = ValueType(any_of(FLAG.schema, DURATION.schema), _scheduling_seconds)
JOB = with_parts(any_of(FLAG.schema, object_schema(JOB_FIELDS)), _job)
OBJECT_NAME = ValueType(
    {"type": "string", "pattern": or_reference(whole_match(validators.OBJECT_NAME_PATTERN))},
    validators.object_name,
)
OBJECT = ValueType({"type": "object"}, validators.plain_mapping)
RESOURCE_REQUEST = _resources_type(RESOURCE_FIELDS)
RESOURCE_LIMIT = _resources_type(LIMIT_FIELDS)
RESTART_POLICY = with_parts(
    policy_schema(RESTART_FIELDS, RESTARTING_POLICIES),
    read_policy_parts(RESTART_FIELDS, RESTARTING_POLICIES),
)
VOLUMES = list_of_records(_volume_schema(), _volume)
TOLERATIONS = list_of_records(_TOLERATION_SCHEMA, _toleration)
TOPOLOGY_SPREAD = list_of_records(object_schema(TOPOLOGY_SPREAD_FIELDS), _topology_spread)
