"""The table of the settings that processes and groups have in common.

Each setting is declared once, as a field of `Settings`. The declaration contains the type of the
setting's value, its level, its description, an example, and the backends that honour it. The
methods and keyword arguments of processes and groups, the loader, the JSON Schema, the dump, the
list of ignored settings and the reference documentation follow from this table.

After a change of the table, run ``scripts/docs pages``. It writes the files that contain all
settings for type checkers, editors and readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from symphony.model.settings.code import CODE
from symphony.model.settings.merging import copied, merged
from symphony.model.settings.setting_types import (
    ENV_SECRETS,
    HEALTHY,
    HEALTHY_FIELDS,
    JOB,
    JOB_FIELDS,
    LIMIT_FIELDS,
    OBJECT,
    OBJECT_NAME,
    PULL_POLICY,
    RANKS_OF_POD,
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
    UNIT,
    VOLUMES,
)
from symphony.model.settings.value_types import (
    ENV,
    ENV_FILES,
    FILES,
    FLAG,
    LABELS,
    LOG_SIZE,
    PROGRAM_OR_LINE,
    SERVICE_NAMES,
    SERVICES,
    STOP_SIGNAL,
    WHOLE_SECONDS,
    Field,
    PartsReader,
    Schema,
    ValueType,
    described,
    text_matching,
)

# The levels of settings. A Pod setting applies to the group as a whole, a container setting applies
# to every member of the group, and any other setting applies only to the component on which it is
# set.
POD, CONTAINER, OWN = "pod", "container", "own"

# The two ways in which the backends of symphony run processes: below a supervisor of symphony, as
# on local, tmux and Slurm, and in the Pods of Kubernetes. A setting maps each way that honours it
# to the parts of the value that are honoured, or to nothing if it is the whole value.
SUPERVISED, KUBE = "supervised", "kube"
HonouredBy = Mapping[str, tuple[str, ...]]
ONLY_SUPERVISED: HonouredBy = {SUPERVISED: ()}
ONLY_KUBE: HonouredBy = {KUBE: ()}
EVERYWHERE: HonouredBy = {SUPERVISED: (), KUBE: ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The declaration of a setting.

    * ``schema`` is the JSON Schema of the value in a file.
    * ``parse`` takes the value, and its name for error messages; it returns the value in the form
      that `Settings` contains, or raises `SpecError`. For ``read``, see `ValueType`.
    * ``replaced`` is true if a further value replaces the earlier value. Otherwise, mappings are
      updated and lists are extended.
    * ``fields`` contains the keys of the value if the value is a mapping with fixed keys.
    * ``accepts`` is the annotation of the value as a keyword argument.
    * ``method`` is the name of the `Component` method or attribute that sets the value.
    * ``subject`` is the name of the value in error messages.
    * ``argument`` is the name of the method's argument if the method only sets the value. The
      method is then generated, and ``default`` is the default of the argument, if it has one.
    * ``text`` is the docstring of the generated method.
    * ``is_text`` is true if the scalars in the value are read as text, so that YAML does not
      convert words such as ``yes`` and ``010``.
    * ``example`` is an example in YAML, with the other settings that it needs.
    * ``honoured_by`` contains the ways of running processes that honour the setting.
    """

    name: str
    level: str
    description: str
    schema: Schema
    parse: Callable[[Any, str], Any]
    read: PartsReader | None
    replaced: bool
    method: str
    subject: str
    fields: dict[str, Field]
    reports_parts: bool
    accepts: str
    argument: str | None
    default: bool | None
    text: str
    is_text: bool
    example: str
    honoured_by: HonouredBy

    def reported_names(self, value: Any) -> list[str]:
        """Return the names under which a backend lists the value as supported or ignored."""
        if not self.reports_parts:
            return [self.name]
        if isinstance(value, list):
            parts = [next(iter(item)) for item in value]
        elif isinstance(value, str):
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
    accepts: str,
    example: str,
    honoured_by: HonouredBy,
    method: str = "",
    argument: str | None = None,
    default: bool | None = None,
    text: str = "",
    is_text: bool = False,
    subject: str = "",
    replaced: bool = False,
    unset: Callable[[], Any] | None = dict,
    fields: dict[str, Field] | None = None,
    reports_parts: bool = False,
) -> Any:
    """Declare a setting as a field of `Settings`. ``unset`` creates the field's initial value,
    which is None if ``unset`` is None. For the other arguments, see `Setting`.

    ``method`` and ``subject`` are the setting's name by default, and ``text`` follows from the
    description.
    """
    declaration = {
        "level": level,
        "description": description,
        "schema": described(description, value_type.schema),
        "parse": value_type.parse,
        "read": value_type.read,
        "replaced": replaced or unset is None,
        "method": method,
        "subject": subject,
        "fields": fields or {},
        "reports_parts": reports_parts,
        "accepts": accepts,
        "argument": argument,
        "default": default,
        "text": text,
        "is_text": is_text,
        "example": example,
        "honoured_by": honoured_by,
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
        argument="envs",
        text="Set several environment variables, in the same way as `set_env`.",
        accepts="Mapping[str, object]",
        is_text=True,
        example="env: {SEED: 7, DEBUG: true}",
        honoured_by=EVERYWHERE,
    )
    env_file: list[str] = _setting(
        CONTAINER,
        "Files with environment variables, in the dotenv format: a path or a list of paths. The "
        "variables in env take precedence.",
        ENV_FILES,
        method="add_env_file",
        argument="path",
        text="""
        Set the environment variables in a file, or in several files.

        ``path`` is a path or a list of paths in the dotenv format that
        `symphony.model.document.env_files` describes. A later file takes precedence, and so do the
        variables that `set_env` sets. Relative paths are resolved against the experiment's
        ``base_dir``. The files are read when the experiment is launched, rendered or checked.
        """,
        unset=list,
        accepts="validators.Paths",
        is_text=True,
        example="env_file: [common.env, train.env]     # later files take precedence",
        honoured_by=EVERYWHERE,
    )
    configs: dict[str, str] = _setting(
        CONTAINER,
        "Text files that the process finds in the directory SYMPHONY_CONFIG_DIR: {name: path}, a "
        "path, or a list of paths. References to the addresses of services in them are replaced, "
        "and a line with ${service.*.addr} is repeated for each replica.",
        FILES,
        method="configs",
        argument="files",
        text="""
        Write text files for the process into the directory SYMPHONY_CONFIG_DIR.

        ``files`` maps the names of the files to the paths of their templates. It can also be a path
        or a list of paths, whose last parts are then the names. References to addresses in a
        template, such as ``${redis.addr}``, are replaced for each process. Relative paths are
        resolved against the experiment's ``base_dir``. The templates are read when the experiment
        is launched, changed, rendered or checked.
        """,
        accepts="validators.Files",
        is_text=True,
        example="configs: {nginx.conf: nginx.conf.in}     # or a path, or a list of paths",
        honoured_by=EVERYWHERE,
    )
    code: dict[str, Any] | bool | None = _setting(
        CONTAINER,
        "The code of the process, of which a launch takes a snapshot: a directory, such as '.', "
        "{path: ..., include: [...], exclude: [...]}, or false for none. The default is the code "
        "of the group or the experiment.",
        CODE,
        unset=None,
        accepts="validators.Code",
        argument="source",
        text="""
        Set the code of the process, of which a launch takes a snapshot.

        ``source`` is a directory, relative to the experiment's ``base_dir``. It can also be a
        mapping with the key ``path`` and lists of patterns, as in .gitignore, with the keys
        ``include`` and ``exclude``. With ``sync``, `Cluster.up` sends only the changed files to a
        running container on Kubernetes, and restarts the program in place. False means that the
        process does not have the code of its group or experiment.
        """,
        example="code: {path: ., exclude: ['*.ckpt', /runs]}     # or a directory, or false",
        honoured_by=EVERYWHERE,
    )
    env_secrets: dict[str, str] = _setting(
        CONTAINER,
        "Environment variables that contain the values of the experiment's secrets: "
        "{variable: secret name}.",
        ENV_SECRETS,
        method="set_env_secret",
        accepts="Mapping[str, str]",
        is_text=True,
        example="env_secrets: {API_TOKEN: token}     # token is a secret of the experiment",
        honoured_by=EVERYWHERE,
    )
    binds: dict[str, int | None] = _setting(
        OWN,
        "Services that the process listens on: a name, a list of names, or {name: port or null}.",
        SERVICES,
        method="binds",
        accepts="validators.ServiceSpec",
        example="binds: [replay, parameters]           # or a name, or {replay: 7100}",
        honoured_by=EVERYWHERE,
    )
    connects: list[str] = _setting(
        CONTAINER,
        "Services that the process connects to: a name or a list of names.",
        SERVICE_NAMES,
        method="connects",
        argument="services",
        text="""
        Declare services that the process connects to.

        ``services`` is a name or a list of names.
        """,
        unset=list,
        accepts="validators.ServiceSpec",
        example="connects: [store]",
        honoured_by=EVERYWHERE,
    )
    exposes: dict[str, int | None] = _setting(
        OWN,
        "Services that clients outside the experiment can reach: a name, a list of names, or "
        "{name: port or null}.",
        SERVICES,
        method="exposes",
        argument="services",
        text="""
        Make services reachable from outside the experiment.

        ``services`` has the same forms as in `binds`.
        """,
        accepts="validators.ServiceSpec",
        example="exposes: {tensorboard: 6006}          # or a name, or a list of names",
        honoured_by=EVERYWHERE,
    )
    encrypted: list[str] = _setting(
        OWN,
        "Services that the process binds and encrypts. Only processes that bind or connect to an "
        "encrypted service receive its encryption keys.",
        SERVICE_NAMES,
        method="encrypts",
        argument="services",
        subject="encrypts",
        text="""
        Encrypt services that the process binds.

        ``services`` is a name or a list of names.

        Every launch creates new keys. Only processes that bind or connect to an encrypted service
        receive the keys. The classes in `symphony.addons.zmq` use these keys automatically. A
        program that creates its own sockets must read the keys from its environment.
        """,
        unset=list,
        accepts="validators.ServiceSpec",
        example="binds: private\nencrypted: private",
        honoured_by=EVERYWHERE,
    )
    replicated: list[str] = _setting(
        OWN,
        "Services that several processes bind, each with its own address. The services that "
        "replicas bind are added automatically.",
        SERVICE_NAMES,
        method="replicates",
        argument="services",
        subject="replicates",
        text="""
        Declare services that several processes bind or expose.

        ``services`` is a name or a list of names. Each of these processes has its own address, and
        must declare the service as replicated. In the other processes, the variable
        ``SYMPH_<SERVICE>_ADDRS`` contains all addresses, in declaration order.
        """,
        unset=list,
        accepts="validators.ServiceSpec",
        example="binds: inference\nreplicated: inference",
        honoured_by=EVERYWHERE,
    )
    rank_of: str | None = _setting(
        OWN,
        "The unit of which the process is a rank. The copies of a process with ranks have this "
        "setting automatically. The ranks of a unit restart and fail together.",
        UNIT,
        unset=None,
        accepts="str",
        argument="unit",
        text="""
        Make the process a rank of a unit, such as one rank of a distributed training.

        The order of the unit's processes in the experiment determines their ranks. Each of them
        receives the variables RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK,
        GROUP_RANK, MASTER_ADDR and MASTER_PORT. The ranks of a unit restart and fail together.
        """,
        example="rank_of: train",
        honoured_by=EVERYWHERE,
    )
    per_pod: int | None = _setting(
        OWN,
        "The number of ranks that one Pod runs. Their resources are added up.",
        RANKS_OF_POD,
        unset=None,
        accepts="int",
        argument="ranks",
        example="rank_of: large\nper_pod: 1",
        honoured_by=ONLY_KUBE,
    )
    resource_request: dict[str, str] = _setting(
        CONTAINER,
        "The resources that must be available for the process to start.",
        RESOURCE_REQUEST,
        method="resource_request",
        fields=RESOURCE_FIELDS,
        reports_parts=True,
        accepts="Keywords",
        example="resource_request: {cpu: 0.5, memory: 2Gi}",
        honoured_by=ONLY_KUBE,
    )
    resource_limit: dict[str, Any] = _setting(
        CONTAINER,
        "The maximum amounts of resources that the process can use.",
        RESOURCE_LIMIT,
        method="resource_limit",
        fields=LIMIT_FIELDS,
        reports_parts=True,
        accepts="Keywords",
        example="resource_limit: {cpu: 4, memory: 8Gi, gpu: 1, gpu_resource: amd.com/gpu}",
        honoured_by={SUPERVISED: ("gpu",), KUBE: ()},
    )
    image_pull_policy: str | None = _setting(
        CONTAINER,
        "The condition under which Kubernetes pulls the image.",
        PULL_POLICY,
        unset=None,
        accepts="str",
        argument="policy",
        text="Set when the image is pulled: ``Always``, ``IfNotPresent`` or ``Never``.",
        example="image_pull_policy: Always",
        honoured_by=ONLY_KUBE,
    )
    restart_policy: str | dict[str, Any] | None = _setting(
        POD,
        "The condition under which the process is restarted; the default is Never. To limit the "
        "restarts, use on-failure:5 or {policy: ..., max_restarts: ..., backoff: ...}.",
        RESTART_POLICY,
        method="restart_policy",
        fields=RESTART_FIELDS,
        unset=None,
        reports_parts=True,
        accepts="str | Keywords",
        example="restart_policy: OnFailure",
        honoured_by={SUPERVISED: (), KUBE: ("policy", "max_restarts", "backoff", "final_codes")},
    )
    termination_grace_period: int | None = _setting(
        POD,
        "The time between SIGTERM and SIGKILL; the default is 30s.",
        WHOLE_SECONDS,
        unset=None,
        accepts="int | str",
        argument="seconds",
        text="""
        Set the time between SIGTERM and SIGKILL, in seconds or with a unit such as ``"2m"``.

        The default is 30.
        """,
        example="termination_grace_period: 120",
        honoured_by=EVERYWHERE,
    )
    stop_signal: str | None = _setting(
        CONTAINER,
        "The signal that stops the process, such as INT; the default is TERM.",
        STOP_SIGNAL,
        unset=None,
        accepts="str",
        argument="signal",
        example="stop_signal: INT",
        honoured_by=EVERYWHERE,
    )
    stop_command: list[str] | str | None = _setting(
        CONTAINER,
        "A command that stops the process instead of a signal: a list of arguments, or a shell "
        "line. The command runs in the process's environment and directory.",
        PROGRAM_OR_LINE,
        unset=None,
        accepts="validators.Strings",
        argument="command",
        is_text=True,
        example="stop_command: [pg_ctl, stop, -m, fast]     # or a shell line",
        honoured_by=EVERYWHERE,
    )
    signal_group: bool | None = _setting(
        CONTAINER,
        "Send the signal that stops the process to all programs of its process group, instead of "
        "only to the programs that handle it.",
        FLAG,
        unset=None,
        accepts="bool",
        argument="enabled",
        default=True,
        example="signal_group: true",
        honoured_by=EVERYWHERE,
    )
    ready: dict[str, Any] | None = _setting(
        CONTAINER,
        "The test that determines when the process is ready, and the timeout of the test.",
        READY,
        method="ready",
        fields=READY_FIELDS,
        unset=None,
        accepts="Keywords",
        example="binds: web\nready: {http: [web, /health], timeout: 30}",
        honoured_by=EVERYWHERE,
    )
    healthy: dict[str, Any] | None = _setting(
        CONTAINER,
        "A test that repeats while the process is running. If it fails several times in a row, the "
        "process is stopped and has failed, so that its restart policy can start it again.",
        HEALTHY,
        method="healthy",
        fields=HEALTHY_FIELDS,
        unset=None,
        accepts="Keywords",
        example="binds: api\nhealthy: {http: [api, /health], every: 10, failures: 3, timeout: 5}",
        honoured_by=EVERYWHERE,
    )
    starts_after: dict[str, str] = _setting(
        POD,
        "Processes or groups that must be ready before the process starts. To set the conditions, "
        "use {name: ready | started | succeeded}.",
        START_CONDITIONS,
        method="starts_after",
        accepts="str | Component | Sequence[str | Component] | Mapping[str, str]",
        example="starts_after: {server: ready, loader: succeeded}",
        honoured_by=EVERYWHERE,
    )
    log_limit: str | None = _setting(
        CONTAINER,
        "The maximum size of the process's log, in bytes or with a unit such as '100Mi'. The "
        "oldest lines are removed when the log is larger; the default is 1Gi, and the minimum is "
        "64Ki.",
        LOG_SIZE,
        unset=None,
        accepts="int | str",
        argument="size",
        example="log_limit: 100Mi",
        honoured_by=ONLY_SUPERVISED,
    )
    tty: bool | None = _setting(
        CONTAINER,
        "Run the process on a terminal, which 'symphony attach' joins and leaves.",
        FLAG,
        unset=None,
        accepts="bool",
        argument="enabled",
        default=True,
        text="""
        Run the process on a terminal, which ``symphony attach`` joins and leaves.

        Debuggers such as ``breakpoint()`` can then be used. Standard output and standard error are
        the same stream, and both are written to the log. On tmux, every process has a terminal.
        """,
        example="tty: true",
        honoured_by=EVERYWHERE,
    )
    umask: str | None = _setting(
        CONTAINER,
        "The file mode creation mask of the process, such as '007' for files that the group can "
        "write: three or four octal digits. A shell sets it before the process starts.",
        text_matching("[0-7]{3,4}", "three or four octal digits, such as '027'"),
        unset=None,
        accepts="str",
        argument="mask",
        is_text=True,
        example="umask: '007'",
        honoured_by=EVERYWHERE,
    )
    job: dict[str, Any] | None = _setting(
        POD,
        "Run the process to completion.",
        JOB,
        method="job",
        fields=JOB_FIELDS,
        unset=None,
        reports_parts=True,
        accepts="bool | Keywords",
        example="job: {backoff_limit: 3, active_deadline: 7200, ttl: 600}     # or true",
        honoured_by={SUPERVISED: ("backoff_limit", "active_deadline"), KUBE: ()},
    )
    volumes: list[dict[str, Any]] = _setting(
        CONTAINER,
        "The volumes to mount, as a list. The only key of each element is the kind of the volume.",
        VOLUMES,
        method="mount_",
        unset=list,
        reports_parts=True,
        accepts="Sequence[Keywords]",
        example="""
        volumes:
        - nfs: {server: nas.example, path: /exports/data, mount_path: /data}
        - host_path: {path: /scratch, mount_path: /scratch, type: Directory, read_only: true}
        - pvc: {claim: results, mount_path: /results}
        - empty_dir: {mount_path: /cache, size: 20Gi}
        - shared_memory: {size: 8Gi}
        - secret: {secret: keys, mount_path: /keys, files: token.txt}
        - config: {config: settings, mount_path: /settings, files: {settings.yml: settings.yml}}
        """,
        honoured_by=ONLY_KUBE,
    )
    node_selector: dict[str, str] = _setting(
        POD,
        "Labels that the node must have.",
        LABELS,
        method="node_selector",
        accepts="Mapping[str, object]",
        is_text=True,
        example="node_selector: {gpu-kind: a100}",
        honoured_by=ONLY_KUBE,
    )
    tolerations: list[dict[str, Any]] = _setting(
        POD,
        "The node taints that the Pod tolerates.",
        TOLERATIONS,
        method="add_toleration",
        fields=TOLERATION_FIELDS,
        unset=list,
        accepts="Sequence[Keywords]",
        example="""
        tolerations:
        - {key: reserved, operator: Equal, value: team-a, effect: NoSchedule}
        """,
        honoured_by=ONLY_KUBE,
    )
    spread: str | None = _setting(
        POD,
        "Run the ranks of a unit, or the replicas of a process, on different nodes: true, or the "
        "node label whose values must differ, such as topology.kubernetes.io/zone.",
        TOPOLOGY,
        unset=None,
        accepts="str | bool",
        argument="topology",
        default=True,
        text="""
        Run the ranks of the unit, or the replicas of the process, on different nodes.

        ``topology`` is the label of nodes whose values must differ, such as
        ``topology.kubernetes.io/zone``, or True for the nodes themselves.
        """,
        example="spread: true     # or a label of nodes, such as topology.kubernetes.io/zone",
        honoured_by=ONLY_KUBE,
    )
    together: str | None = _setting(
        POD,
        "Run the ranks of a unit, or the replicas of a process, on one node: true, or the node "
        "label whose value must be the same.",
        TOPOLOGY,
        unset=None,
        accepts="str | bool",
        argument="topology",
        default=True,
        text="""
        Run the ranks of the unit, or the replicas of the process, on one node.

        ``topology`` is the label of nodes whose value must be the same, or True for the node
        itself.
        """,
        example="together: topology.kubernetes.io/zone     # or true for one node",
        honoured_by=ONLY_KUBE,
    )
    topology_spread: list[dict[str, Any]] = _setting(
        POD,
        "How evenly the ranks of a unit, or the replicas of a process, are spread over the nodes.",
        TOPOLOGY_SPREAD,
        method="add_topology_spread",
        fields=TOPOLOGY_SPREAD_FIELDS,
        unset=list,
        accepts="Sequence[Keywords]",
        example="""
        topology_spread:
        - {key: topology.kubernetes.io/zone, max_skew: 1, when_unsatisfiable: ScheduleAnyway}
        """,
        honoured_by=ONLY_KUBE,
    )
    priority_class: str | None = _setting(
        POD,
        "The PriorityClass of the Pod.",
        OBJECT_NAME,
        unset=None,
        accepts="str",
        argument="name",
        is_text=True,
        example="priority_class: high",
        honoured_by=ONLY_KUBE,
    )
    queue: str | None = _setting(
        POD,
        "The queue of Kueue in which the Pod waits for quota.",
        OBJECT_NAME,
        unset=None,
        accepts="str",
        argument="name",
        text="Let the Pod wait for quota in a queue of Kueue. The ranks of a unit wait together.",
        is_text=True,
        example="queue: team-a",
        honoured_by=ONLY_KUBE,
    )
    together_or_not: float | None = _setting(
        OWN,
        "The time within which all ranks of a unit must be scheduled, in seconds or as in '5m': "
        "true is 60 seconds. If it is exceeded, all ranks are stopped and tried again later.",
        SCHEDULING_TIME,
        unset=None,
        accepts="float | str | bool",
        argument="within",
        default=True,
        example="rank_of: train\ntogether_or_not: 5m     # or true for 60 seconds",
        honoured_by=ONLY_KUBE,
    )
    jobset: bool | None = _setting(
        OWN,
        "Run the ranks of the unit as a JobSet, whose controller restarts and fails them together.",
        FLAG,
        unset=None,
        accepts="bool",
        argument="enabled",
        default=True,
        text="""
        Run the ranks of the unit as a JobSet, whose controller restarts and fails them together.

        The cluster must have the JobSet controller (``jobset.x-k8s.io``).
        """,
        example="rank_of: set\njobset: true",
        honoured_by=ONLY_KUBE,
    )
    labels: dict[str, str] = _setting(
        POD,
        "Labels that are added to the Pod.",
        LABELS,
        method="add_labels",
        argument="labels",
        text="Add several labels to the Pod.",
        accepts="Mapping[str, object]",
        is_text=True,
        example="labels: {team: vision}",
        honoured_by=ONLY_KUBE,
    )
    pod_yml: dict[str, Any] = _setting(
        POD,
        "Fields that are merged into the rendered Pod and override its fields.",
        OBJECT,
        method="pod_yml",
        replaced=True,
        accepts="Keywords",
        example="pod_yml: {spec: {runtimeClassName: nvidia}}",
        honoured_by=ONLY_KUBE,
    )
    container_yml: dict[str, Any] = _setting(
        CONTAINER,
        "Fields that are merged into the rendered container and override its fields.",
        OBJECT,
        method="container_yml",
        replaced=True,
        accepts="Keywords",
        example="container_yml: {securityContext: {runAsUser: 1000}}",
        honoured_by=ONLY_KUBE,
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
        if values == UNSET:
            return {}
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

        Mappings other than ``ready``, ``healthy`` and ``code`` are merged, and lists other than
        ``stop_command`` are joined without duplicates. Any other value in ``inner`` replaces the
        default.
        """
        return Settings(**merged(self.dump(), inner.dump()))


def _declared(name: str, declaration: Mapping[str, Any]) -> Setting:
    method = declaration["method"] or name
    subject = declaration["subject"] or name
    return Setting(name=name, **{**declaration, "method": method, "subject": subject})


SETTINGS: dict[str, Setting] = {
    item.name: _declared(item.name, item.metadata) for item in fields(Settings)
}
UNSET: dict[str, Any] = vars(Settings())


def honoured_by(way: str) -> frozenset[str]:
    """Return the names of the settings that a way of running processes honours.

    ``way`` is `SUPERVISED` or `KUBE`. For a setting that is honoured in part, the result contains
    the names of the parts, such as ``resource_limit.gpu``.
    """
    names: set[str] = set()
    for name, setting in SETTINGS.items():
        parts = setting.honoured_by.get(way)
        if parts:
            names.update(f"{name}.{part}" for part in parts)
        elif parts is not None:
            names.add(name)
    return frozenset(names)
