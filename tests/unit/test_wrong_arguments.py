"""Every public callable, option and attribute with values of the wrong type or form.

The callables and their parameters are found by introspection. A new public method is therefore
tested without a change here, unless it belongs to a new class or has a new parameter, for which
`SUBJECTS` or `VALID` needs an entry.

A call must succeed, or raise a `SymphonyError` with a message of one line that contains the name of
the argument, the name of the method, or the value. After an error, nothing has changed. Two
standard exceptions are permitted: Python's own TypeError for a missing or an unknown argument,
which no call here provokes, and the TimeoutError of `Cluster.wait`.
"""

from __future__ import annotations

import copy
import enum
import importlib
import inspect
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import symphony
from symphony import (
    BackendError,
    Cluster,
    Experiment,
    Process,
    ProcessGroup,
    SpecError,
    SymphonyConfig,
    SymphonyError,
    commandline,
)
from symphony.addons import DockerBuilder
from symphony.addons.zmq.options import Options
from symphony.archive.archive import Run
from symphony.cluster import cluster as cluster_module
from symphony.commandline.parsing import dispatch
from symphony.config import fields, locations
from symphony.errors import shown
from symphony.kube import KubeCluster, NodePool, NodePoolDispatcher
from symphony.local import LocalCluster
from symphony.model.experiment.given_options import GivenOptions
from symphony.model.experiment.process import ProcessOptions
from symphony.model.settings.table import SETTINGS
from symphony.plan.resolution.addresses import AddressBook
from symphony.support.argument_checks import CHECKS
from symphony_kube.node_pools.pools import MachineResources

MODULES = (
    "symphony",
    "symphony.addons",
    "symphony.addons.zmq",
    "symphony.commandline",
    "symphony.engine",
    "symphony.kube",
    "symphony.local",
    "symphony.tmux",
)
# The results of methods, whose constructors check nothing, and the classes that have no public
# constructor. `SymphonyParser` reports errors on standard error; see tests/cli/test_bad_input.py.
NOT_CALLED = {
    *("Address", "Cluster", "Endpoint", "EventKind", "ExecResult", "ExperimentEvent"),
    *("ExperimentStatus", "ExperimentUsage", "LogLine", "Manifest"),
    *("NodePool", "Plan", "ProcessStatus", "ProcessUsage", "SymphonyParser", "main"),
}


class Unprintable:
    """An object that does not support the conversion to text."""

    def __repr__(self) -> str:
        raise RuntimeError("this object cannot be shown")


class AcceptsAll:
    """A class that is a valid function with any arguments."""

    def __init__(self, *_: object) -> None:
        pass


class SeveralLines:
    """An object whose representation has several lines, like that of an array."""

    def __repr__(self) -> str:
        return "first\nsecond\x1b\r\nthird"

    def __str__(self) -> str:
        return "No such-name"


# Functions, because a call may consume or change a value.
WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "minus one": lambda: -1,
    "huge integer": lambda: 10**5000,
    "too large float": lambda: 1e308,
    "nan": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "bytes": lambda: b"a",
    "empty": lambda: "",
    "text": lambda: "No such-name",
    "unknown user": lambda: "~nobody-of-this-name/x.yml",
    "NUL": lambda: "a\0b",
    "surrogate": lambda: "\ud800",
    "two lines": lambda: "/a\nb",
    "long text": lambda: "x" * 10_000,
    "missing path": lambda: "/does/not/exist.yml",
    "directory": lambda: Path("directory.yml"),
    "nested list": lambda: [[["a"]]],
    "valid and None": lambda: ["a", None],
    "tuple": lambda: (1, 2, 3),
    "number as key": lambda: {1: 2},
    "nested mapping": lambda: {"a": "b", "c": {"d": [None]}},
    "set": lambda: {1, "a"},
    "object": object,
    "class": lambda: AcceptsAll,
    "generator": lambda: (item for item in ["a", 1]),
    "process and None": lambda: [Process("fresh"), None],
    "group and None": lambda: [ProcessGroup("fresh"), None],
    "no representation": Unprintable,
    "representation of several lines": SeveralLines,
}


# The methods that take the options of a process have the same code for them. Only this method is
# called with each wrong value of an option among valid ones, and the others with one of the values,
# except in the long test.
CALLED_WITH_EACH_OPTION = "Experiment.new_replicas"
WRONG_FOR_ALL_OPTIONS = "object"


