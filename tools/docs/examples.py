"""Examples of all settings. Together, the examples form one valid experiment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from symphony.model import Experiment

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

SETTINGS = {
    "env": "env: {SEED: 7, DEBUG: true}",
    "env_file": "env_file: [common.env, train.env]     # later files take precedence",
    "configs": "configs: {nginx.conf: nginx.conf.in}     # or a path, or a list of paths",
    "code": "code: {path: ., exclude: ['*.ckpt', /runs]}     # or a directory, or false",
    "env_secrets": "env_secrets: {API_TOKEN: token}     # token is a secret of the experiment",
    "binds": "binds: [replay, parameters]           # or a name, or {replay: 7100}",
    "connects": "connects: [store]",
    "exposes": "exposes: {tensorboard: 6006}          # or a name, or a list of names",
    "encrypted": "binds: private\nencrypted: private",
    "rank_of": "rank_of: train",
    "replicated": "binds: inference\nreplicated: inference",
    "per_pod": "rank_of: large\nper_pod: 1",
    "resource_request": "resource_request: {cpu: 0.5, memory: 2Gi}",
    "resource_limit": "resource_limit: {cpu: 4, memory: 8Gi, gpu: 1, gpu_resource: amd.com/gpu}",
    "image_pull_policy": "image_pull_policy: Always",
    "restart_policy": "restart_policy: OnFailure",
    "termination_grace_period": "termination_grace_period: 120",
    "stop_signal": "stop_signal: INT",
    "stop_command": "stop_command: [pg_ctl, stop, -m, fast]     # or a shell line",
    "signal_group": "signal_group: true",
    "log_limit": "log_limit: 100Mi",
    "tty": "tty: true",
    "ready": "binds: web\nready: {http: [web, /health], timeout: 30}",
    "starts_after": "starts_after: {server: ready, loader: succeeded}",
    "job": "job: {backoff_limit: 3, active_deadline: 7200, ttl: 600}     # or true",
    "volumes": """
volumes:
- nfs: {server: nas.example, path: /exports/data, mount_path: /data}
- host_path: {path: /scratch, mount_path: /scratch, type: Directory, read_only: true}
- pvc: {claim: results, mount_path: /results}
- empty_dir: {mount_path: /cache, size: 20Gi}
- shared_memory: {size: 8Gi}
- secret: {secret: keys, mount_path: /keys, files: token.txt}
- config: {config: settings, mount_path: /settings, files: {settings.yml: settings.yml}}
- git_repo: {repository: "https://git.example/team/code", revision: main, mount_path: /code}
""",
    "node_selector": "node_selector: {gpu-kind: a100}",
    "tolerations": """
tolerations:
- {key: reserved, operator: Equal, value: team-a, effect: NoSchedule}
""",
    "spread": "spread: true     # or a label of nodes, such as topology.kubernetes.io/zone",
    "together": "together: topology.kubernetes.io/zone     # or true for one node",
    "topology_spread": """
topology_spread:
- {key: topology.kubernetes.io/zone, max_skew: 1, when_unsatisfiable: ScheduleAnyway}
""",
    "priority_class": "priority_class: high",
    "queue": "queue: team-a",
    "together_or_not": "rank_of: train\ntogether_or_not: 5m     # or true for 60 seconds",
    "jobset": "rank_of: set\njobset: true",
    "labels": "labels: {team: vision}",
    "pod_yml": "pod_yml: {spec: {runtimeClassName: nvidia}}",
    "container_yml": "container_yml: {securityContext: {runAsUser: 1000}}",
}


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
