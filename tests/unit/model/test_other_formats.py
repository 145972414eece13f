"""The keys of other programs: the translation of their values, and the errors that contain it."""

from __future__ import annotations

from typing import Any

import pytest

from symphony import Experiment
from symphony.model.document.load import EXPERIMENT_KEYS, load_experiment
from symphony.model.document.other_formats.hints import experiment_hint, volume_hint
from symphony.model.document.other_formats.known_keys import PROCESS_KEYS, translate
from symphony.model.document.other_formats.translation import Untranslatable
from symphony.model.document.other_formats.values import translate_volume
from symphony.model.experiment.process import PROCESS_OPTIONS
from symphony.model.settings import validators
from symphony.model.settings.table import SETTINGS

KNOWN = {*PROCESS_OPTIONS, *SETTINGS, "replicas", "count"}
CONTEXT = "securityContext"
CASES: list[tuple[str, Any, dict[str, Any]]] = [
    ("image", "rl:1", {"container_image": "rl:1"}),
    ("build", ".", {"container_image": "web"}),
    ("entrypoint", "python 'a b.py' $x", {"command": ["python", "a b.py", "$x"]}),
    ("entrypoint", ["python", "a.py"], {"command": ["python", "a.py"]}),
    ("environment", {"A": 1, "B": True, "C": None}, {"env": {"A": "1", "B": "true"}}),
    ("environment", ["A=1=2", "B", "C="], {"env": {"A": "1=2", "C": ""}}),
    ("working_dir", "/app", {"start_dir": "/app"}),
    ("pull_policy", "missing", {"image_pull_policy": "IfNotPresent"}),
    ("depends_on", ["db", "my_cache"], {"starts_after": {"db": "ready", "my-cache": "ready"}}),
    (
        "depends_on",
        {
            "a": {"condition": "service_started"},
            "b": {"condition": "service_healthy"},
            "c": {"condition": "service_completed_successfully"},
            "d": None,
        },
        {"starts_after": {"a": "started", "b": "ready", "c": "succeeded", "d": "started"}},
    ),
    (
        "healthcheck",
        {"test": ["CMD", "redis-cli", "ping"], "interval": "2s", "timeout": "3s", "retries": 4},
        {"ready": {"command": ["redis-cli", "ping"], "timeout": 20}},
    ),
    (
        "healthcheck",
        {"test": "curl -f x || exit 1", "start_period": "1m30s"},
        {"ready": {"command": ["sh", "-c", "curl -f x || exit 1"], "timeout": 270}},
    ),
    ("healthcheck", {"disable": True}, {}),
    ("healthcheck", {"test": ["NONE"]}, {}),
    ("restart", "no", {"restart_policy": "Never"}),
    ("restart", False, {"restart_policy": "Never"}),
    ("restart", "unless-stopped", {"restart_policy": "Always"}),
    (
        "restart",
        "on-failure:3",
        {"restart_policy": {"policy": "OnFailure", "max_restarts": 3}},
    ),
    ("stop_grace_period", "1m500ms", {"termination_grace_period": 61}),
    ("scale", "${WORKERS}", {"replicas": "${WORKERS}"}),
    ("expose", ["6379", "53/udp"], {"binds": {"web": 6379}}),
    ("expose", ["6379", 8080], {"binds": {"web": 6379, "web-8080": 8080}}),
    ("ports", ["8480:80", "127.0.0.1:443:443/tcp"], {"exposes": {"web": 80, "web-443": 443}}),
    ("ports", [80, {"target": "90", "published": 91}], {"exposes": {"web": 80, "web-90": 90}}),
    ("ports", ["${PORT:-80}:8080"], {"exposes": {"web": 8080}}),
    ("cpus", "0.50", {"resource_limit": {"cpu": 0.5}}),
    ("mem_limit", "512m", {"resource_limit": {"memory": "512Mi"}}),
    ("mem_reservation", 1048576, {"resource_request": {"memory": 1048576}}),
    ("shm_size", "2gb", {"volumes": [{"shared_memory": {"size": "2Gi"}}]}),
    (
        "tmpfs",
        "/run:size=1m",
        {"volumes": [{"empty_dir": {"mount_path": "/run", "memory": True, "size": "1Mi"}}]},
    ),
    (
        "deploy",
        {
            "replicas": "3",
            "resources": {
                "limits": {"cpus": "2", "memory": "1G"},
                "reservations": {
                    "memory": "64M",
                    "devices": [{"driver": "nvidia", "count": 2, "capabilities": ["gpu"]}],
                },
            },
            "restart_policy": {"condition": "any"},
        },
        {
            "replicas": 3,
            "resource_limit": {"cpu": 2, "memory": "1Gi", "gpu": 2},
            "resource_request": {"memory": "64Mi"},
            "restart_policy": "Always",
        },
    ),
    ("gpus", [{"driver": "nvidia", "count": 2}], {"resource_limit": {"gpu": 2}}),
    ("user", "1000:100", {"container_yml": {CONTEXT: {"runAsUser": 1000, "runAsGroup": 100}}}),
    ("read_only", "true", {"container_yml": {CONTEXT: {"readOnlyRootFilesystem": True}}}),
    ("cap_add", ["SYS"], {"container_yml": {CONTEXT: {"capabilities": {"add": ["SYS"]}}}}),
    ("ports", ["80-81:90-91", "5/udp"], {"exposes": {"web": 90, "web-91": 91}}),
    ("user", "me:${GROUP}", {"container_yml": {CONTEXT: {"runAsGroup": "${GROUP}"}}}),
    ("gpus", "all", {"resource_limit": {"gpu": 1}}),
    (
        "extra_hosts",
        ["a:10.0.0.1", "b=[::1]", "c:host-gateway"],
        {
            "pod_yml": {
                "spec": {
                    "hostAliases": [
                        {"ip": "10.0.0.1", "hostnames": ["a"]},
                        {"ip": "::1", "hostnames": ["b"]},
                    ]
                }
            }
        },
    ),
    (
        "sysctls",
        ["a.b=1"],
        {"pod_yml": {"spec": {"securityContext": {"sysctls": [{"name": "a.b", "value": "1"}]}}}},
    ),
    ("annotations", {"a": 1}, {"pod_yml": {"metadata": {"annotations": {"a": "1"}}}}),
    ("platform", "linux/arm64/v8", {"node_selector": {"kubernetes.io/arch": "arm64"}}),
    ("platform", "wasi/wasm", {}),
    ("network_mode", "host", {"pod_yml": {"spec": {"hostNetwork": True}}}),
    ("network_mode", "service:db", {}),
    ("hostname", "db", {"pod_yml": {"spec": {"hostname": "db"}}}),
    ("networks", ["a"], {}),
    (
        "resources",
        {"limits": {"cpu": "2", "nvidia.com/gpu": 1}, "requests": {"memory": "1Gi"}},
        {"resource_limit": {"cpu": "2", "gpu": 1}, "resource_request": {"memory": "1Gi"}},
    ),
    (
        "resources",
        {"limits": {"google.com/tpu": 4}},
        {"resource_limit": {"gpu": 4, "gpu_resource": "google.com/tpu"}},
    ),
    ("nodeSelector", {"pool": "gpu"}, {"node_selector": {"pool": "gpu"}}),
    (
        "readinessProbe",
        {"httpGet": {"path": "/ok", "port": 80}, "initialDelaySeconds": 90},
        {"binds": {"web": 80}, "ready": {"http": ["web", "/ok"], "timeout": 120}},
    ),
    (
        "readiness_probe",
        {"exec": {"command": "test -f up"}, "period_seconds": 30},
        {"ready": {"command": ["sh", "-c", "test -f up"], "timeout": 90}},
    ),
    (
        "livenessProbe",
        {"httpGet": {"port": 80}, "periodSeconds": 5, "timeoutSeconds": 2, "failureThreshold": 4},
        {
            "binds": {"web": 80},
            "healthy": {"http": ["web", "/"], "every": 5, "failures": 4, "timeout": 2},
        },
    ),
    (
        "livenessProbe",
        {"tcpSocket": {"port": 80}},
        {"binds": {"web": 80}, "healthy": {"tcp": "web"}},
    ),
    (
        "liveness_probe",
        {"exec": {"command": "check"}, "period_seconds": 30},
        {"healthy": {"command": ["sh", "-c", "check"], "every": 30}},
    ),
    ("num_replicas", 4, {"replicas": 4}),
    ("max_retries", 2, {"job": {"backoff_limit": 2}}),
    (
        "resource",
        {"cpu": 2, "gpu": 0, "memMB": 64},
        {"resource_limit": {"memory": "64Mi", "cpu": 2}},
    ),
    ("port_map", {"http": 80}, {"binds": {"http": 80}}),
    ("availability", {"restart": "on_failure"}, {"restart_policy": "OnFailure"}),
    (
        "availability",
        {"restart": "always", "max_restarts": "3", "backoff_seconds": "2"},
        {"restart_policy": {"policy": "Always", "max_restarts": 3, "backoff": 2}},
    ),
    ("availability", {"restart": "always", "max_restarts": 0}, {"restart_policy": "Always"}),
    ("shutdown", {"timeout_seconds": 5}, {"termination_grace_period": 5}),
    (
        "shutdown",
        {"command": "stop it", "signal": 2},
        {"stop_command": "stop it", "termination_grace_period": 10},
    ),
    ("shutdown", {"signal": 2, "parent_only": "no"}, {"stop_signal": "INT", "signal_group": True}),
]