def experiment() -> Experiment:
    result = Experiment("e")
    result.new_process("p", container_image="i", command="true").exposes("web")
    result.new_process_group("g").new_process("q", container_image="i", command="true")
    return result


MACHINE = MachineResources(millicores=1000, memory_m=1000, gpus=1)
POOL = NodePool(
    name="small", selector=("name", "small"), capacity=MACHINE, allocatable=MACHINE, gpu_type="k80"
)

# A valid value for every parameter and attribute in the public interface, by name, except settings
# and the arguments of their methods, whose example is used. A function creates a new value for each
# call.
VALID: dict[str, Callable[[], Any]] = {
    "active_deadline": lambda: 60,
    "address": lambda: "inproc://wrong-arguments",
    "amounts": lambda: {"cpu": 1},
    "test": lambda: {"log": "ready"},
    "exact": lambda: True,
    "binds": lambda: ["web"],
    "connects": lambda: ["web"],
    "exposes": lambda: {"page": 80},
    "answer_within": lambda: 5,
    "args": lambda: ["--fast"],
    "starts_after": lambda: "q",
    "argv": lambda: ["--version"],
    "assign_to": lambda: "node_pool",
    "at_once": lambda: False,
    "backend": lambda: "local",
    "backoff": lambda: None,
    "backoff_limit": lambda: 1,
    "base_dir": lambda: ".",
    "file": lambda: "exp.yml",
    "bind": lambda: True,
    "build_options": lambda: ["--pull"],
    "claim": lambda: "data",
    "cluster": lambda: KubeCluster(kubeconfig="missing"),
    "cmd": lambda: "true",
    "cmds": lambda: ["true"],
    "command": lambda: ["true"],
    "condition": lambda: "started",
    "config": lambda: "settings",
    "configuration": SymphonyConfig,
    "confirm": lambda: lambda _: False,
    "connections": lambda: 2,
    "container_image": lambda: "image:1",
    "container_yml": lambda: {"tty": True},
    "context": lambda: "here",
    "context_directories": lambda: [{"name": "app", "path": "app"}],
    "cpu": lambda: 1,
    "data": lambda: {"name": "e", "processes": {"p": {"command": "true"}}},
    "deadline": lambda: "6h",
    "default": lambda: None,
    "dockerfile": lambda: "Dockerfile",
    "dry_run": lambda: True,
    "effect": lambda: "NoSchedule",
    "encrypted": lambda: True,
    "replicated": lambda: True,
    "ends_with": lambda: ["p"],
    "engine": lambda: "docker",
    "env": lambda: {"A": "1"},
    "env_file": lambda: "a.env",
    "configs": lambda: {"a.conf": "a.conf.in"},
    "environ": lambda: {"SYMPH_WEB_HOST": "h", "SYMPH_WEB_PORT": "1"},
    "envs": lambda: {"A": "1"},
    "eviction_memory_m": lambda: 1,
    "experiment": lambda: "e",
    "experiments": lambda: [experiment()],
    "expose": lambda: "none",
    "field": lambda: "username",
    "files": lambda: ["token"],
    "folder": lambda: "folder",
    "follow": lambda: False,
    "force": lambda: False,
    "gpu": lambda: 1,
    "gpu_count": lambda: 1,
    "gpu_resource": lambda: "nvidia.com/gpu",
    "resource": lambda: "nvidia.com/gpu",
    "gpu_type": lambda: "k80",
    "gpus": lambda: ["0"],
    "grace": lambda: 1,
    "group": lambda: ProcessGroup("another"),
    "groups": lambda: [ProcessGroup("another")],
    "handler": lambda: lambda _: None,
    "hold_ports": lambda: "started",
    "host": lambda: "127.0.0.1",
    "http": lambda: ("web", "/"),
    "hwm": lambda: 10,
    "image": lambda: "image:1",
    "image_pull_secrets": lambda: ["registry"],
    "interactive": lambda: False,
    "jobs_only": lambda: False,
    "max_skew": lambda: 1,
    "kernel_memory_m": lambda: 1,
    "every": lambda: 20,
    "failures": lambda: 2,
    "final_codes": lambda: 2,
    "key": lambda: "KEY",
    "keys": lambda: "options",
    "kubeconfig": lambda: "missing",
    "label": lambda: "name",
    "labels": lambda: {"team": "a"},
    "linger": lambda: 0,
    "interval": lambda: 0.1,
    "local_port": lambda: 7000,
    "log": lambda: "ready",
    "manifest": lambda: LocalCluster().manifest(experiment()),
    "max_restarts": lambda: None,
    "mem": lambda: "1Gi",
    "memory": lambda: "1Gi",
    "memory_m": lambda: 100,
    "mount_path": lambda: "/data",
    "name": lambda: "new",
    "names": lambda: ["namespace"],
    "namespace": lambda: "team",
    "node_pool_name": lambda: "small",
    "now": lambda: 0.0,
    "on_answer": lambda: None,
    "on_change": lambda: None,
    "on_wait": lambda: None,
    "on_error": lambda: None,
    "on_failure": lambda: "stop",
    "on_step": lambda: None,
    "operator": lambda: "Equal",
    "options": lambda: {"preamble_cmds": "true"},
    "output": lambda: lambda _: None,
    "parameters": lambda: {"size": 1},
    "path": lambda: "/exported",
    "patterns": lambda: "no-such-image:*",
    "pod_yml": lambda: {"spec": {}},
    "pods_memory_m": lambda: 1,
    "pods_millicores": lambda: 1,
    "policy": lambda: "Never",
    "pools": lambda: [POOL],
    "port": lambda: None,
    "port_range": lambda: (7000, 7010),
    "preamble_cmds": lambda: ["true"],
    "previous": lambda: False,
    "process": lambda: "p",
    "process_group": lambda: None,
    "process_or_service": lambda: "p",
    "process_per_machine": lambda: 1,
    "processes": lambda: ["p"],
    "prog": lambda: "program",
    "progress": lambda: None,
    "purge": lambda: True,
    "changed": lambda: None,
    "in_order": lambda: False,
    "read_only": lambda: True,
    "enabled": lambda: True,
    "replicas": lambda: {"p": ["p-0", "p-1"]},
    "repository": lambda: "registry/image",
    "reserve": lambda: None,
    "resources": lambda: {"cpu": "1"},
    "retries": lambda: 1,
    "revision": lambda: "main",
    "run": lambda: Run(Path("state", "e"), {}),
    "seconds": lambda: 5,
    "secret": lambda: "token",
    "secrets": lambda: ["token"],
    "serializer": lambda: "json",
    "server": lambda: "nfs",
    "server_name": lambda: "other",
    "service": lambda: "web",
    "service_account": lambda: "robot",
    "sbatch_options": lambda: ["--exclusive"],
    "code": lambda: ".",
    "services": lambda: ["web"],
    "settings": lambda: {"username": "sarah"},
    "events": lambda: True,
    "signal": lambda: "HUP",
    "since": lambda: 1,
    "size": lambda: "1Gi",
    "source": lambda: "p:file",
    "record_usage": lambda: True,
    "resume": lambda: True,
    "recorded_code": dict,
    "given": GivenOptions,
    "start": lambda: ["p"],
    "status": lambda: symphony.ExperimentStatus(name="e", backend="local"),
    "wait": lambda: "ready",
    "start_dir": lambda: "work",
    "state_dir": lambda: "state",
    "tag": lambda: "1.0",
    "tail": lambda: 1,
    "target": lambda: "file",
    "tcp": lambda: "web",
    "temp_directory": lambda: "temporary",
    "tf_json": dict,
    "timeout": lambda: 0,
    "toleration_seconds": lambda: 5,
    "topology": lambda: "zone",
    "topics": lambda: ["a"],
    "ttl": lambda: 5,
    "type": lambda: "Directory",
    "until": lambda: "ended",
    "username": lambda: "sarah",
    "value": lambda: "value",
    "verbose": lambda: False,
    "when_unsatisfiable": lambda: "DoNotSchedule",
}
# Parameters whose meaning depends on the method.
VALID_IN_METHOD: dict[tuple[str, str], Callable[[], Any]] = {
    ("add_process", "process"): lambda: Process("fresh"),
    ("add_processes", "processes"): lambda: [Process("fresh")],
    ("build_images", "experiment"): experiment,
    ("describe_process_group", "process_group"): lambda: "g",
    ("diff", "experiment"): experiment,
    ("dry_run", "experiment"): experiment,
    ("launch", "experiment"): experiment,
    ("manifest", "experiment"): experiment,
    ("mount_empty_dir", "memory"): lambda: True,
    ("plan", "experiment"): experiment,
    ("new_replicas", "replicas"): lambda: 2,
    ("new_ranks", "ranks"): lambda: 2,
    ("rank_of", "unit"): lambda: "train",
    ("new_replicas", "binds"): lambda: ["s"],
    ("per_pod", "ranks"): lambda: 8,
    ("together_or_not", "within"): lambda: "5m",
    ("add_topology_spread", "key"): lambda: "zone",
    ("scale", "replicas"): lambda: {"p": 2},
    ("scaled_experiment", "replicas"): lambda: {"p": 2},
    ("job", "settings"): lambda: True,
    ("up", "experiment"): experiment,
    ("assign_to", "process"): lambda: Process("fresh"),
    ("assign_to_gpu", "process"): lambda: Process("fresh"),
    ("assign_to_machine", "process"): lambda: Process("fresh"),
    ("assign_to_node_pool", "process"): lambda: Process("fresh"),
    ("assign_to_resource", "process"): lambda: Process("fresh"),
    ("load_file", "path"): lambda: "experiment.yml",
    ("load_config_file", "path"): lambda: "config.yml",
    ("update", "settings"): lambda: {"username": "sarah"},
}
# Optional parameters without which a call with another parameter is never valid.
COMPANIONS = {
    "add_toleration": ["key"],
    "launch": ["dry_run"],
    "launch_batch": ["dry_run"],
    "ready": ["tcp"],
    "healthy": ["tcp"],
}
# Parameters that exclude others.
EXCLUSIVE = {
    "amounts",
    "cmd",
    "cmds",
    "host",
    "http",
    "log",
    "mem",
    "port",
    "service",
    "settings",
    "test",
}
# Other words for parameters in messages.
SYNONYMS = {
    "binds": ["service", "port"],
    "connects": ["service", "port"],
    "encrypted": ["service", "port"],
    "exposes": ["service", "port"],
    "replicated": ["service", "port"],
    "env_secrets": ["variable"],
    "node_selector": ["label"],
    "starts_after": ["process"],
    "volumes": ["volume"],
    "context_directories": ["context entry"],
    "data": ["an experiment"],
    "env": ["variable"],
    "envs": ["env", "variable"],
    "environ": ["environment"],
    "experiments": ["experiment"],
    "key": ["variable", "label"],
    "labels": ["label"],
    "name": ["experiment", "process", "group", "backend"],
    "options": ["option"],
    "path": ["file"],
    "patterns": ["pattern"],
    "process_or_service": ["process"],
    "services": ["service", "port"],
    "settings": ["DockerBuilder", "configuration"],
    "tf_json": ["cannot be read"],
    "topics": ["topic"],
    "tag": ["image"],
    "tcp": ["service"],
    "value": ["variable", "label"],
}


