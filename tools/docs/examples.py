"""Examples of all settings. Together, the examples form one valid experiment."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from symphony.model import Experiment
from symphony.model.settings.table import SETTINGS as TABLE

WHOLE = """
name: rl
secrets: {token: token.txt}
parameters: {agents: 4}
processes:
  learner:
    container_image: rl:1
    command: [python, learner.py]
    binds: replay
    exposes: {tensorboard: 6006}
    resource_limit: {gpu: 1, memory: 8Gi}
    ready: {tcp: replay}
  agents:
    starts_after: {learner: ready}
    node_selector: {pool: cheap}
    processes:
      agent:
        replicas: ${agents}
        container_image: rl:1
        cmd: python agent.py --seed ${index}
        connects: replay
"""

IMAGES = """
images:
  registry.example/rl:
    dockerfile: docker/Dockerfile
    context_directories:
    - {name: app, path: .}
    - {name: lib, path: ~/lib}
    build_options: [--build-arg, "CUDA=12.4"]
"""

SETTINGS = {name: inspect.cleandoc(setting.example) for name, setting in TABLE.items()}


@contextmanager
def experiment() -> Iterator[Experiment]:
    """Yield an experiment with a process for each setting.

    The experiment also contains the processes and files that the settings refer to. Its services
    have no fixed ports, because such ports could be in use on the machine.
    """
    with TemporaryDirectory(prefix="symphony-docs-") as name:
        directory = Path(name)
        for file in ("common.env", "nginx.conf.in", "settings.yml", "token.txt", "train.env"):
            (directory / file).write_text("")
        path = directory / "experiment.yml"
        path.write_text(json.dumps(_experiment()), encoding="utf-8")
        yield Experiment.load_file(path)


def _experiment() -> dict[str, Any]:
    members: dict[str, dict[str, Any]] = {"server": {"binds": "store"}, "loader": {}}
    members.update((f"of-{key.replace('_', '-')}", _without_ports(body(key))) for key in SETTINGS)
    usual = {"container_image": "any:1", "command": "true"}
    processes = {name: {**usual, **given} for name, given in members.items()}
    images = yaml.safe_load(IMAGES)
    return {"name": "parity", "secrets": {"token": "token.txt"}, **images, "processes": processes}


def body(key: str) -> dict[str, Any]:
    """Return the parsed example for a setting: some of a process's keys, with their values."""
    given: dict[str, Any] = yaml.safe_load(SETTINGS[key])
    return given


def _without_ports(given: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if key == "exposes" else value for key, value in given.items()}
