"""Loading a document reports all its errors, and builds the valid parts of the experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symphony import Experiment, SpecError
from symphony.model.document import files
from symphony.model.document.load import load_experiment


def errors_of(document: Any, **parameters: object) -> list[tuple[str, str]]:
    """Return the path and the message of every error."""
    result = load_experiment(Experiment, document, parameters)
    return [(".".join(map(str, error.path)), str(error)) for error in result.errors]


def paths_of(document: Any) -> list[str]:
    return [path for path, _ in errors_of(document)]


def test_every_error_of_a_document_is_reported() -> None:
    document = {
        "name": "Bad",
        "procesess": {},
        "start_dir": "",
        "env": {"A": None},
        "images": {"rl:1": {}, "ok": {"dockerfile": ""}},
        "processes": {
            "P": {},
            "p": {
                "comand": "c",
                "cmds": [""],
                "start_dir": "",
                "binds": {"s": 0},
                "resource_limit": {"gpus": 1, "cpu": "many", "memory": "much"},
                "volumes": [{"nfs": {"server": "s"}}, {"disk": {}}, {}],
                "tolerations": [{"key": "a", "effect": "Bad"}, {"effect": "NoExecute"}],
                "node_selector": {"a b": "c", "d e": "f"},
                "starts_after": {"x": "done"},
                "job": {"tries": 1, "ttl": -1},
                "ready": {"tcp": "a", "timeout": 0},
            },
            "g": {"command": "c", "processes": {"m": {"restart_policy": "Always"}, "n": 1}},
            "q": {"count": -1},
            "x": {"cmd": "a", "command": "b"},
            "y": {"cmd": "a", "cmds": [""]},
        },
    }
    assert paths_of(document) == [
        "procesess",
        "name",
        "start_dir",
        "env.A",
        "images.rl:1",
        "images.ok.dockerfile",
        "processes.g.processes.n",
        "processes.q.count",
        "processes.P",
        "processes.p.comand",
        "processes.p.cmds",
        "processes.p.start_dir",
        "processes.p.binds",
        "processes.p.resource_limit.gpus",
        "processes.p.resource_limit.cpu",
        "processes.p.resource_limit.memory",
        "processes.p.volumes.0.nfs",
        "processes.p.volumes.1.disk",
        "processes.p.volumes.2",
        "processes.p.tolerations.0.effect",
        "processes.p.tolerations.1",
        "processes.p.node_selector.a b",
        "processes.p.node_selector.d e",
        "processes.p.starts_after.x",
        "processes.p.job.tries",
        "processes.p.job.ttl",
        "processes.p.ready.timeout",
        "processes.g.command",
        "processes.g.processes.m",
        "processes.x.cmd",
        "processes.y.cmds",
    ]


def test_the_first_error_is_raised() -> None:
    document = {"name": "e", "env": {"1A": ""}, "processes": {"p": {"comand": "c"}}}
    with pytest.raises(SpecError) as caught:
        Experiment.load_dict(document)
    assert caught.value.path == ("env", "1A")


def test_the_valid_parts_are_loaded() -> None:
    document = {
        "name": "e",
        "start_dir": "",
        "env": {"A": "1"},
        "processes": {"p": {"command": "c", "args": [None], "env": {"B": "2"}}, "q": 1},
    }
    experiment = load_experiment(Experiment, document).experiment
    assert experiment is not None
    assert experiment.env == {"A": "1"}
    assert [process.name for process in experiment.list_all_processes()] == ["p"]
    process = experiment.get_process("p")
    assert (process.command, process.args) == (["c"], None)
    assert process.settings.env == {"B": "2"}


@pytest.mark.parametrize("document", [[], {"name": "Bad"}, {"processes": {}}])
def test_there_is_no_experiment_without_a_name(document: Any) -> None:
    result = load_experiment(Experiment, document)
    assert result.experiment is None
    assert len(result.errors) == 1


def test_an_error_of_a_replicated_process_is_reported_once() -> None:
    document = {
        "name": "e",
        "processes": {
            "agent": {"count": 3, "comand": "c", "restart_policy": "Never?"},
            "team": {"count": 2, "processes": {"m": {"start_dir": ""}}},
        },
    }
    assert paths_of(document) == [
        "processes.agent.comand",
        "processes.agent.restart_policy",
        "processes.team.processes.m.start_dir",
    ]


def test_the_other_errors_of_a_process_with_an_invalid_number_of_copies_are_reported() -> None:
    document = {
        "name": "e",
        "processes": {
            "agent": {"replicas": -1, "comand": "c", "args": "${index}"},
            "team": {"processes": {"m": {"replicas": "x", "start_dir": ""}}},
        },
    }
    assert sorted(paths_of(document)) == [
        "processes.agent.comand",
        "processes.agent.replicas",
        "processes.team.processes.m.replicas",
        "processes.team.processes.m.start_dir",
    ]


def test_an_unknown_parameter_has_no_consequences() -> None:
    document = {
        "name": "e",
        "parameters": {"a": 1, "2b": 1, "index": 1},
        "env": {"${x}": "1"},
        "processes": {"p": {"args": ["${y}"], "count": "${z}", "start_dir": "${a}"}},
    }
    assert paths_of(document) == [
        "parameters.2b",
        "parameters.index",
        "env.${x}",
        "processes.p.args.0",
        "processes.p.count",
    ]


def test_a_parameter_that_is_not_declared_cannot_be_set() -> None:
    document = {"name": "e", "parameters": {"a": 1}, "processes": {"p": {"start_dir": ""}}}
    assert errors_of(document, b=1, c=2) == [
        ("parameters.b", "there is no parameter 'b'; parameters: a"),
        ("parameters.c", "there is no parameter 'c'; parameters: a"),
        ("processes.p.start_dir", "start_dir is empty"),
    ]


def test_every_error_of_a_file_has_its_position(tmp_path: Path) -> None:
    path = tmp_path / "e.yml"
    path.write_text("name: e\nprocesses:\n  p:\n    comand: c\n    start_dir: ''\n")
    result = files.load(Experiment, path)
    assert result.experiment is not None
    assert result.experiment.base_dir == tmp_path
    positions = [str(error).partition(": ")[0] for error in result.errors]
    assert positions == [f"{path}:4:5", f"{path}:5:5"]