@dataclass
class Subject:
    """A class of the public interface: how an object is created, and what an error must not change.

    ``combines`` is true if wrong values are also tried together with valid values of all other
    parameters, so that a half-applied call is found.
    """

    create: Callable[[], Any]
    state: Callable[[Any], object] = lambda _: None
    combines: bool = False


def configuration() -> SymphonyConfig:
    result = SymphonyConfig()
    result.reset()
    return result


def kube_cluster() -> KubeCluster:
    return KubeCluster(kubeconfig="missing")


def cluster_state(cluster: Cluster) -> object:
    return cluster.defaults


SUBJECTS: dict[str, Subject] = {
    "AddressBook": Subject(AddressBook),
    "DockerBuilder": Subject(lambda: DockerBuilder("Dockerfile")),
    "Experiment": Subject(experiment, Experiment.dump_dict, combines=True),
    "GKEDispatcher": Subject(lambda: NodePoolDispatcher([POOL])),
    "KubeCluster": Subject(kube_cluster, cluster_state),
    "LocalCluster": Subject(lambda: LocalCluster(state_dir="state"), cluster_state),
    "NodePoolDispatcher": Subject(lambda: NodePoolDispatcher([POOL])),
    "Process": Subject(
        lambda: experiment().get_process("p"),
        lambda process: process.experiment.dump_dict(),
        combines=True,
    ),
    "ProcessGroup": Subject(
        lambda: experiment().get_process_group("g"),
        lambda group: group.experiment.dump_dict(),
        combines=True,
    ),
    "SymphonyConfig": Subject(configuration, SymphonyConfig.settings),
    "TmuxCluster": Subject(
        lambda: symphony.TmuxCluster(state_dir="state"),  # type: ignore[attr-defined]
        cluster_state,
    ),
}