@pytest.mark.parametrize(("key", "value", "settings"), CASES)
def test_a_value_is_translated_to_settings(key: str, value: Any, settings: dict[str, Any]) -> None:
    translation = translate(key, value, "web")
    assert translation is not None
    assert translation.settings == settings
    assert settings or translation.notes
    if "replicas" not in settings:
        Experiment.load_dict({"name": "e", "processes": {"web": settings}})


@pytest.mark.parametrize(
    ("item", "volume"),
    [
        ("./data:/data", {"host_path": {"path": "./data", "mount_path": "/data"}}),
        ("/x:/y:ro,z", {"host_path": {"path": "/x", "mount_path": "/y", "read_only": True}}),
        ("my_data:/data", {"pvc": {"claim": "my-data", "mount_path": "/data"}}),
        ("/data", {"empty_dir": {"mount_path": "/data"}}),
        ({"type": "tmpfs", "target": "/t"}, {"empty_dir": {"mount_path": "/t", "memory": True}}),
        (
            {"type": "bind", "source": "/x", "target": "/y", "read_only": "true"},
            {"host_path": {"path": "/x", "mount_path": "/y", "read_only": True}},
        ),
    ],
)
def test_a_volume_is_translated(item: Any, volume: dict[str, Any]) -> None:
    assert translate_volume(item) == volume


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("depends_on", 5),
        ("environment", "A=1"),
        ("healthcheck", {}),
        ("healthcheck", {"test": ["CMD"]}),
        ("healthcheck", {"test": "x", "interval": "soon"}),
        ("restart", 5),
        ("ports", "80"),
        ("ports", ["90-80"]),
        ("mem_limit", "much"),
        ("resources", {"limits": {"example.com/fpga": 1}}),
        ("gpus", "many"),
        ("livenessProbe", {"grpc": {"port": 80}}),
        ("livenessProbe", {"httpGet": {"port": "web"}}),
    ],
)
def test_a_value_of_another_form_is_not_translated(key: str, value: Any) -> None:
    with pytest.raises(Untranslatable):
        translate(key, value, "web")
    (error,) = load_experiment(Experiment, {"name": "e", "processes": {"web": {key: value}}}).errors
    assert f"has the unknown key '{key}'; write for example {PROCESS_KEYS[key].example}" in str(
        error
    )


