"""The table of the settings that processes and groups have in common.

Each setting is declared once, as a field of `Settings`. The declaration contains the setting's
schema, level and description, and the name of the `Component` method that sets it. The loader, the
JSON Schema, the dump and the list of ignored settings are based on this table.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from symphony.model.settings.code import CODE
from symphony.model.settings.merging import copied, merged
from symphony.model.settings.setting_types import (
    ENV_SECRETS,
    JOB,
    JOB_FIELDS,
    LIMIT_FIELDS,
    OBJECT,
    OBJECT_NAME,
    PULL_POLICY,
    READY,
    READY_FIELDS,
    RESOURCE_FIELDS,
    RESOURCE_LIMIT,
    RESOURCE_REQUEST,
    RESTART_FIELDS,
    RESTART_POLICY,
    SCHEDULING_TIME,
    START_CONDITIONS,
    TOLERATION_FIELDS,
    TOLERATIONS,
    TOPOLOGY,
    TOPOLOGY_SPREAD,
    TOPOLOGY_SPREAD_FIELDS,
    VOLUMES,
)
from symphony.model.settings.value_types import (
    ENV,
    ENV_FILES,
    FILES,
    FLAG,
    LABELS,
    LOG_SIZE,
    NAME,
    PROGRAM_OR_LINE,
    SERVICE_NAMES,
    SERVICES,
    STOP_SIGNAL,
    WHOLE_NUMBER,
    WHOLE_SECONDS,
    Field,
    Schema,
    ValueType,
    described,
)

# The levels of settings. A Pod setting applies to the group as a whole, a container setting applies
# to every member of the group, and any other setting applies only to the component on which it is
# set.
POD, CONTAINER, OWN = "pod", "container", "own"


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
        ENV_SECRETS,
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
        RESOURCE_REQUEST,
        method="resource_request",
        form=FileForm.KEYWORDS,
        fields=RESOURCE_FIELDS,
        reports_parts=True,
    )
    resource_limit: dict[str, Any] = _setting(
        CONTAINER,
        "The maximum amounts of resources that the process can use.",
        RESOURCE_LIMIT,
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
        RESTART_POLICY,
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
        READY,
        method="ready",
        form=FileForm.KEYWORDS,
        fields=READY_FIELDS,
        unset=None,
    )
    starts_after: dict[str, str] = _setting(
        POD,
        "Processes or groups that must be ready before the process starts. To set the conditions, "
        "use {name: ready | started | succeeded}.",
        START_CONDITIONS,
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
        JOB,
        method="job",
        form=FileForm.KEYWORDS_OR_FLAG,
        fields=JOB_FIELDS,
        unset=None,
        reports_parts=True,
    )
    volumes: list[dict[str, Any]] = _setting(
        CONTAINER,
        "The volumes to mount, as a list. The only key of each element is the kind of the volume.",
        VOLUMES,
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
        TOLERATIONS,
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
        TOPOLOGY_SPREAD,
        method="add_topology_spread",
        form=FileForm.LIST_OF_KEYWORDS,
        fields=TOPOLOGY_SPREAD_FIELDS,
        unset=list,
    )
    priority_class: str | None = _setting(
        POD,
        "The PriorityClass of the Pod.",
        OBJECT_NAME,
        method="priority_class",
        unset=None,
    )
    queue: str | None = _setting(
        POD,
        "The queue of Kueue in which the Pod waits for quota.",
        OBJECT_NAME,
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
        OBJECT,
        method="pod_yml",
        form=FileForm.ATTRIBUTE,
    )
    container_yml: dict[str, Any] = _setting(
        CONTAINER,
        "Fields that are merged into the rendered container and override its fields.",
        OBJECT,
        method="container_yml",
        form=FileForm.ATTRIBUTE,
    )

    def dump(self) -> dict[str, Any]:
        """Return copies of the values that differ from the initial values, in the table's order."""
        # Each launch calls this method several times for each process, and many processes have no
        # settings.
        return {name: copied(value) for name, value in self.given().items()}

    def given(self) -> dict[str, Any]:
        """Return the values that differ from the initial values, in the table's order."""
        # Most processes have few settings, and each launch calls this method several times for each
        # process. The identity is compared first because it is the faster comparison.
        values = vars(self)
        return {
            name: value
            for name, unset in UNSET.items()
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
                name: copied(value)
                for name, value in values.items()
                if SETTINGS[name].level == level
            }
        )

    def under(self, inner: Settings) -> Settings:
        """Return a copy of ``inner`` in which these settings are the defaults.

        Mappings other than ``ready`` and ``code`` are merged, and lists other than ``stop_command``
        are joined without duplicates. Any other value in ``inner`` replaces the default.
        """
        return Settings(**merged(self.dump(), inner.dump()))


SETTINGS: dict[str, Setting] = {
    item.name: Setting(name=item.name, **item.metadata) for item in fields(Settings)
}
UNSET: dict[str, Any] = vars(Settings())