@dataclass
class Case:
    """A public callable. ``call`` takes an object that ``subject`` creates, and the arguments."""

    name: str
    subject: Subject
    call: Callable[..., Any]
    signature: inspect.Signature

    @property
    def method(self) -> str:
        return self.name.rpartition(".")[2]

    def parameters(self) -> dict[str, bool]:
        """Return a mapping from the names of the parameters to whether they are required."""
        result: dict[str, bool] = {}
        for parameter in self.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                keywords = {"Unpack[ProcessOptions]": ProcessOptions, "Unpack[Options]": Options}
                declared = keywords.get(str(parameter.annotation))
                result.update(dict.fromkeys(declared.__annotations__ if declared else (), False))
            elif parameter.kind is not parameter.VAR_POSITIONAL:
                result[parameter.name] = parameter.default is parameter.empty
        result.pop("self", None)
        result.pop("cls", None)
        return result

    def combines(self, parameter: str, kind: str) -> bool:
        """Return whether a wrong value is also tried together with all other parameters."""
        return self.subject.combines and (
            parameter in self.signature.parameters
            or self.name == CALLED_WITH_EACH_OPTION
            or kind == WRONG_FOR_ALL_OPTIONS
        )

    def shares_options(self) -> bool:
        """Return whether the method has parameters that it shares with others."""
        return not self.signature.parameters.keys() >= self.parameters().keys()

    def run(self, target: object, arguments: dict[str, Any]) -> None:
        positional = [
            arguments.pop(parameter.name)
            for parameter in self.signature.parameters.values()
            if parameter.kind is parameter.POSITIONAL_ONLY and parameter.name in arguments
        ]
        result = self.call(target, *positional, **arguments)
        if hasattr(result, "disown"):  # It is a ZeroMQ socket.
            result.close()
        elif isinstance(result, Iterator):
            for _ in result:
                pass