def test_no_key_of_symphony_is_in_the_table() -> None:
    assert KNOWN.isdisjoint(PROCESS_KEYS)
    for name, key in PROCESS_KEYS.items():
        assert not key.example or key.example.partition(":")[0] in KNOWN, name


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("depends_on", ["db"], "write starts_after: {db: ready}"),
        ("image", "shop:1", "write container_image: shop:1"),
        ("deploy", {"replicas": 3}, "write replicas: 3"),
        ("environment", {"A": "x y", "B": "1"}, 'write env: {A: "x y", B: "1"}'),
        ("environment", {"A": "x" * 200}, "write for example env: {LEVEL: info}"),
        ("environment", {"A": "\x1b[1m"}, 'write env: {A: "\\u001b[1m"}'),
        ("cwd", "/app", "write start_dir: /app"),
        ("run", "python a.py", 'write cmd: "python a.py"'),
        ("instances", 4, "write replicas: 4"),
        ("needs", "db", "write starts_after: {db: ready}"),
        ("autorestart", "unexpected", "write restart_policy: OnFailure"),
        ("memory", "2Gi", 'write resource_limit: {memory: "2Gi"}'),
        ("memory", "2g", 'write resource_limit: {memory: "2Gi"}'),
        ("port", 8000, "write exposes: {web: 8000}"),
        ("health", "/up", "write for example ready: {command: [check.sh], timeout: 30}"),
        ("host", "0.0.0.0", "symphony chooses the address of each service: remove it"),
        ("stdin_open", True, "a process with tty: true reads from its terminal: set tty: true"),
        (
            "build",
            "x",
            "write container_image: web, and images: {web: {context_directories: "
            "[{name: app, path: .}]}} at the top level",
        ),
    ],
)
def test_the_error_for_a_key_contains_its_translation(key: str, value: Any, hint: str) -> None:
    document = {"name": "e", "processes": {"web": {key: value, "replicas": 2}}}
    (error,) = load_experiment(Experiment, document).errors
    assert str(error) == f"process 'web-0' has the unknown key '{key}'; {hint}"
    assert error.path == ("processes", "web", key)


