"""What a process and a group have in common: a name and everything that can be set on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from symphony.errors import SpecError, error_path
from symphony.model import validators
from symphony.model.settings import LEVELS, POD, Settings
from symphony.names import check_name

if TYPE_CHECKING:
    from typing_extensions import Self

    from symphony.model.validators import ServiceSpec

CONDITIONS = ("ready", "started", "succeeded")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
RESTART_POLICIES = ("Always", "OnFailure", "Never")
TOLERATION_OPERATORS = ("Equal", "Exists")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
HOST_PATH_TYPES = (
    "", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice",
)  # fmt: skip
SHARED_MEMORY = "/dev/shm"


class Component:
    """A named part of an experiment. Every setting method returns its object, so that calls chain.

    Methods raise `SpecError` for values that no backend could use. A setting that a backend cannot honour is
    kept and shown as ignored by its dry run.
    """

    _what = "component"

    def __init__(self, name: str) -> None:
        self._name = check_name(name, self._what)
        self._settings = Settings()

    @property
    def name(self) -> str:
        """The name, a DNS-1035 label."""
        return self._name

    @property
    def settings(self) -> Settings:
        """What was set, in the form in which it is dumped."""
        return self._settings

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    # --- services ---

    def binds(self, services: ServiceSpec, *, encrypted: bool = False) -> Self:
        """Listen on services: a name, several names, or ``{name: port}`` (None: symphony chooses).

        ``encrypted`` ones are as `encrypts` says.
        """
        found = validators.services(services, "binds")
        self._settings.binds.update(found)
        return self.encrypts([*found]) if _flag(encrypted) else self

    def encrypts(self, services: ServiceSpec) -> Self:
        """Encrypt services that this binds: a name or several names.

        Every launch makes keys for them, and hands them to those alone who bind or connect to one. The classes of
        `symphony.addons.zmq` use them; a program with its own sockets finds them in its environment.
        """
        for name, port in validators.services(services, "encrypts").items():
            if port is not None:
                raise SpecError(f"encrypts takes no port ({name!r}: {port}); binds does")
            if name not in self._settings.encrypted:
                self._settings.encrypted.append(name)
        return self

    def connects(self, services: ServiceSpec) -> Self:
        """Use services that another process of the experiment binds: a name or several names."""
        for name, port in validators.services(services, "connects").items():
            if port is not None:
                raise SpecError(
                    f"connects takes no port ({name!r}: {port}); the process that binds it says which"
                )
            if name not in self._settings.connects:
                self._settings.connects.append(name)
        return self

    def exposes(self, services: ServiceSpec) -> Self:
        """Offer services to the world outside the experiment, in the forms of `binds`."""
        self._settings.exposes.update(validators.services(services, "exposes"))
        return self

    # --- environment ---

    def set_env(self, key: str, value: object) -> Self:
        """Set one environment variable; the value becomes text."""
        name, content = validators.env_pair(key, value)
        self._settings.env[name] = content
        return self

    def set_envs(self, envs: Mapping[str, object]) -> Self:
        """Set several environment variables."""
        for key, value in validators.mapping(envs, "env").items():
            with error_path(key):
                self.set_env(key, value)
        return self

    def set_env_secret(self, key: str, secret: str) -> Self:
        """Set an environment variable to the content of one of the experiment's ``secrets``, by its file name.

        The content is taken as it is, with the newline at its end if it has one; it has to be text (UTF-8).
        """
        name, _ = validators.env_pair(key, "")
        self._settings.env_secrets[name] = validators.path(
            secret, f"the secret of variable {name!r}"
        )
        return self

    # --- resources ---

    def resource_request(
        self,
        *,
        cpu: float | str | None = None,
        memory: int | str | None = None,
        mem: int | str | None = None,
    ) -> Self:
        """What must be free for this to start. ``cpu`` in cores, ``memory`` in bytes or ``"4Gi"``. Calls merge."""
        self._settings.resource_request.update(_resources(cpu, memory, mem))
        return self

    def resource_limit(
        self,
        *,
        cpu: float | str | None = None,
        memory: int | str | None = None,
        mem: int | str | None = None,
        gpu: int | None = None,
    ) -> Self:
        """What this may use at most; ``gpu`` is a number of whole devices. Calls merge."""
        self._settings.resource_limit.update(_resources(cpu, memory, mem))
        if gpu is not None:
            self._settings.resource_limit["gpu"] = validators.whole(gpu, "gpu")
        return self

    def image_pull_policy(self, policy: str) -> Self:
        """``Always``, ``IfNotPresent`` or ``Never``."""
        self._settings.image_pull_policy = validators.one_of(
            policy, PULL_POLICIES, "image_pull_policy"
        )
        return self

    # --- life ---

    def restart_policy(self, policy: str) -> Self:
        """``Always``, ``OnFailure`` or ``Never`` (unless set)."""
        self._of_pod("restart_policy")
        self._settings.restart_policy = validators.one_of(
            policy, RESTART_POLICIES, "restart_policy"
        )
        return self

    def termination_grace_period(self, seconds: int) -> Self:
        """How long this has between TERM and KILL, in seconds (30 unless set)."""
        self._of_pod("termination_grace_period")
        self._settings.termination_grace_period = validators.whole(
            seconds, "termination_grace_period"
        )
        return self

    def job(
        self,
        *,
        backoff_limit: int | None = None,
        active_deadline: int | None = None,
        ttl: int | None = None,
    ) -> Self:
        """Run to completion: tries after a failure, seconds allowed in all, seconds kept afterwards."""
        self._of_pod("job")
        given = {"backoff_limit": backoff_limit, "active_deadline": active_deadline, "ttl": ttl}
        self._settings.job = {
            key: validators.whole(value, key) for key, value in given.items() if value is not None
        }
        return self

    def ready(
        self,
        *,
        tcp: str | None = None,
        http: tuple[str, str] | None = None,
        command: validators.Strings | None = None,
        log: str | None = None,
        timeout: float = 60,
    ) -> Self:
        """When this counts as ready. Give exactly one test; it has ``timeout`` seconds to come true.

        ``tcp``: a service of its own accepts a connection. ``http``: ``(service, path)`` answers 200.
        ``command``: exits 0 in the process's environment and folder. ``log``: a regular expression is found
        in a line of its output.
        """
        tests: dict[str, Any] = {
            "tcp": None if tcp is None else check_name(tcp, "service"),
            "http": None if http is None else _http(http),
            "command": None if command is None else validators.strings(command, "ready command"),
            "log": None if log is None else _regex(log),
        }
        given = {key: value for key, value in tests.items() if value is not None}
        if len(given) != 1:
            raise SpecError(
                f"ready takes one of tcp, http, command and log, not {len(given)} of them"
            )
        if "command" in given and not any(given["command"][:1]):
            raise SpecError(
                "ready command is empty: give it the program that exits 0 when this is ready"
            )
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
            raise SpecError(f"the timeout of ready is a number of seconds above 0, not {timeout!r}")
        self._settings.ready = {**given, "timeout": timeout}
        return self

    def starts_after(self, process: Component | str, condition: str = "ready") -> Self:
        """Wait until another process or group is ``ready``, has ``started`` or has ``succeeded``."""
        self._of_pod("starts_after")
        name = process.name if isinstance(process, Component) else check_name(process, "process")
        self._settings.starts_after[name] = validators.one_of(
            condition, CONDITIONS, "the condition of starts_after"
        )
        return self

    # --- volumes ---

    def mount_nfs(self, server: str, path: str, mount_path: str, name: str | None = None) -> Self:
        """Mount a folder that an NFS server exports."""
        return self._mount("nfs", mount_path, name, server=validators.path(server, "the NFS server"),
                           path=validators.absolute(path, "the NFS path"))  # fmt: skip

    def mount_host_path(
        self,
        path: str,
        mount_path: str,
        type: str = "",
        read_only: bool = False,
        name: str | None = None,
    ) -> Self:
        """Mount a folder or file of the node; ``type`` is Kubernetes' check of it."""
        return self._mount("host_path", mount_path, name, path=validators.absolute(path, "the host path"),
                           type=validators.one_of(type, HOST_PATH_TYPES, "type"), read_only=_flag(read_only))  # fmt: skip

    def mount_pvc(
        self, claim: str, mount_path: str, read_only: bool = False, name: str | None = None
    ) -> Self:
        """Mount a persistent volume claim."""
        return self._mount("pvc", mount_path, name, claim=validators.path(claim, "the claim"),
                           read_only=_flag(read_only))  # fmt: skip

    def mount_empty_dir(
        self,
        mount_path: str,
        *,
        memory: bool = False,
        size: int | str | None = None,
        name: str | None = None,
    ) -> Self:
        """Mount an empty folder that lives as long as the Pod, in memory if asked."""
        return self._mount("empty_dir", mount_path, name, memory=_flag(memory), size=_size(size))

    def mount_shared_memory(self, size: int | str | None = None) -> Self:
        """Give the process a /dev/shm of ``size`` bytes (``"8Gi"``), or of as much as there is."""
        return self._add_volume("shared_memory", {"size": _size(size)})

    def mount_secret(
        self, secret: str, mount_path: str, *, files: Any = None, name: str | None = None
    ) -> Self:
        """Mount a Secret: one that exists, or with ``files`` (paths or ``{name: path}``) one made from them."""
        source = None if files is None else validators.files(files, "the files of a secret")
        return self._mount(
            "secret", mount_path, name, secret=validators.path(secret, "the secret"), files=source
        )

    def mount_config(
        self, config: str, mount_path: str, *, files: Any = None, name: str | None = None
    ) -> Self:
        """Mount a ConfigMap: one that exists, or with ``files`` one made from them."""
        source = None if files is None else validators.files(files, "the files of a config")
        return self._mount(
            "config", mount_path, name, config=validators.path(config, "the config"), files=source
        )

    def mount_git_repo(
        self,
        repository: str,
        mount_path: str,
        *,
        revision: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Check a git repository out into a folder before the process starts."""
        return self._mount("git_repo", mount_path, name, repository=validators.path(repository, "the repository"),
                           revision=None if revision is None else validators.path(revision, "the revision"))  # fmt: skip

    # --- where it runs ---

    def node_selector(self, key: str, value: object) -> Self:
        """Run only on nodes that have this label. Calls merge."""
        self._of_pod("node_selector")
        self._settings.node_selector.update([validators.label_pair(key, value)])
        return self

    def add_toleration(
        self,
        *,
        key: str | None = None,
        operator: str | None = None,
        value: object = None,
        effect: str | None = None,
        toleration_seconds: int | None = None,
    ) -> Self:
        """Accept nodes with a taint."""
        self._of_pod("add_toleration")
        given: dict[str, Any] = {
            "key": None if key is None else validators.text(key, "key"),
            "operator": None
            if operator is None
            else validators.one_of(operator, TOLERATION_OPERATORS, "operator"),
            "value": None if value is None else validators.text(value, "value"),
            "effect": None
            if effect is None
            else validators.one_of(effect, TAINT_EFFECTS, "effect"),
            "toleration_seconds": None
            if toleration_seconds is None
            else validators.whole(toleration_seconds, "seconds"),
        }
        if key is None and operator != "Exists":
            raise SpecError(
                "a toleration without a key tolerates everything: say so with operator='Exists'"
            )
        toleration = {name: item for name, item in given.items() if item is not None}
        if toleration not in self._settings.tolerations:
            self._settings.tolerations.append(toleration)
        return self

    def add_label(self, key: str, value: object) -> Self:
        """Label the Pod."""
        self._of_pod("add_label")
        self._settings.labels.update([validators.label_pair(key, value)])
        return self

    def add_labels(self, labels: Mapping[str, object]) -> Self:
        """Label the Pod, several at once."""
        for key, value in validators.mapping(labels, "labels").items():
            self.add_label(key, value)
        return self

    # --- the escape hatch ---

    @property
    def pod_yml(self) -> dict[str, Any]:
        """Merged over the rendered Pod last: mappings deeply, lists of named things by ``name``."""
        self._of_pod("pod_yml")
        return self._settings.pod_yml

    @pod_yml.setter
    def pod_yml(self, value: Mapping[str, Any]) -> None:
        self._of_pod("pod_yml")
        self._settings.pod_yml = validators.mapping(value, "pod_yml")

    @property
    def container_yml(self) -> dict[str, Any]:
        """Merged over the rendered container last, as `pod_yml` is over the Pod."""
        return self._settings.container_yml

    @container_yml.setter
    def container_yml(self, value: Mapping[str, Any]) -> None:
        self._settings.container_yml = validators.mapping(value, "container_yml")

    # --- inside ---

    def _of_pod(self, call: str) -> None:
        """Refuse ``call`` where it belongs to somebody else: a grouped process has no Pod of its own."""

    def _pod_settings(self) -> list[str]:
        return [key for key in self._settings.dump() if LEVELS[key] == POD]

    def _mount(self, kind: str, mount_path: str, name: str | None, **given: Any) -> Self:
        where = validators.absolute(mount_path, "mount_path")
        volume = None if name is None else check_name(name, "volume")
        return self._add_volume(kind, {"mount_path": where, **given, "name": volume})

    def _add_volume(self, kind: str, details: dict[str, Any]) -> Self:
        volume = {
            kind: {key: value for key, value in details.items() if value not in (None, "", False)}
        }
        if volume not in self._settings.volumes:
            refuse_shared_mounts(self.name, [*self._settings.volumes, volume])
            self._settings.volumes.append(volume)
        return self


def refuse_shared_mounts(who: str, volumes: Iterable[dict[str, Any]]) -> None:
    """Refuse two volumes at one place."""
    seen: set[str] = set()
    for volume in volumes:
        where = _mount_path(volume)
        if where in seen:
            raise SpecError(f"{who!r} mounts two volumes at {where!r}")
        seen.add(where)


def _mount_path(volume: dict[str, Any]) -> str:
    details: dict[str, str] = next(iter(volume.values()))
    return details.get("mount_path", SHARED_MEMORY)


def _resources(cpu: object, memory: object, mem: object) -> dict[str, str]:
    if memory is not None and mem is not None:
        raise SpecError(
            f"memory and mem are one setting, and both were given: {memory!r} and {mem!r}"
        )
    size = mem if memory is None else memory
    given = {"cpu": cpu, "memory": size}
    return {
        key: validators.quantity(value, key) for key, value in given.items() if value is not None
    }


def _size(value: int | str | None) -> str | None:
    return None if value is None else validators.quantity(value, "size")


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise SpecError(f"a flag is true or false, not {value!r}")
    return value


def _http(value: object) -> list[str]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise SpecError(
            f"http takes a service and a path, such as ('web', '/health'), not {value!r}"
        )
    return [check_name(value[0], "service"), validators.absolute(value[1], "the path of http")]


def _regex(value: object) -> str:
    import re

    pattern = validators.text(value, "log")
    try:
        re.compile(pattern)
    except re.error as exc:
        raise SpecError(f"log is no regular expression: {pattern!r}: {exc}") from exc
    return pattern