def valid(method: str, parameter: str) -> Any:
    create = VALID_IN_METHOD.get((method, parameter)) or VALID.get(parameter)
    if create is not None:
        return create()
    return copy.deepcopy(_example(method, parameter))  # A call may change a value.


@cache
def _example(method: str, parameter: str) -> Any:
    """Read the example of a setting once, because YAML takes longer than the call with it."""
    for name, setting in SETTINGS.items():
        if name == parameter or (setting.method == method and setting.argument == parameter):
            return yaml.safe_load(inspect.cleandoc(setting.example))[name]
    raise AssertionError(f"VALID needs a value for the new parameter {parameter!r}")


def public_objects() -> dict[str, Any]:
    objects: dict[str, Any] = {}
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in sorted({*module.__all__, *vars(module).get("_MODULES", ())}):
            objects.setdefault(name, getattr(module, name))
    return objects


def cases() -> list[Case]:
    result: list[Case] = []
    seen: set[object] = set()
    for name, value in public_objects().items():
        is_error_or_enum = isinstance(value, type) and issubclass(value, (BaseException, enum.Enum))
        if name in NOT_CALLED or is_error_or_enum:
            continue
        if name not in (
            "AddressBook",
            "SymphonyConfig",
            "LocalCluster",
            "KubeCluster",
            "TmuxCluster",
        ):
            create = partial(_create, value)
            result.append(
                Case(f"{name}()", Subject(lambda: None), create, inspect.signature(value))
            )
        if isinstance(value, type) and not name.startswith(("Zmq", "AsyncZmq", "Reserve")):
            result += methods(name, value, seen)
    return result


def _create(value: Callable[..., Any], _: None, /, *args: Any, **options: Any) -> Any:
    return value(*args, **options)


def methods(class_name: str, cls: type[Any], seen: set[object]) -> Iterator[Case]:
    subject = SUBJECTS[class_name]
    for name in dir(cls):
        found = inspect.getattr_static(cls, name)
        if name.startswith("_") or found in seen:
            continue
        if isinstance(found, property) and found.fset is not None:
            seen.add(found)
            parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
            assign = partial(_assign, name)
            yield Case(f"{class_name}.{name}", subject, assign, inspect.Signature([parameter]))
        function = found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
        if inspect.isfunction(function) and function.__module__.startswith("symphony"):
            seen.add(found)
            call = partial(_call, name)
            yield Case(f"{class_name}.{name}", subject, call, inspect.signature(function))


def _assign(name: str, target: object, /, **values: Any) -> None:
    setattr(target, name, values[name])


