"""The common part of processes and groups: a name, and the methods that change settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from symphony.errors import SpecError, error_path, shown
from symphony.model.settings import validators
from symphony.model.settings.own_settings import OwnSettings, check_unchanged
from symphony.model.settings.setting_types import (
    CONDITIONS,
    HEALTHY_TESTS,
    READY_TESTS,
    REMOVED_VOLUME_KINDS,
    RESTART_FIELDS,
    RESTARTING_POLICIES,
    SHARED_MEMORY,
    one_test,
)
from symphony.model.settings.signatures import SettingMethods
from symphony.model.settings.table import POD, SETTINGS, Settings
from symphony.model.settings.value_types import (
    parse_policy,
    read_policy,
)
from symphony.support.names import check_name

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from symphony.model.document_path import DocumentPath
    from symphony.model.settings.signatures import SettingOptions
    from symphony.model.settings.validators import ServiceSpec
    from symphony.model.settings.value_types import Field


Item = TypeVar("Item")


class Component(SettingMethods):
    """A named part of an experiment: a process or a group.

    The methods that change a setting return the component, so that calls can be chained. These
    methods raise `SpecError` for values that no backend can use. Settings that a backend does not
    support are kept, and a dry run on that backend lists them as ignored.
    """

    kind: ClassVar[str] = "component"
    # The keyword arguments of the constructor that are not settings.
    option_names: ClassVar[tuple[str, ...]] = ()
    # The attributes that contain arguments of the constructor.
    _fields: ClassVar[Mapping[str, Field]] = {}

    def __init__(self, name: str) -> None:
        self._name = check_name(name, self.kind)
        self._settings = OwnSettings()

    @property
    def name(self) -> str:
        """The component's name, which is a DNS-1035 label."""
        return self._name

    @property
    def path(self) -> str:
        """The component's name, preceded by its group's name if it is in a group:
        ``group/process``.
        """
        return self._name

    @property
    def document_path(self) -> DocumentPath:
        """The keys that lead to the component in an experiment file."""
        return ("processes", self._name)

    @property
    def settings(self) -> Settings:
        """The component's settings, with their values as in an experiment file."""
        return self._settings

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def configure(self, **settings: Unpack[SettingOptions]) -> Self:
        """Set any settings in the form in which an experiment file contains them.

        The keywords are the keys of a process in a file. None leaves a setting as it is. If a value
        is invalid, `SpecError` is raised and no setting changes.

        >>> from symphony import Process
        >>> agent = Process("agent", command="agent")
        >>> agent.configure(restart_policy="on-failure:5", ready={"log": "started"})
        Process('agent')
        """
        # Most processes have few settings, and are not created in this way.
        from symphony.model.experiment.setting_calls import set_settings

        values: dict[str, Any] = dict(settings)
        if "starts_after" in values:
            values["starts_after"] = names_of(values["starts_after"])
        before = vars(self._settings.copied())
        try:
            set_settings(self, values)
        except SpecError:
            vars(self._settings).update(before)
            raise
        return self

    # --- services ---

    def binds(
        self, services: ServiceSpec, *, encrypted: bool = False, replicated: bool = False
    ) -> Self:
        """Declare services that the process listens on.

        ``services`` is a name, a list of names, or ``{name: port}``. If a port is omitted or None,
        symphony chooses one. If ``encrypted`` is true, the services are encrypted in the same way
        as with `encrypts`. If ``replicated`` is true, several processes can bind the services, in
        the same way as with `replicates`.
        """
        ports = validators.services(services, "binds")
        is_encrypted = validators.flag(encrypted, "encrypted")
        is_replicated = validators.flag(replicated, "replicated")
        self._settings.binds.update(ports)
        if is_encrypted:
            self.encrypts(list(ports))
        if is_replicated:
            self.replicates(list(ports))
        return self

    # --- environment ---

    def set_env(self, key: str, value: object) -> Self:
        """Set one environment variable. A boolean value is refused. Other scalar values are
        converted to strings.
        """
        name, content = validators.env_pair(key, value)
        self._settings.env[name] = content
        return self

    def set_env_secret(self, key: str, secret: str) -> Self:
        """Set an environment variable to the contents of one of the experiment's secrets.

        ``secret`` is the secret's name in the experiment's ``secrets``. The contents must be UTF-8
        text. They are used without changes, so a trailing newline is part of the value.
        """
        name = validators.env_name(key)
        self._settings.env_secrets[name] = validators.nonempty_text(
            secret, f"the secret of variable {name!r}"
        )
        return self

    # --- resources ---

    def resource_request(
        self,
        amounts: Mapping[str, Any] | None = None,
        *,
        cpu: float | str | None = None,
        memory: int | str | None = None,
        mem: int | str | None = None,
        gpu: int | None = None,
    ) -> Self:
        """Set the resources that must be available for the process to start.

        ``cpu`` is a number of cores, or a string such as ``"500m"``. ``memory`` is a number of
        bytes, or a string such as ``"4Gi"``; ``mem`` is a synonym. ``gpu`` sets the limit for GPUs,
        because a process cannot use more GPUs than it requests. Resources that are not given keep
        their values from earlier calls. ``amounts`` is a mapping with the same keys instead.
        """
        if amounts is not None:
            _refuse_keywords("resource_request", [cpu, memory, mem, gpu])
            return self.configure(resource_request=amounts)
        given = {"cpu": cpu, "memory": memory, "mem": mem}
        request = SETTINGS["resource_request"].parse(given, "resource_request")
        if gpu is not None:
            self.resource_limit(gpu=gpu)
        self._settings.resource_request.update(request)
        return self

    def resource_limit(
        self,
        amounts: Mapping[str, Any] | None = None,
        *,
        cpu: float | str | None = None,
        memory: int | str | None = None,
        mem: int | str | None = None,
        gpu: int | None = None,
        gpu_resource: str | None = None,
    ) -> Self:
        """Set the maximum amounts of resources that the process can use.

        ``gpu`` is a number of whole devices. On Kubernetes, ``gpu_resource`` is the resource that
        they are, such as ``"nvidia.com/mig-1g.5gb"``. The default is the option ``gpu_resource`` of
        the cluster. The other arguments are the same as in `resource_request`. Resources that are
        not given keep their values from earlier calls.
        """
        if amounts is not None:
            _refuse_keywords("resource_limit", [cpu, memory, mem, gpu, gpu_resource])
            return self.configure(resource_limit=amounts)
        given = {"cpu": cpu, "memory": memory, "mem": mem, "gpu": gpu, "gpu_resource": gpu_resource}
        return self._set("resource_limit", given)

    # --- life cycle ---

    def restart_policy(
        self,
        policy: str | Mapping[str, Any],
        *,
        max_restarts: int | None = None,
        backoff: float | str | None = None,
        final_codes: Sequence[int] | int | None = None,
    ) -> Self:
        """Set the restart policy: ``Always``, ``OnFailure`` or ``Never`` (the default).

        The words can also be ``always``, ``on-failure`` and ``never``. ``max_restarts`` is the
        maximum number of restarts, as in ``on-failure:5``. The default is no limit. The first
        restart is immediate. ``backoff`` is the delay before the second restart, in seconds or with
        a unit such as ``"30s"``. The delay doubles with each further restart, up to 5 minutes. The
        default is 10 seconds. After an exit with one of the ``final_codes``, such as that of an
        error in its options, the process is not restarted. ``policy`` can also be a mapping with
        the names of all arguments.
        """
        self._refuse_pod_setting("restart_policy")
        if isinstance(policy, Mapping):
            _refuse_keywords("restart_policy", [max_restarts, backoff, final_codes])
            return self.configure(restart_policy=policy)
        given = read_policy(
            policy, RESTART_FIELDS, "restart_policy", restarting=RESTARTING_POLICIES
        )
        if max_restarts is not None and "max_restarts" in given:
            raise SpecError(
                f"restart_policy has two limits, {shown(policy)} and max_restarts={max_restarts}; "
                "remove one of them"
            )
        if max_restarts is not None:
            given["max_restarts"] = max_restarts
        given["backoff"] = backoff
        given["final_codes"] = final_codes
        parsed = parse_policy(
            RESTART_FIELDS, given, "restart_policy", restarting=RESTARTING_POLICIES
        )
        self._settings.replace("restart_policy", parsed)
        return self

    def job(
        self,
        settings: bool | Mapping[str, Any] | None = None,
        *,
        backoff_limit: int | None = None,
        active_deadline: int | str | None = None,
        ttl: int | str | None = None,
    ) -> Self:
        """Run the process to completion.

        ``backoff_limit`` is the number of retries after a failure. ``active_deadline`` is the time
        limit for all attempts together. ``ttl`` is the time after which the finished job is
        deleted. Both are in seconds or have a unit, such as ``"2h"``. ``settings`` is a mapping
        with the same keys instead, or True.
        """
        self._refuse_pod_setting("job")
        if settings is not None:
            _refuse_keywords("job", [backoff_limit, active_deadline, ttl])
            return self.configure(job=settings)
        given = {"backoff_limit": backoff_limit, "active_deadline": active_deadline, "ttl": ttl}
        return self._set("job", given)

    def ready(
        self,
        test: Mapping[str, Any] | None = None,
        *,
        tcp: str | None = None,
        http: tuple[str, str] | str | None = None,
        command: validators.Strings | None = None,
        log: str | None = None,
        timeout: float | str = 60,
    ) -> Self:
        """Set the test that determines when the process is ready.

        Give exactly one test. ``tcp`` is one of the process's services; the test succeeds if the
        service accepts a connection. ``http`` is ``(service, path)``, or a text such as
        ``"web/health"``; the test succeeds if the service answers a GET request for the path, by
        default ``/``, with a status from 200 to 399; redirections are not followed, except on
        Kubernetes, where the page that they lead to must answer in the same way. ``command`` runs
        in the process's environment and directory; the test succeeds if the command exits with
        status 0. A string is a line for a shell. ``log`` is a regular expression; the test succeeds
        if the expression matches part of an output line, without its colours and other control
        characters. If the test has not succeeded within ``timeout``, in seconds or with a unit such
        as ``"2m"``, the process is not ready in time, and the processes that wait for it do not
        start. The test continues, so that the process can become ready later. ``test`` is a mapping
        with the names of all arguments instead.
        """
        if test is not None:
            _refuse_keywords("ready", [tcp, http, command, log])
            return self.configure(ready=test)
        given = {"tcp": tcp, "http": http, "command": command, "log": log}
        one_test("ready", READY_TESTS, given)
        return self._set("ready", {**given, "timeout": timeout})

    def healthy(
        self,
        test: Mapping[str, Any] | None = None,
        *,
        tcp: str | None = None,
        http: tuple[str, str] | str | None = None,
        command: validators.Strings | None = None,
        every: int | str = 10,
        failures: int = 3,
        timeout: int | str = 5,
    ) -> Self:
        """Set a test that repeats while the process is running.

        Give exactly one test. ``tcp``, ``http`` and ``command`` are the same as in `ready`. The
        first test begins ``every`` seconds after the process is ready for the first time, or after
        its start if it has no readiness test, and each further test ``every`` seconds after the
        end of the previous one. A test that takes longer than ``timeout`` has failed. Both are in
        whole seconds of at least 1, or have a unit, such as ``"2m"``. After ``failures`` failed
        tests in a row, the process is stopped like on request, with its stop signal and its grace
        period. Its exit then counts as a failure, whatever its exit code is, so that its restart
        policy can start it again. ``test`` is a mapping with the names of all arguments instead.
        """
        if test is not None:
            _refuse_keywords("healthy", [tcp, http, command])
            return self.configure(healthy=test)
        given = {"tcp": tcp, "http": http, "command": command}
        one_test("healthy", HEALTHY_TESTS, given)
        limits = {"every": every, "failures": failures, "timeout": timeout}
        return self._set("healthy", {**given, **limits})

    def starts_after(
        self,
        process: Component | str | Sequence[Component | str] | Mapping[str, str],
        condition: str = "ready",
    ) -> Self:
        """Delay the start until another process or group meets a condition.

        ``condition`` is ``ready``, ``started`` or ``succeeded``. ``process`` can also be a list, or
        a mapping from names to conditions.
        """
        self._refuse_pod_setting("starts_after")
        if isinstance(process, Mapping):
            return self.configure(starts_after=process)
        checked = validators.one_of(condition, CONDITIONS, "the condition of starts_after")
        others = process if isinstance(process, (list, tuple)) else [process]
        names = [check_name(names_of(other), "process") for other in others]
        self._settings.starts_after.update(dict.fromkeys(names, checked))
        return self

    # --- volumes ---

    def mount_nfs(self, server: str, path: str, mount_path: str, name: str | None = None) -> Self:
        """Mount a directory that an NFS server exports."""
        return self._mount("nfs", mount_path=mount_path, server=server, path=path, name=name)

    def mount_host_path(
        self,
        path: str,
        mount_path: str,
        type: str = "",
        read_only: bool = False,
        name: str | None = None,
    ) -> Self:
        """Mount a path on the node. ``type`` determines how Kubernetes checks the path or creates
        it.
        """
        return self._mount(
            "host_path",
            mount_path=mount_path,
            path=path,
            type=type,
            read_only=read_only,
            name=name,
        )

    def mount_pvc(
        self, claim: str, mount_path: str, read_only: bool = False, name: str | None = None
    ) -> Self:
        """Mount a persistent volume claim."""
        return self._mount(
            "pvc", mount_path=mount_path, claim=claim, read_only=read_only, name=name
        )

    def mount_empty_dir(
        self,
        mount_path: str,
        *,
        memory: bool = False,
        size: int | str | None = None,
        name: str | None = None,
    ) -> Self:
        """Mount an empty directory that exists as long as the Pod does.

        If ``memory`` is true, the files are stored in memory. ``size`` has the same meaning as in
        `mount_shared_memory`.
        """
        return self._mount("empty_dir", mount_path=mount_path, memory=memory, size=size, name=name)

    def mount_shared_memory(self, size: int | str | None = None) -> Self:
        """Mount a shared-memory file system at /dev/shm.

        ``size`` is its maximum size in bytes, or a string such as ``"8Gi"``. By default, there is
        no limit.
        """
        return self._mount("shared_memory", size=size)

    def mount_secret(
        self, secret: str, mount_path: str, *, files: Any = None, name: str | None = None
    ) -> Self:
        """Mount an existing Secret, or a new one that is created from ``files``.

        ``files`` is a path, a list of paths, or ``{name: path}``.
        """
        return self._mount("secret", mount_path=mount_path, secret=secret, files=files, name=name)

    def mount_config(
        self, config: str, mount_path: str, *, files: Any = None, name: str | None = None
    ) -> Self:
        """Mount an existing ConfigMap, or a new one that is created from ``files``.

        ``files`` has the same forms as in `mount_secret`.
        """
        return self._mount("config", mount_path=mount_path, config=config, files=files, name=name)

    def mount_git_repo(self, *_arguments: object, **_options: object) -> NoReturn:
        """Raise `SpecError`, because `code` has replaced this method."""
        raise SpecError(f"mount_git_repo was removed; {REMOVED_VOLUME_KINDS['git_repo']}")

    # --- placement ---

    def node_selector(self, key: str | Mapping[str, object], value: object = None) -> Self:
        """Run only on nodes that have the given label. Labels from earlier calls are also
        required. ``key`` can be a mapping of several labels, without ``value``.
        """
        self._refuse_pod_setting("node_selector")
        if isinstance(key, Mapping):
            _refuse_keywords("node_selector", [value])
            return self.configure(node_selector=key)
        name, content = validators.label_pair(key, value)
        self._settings.node_selector[name] = content
        return self

    def add_toleration(
        self,
        *,
        key: str | None = None,
        operator: str | None = None,
        value: object = None,
        effect: str | None = None,
        toleration_seconds: int | str | None = None,
    ) -> Self:
        """Allow the Pod to run on nodes that have a matching taint."""
        given = {
            "key": key,
            "operator": operator,
            "value": value,
            "effect": effect,
            "toleration_seconds": toleration_seconds,
        }
        return self._set("tolerations", [given])

    def add_topology_spread(
        self, *, key: str, max_skew: int | None = None, when_unsatisfiable: str | None = None
    ) -> Self:
        """Spread the ranks of the unit, or the replicas of the process, evenly over the nodes.

        ``key`` is the label of nodes whose values are the domains. ``max_skew`` is how many more
        Pods one domain can have than another. The default is 1.
        """
        given = {"key": key, "max_skew": max_skew, "when_unsatisfiable": when_unsatisfiable}
        return self._set("topology_spread", [given])

    def add_label(self, key: str, value: object) -> Self:
        """Add a label to the Pod."""
        self._refuse_pod_setting("add_label")
        name, content = validators.label_pair(key, value)
        self._settings.labels[name] = content
        return self

    # --- overrides ---

    @property
    def pod_yml(self) -> dict[str, Any]:
        """The fields that are merged into the rendered Pod and take precedence over its own fields.

        Mappings are merged at every depth. In lists, mounts are matched by their path, and other
        objects by their ``name``.
        """
        self._refuse_pod_setting("pod_yml")
        return self._settings.pod_yml

    @pod_yml.setter
    def pod_yml(self, value: Mapping[str, Any]) -> None:
        self._set("pod_yml", value)

    @property
    def container_yml(self) -> dict[str, Any]:
        """The fields that are merged into the rendered container, in the same way as `pod_yml`."""
        return self._settings.container_yml

    @container_yml.setter
    def container_yml(self, value: Mapping[str, Any]) -> None:
        self._set("container_yml", value)

    # --- internals ---

    def check_values(self) -> None:
        """Raise `SpecError` if the program has changed a value in place so that it is invalid.

        The message names the component and the value. Values that are set with a method or as an
        attribute are validated immediately.
        """
        try:
            self._check_options()
            self._settings.check()
        except SpecError as exc:
            raise SpecError(
                f"{self.kind} {self.path!r}: {exc}", path=(*self.document_path, *exc.path)
            ) from exc

    def _check_options(self) -> None:
        """Raise `SpecError` if an argument of the constructor has been changed in place, and is now
        invalid.
        """
        check_in_place(self, self._fields)

    def _pod_settings(self) -> list[str]:
        return [name for name in self._settings.dump() if SETTINGS[name].level == POD]

    def _mount(self, kind: str, **given: Any) -> Self:
        return self._set("volumes", [{kind: given}])

    def _combine(self, name: str, parsed: Any) -> None:
        if name != "volumes":
            super()._combine(name, parsed)
            return
        for index, volume in enumerate(parsed):
            if volume is not None:
                with error_path(index):
                    self._add_volume(volume)

    def _add_volume(self, volume: dict[str, Any]) -> None:
        volumes = SETTINGS["volumes"].parse(self._settings.volumes, "volumes")
        if volume in volumes:
            return
        mount_path = mount_path_of(volume)
        if any(mount_path_of(other) == mount_path for other in volumes):
            raise SpecError(f"{self.kind} {self.name!r} mounts two volumes at {mount_path!r}")
        self._settings.volumes.append(volume)


