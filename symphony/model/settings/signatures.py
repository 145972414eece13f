"""The settings as keyword arguments and as methods, for type checkers and editors.

``scripts/docs pages`` writes this file from `symphony.model.settings.table`. Change the table
instead of this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from symphony.model.settings import validators
from symphony.model.settings.setting_owner import SettingOwner

if TYPE_CHECKING:
    from typing_extensions import Self

    from symphony.model.experiment.component import Component

Keywords = Mapping[str, Any]


class SettingOptions(TypedDict, total=False):
    """The settings of a process or group as keyword arguments."""

    env: Mapping[str, object] | None
    env_file: validators.Paths | None
    configs: validators.Files | None
    code: validators.Code | None
    env_secrets: Mapping[str, str] | None
    binds: validators.ServiceSpec | None
    connects: validators.ServiceSpec | None
    exposes: validators.ServiceSpec | None
    encrypted: validators.ServiceSpec | None
    replicated: validators.ServiceSpec | None
    rank_of: str | None
    per_pod: int | None
    resource_request: Keywords | None
    resource_limit: Keywords | None
    image_pull_policy: str | None
    restart_policy: str | Keywords | None
    termination_grace_period: int | str | None
    stop_signal: str | None
    stop_command: validators.Strings | None
    signal_group: bool | None
    ready: Keywords | None
    healthy: Keywords | None
    starts_after: str | Component | Sequence[str | Component] | Mapping[str, str] | None
    log_limit: int | str | None
    tty: bool | None
    umask: str | None
    job: bool | Keywords | None
    volumes: Sequence[Keywords] | None
    node_selector: Mapping[str, object] | None
    tolerations: Sequence[Keywords] | None
    spread: str | bool | None
    together: str | bool | None
    topology_spread: Sequence[Keywords] | None
    priority_class: str | None
    queue: str | None
    together_or_not: float | str | bool | None
    jobset: bool | None
    labels: Mapping[str, object] | None
    pod_yml: Keywords | None
    container_yml: Keywords | None


class SettingMethods(SettingOwner):
    """The methods that only set the value of one setting."""

    def set_envs(self, envs: Mapping[str, object]) -> Self:
        """Set several environment variables, in the same way as `set_env`."""
        return self._set("env", envs)

    def add_env_file(self, path: validators.Paths) -> Self:
        """Set the environment variables in a file, or in several files.

        ``path`` is a path or a list of paths in the dotenv format that
        `symphony.model.document.env_files` describes. A later file takes precedence, and so do the
        variables that `set_env` sets. Relative paths are resolved against the experiment's
        ``base_dir``. The files are read when the experiment is launched, rendered or checked.
        """
        return self._set("env_file", path)

    def configs(self, files: validators.Files) -> Self:
        """Write text files for the process into the directory SYMPHONY_CONFIG_DIR.

        ``files`` maps the names of the files to the paths of their templates. It can also be a path
        or a list of paths, whose last parts are then the names. References to addresses in a
        template, such as ``${redis.addr}``, are replaced for each process. Relative paths are
        resolved against the experiment's ``base_dir``. The templates are read when the experiment
        is launched, changed, rendered or checked.
        """
        return self._set("configs", files)

    def code(self, source: validators.Code) -> Self:
        """Set the code of the process, of which a launch takes a snapshot.

        ``source`` is a directory, relative to the experiment's ``base_dir``. It can also be a
        mapping with the key ``path`` and lists of patterns, as in .gitignore, with the keys
        ``include`` and ``exclude``. With ``sync``, `Cluster.up` sends only the changed files to a
        running container on Kubernetes, and restarts the program in place. False means that the
        process does not have the code of its group or experiment.
        """
        return self._set("code", source)

    def connects(self, services: validators.ServiceSpec) -> Self:
        """Declare services that the process connects to.

        ``services`` is a name or a list of names.
        """
        return self._set("connects", services)

    def exposes(self, services: validators.ServiceSpec) -> Self:
        """Make services reachable from outside the experiment.

        ``services`` has the same forms as in `binds`.
        """
        return self._set("exposes", services)

    def encrypts(self, services: validators.ServiceSpec) -> Self:
        """Encrypt services that the process binds.

        ``services`` is a name or a list of names.

        Every launch creates new keys. Only processes that bind or connect to an encrypted service
        receive the keys. The classes in `symphony.addons.zmq` use these keys automatically. A
        program that creates its own sockets must read the keys from its environment.
        """
        return self._set("encrypted", services)

    def replicates(self, services: validators.ServiceSpec) -> Self:
        """Declare services that several processes bind or expose.

        ``services`` is a name or a list of names. Each of these processes has its own address, and
        must declare the service as replicated. In the other processes, the variable
        ``SYMPH_<SERVICE>_ADDRS`` contains all addresses, in declaration order.
        """
        return self._set("replicated", services)

    def rank_of(self, unit: str) -> Self:
        """Make the process a rank of a unit, such as one rank of a distributed training.

        The order of the unit's processes in the experiment determines their ranks. Each of them
        receives the variables RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK,
        GROUP_RANK, MASTER_ADDR and MASTER_PORT. The ranks of a unit restart and fail together.
        """
        return self._set("rank_of", unit)

    def per_pod(self, ranks: int) -> Self:
        """Set the number of ranks that one Pod runs. Their resources are added up."""
        return self._set("per_pod", ranks)

    def image_pull_policy(self, policy: str) -> Self:
        """Set when the image is pulled: ``Always``, ``IfNotPresent`` or ``Never``."""
        return self._set("image_pull_policy", policy)

    def termination_grace_period(self, seconds: int | str) -> Self:
        """Set the time between SIGTERM and SIGKILL, in seconds or with a unit such as ``"2m"``.

        The default is 30.
        """
        return self._set("termination_grace_period", seconds)

    def stop_signal(self, signal: str) -> Self:
        """Set the signal that stops the process, such as INT; the default is TERM."""
        return self._set("stop_signal", signal)

    def stop_command(self, command: validators.Strings) -> Self:
        """Set a command that stops the process instead of a signal: a list of arguments, or a shell
        line. The command runs in the process's environment and directory.
        """
        return self._set("stop_command", command)

    def signal_group(self, enabled: bool = True) -> Self:
        """Send the signal that stops the process to all programs of its process group, instead of
        only to the programs that handle it.
        """
        return self._set("signal_group", enabled)

    def log_limit(self, size: int | str) -> Self:
        """Set the maximum size of the process's log, in bytes or with a unit such as '100Mi'. The
        oldest lines are removed when the log is larger; the default is 1Gi, and the minimum is
        64Ki.
        """
        return self._set("log_limit", size)

    def tty(self, enabled: bool = True) -> Self:
        """Run the process on a terminal, which ``symphony attach`` joins and leaves.

        Debuggers such as ``breakpoint()`` can then be used. Standard output and standard error are
        the same stream, and both are written to the log. On tmux, every process has a terminal.
        """
        return self._set("tty", enabled)

    def umask(self, mask: str) -> Self:
        """Set the file mode creation mask of the process, such as '007' for files that the group
        can write: three or four octal digits. A shell sets it before the process starts.
        """
        return self._set("umask", mask)

    def spread(self, topology: str | bool = True) -> Self:
        """Run the ranks of the unit, or the replicas of the process, on different nodes.

        ``topology`` is the label of nodes whose values must differ, such as
        ``topology.kubernetes.io/zone``, or True for the nodes themselves.
        """
        return self._set("spread", topology)

    def together(self, topology: str | bool = True) -> Self:
        """Run the ranks of the unit, or the replicas of the process, on one node.

        ``topology`` is the label of nodes whose value must be the same, or True for the node
        itself.
        """
        return self._set("together", topology)

    def priority_class(self, name: str) -> Self:
        """Set the PriorityClass of the Pod."""
        return self._set("priority_class", name)

    def queue(self, name: str) -> Self:
        """Let the Pod wait for quota in a queue of Kueue. The ranks of a unit wait together."""
        return self._set("queue", name)

    def together_or_not(self, within: float | str | bool = True) -> Self:
        """Set the time within which all ranks of a unit must be scheduled, in seconds or as in
        '5m': true is 60 seconds. If it is exceeded, all ranks are stopped and tried again later.
        """
        return self._set("together_or_not", within)

    def jobset(self, enabled: bool = True) -> Self:
        """Run the ranks of the unit as a JobSet, whose controller restarts and fails them together.

        The cluster must have the JobSet controller (``jobset.x-k8s.io``).
        """
        return self._set("jobset", enabled)

    def add_labels(self, labels: Mapping[str, object]) -> Self:
        """Add several labels to the Pod."""
        return self._set("labels", labels)
