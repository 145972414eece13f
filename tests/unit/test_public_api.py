"""The public names, the errors, and that imports are delayed until a name is used."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import symphony

PUBLIC = [
    *("Address", "AddressBook", "AlreadyExists", "BackendError", "Cluster", "Endpoint"),
    *("EventKind", "ExperimentEvent"),
    *("ExecResult", "Experiment", "ExperimentStatus", "ExperimentUsage"),
    *("LaunchFailed", "LaunchIncomplete"),
    *("LogLine", "Manifest"),
    *("NotFound", "Plan", "PluginError", "Process", "ProcessGroup", "ProcessStatus"),
    *("ProcessUsage", "SpecError"),
    *("State", "SymphonyConfig", "SymphonyError", "Unreachable", "Unsupported", "address"),
]
# The names of backends and tools, and the public modules that define them.
DEFINED_ELSEWHERE = {
    "DockerBuilder": "symphony.addons",
    "GKEDispatcher": "symphony.kube",
    "KubeCluster": "symphony.kube",
    "LocalCluster": "symphony.local",
    "SymphonyParser": "symphony.commandline",
    "TmuxCluster": "symphony.tmux",
    "clean_images": "symphony.addons",
}


def python(program: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_the_public_names() -> None:
    assert sorted(symphony.__all__) == sorted(PUBLIC)
    assert len(set(symphony.__all__)) == len(symphony.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_resolves_and_is_documented(name: str) -> None:
    found = getattr(symphony, name)
    assert found.__name__ == name
    assert found.__doc__
    assert found.__module__.startswith("symphony.")
    assert name in dir(symphony)


@pytest.mark.parametrize(("name", "module"), DEFINED_ELSEWHERE.items())
def test_a_name_of_another_module_resolves(name: str, module: str) -> None:
    if name == "TmuxCluster":
        pytest.importorskip("libtmux")
    found = getattr(symphony, name)
    assert found is getattr(importlib.import_module(module), name)
    assert name in dir(symphony)


@pytest.mark.parametrize("module", ["symphony", "symphony.local", "symphony.tmux"])
def test_type_checkers_see_every_name(module: str) -> None:
    package = importlib.import_module(module)
    stub = Path(package.__file__ or "").with_suffix(".pyi")
    source = stub if stub.exists() else Path(package.__file__ or "")
    declared = {
        alias.name
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    names = {*package.__all__, *package._MODULES}
    assert names <= declared
    assert declared - names <= {"annotations", "TYPE_CHECKING", "Any", "import_when_used"}


def test_unknown_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'symphony' has no attribute 'Clusters'"):
        getattr(symphony, "Clusters")  # noqa: B009


def test_star_import() -> None:
    names: dict[str, object] = {}
    exec("from symphony import *", names)
    assert set(PUBLIC) <= set(names)
    assert set(DEFINED_ELSEWHERE).isdisjoint(names)


FOREIGN = """
import json, sys
before = set(sys.modules)
{statement}
tops = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(json.dumps(sorted(tops - set(sys.stdlib_module_names))))
"""


@pytest.mark.parametrize(
    "statement",
    [
        "import symphony",
        "from symphony import Experiment, Process, ProcessGroup, SpecError, address",
        "import symphony; symphony.Experiment('e').new_process('p', command='c')",
        "import symphony.plan.resolve",
        "from symphony import Cluster, ExperimentStatus, Manifest",
    ],
)
def test_the_core_imports_only_the_standard_library(statement: str) -> None:
    assert python(FOREIGN.format(statement=statement)) == ["symphony"]


def test_import_symphony_imports_only_the_helper_for_its_names() -> None:
    loaded = (
        "import symphony, sys, json;"
        "print(json.dumps([name for name in sys.modules if name.startswith('symphony.')]))"
    )
    assert python(loaded) == ["symphony.support", "symphony.support.lazy_imports"]


def test_opening_a_backend_imports_no_other() -> None:
    program = (
        "import symphony, sys, json; symphony.Cluster.new('local');"
        "names = [name for name in sys.modules if name.startswith('symphony_')];"
        "print(json.dumps([name.partition('.')[0] for name in names]))"
    )
    assert set(python(program)) == {"symphony_local"}


ERRORS = {
    "SpecError": {"SymphonyError", "ValueError"},
    "PluginError": {"SymphonyError"},
    "NotFound": {"SymphonyError"},
    "AlreadyExists": {"SymphonyError"},
    "Unsupported": {"SymphonyError"},
    "BackendError": {"SymphonyError"},
    "LaunchFailed": {"BackendError"},
    "LaunchIncomplete": {"LaunchFailed"},
    "Unreachable": {"BackendError"},
}


@pytest.mark.parametrize(("name", "bases"), ERRORS.items())
def test_base_classes_of_errors(name: str, bases: set[str]) -> None:
    assert {base.__name__ for base in getattr(symphony, name).__bases__} == bases