def mount_path_of(volume: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the mount path of a volume that is described as in an experiment file."""
    (details,) = volume.values()
    return str(details.get("mount_path", SHARED_MEMORY))


def names_of(value: object) -> object:
    """Return ``value`` with each process and group replaced by its name, also in a list."""
    if isinstance(value, Component):
        return value.name
    if isinstance(value, (list, tuple)):
        return [names_of(item) for item in value]
    return value


def add_all(
    items: Iterable[Item], add: Callable[[Item], None], remove: Callable[[Item], None]
) -> None:
    """Add all items, or none of them if ``add`` raises an error for one of them."""
    added: list[Item] = []
    try:
        for item in items:
            add(item)
            added.append(item)
    except SpecError:
        for item in added:
            remove(item)
        raise


def attribute_parsers(
    fields: Mapping[str, Field], unset: Mapping[str, Callable[[], Any]]
) -> dict[str, Callable[[Any], Any]]:
    """Return a mapping from attributes to functions that validate their values.

    The attributes contain the arguments in ``fields`` of a constructor. For the value None, the
    attribute is set to the result of its function in ``unset``, or to None if there is none.
    """

    def parser(field: Field) -> Callable[[Any], Any]:
        create = unset.get(field.name, _none)
        return lambda value: create() if value is None else field.parse(value)

    return {name: parser(field) for name, field in fields.items()}


def check_in_place(owner: object, fields: Mapping[str, Field]) -> None:
    """Raise `SpecError` if the program has changed the value of an attribute in place, and the new
    value is not in its normalized form.
    """
    values = vars(owner)
    for name, field in fields.items():
        value = values[name]
        if value is not None:
            check_unchanged(field.parse(value), value, name)


def _none() -> None:
    return None


def _refuse_keywords(setting: str, values: Iterable[object]) -> None:
    """Raise `SpecError` if a method that has received a mapping has received other values too."""
    if any(value is not None for value in values):
        raise SpecError(f"{setting} has a mapping and other arguments; put all in the mapping")
