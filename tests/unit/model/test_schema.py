"""The JSON Schema: the schema file is up to date, and the schema agrees with the loader."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given

from symphony import Experiment, ProcessGroup, SpecError
from symphony.model.document import schema
from symphony.model.experiment.component import Component
from symphony.model.experiment.experiment import EXPERIMENT_OPTIONS
from symphony.model.experiment.group import GROUP_OPTIONS
from symphony.model.experiment.process import PROCESS_OPTIONS, ProcessOptions
from symphony.model.settings.setting_types import VOLUME_KINDS
from symphony.model.settings.table import SETTINGS
from symphony.model.settings.value_types import Field
from tests.unit.strategies import experiments

VALIDATOR = jsonschema.Draft202012Validator(schema.build())


def of_process(**settings: Any) -> dict[str, Any]:
    return {"name": "e", "processes": {"p": settings}}


def of_image(**settings: Any) -> dict[str, Any]:
    return {"name": "e", "images": {"rl": settings}}


def volume(**kinds: Any) -> dict[str, Any]:
    return of_process(volumes=[kinds])


def test_the_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(schema.build())


def test_the_schema_file_is_up_to_date(tmp_path: Path) -> None:
    schema.write(tmp_path / "schema.json")
    hint = f"write it again: {Path(sys.executable).name} -m symphony.model.document.schema"
    assert (tmp_path / "schema.json").read_bytes() == schema.path().read_bytes(), hint


def test_building_the_schema_imports_only_the_standard_library() -> None:
    program = (
        "import sys, symphony.model.document.schema as s; s.build(); "
        "print('yaml' in sys.modules, 'psutil' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


METHODS = [
    *((setting.method, setting.fields) for setting in SETTINGS.values() if setting.fields),
    *((f"mount_{kind}", fields) for kind, (_, fields) in VOLUME_KINDS.items()),
]


@pytest.mark.parametrize(("method", "fields"), METHODS, ids=lambda value: str(value)[:20])
def test_the_fields_of_a_setting_are_the_keywords_of_its_method(
    method: str, fields: dict[str, Field]
) -> None:
    keywords = dict(inspect.signature(getattr(Component, method)).parameters)
    del keywords["self"]
    # A mapping with all keywords can be given instead.
    for mapping in {"amounts", "settings", "test"} & keywords.keys():
        del keywords[mapping]
    if method == "resource_request":
        # In Python, the keyword sets the limit for GPUs. A file has only one place for it.
        del keywords["gpu"]
    required = {name for name, item in keywords.items() if item.default is item.empty}
    assert set(fields) == set(keywords)
    assert {name for name, field in fields.items() if field.required} == required


def test_the_keywords_of_the_constructors_are_in_the_tables() -> None:
    assert {*PROCESS_OPTIONS, *SETTINGS} == set(ProcessOptions.__annotations__)
    for constructor, options in ((Experiment, EXPERIMENT_OPTIONS), (ProcessGroup, GROUP_OPTIONS)):
        assert set(options) == set(inspect.signature(constructor).parameters) - {"name", "settings"}


def test_every_property_has_a_description() -> None:
    built = schema.build()
    for name, definition in (("experiment", built), *built["$defs"].items()):
        for key, item in definition.get("properties", {}).items():
            assert "$ref" in item or item.get("description"), f"{name}.{key}"
    assert all(setting.description for setting in SETTINGS.values())


@given(experiments())
def test_schema_accepts_everything_that_the_loader_accepts(data: dict[str, Any]) -> None:
    Experiment.load_dict(data)
    VALIDATOR.validate(data)


@given(experiments())
def test_schema_accepts_dumps(data: dict[str, Any]) -> None:
    VALIDATOR.validate(json.loads(json.dumps(Experiment.load_dict(data).dump_dict())))


FULL: dict[str, Any] = {
    "name": "everything",
    "x-own": [{"any": "value"}],
    "secrets": {"token": "token.txt"},
    "port_range": [7000, 7010],
    "preamble_cmds": ["source env"],
    "start_dir": "work",
    "env": {"A": 1, "B": 1.5, "C": "c"},
    "images": {
        "registry.example:5000/team/rl": {
            "dockerfile": "docker/Dockerfile",
            "context_directories": [
                {"name": "app", "path": ".", "force_update": True},
                {"name": 1, "path": "~/lib"},
            ],
            "temp_directory": "/tmp/rl",
            "build_options": ["--build-arg", "A=1"],
        },
        "plain": None,
    },
    "processes": {
        "db": {
            "container_image": "db:1",
            "command": "db",
            "args": ["--port", 1],
            "env": {"D": ""},
            "start_dir": "/db",
            "preamble_cmds": "true",
            "binds": {"db": 7001, "more": None},
            "exposes": ["web"],
            "resource_request": {"cpu": 0.5, "memory": "1Gi"},
            "resource_limit": {"cpu": "500m", "mem": 1048576, "gpu": 1},
            "image_pull_policy": "if-not-present",
            "restart_policy": "on-failure:5",
            "termination_grace_period": "1m30s",
            "stop_signal": "SIGINT",
            "stop_command": ["pg_ctl", "stop"],
            "signal_group": True,
            "log_limit": "100Mi",
            "code": {"path": ".", "exclude": ["*.pt"]},
            "ready": {"http": ["db", "/"], "timeout": 0.5},
            "job": True,
            "volumes": [
                {"nfs": {"server": "s", "path": "/p", "mount_path": "/a", "name": "n"}},
                {
                    "host_path": {
                        "path": "/p",
                        "mount_path": "/b",
                        "type": "Directory",
                        "read_only": True,
                    }
                },
                {"pvc": {"claim": "c", "mount_path": "/c"}},
                {"empty_dir": {"mount_path": "/d", "memory": True, "size": "1Gi"}},
                {"shared_memory": None},
                {"secret": {"secret": "s", "mount_path": "/e", "files": ["a", "b"]}},
                {"config": {"config": "c", "mount_path": "/f", "files": {"a": "b"}}},
            ],
            "node_selector": {"example.org/zone": "a"},
            "tolerations": [
                {
                    "key": "k",
                    "operator": "Equal",
                    "value": "v",
                    "effect": "NoExecute",
                    "toleration_seconds": 1,
                },
                {"operator": "Exists"},
            ],
            "labels": {"team": "a"},
            "pod_yml": {"spec": {"any": ["thing"]}},
            "container_yml": {},
        },
        "workers": {
            "connects": "db",
            "starts_after": {"db": "started"},
            "job": {"backoff_limit": 1, "active_deadline": 2, "ttl": 3},
            "processes": {
                "one": {"cmd": "true", "ready": {"log": "up"}},
                "two": {"cmds": ["a", "b"]},
            },
        },
        "last": {
            "command": ["c"],
            "starts_after": ["db", "workers"],
            "connects": {"db": None},
            "env": None,
        },
    },
}


def test_every_key_is_accepted_by_both() -> None:
    Experiment.load_dict(FULL)
    VALIDATOR.validate(FULL)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_example_of_a_setting_is_accepted_by_both(name: str, tmp_path: Path) -> None:
    example = inspect.cleandoc(SETTINGS[name].example)
    file = tmp_path / "e.yml"
    file.write_text("name: e\nprocesses:\n  p:\n" + textwrap.indent(example, "    "))
    Experiment.load_file(file)
    VALIDATOR.validate(of_process(**yaml.safe_load(example)))


# A key whose value is null is not set.
@pytest.mark.parametrize("key", sorted({*PROCESS_OPTIONS, *SETTINGS}))
def test_null_is_accepted_by_both(key: str) -> None:
    for data in (
        of_process(**{key: None}),
        {"name": "e", "processes": {"g": {"processes": {"p": {key: None}}}}},
    ):
        Experiment.load_dict(data)
        VALIDATOR.validate(data)


@pytest.mark.parametrize(
    "data", [{"name": "e"}, {"name": "e", "processes": None}, of_process(), FULL], ids=len
)
def test_empty_descriptions_are_accepted_by_both(data: dict[str, Any]) -> None:
    Experiment.load_dict(data)
    VALIDATOR.validate(data)
    nothing = {"name": "e", "processes": {"a": None, "g": {"processes": {"b": None}}}}
    Experiment.load_dict(nothing)
    VALIDATOR.validate(nothing)


WRONG: list[Any] = [
    [],
    "text",
    {},
    {"processes": {}},
    {"name": "Bad_Name"},
    {"name": ""},
    {"name": "x" * 64},
    {"name": None},
    {"name": "e", "proceses": {}},
    {"name": "e", "processes": ["p"]},
    {"name": "e", "processes": {"P": {}}},
    {"name": "e", "processes": {"p": "command"}},
    {"name": "e", "processes": {"g": {"processes": {"G": {}}}}},
    {"name": "e", "processes": {"g": {"processes": {"p": {"processes": {}}}}}},
    {"name": "e", "processes": {"g": {"processes": {}, "command": "c"}}},
    {"name": "e", "port_range": 7000},
    {"name": "e", "port_range": [7000]},
    {"name": "e", "port_range": [0, 1]},
    {"name": "e", "port_range": [True, 7000]},
    {"name": "e", "port_range": ["7000", "8000"]},
    {"name": "e", "secrets": {"a/b": "c"}},
    {"name": "e", "secrets": {"..": "c"}},
    {"name": "e", "secrets": [""]},
    {"name": "e", "preamble_cmds": [" "]},
    {"name": "e", "start_dir": ""},
    {"name": "e", "start_dir": ["a"]},
    {"name": "e", "env": {"1A": "b"}},
    {"name": "e", "env": {"A": None}},
    {"name": "e", "env": ["A=b"]},
    {"name": "e", "images": ["rl"]},
    {"name": "e", "images": {"RL": {}}},
    {"name": "e", "images": {"rl:1": {}}},
    {"name": "e", "images": {"rl@sha256:0": {}}},
    {"name": "e", "images": {"a..b": {}}},
    {"name": "e", "images": {"-rl": {}}},
    {"name": "e", "images": {"rl": "Dockerfile"}},
    of_image(file="Dockerfile"),
    of_image(dockerfile=""),
    of_image(temp_directory=["t"]),
    of_image(build_options={"A": "1"}),
    of_image(context_directories={"app": "."}),
    of_image(context_directories=["app"]),
    of_image(context_directories=[{"name": "a"}]),
    of_image(context_directories=[{"path": "a"}]),
    of_image(context_directories=[{"name": None, "path": "a"}]),
    of_image(context_directories=[{"name": "", "path": "a"}]),
    of_image(context_directories=[{"name": "a/b", "path": "a"}]),
    of_image(context_directories=[{"name": "a\\b", "path": "a"}]),
    of_image(context_directories=[{"name": "..", "path": "a"}]),
    of_image(context_directories=[{"name": "a", "path": ""}]),
    of_image(context_directories=[{"name": "a", "path": "a", "force": True}]),
    of_image(context_directories=[{"name": "a", "path": "a", "force_update": "yes"}]),
    of_process(comand="c"),
    of_process(replicas=1, count=1),
    of_process(replicas=-1),
    of_process(command={"a": "b"}),
    of_process(command=[["nested"]]),
    of_process(args=[None]),
    of_process(cmd="a", cmds=["b"]),
    of_process(cmd="a", command="b"),
    of_process(cmds=["a"], args=["b"]),
    of_process(cmd=""),
    of_process(cmd=["a"]),
    of_process(cmds=["a", " "]),
    of_process(container_image=""),
    of_process(env={"": "b"}),
    of_process(env={"A": ["b"]}),
    of_process(binds="Bad"),
    of_process(binds={"a": 0}),
    of_process(binds={"a": 70000}),
    of_process(binds={"a": True}),
    of_process(binds={"a": "7000"}),
    of_process(binds=[{"a": 1}]),
    of_process(binds=7000),
    of_process(connects={"a": 1}),
    of_process(exposes={"a": -1}),
    of_process(resource_request={"gpu": 1}),
    of_process(resource_request={"cpu": "many"}),
    of_process(resource_request={"cpu": -1}),
    of_process(resource_limit={"memory": "1Gi", "mem": "1Gi"}),
    of_process(resource_limit={"gpu": True}),
    of_process(resource_limit={"gpu": -1}),
    of_process(resource_limit={"gpu": "1"}),
    of_process(image_pull_policy="Sometimes"),
    of_process(restart_policy="NEVER"),
    of_process(restart_policy="on-failure:x"),
    of_process(restart_policy=False),
    of_process(termination_grace_period=-1),
    of_process(termination_grace_period=1.5),
    of_process(termination_grace_period="30x"),
    of_process(stop_signal="KILL"),
    of_process(stop_signal="Int"),
    of_process(stop_signal=2),
    of_process(stop_command=[]),
    of_process(stop_command=" "),
    of_process(signal_group="group"),
    of_process(log_limit="much"),
    of_process(code=True),
    of_process(code={"exclude": ["*.pt"]}),
    of_process(ready={}),
    of_process(ready={"timeout": 1}),
    of_process(ready={"tcp": "a", "log": "b"}),
    of_process(ready={"tcp": "a", "timeout": 0}),
    of_process(ready={"tcp": "a", "timeout": True}),
    of_process(ready={"tcp": "a", "timeout": None}),
    of_process(ready={"http": ["a"]}),
    of_process(ready={"http": ["a", "b"]}),
    of_process(ready={"http": ["a", "/", "/"]}),
    of_process(ready={"command": []}),
    of_process(ready={"command": ""}),
    of_process(ready={"command": " "}),
    of_process(ready={"command": ["", "a"]}),
    of_process(ready={"udp": "a"}),
    of_process(ready="tcp"),
    of_process(starts_after="A"),
    of_process(starts_after={"a": "finished"}),
    of_process(starts_after={"a": None}),
    of_process(starts_after=[["a"]]),
    of_process(job="yes"),
    of_process(job={"tries": 1}),
    of_process(job={"ttl": -1}),
    of_process(volumes={"nfs": {}}),
    of_process(volumes=["nfs"]),
    volume(),
    volume(disk={}),
    volume(
        nfs={"server": "s", "path": "/p", "mount_path": "/m"},
        pvc={"claim": "c", "mount_path": "/m"},
    ),
    volume(nfs=None),
    volume(nfs={"server": "s", "path": "/p"}),
    volume(nfs={"server": "s", "path": "p", "mount_path": "/m"}),
    volume(nfs={"server": "", "path": "/p", "mount_path": "/m"}),
    volume(pvc={"claim": "c", "mount_path": "/m", "read_only": "yes"}),
    volume(pvc={"claim": "c", "mount_path": "/m", "read_only": None}),
    volume(pvc={"claim": "c", "mount_path": "/m", "name": "N"}),
    volume(host_path={"path": "/p", "mount_path": "/m", "type": "Folder"}),
    volume(empty_dir={"mount_path": "/m", "size": "big"}),
    volume(secret={"secret": "s", "mount_path": "/m", "files": {"a/b": "c"}}),
    volume(shared_memory={"mount_path": "/dev/shm"}),
    of_process(node_selector={"a b": "c"}),
    of_process(node_selector=["a"]),
    of_process(labels={"a": "b c"}),
    of_process(labels={"a": None}),
    of_process(tolerations={"key": "a"}),
    of_process(tolerations=[{}]),
    of_process(tolerations=[{"operator": "Equal", "value": "a"}]),
    of_process(tolerations=[{"key": "a", "operator": "Is"}]),
    of_process(tolerations=[{"key": "a", "effect": "Never"}]),
    of_process(tolerations=[{"key": "a", "seconds": 1}]),
    of_process(pod_yml=[]),
    of_process(container_yml="spec"),
]


@pytest.mark.parametrize("data", WRONG, ids=ascii)
def test_other_documents_are_refused_by_both(data: Any) -> None:
    with pytest.raises(SpecError):
        Experiment.load_dict(data)
    assert not VALIDATOR.is_valid(data)