def _call(name: str, target: object, /, *args: Any, **keywords: Any) -> Any:
    return getattr(target, name)(*args, **keywords)


CASES = cases()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the files that the values refer to, and a finished experiment in state."""
    path = tmp_path_factory.mktemp("wrong-arguments")
    (path / "directory.yml").mkdir()
    (path / "experiment.yml").write_text(
        "{name: e, parameters: {size: 1}, processes: {p: {command: x}}}"
    )
    (path / "config.yml").write_text("username: sarah")
    previous = Path.cwd()
    os.chdir(path)
    try:
        cluster = LocalCluster(state_dir="state")
        cluster.launch(experiment())
        cluster.wait("e")
        yield path
    finally:
        LocalCluster(state_dir=path / "state").delete("e")
        os.chdir(previous)


@pytest.fixture(autouse=True)
def private_environment(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(directory)
    monkeypatch.setenv("XDG_STATE_HOME", str(directory / "home"))
    for part, value in (("HOST", "127.0.0.1"), ("PORT", "7000"), ("BIND_HOST", "127.0.0.1")):
        monkeypatch.setenv(f"SYMPH_WEB_{part}", value)
    configuration()
    yield
    configuration()


def error_of(run: Callable[[], None]) -> str:
    """Return the message of the error that a call raises, or an empty string."""
    try:
        run()
    except SymphonyError as exc:
        return str(exc)
    return ""


def problem(
    run: Callable[[], None],
    state: Callable[[], object],
    words: list[str],
    value: object,
    other_error: str,
) -> str:
    """Return what is wrong with the result of a call, or an empty string.

    ``words`` are the words of which the message must contain one. ``other_error`` is the message of
    the same call with a valid value, which the call may raise as well.
    """
    before = state()
    try:
        run()
        return ""
    except TimeoutError:
        return ""
    except BackendError as exc:
        # The backend was reached, because the arguments are valid.
        message = str(exc)
        words = []
    except SymphonyError as exc:
        message = str(exc)
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"
    if len(message.splitlines()) != 1:
        return f"the message has several lines: {message!r}"
    words = [*words, shown(value)] if words else []
    if words and isinstance(value, (str, Path, SeveralLines)) and str(value):
        words.append(repr(str(value))[1:-1][:40])
    is_named = not words or any(word in message for word in words)
    if not is_named and message != other_error:
        return f"the message does not name the argument: {message}"
    return "" if state() == before else f"changed in spite of the error: {message}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_wrong_argument_is_refused_with_one_line_and_changes_nothing(
    case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if case.name in ("clean_images()", "build_images()"):
        monkeypatch.setenv("PATH", "/nonexistent")  # No container engine may be used.
    problems = problems_of(case, case.combines)
    assert not problems, "\n".join(problems)


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.subject.combines and case.shares_options()],
    ids=lambda case: case.name,
)
def test_each_wrong_option_among_valid_ones_is_refused_and_changes_nothing(case: Case) -> None:
    problems = problems_of(case, lambda *_: True)
    assert not problems, "\n".join(problems)


class Target:
    """The object of which a method is called with wrong values.

    The calls share an object until one is not refused, because creating one takes as long as a
    call.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._object: object = None

    def run(self, arguments: dict[str, Any]) -> None:
        called, self._object = self._object, None
        try:
            self._case.run(called, arguments)
        except SymphonyError:
            self._object = called
            raise

    def state(self) -> object:
        if self._object is None:
            self._object = self._case.subject.create()
        return self._case.subject.state(self._object)


def problems_of(case: Case, combines: Callable[[str, str], bool]) -> list[str]:
    """Return what is wrong with the results of calls with wrong values.

    ``combines`` returns whether a kind of wrong values of a parameter is also tried together with
    all other parameters.
    """
    parameters = case.parameters()
    target = Target(case)
    required = [name for name, is_required in parameters.items() if is_required]
    required += COMPANIONS.get(case.method, [])
    combined = [name for name in parameters if name not in EXCLUSIVE]
    problems = []
    for name in parameters:
        in_valid_call = {other: valid(case.method, other) for other in (*required, name)}
        other_error = error_of(partial(case.run, case.subject.create(), in_valid_call))
        for kind, create in WRONG.items():
            for others in (required, combined) if combines(name, kind) else (required,):
                arguments = {other: valid(case.method, other) for other in others}
                if name in ("service", "port", "host"):
                    arguments.pop("address", None)
                value = arguments[name] = create()
                words = [name, case.method, *SYNONYMS.get(name, ())]
                found = problem(
                    partial(target.run, arguments),
                    target.state,
                    words if others is required else [],
                    value,
                    other_error,
                )
                if found:
                    problems.append(f"{name}={kind}: {found[:300]}")
                    target = Target(case)
    return problems