def test_a_group_gets_only_hints_with_its_own_keys() -> None:
    group = {"image": "x", "environment": {"A": "b"}, "processes": {"p": {}}}
    errors = load_experiment(Experiment, {"name": "e", "processes": {"g": group}}).errors
    assert [str(error).partition("; ")[2] for error in errors] == [
        "did you mean 'image_pull_policy'?",
        "write env: {A: b}",
    ]


def test_hints_for_keys_at_the_top_level() -> None:
    document = {"name": "e", "services": {}, "defaults": {"env": {}}, "frobnicate": 1}
    hints = [
        str(error).partition("; ")[2] for error in load_experiment(Experiment, document).errors
    ]
    assert hints[0].startswith("the file is a compose file: run 'symphony import FILE'")
    assert hints[1] == "write x-defaults: &defaults, and <<: *defaults in each process"
    assert hints[2].startswith("known keys: ")
    assert not any(experiment_hint(key) for key in EXPERIMENT_KEYS)


def test_a_volume_of_compose_has_a_hint() -> None:
    document = {"name": "e", "processes": {"p": {"volumes": ["./d:/data:ro", {}]}}}
    first, second = load_experiment(Experiment, document).errors
    assert str(first).endswith(
        "not './d:/data:ro'; write {host_path: {path: /path/to/d, mount_path: /data, "
        "read_only: true}}"
    )
    assert str(second).endswith("not {}")
    assert volume_hint("relative:path") == ""


def test_other_unknown_keys_are_not_affected() -> None:
    assert str(validators.unknown_key("comand", ["command"], "x")).endswith(
        "did you mean 'command'?"
    )
