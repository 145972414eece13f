"""An experiment that is written and read again resolves to an equal plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from symphony import Experiment
from symphony.plan.resolve import resolve
from tests.unit.strategies import AWKWARD, SCHEME, WORDS, experiments, texts


def plan(experiment: Experiment) -> dict[str, Any]:
    return resolve(experiment, SCHEME).to_dict()


def through_file(experiment: Experiment, suffix: str) -> Experiment:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, f"experiment{suffix}")
        experiment.dump_file(path)
        return Experiment.load_file(path)


def with_text(text: str) -> Experiment:
    """Return an experiment with the text in every setting that can contain it."""
    experiment = Experiment(
        "e", env={"A": text}, preamble_cmds=[f"true {text}"], start_dir=f"x{text}"
    )
    process = experiment.new_process(
        "p", command=["c", text], args=[text, text], env={"name": text}
    )
    process.add_toleration(key="k", value=text).ready(command=["c", text])
    process.container_yml = {"env": [{"name": "A", "value": text}], text: {text: text}}
    experiment.new_process("shell", cmds=[f": {text}"])
    return experiment


@given(experiments())
def test_a_dumped_dictionary_loads_to_an_equal_plan(data: dict[str, Any]) -> None:
    experiment = Experiment.load_dict(data)
    dumped = experiment.dump_dict()
    again = Experiment.load_dict(dumped)
    assert plan(again) == plan(experiment)
    assert again.dump_dict() == dumped


@pytest.mark.parametrize("suffix", [".yml", ".json"])
@given(data=experiments())
def test_a_dumped_file_loads_to_an_equal_plan(suffix: str, data: dict[str, Any]) -> None:
    experiment = Experiment.load_dict(data)
    again = through_file(experiment, suffix)
    assert plan(again) == plan(experiment)
    assert again.dump_dict() == experiment.dump_dict()


@pytest.mark.parametrize("suffix", [".yml", ".json"])
@pytest.mark.parametrize("text", AWKWARD, ids=ascii)
def test_awkward_text_is_not_changed_by_a_file(suffix: str, text: str) -> None:
    experiment = with_text(text)
    assert plan(through_file(experiment, suffix)) == plan(experiment)


@given(texts)
def test_text_is_not_changed_by_yaml(text: str) -> None:
    experiment = with_text(text)
    assert plan(through_file(experiment, ".yml")) == plan(experiment)


@pytest.mark.parametrize("suffix", [".yml", ".json"])
@pytest.mark.parametrize("word", WORDS)
def test_a_key_of_the_file_form_may_be_a_name(suffix: str, word: str) -> None:
    experiment = Experiment(word)
    one = experiment.new_process(word, command="c", args=["010", "yes", "1e3"]).binds({word: 7100})
    one.resource_limit(cpu=2, gpu=1).termination_grace_period(3).set_env(
        word, "010"
    ).mount_shared_memory("1Gi")
    two = experiment.new_process("other", cmd="c").exposes({f"{word}-out": 7200}).connects(word)
    two.starts_after(word).node_selector(word, "010").mount_empty_dir("/m", memory=True, name=word)
    group = experiment.new_process_group("group").binds({f"{word}-g": None})
    group.new_process(f"{word}-in", command="c").binds({f"{word}-in": 7300})
    assert plan(through_file(experiment, suffix)) == plan(experiment)


READER = """
import json, sys
from symphony import Experiment
from symphony.plan.resolve import resolve
from tests.unit.strategies import SCHEME
for path in sys.argv[1:]:
    print(json.dumps(resolve(Experiment.load_file(path), SCHEME).to_dict()))
"""


@settings(max_examples=3, database=None)
@given(experiments())
def test_another_interpreter_resolves_an_equal_plan(data: dict[str, Any]) -> None:
    experiment = Experiment.load_dict(data)
    with tempfile.TemporaryDirectory() as directory:
        files = [f"{directory}/e.yml", f"{directory}/e.json"]
        for file in files:
            experiment.dump_file(file)
        done = subprocess.run(
            [sys.executable, "-c", READER, *files],
            cwd=Path(__file__).parents[3], env={**os.environ, "PYTHONHASHSEED": "1"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    expected = json.loads(json.dumps(plan(experiment)))
    assert [json.loads(line) for line in done.stdout.splitlines()] == [expected, expected]


def test_file_is_utf_8_and_contains_only_explicit_settings(tmp_path: Path) -> None:
    experiment = Experiment("e")
    experiment.new_process("p", command="é")
    experiment.dump_file(tmp_path / "e.yml")
    experiment.dump_file(tmp_path / "e.json")
    written = (tmp_path / "e.yml").read_bytes().decode()
    assert written == "name: e\nprocesses:\n  p:\n    command:\n      - é\n"
    data = json.loads((tmp_path / "e.json").read_bytes())
    assert data == {"name": "e", "processes": {"p": {"command": ["é"]}}}