# Values that are generated, in addition to those in `WRONG`.
VALUES = st.one_of(
    st.sampled_from(list(WRONG.values())).map(lambda create: create()),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda values: st.one_of(
            st.lists(values, max_size=2),
            st.dictionaries(st.one_of(st.text(max_size=5), st.integers()), values, max_size=2),
        ),
        max_leaves=4,
    ),
)


@settings(
    max_examples=5 * settings().max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_random_arguments_are_accepted_or_refused_without_a_change(
    data: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")  # No container engine may be used.
    configuration()
    case = data.draw(st.sampled_from(CASES))
    arguments: dict[str, Any] = {}
    for name, is_required in case.parameters().items():
        if is_required or data.draw(st.booleans()):
            is_valid = data.draw(st.booleans())
            arguments[name] = valid(case.method, name) if is_valid else data.draw(VALUES)
    target = case.subject.create()
    note = f"{case.name}({shown(arguments)})"
    run, state = partial(case.run, target, arguments), partial(case.subject.state, target)
    found = problem(run, state, [], None, "")
    assert not found, f"{note}: {found}"


# The annotations of arguments that are checked by the called method itself.
CHECKED_ELSEWHERE = {
    "Any": "any value is valid, or a validator of the model checks it",
    "Code": "a validator of the model checks it, because it is a path, a mapping or false",
    "argparse.Action": "an action of a parser of the command line",
    "BaseException": "an exception that the caller has caught",
    "Handler": "checked together with its field",
    "Mapping[str, object]": "a validator of the model names the key",
    "Mapping[str, str]": "the validators of resources name the key",
    "Paths": "a validator of the model checks it, because it is a path or a list of paths",
    "Strings": "a validator of the model checks it, because a command can be text or a list",
    "bool | Literal['server']": "compared with the permitted values",
    "int | str": "the name or the number of a signal is checked where it is used",
    "str | Mapping[str, Any]": "a validator of the model checks it",
}


def test_every_annotation_of_a_checked_method_is_known() -> None:
    known = {*CHECKS, *cluster_module._CHECKS, *dispatch.METHOD_CHECKS}
    classes = [SymphonyConfig, *BACKENDS.values(), commandline.SymphonyParser]
    unknown: dict[str, str] = {}
    for cls in classes:
        for name in dir(cls):
            defined = inspect.getattr_static(cls, name)
            if isinstance(defined, staticmethod):
                # It has the attribute __wrapped__ although its arguments are not checked.
                continue
            method = getattr(defined, "__wrapped__", None)
            for parameter, annotation in getattr(method, "__annotations__", {}).items():
                text = str(annotation).replace('"', "'").removesuffix(" | None")
                if parameter != "return" and text not in known:
                    unknown[text] = f"{cls.__name__}.{name}({parameter})"
    assert unknown.keys() == CHECKED_ELSEWHERE.keys(), unknown


BACKENDS = {"kube": KubeCluster, "local": LocalCluster, "tmux": public_objects()["TmuxCluster"]}
OPTIONS = [(backend, name) for backend, cls in BACKENDS.items() for name in cls.option_names()]


@pytest.mark.parametrize(("backend", "option"), OPTIONS)
def test_a_wrong_option_of_a_backend_is_refused_with_one_line(backend: str, option: str) -> None:
    def use(value: object) -> None:
        cluster = BACKENDS[backend].with_options(backend, {option: value})
        cluster.manifest(experiment())
        if backend != "kube":
            cluster.list_experiments()

    problems = []
    for kind, create in WRONG.items():
        value = create()
        found = problem(partial(use, value), lambda: None, [option], value, "")
        if found:
            problems.append(f"{option}={kind}: {found[:300]}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"state-dir": "x"},
            "backend 'local' has no option 'state-dir'; did you mean 'state_dir' or 'start_dir'?",
        ),
        ({"state_dir": 5}, "state_dir must be a path, not 5"),
        ({"gpus": 2}, "gpus must be a list of device identifiers, such as [0, 1], not 2"),
        (
            {"hold_ports": ["bound"]},
            "hold_ports must be started or bound, not ['bound']; did you mean 'bound'?",
        ),
    ],
)
def test_a_wrong_option_in_the_configuration_is_refused_with_its_key(
    options: dict[str, Any], message: str
) -> None:
    configuration().update({"options": {"local": options}})
    key = next(iter(options))
    with pytest.raises(SpecError) as caught:
        Cluster.new("local")
    assert str(caught.value) == f"options.local.{key} in the configuration: {message}"


