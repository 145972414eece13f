"""Importing process-compose files: the experiment, and what it leaves out."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from symphony import Experiment, SpecError
from symphony.importing import Imported, import_file


def imported(path: Path, text: str, **options: Any) -> Imported:
    """Import a file, and check that its result is a valid experiment."""
    (path / "process-compose.yaml").write_text(textwrap.dedent(text))
    result = import_file(path / "process-compose.yaml", name="e", **options)
    Experiment.load_dict(result.document)
    return result


def reasons(result: Imported) -> list[str]:
    """Return what the experiment leaves out, except for the container images."""
    omissions = result.omissions[:-1]
    return [f"{omission.where}: {omission.problem}" for omission in omissions]


@pytest.mark.parametrize(
    ("given", "process"),
    [
        ("command: a | b", {"cmd": "a | b"}),
        ("command: echo $$A ${B} $$$$", {"cmd": "echo $A ${B} $$"}),
        ("entrypoint: [a, b c]", {"command": ["a", "b c"]}),
        ("entrypoint: [a]\ncommand: b", {"cmd": "b"}),
        (
            "command: c\nworking_dir: d\nenvironment: [A=1, B=]",
            {"cmd": "c", "start_dir": "d", "env": {"A": "1", "B": ""}},
        ),
        ("command: c\nenv_file: [a.env]", {"cmd": "c", "env_file": ["a.env"]}),
        (
            "command: c\nreplicas: 2",
            {"replicas": 2, "cmd": "c"},
        ),
        (
            "command: serve $((80 + PC_REPLICA_NUM))\nreplicas: 2\n"
            "environment: ['N=${PC_REPLICA_NUM}']",
            {
                "replicas": 2,
                "cmd": "serve $((80 + PC_REPLICA_NUM))",
                "env": {"N": "${index}", "PC_REPLICA_NUM": "${index}"},
            },
        ),
        (
            "command: echo $$PC_PROC_NAME {{.PC_REPLICA_NUM}}",
            {
                "cmd": "echo $PC_PROC_NAME 0",
                "env": {"PC_REPLICA_NUM": "0", "PC_PROC_NAME": "p"},
            },
        ),
        ("command: c\nis_tty: true", {"cmd": "c", "tty": True}),
        ("command: c\nis_tty: false\nis_daemon: false\nx-more: {a: b}", {"cmd": "c"}),
        (
            "command: c\navailability: {restart: on_failure, backoff_seconds: 2, max_restarts: 5}",
            {
                "cmd": "c",
                "restart_policy": {"policy": "OnFailure", "max_restarts": 5, "backoff": 2},
            },
        ),
        (
            "command: c\nshutdown: {signal: 2, timeout_seconds: 5}",
            {"cmd": "c", "stop_signal": "INT", "termination_grace_period": 5},
        ),
        (
            "command: c\nshutdown: {command: 'kill $$PID', timeout_seconds: 5}",
            {"cmd": "c", "stop_command": "kill $PID", "termination_grace_period": 5},
        ),
        (
            "command: c\nreadiness_probe: {exec: {command: test -f up, working_dir: a b}, "
            "initial_delay_seconds: 20, period_seconds: 5, failure_threshold: 12}",
            {
                "cmd": "c",
                "ready": {"command": ["sh", "-c", "cd 'a b' && test -f up"], "timeout": 80},
            },
        ),
        (
            "command: c\nreplicas: 2\n"
            "readiness_probe: {http_get: {path: /up, port: '404{{.PC_REPLICA_NUM}}'}}",
            {
                "replicas": 2,
                "cmd": "c",
                "env": {"PC_REPLICA_NUM": "${index}"},
                "exposes": {"p": "404${index}"},
                "ready": {"http": ["p", "/up"], "timeout": 60},
            },
        ),
        ("command: c\nready_log_line: up", {"cmd": "c", "ready": {"log": "up", "timeout": 600}}),
        (
            "command: c\nliveness_probe: {http_get: {port: 80}, period_seconds: 5}",
            {"cmd": "c", "exposes": {"p": 80}, "healthy": {"http": ["p", "/"], "every": 5}},
        ),
        (
            "command: c\nliveness_probe: {exec: {command: check, working_dir: a b}, "
            "period_seconds: 0, timeout_seconds: 7, failure_threshold: 2}",
            {
                "cmd": "c",
                "healthy": {
                    "command": ["sh", "-c", "cd 'a b' && check"],
                    "failures": 2,
                    "timeout": 7,
                },
            },
        ),
        (
            "command: c\nreadiness_probe: {http_get: {port: 80}}\n"
            "liveness_probe: {http_get: {port: 80, path: /up}}",
            {
                "cmd": "c",
                "exposes": {"p": 80},
                "ready": {"http": ["p", "/"], "timeout": 60},
                "healthy": {"http": ["p", "/up"]},
            },
        ),
        (
            "command: c\nreadiness_probe: {http_get: {port: 80}}\n"
            "liveness_probe: {http_get: {port: 81}}",
            {
                "cmd": "c",
                "exposes": {"p": 80, "p-health": 81},
                "ready": {"http": ["p", "/"], "timeout": 60},
                "healthy": {"http": ["p-health", "/"]},
            },
        ),
    ],
)
def test_a_process_is_translated(tmp_path: Path, given: str, process: dict[str, Any]) -> None:
    lines = textwrap.indent(given, "    ")
    document = imported(tmp_path, f"processes:\n  p:\n{lines}").document
    assert document == {"name": "e", "processes": {"p": process}}


def test_conditions_of_processes(tmp_path: Path) -> None:
    result = imported(
        tmp_path,
        """
        processes:
          A_b: {command: a, ready_log_line: up}
          c:
            command: c
            depends_on:
              A_b: {condition: process_log_ready}
              d: {condition: process_completed_successfully}
              e: {condition: process_healthy}
              f: {}
              g: {condition: process_completed}
          d: {command: d}
          e: {command: e}
          f: {command: f}
          g: {command: g}
        """,
    )
    assert result.document["processes"]["c"]["starts_after"] == {
        "a-b": "ready",
        "d": "succeeded",
        "e": "ready",
        "f": "started",
        "g": "succeeded",
    }
    assert reasons(result) == ["processes.c.depends_on: g: no condition includes failures"]


def test_the_settings_of_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("LEVEL=info")
    result = imported(
        tmp_path,
        """
        version: "0.5"
        environment: {A: "${LEVEL}-${OTHER:-x}"}
        env_cmds: {DAY: "date +%u"}
        log_level: debug
        processes:
          tests: {command: tests, availability: {exit_on_end: true}}
          check: {command: check, availability: {restart: exit_on_failure}}
        """,
        directory=tmp_path / "out",
    )
    assert result.document == {
        "name": "e",
        "parameters": {"LEVEL": "info", "OTHER": "x"},
        "on_failure": "stop",
        "start_dir": "..",
        "env_file": "../.env",
        "env": {"A": "${LEVEL}-${OTHER}"},
        "preamble_cmds": ['export DAY="$(date +%u)"'],
        "ends_with": ["tests"],
        "processes": {"tests": {"cmd": "tests"}, "check": {"cmd": "check"}},
    }
    assert reasons(result) == [
        "processes.check.availability: the failure of any process stops the others, and not only "
        "of this one",
        "log_level: there is no equivalent",
    ]


def test_variables_and_templates(tmp_path: Path) -> None:
    result = imported(
        tmp_path,
        """
        vars: {VERSION: v1, UNUSED: x, MODE: global}
        processes:
          p:
            vars: {MODE: own}
            command: 'run {{.VERSION}} {{ .MODE }} {{ "{{.Text}}" }} $${VERSION} {{if .X}}a{{end}}'
        """,
    )
    assert result.document == {
        "name": "e",
        "parameters": {"VERSION": "v1"},
        "processes": {
            "p": {"cmd": "run ${VERSION} own {{.Text}} $${VERSION} {{if .X}}a{{end}}"},
        },
    }
    assert reasons(result) == [
        "processes.p.command: the template {{if .X}} is not replaced",
        "processes.p.command: the template {{end}} is not replaced",
    ]


def test_variables_are_not_replaced_if_the_file_disables_it(tmp_path: Path) -> None:
    document = imported(
        tmp_path,
        """
        disable_env_expansion: true
        processes: {p: {command: echo $$ $A, environment: ["B=$A"]}}
        """,
    ).document
    assert document["processes"]["p"] == {"cmd": "echo $$ $A", "env": {"B": "$A"}}


def test_another_shell_is_a_part_of_the_command(tmp_path: Path) -> None:
    text = "shell: {shell_command: python3, shell_argument: -m}\nprocesses: {p: {command: server}}"
    process = imported(tmp_path, text).document["processes"]["p"]
    assert process == {"command": ["python3", "-m", "server"]}


@pytest.mark.parametrize("key", ["disabled: true", "is_disabled: 'true'", "is_foreground: true"])
def test_a_parameter_switches_a_disabled_process_on(tmp_path: Path, key: str) -> None:
    text = f"processes: {{a: {{command: a}}, b-c: {{command: b, {key}}}}}"
    result = imported(tmp_path, text)
    assert result.document["parameters"] == {"run_b_c": "0"}
    assert "the process is switched off" in reasons(result)[0]
    names = [
        process.name
        for process in Experiment.load_dict(
            result.document, parameters={"run_b_c": 1}
        ).list_all_processes()
    ]
    assert names == ["a", "b-c-0"]


def test_files_are_merged(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "processes: {p: {command: base, environment: [A=1, B=1], is_tty: true}}"
    )
    (tmp_path / "process-compose.override.yaml").write_text(
        "processes: {p: {environment: [B=3]}, q: {command: q}}"
    )
    result = imported(
        tmp_path, "extends: base.yaml\nprocesses: {p: {command: own, environment: [A=2]}}"
    )
    assert result.document["processes"] == {
        "p": {"cmd": "own", "env": {"A": "2", "B": "3"}, "tty": True},
        "q": {"cmd": "q"},
    }
    assert reasons(result)[0].startswith("process-compose.override.yaml: its settings are merged")
    (tmp_path / "base.yaml").write_text("extends: process-compose.yaml")
    with pytest.raises(SpecError, match="the file extends itself"):
        imported(tmp_path, "extends: base.yaml\nprocesses: {}")


def test_what_has_no_equivalent_is_reported(tmp_path: Path) -> None:
    result = imported(
        tmp_path,
        """
        processes:
          p:
            command: c
            description: text
            is_daemon: true
            log_location: p.log
            namespace: n
            frobnicate: 1
            environment: A
            shutdown: {signal: 77}
            readiness_probe:
              success_threshold: 2
              timeout_seconds: 3
              http_get: {host: example.org, scheme: https, port: 80, status_code: 204}
            liveness_probe: {exec: {command: check}, initial_delay_seconds: 20}
        """,
    )
    assert reasons(result) == [
        "processes.p.environment: the value has an unexpected form",
        "processes.p.readiness_probe.success_threshold: one success is enough",
        "processes.p.readiness_probe.timeout_seconds: symphony sets the time limit of one test",
        "processes.p.readiness_probe.http_get.host: the test runs against the process itself",
        "processes.p.readiness_probe.http_get: the test is a GET request without headers",
        "processes.p.readiness_probe.http_get.status_code: the codes 200 to 399 are accepted",
        "processes.p.liveness_probe.initial_delay_seconds: the first test begins after "
        "period_seconds, or when the process is ready",
        "processes.p.description: there is no equivalent",
        "processes.p.is_daemon: a program that puts itself into the background is stopped when its "
        "parent exits",
        "processes.p.log_location: 'symphony logs' shows the output of every process",
        "processes.p.namespace: there is no equivalent",
        "processes.p.frobnicate: the key is not known",
        "processes.p.shutdown: the value has an unexpected form",
    ]
    assert all(omission.fix for omission in result.omissions)


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("process-compose.yaml", "processes: {a: 1}", "process 'a' is not a mapping"),
        ("process-compose.yaml", "processes: {a_b: {}, a-b: {}}", "process 'a-b' cannot be impor"),
        ("e.yml", "name: e\nprocesses: {p: {cmd: c}}", "already an experiment file"),
    ],
)
def test_a_file_that_cannot_be_imported(tmp_path: Path, name: str, text: str, error: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError, match=error):
        import_file(tmp_path / name)


def test_variables_whose_values_determine_the_result(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("N=3\nPOLICY=always\nPORT=8080\nON=true\nFILE=b.env")
    result = imported(
        tmp_path,
        """
        vars: {SIGNAL: 2}
        processes:
          a:
            command: run
            replicas: ${N}
            availability: {restart: "${POLICY}", max_restarts: "${N}"}
            shutdown: {signal: "{{.SIGNAL}}", timeout_seconds: "${N}"}
          b:
            command: run
            disabled: ${ON}
            is_tty: ${ON}
            env_file: ["${FILE}"]
            readiness_probe: {http_get: {port: "${PORT}"}, period_seconds: "${M:-50}"}
            depends_on: {a: {condition: "${C:-process_started}"}}
            shutdown: {command: stop $N, timeout_seconds: "${N}"}
        """,
    )
    assert result.document["parameters"] == {"run_b": "0", "PORT": "8080"}
    processes = result.document["processes"]
    assert processes["a"] == {
        "replicas": 3,
        "cmd": "run",
        "restart_policy": {"policy": "Always", "max_restarts": 3},
        "stop_signal": "INT",
        "termination_grace_period": 3,
    }
    assert processes["b"] == {
        "cmd": "run",
        "env_file": ["b.env"],
        "exposes": {"b": "${PORT}"},
        "ready": {"http": ["b", "/"], "timeout": 150},
        "replicas": "${run_b}",
        "tty": True,
        "starts_after": {"a": "started"},
        "stop_command": "stop $N",
        "termination_grace_period": 3,
    }
    fixed = "the value is the default of a variable, which no parameter changes"
    keys = ["a.availability", "a.replicas", "a.shutdown", "b.depends_on", "b.disabled"]
    keys += ["b.env_file", "b.is_tty", "b.readiness_probe", "b.shutdown"]
    assert {reason for reason in reasons(result) if reason.endswith(fixed)} == {
        f"processes.{key}: {fixed}" for key in keys
    }


def test_the_name_in_a_file_can_be_a_variable(tmp_path: Path) -> None:
    text = "name: ${NAME:-shop}\nprocesses: {p: {command: c}}"
    (tmp_path / "process-compose.yaml").write_text(text)
    assert import_file(tmp_path / "process-compose.yaml").document["name"] == "shop"