class OwnParser(commandline.SymphonyParser):
    def action_train(self, args: object) -> None:
        """Train."""


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("add_subparser", {"name": "train", "aliases": ["t"], "remainder": True}),
        ("get_subparser", {"name": "ls"}),
        ("add_dry_run", {"parser": None}),
        (
            "launch",
            {
                "experiment": experiment(),
                "force": False,
                "dry_run": True,
                "build": False,
                "follow": False,
            },
        ),
        ("_add_experiment_name", {"parser": None, "required": False, "positional": False}),
        ("_add_component_arg", {"parser": None}),
        ("run", {"argv": ["--version"]}),
    ],
)
def test_wrong_arguments_of_a_command_line_are_refused(
    method: str, parameters: dict[str, Any]
) -> None:
    problems = []
    for name in parameters:
        for kind, create in WRONG.items():
            parser = OwnParser("own")
            arguments = {**parameters}
            if "parser" in arguments:
                arguments["parser"] = parser.add_subparser("train")
            value = arguments[name] = create()
            call = partial(getattr(parser, method), **arguments)
            found = problem(call, lambda: None, [name, method], value, "")
            if found:
                problems.append(f"{name}={kind}: {found[:300]}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: OwnParser("own").add_subparser("trian"),
            "the command 'trian' calls action_trian(args), which OwnParser does not have; did you "
            "mean 'action_train'",
        ),
        (lambda: OwnParser("own").add_subparser("launch"), "own already has a command 'launch'"),
        (lambda: OwnParser("own").get_subparser("trian"), "own has no command 'trian'"),
        (lambda: OwnParser(5), "prog must be the name of a program, not 5"),  # type: ignore[arg-type]
    ],
)
def test_a_command_that_cannot_be_added_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(SymphonyError) as caught:
        call()
    assert str(caught.value).startswith(message)


KEYS = st.sampled_from(
    [*fields.KNOWN, "cpu", "local", "kube", "state_dir", "gpus", "x-a", "a\nb", "usernme"]
)
DOCUMENTS = st.recursive(
    st.one_of(VALUES, st.sampled_from(["local", "kube", "4Gi"])),
    lambda values: st.dictionaries(KEYS, values, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    document=st.dictionaries(KEYS, DOCUMENTS, max_size=3), suffix=st.sampled_from(["yml", "json"])
)
def test_a_random_configuration_is_accepted_or_refused(
    document: dict[str, Any], suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configuration()

    def use() -> None:
        for backend in BACKENDS:
            Cluster.new(backend).manifest(experiment())

    found = problem(partial(config.update, document), config.settings, [], None, "")
    found = found or problem(use, lambda: None, [], None, "")
    try:
        text = json.dumps(document)
    except Exception:  # Not every value can be part of a file.
        text = ""
    config.reset()
    Path(f"random.{suffix}").write_text(text, encoding="utf-8", errors="surrogatepass")
    load = partial(config.load_config_file, f"random.{suffix}")
    found = found or problem(load, config.settings, [], None, "")
    read = partial(Experiment.load_file, f"random.{suffix}")
    found = found or problem(read, lambda: None, [], None, "")
    config.reset()
    monkeypatch.setenv("SYMPHONY_CONFIG", f"random.{suffix}")
    found = found or problem(use, lambda: None, [], None, "")
    monkeypatch.delenv("SYMPHONY_CONFIG")
    assert not found, f"{shown(document)}: {found}"


@pytest.mark.parametrize(
    "variable", [*locations.VARIABLES, "SYMPHONY_CONFIG", "SYMPHONY_STATE_DIR"]
)
@pytest.mark.parametrize("text", ["a\nb", "x" * 5000, "\udcff"])
def test_a_wrong_variable_is_refused_with_one_line(
    variable: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)

    def use() -> None:
        SymphonyConfig().settings()
        for backend in (None, "local", "kube"):
            Cluster.new(backend).manifest(experiment())

    assert not problem(use, lambda: None, [], None, "")
