"""Importing compose files and Procfiles: the experiment, and what it leaves out."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from symphony import Experiment, NotFound, SpecError
from symphony.importing import Imported, import_file


def imported(path: Path, text: str, **options: Any) -> Imported:
    """Import a file, and check that its result is a valid experiment."""
    path.joinpath("compose.yml").write_text(textwrap.dedent(text))
    result = import_file(path / "compose.yml", **options)
    Experiment.load_dict(result.document)
    return result


def process_of(path: Path, service: str, *, name: str = "p") -> dict[str, Any]:
    """Return the process for a service, which is written as the lines of a mapping."""
    lines = textwrap.indent(textwrap.dedent(service), "    ")
    document = imported(path, f"services:\n  {name}:\n{lines}").document
    process: dict[str, Any] = document["processes"][name]
    return process


def reasons(result: Imported) -> list[str]:
    return [f"{omission.where}: {omission.problem}" for omission in result.omissions]


@pytest.mark.parametrize(
    ("service", "process"),
    [
        ("command: python3 a.py 'b c' $$X", {"command": ["python3", "a.py", "b c", "$X"]}),
        ("command: [a, 1, yes]", {"command": ["a", "1", "yes"]}),
        ("entrypoint: a b\ncommand: c", {"command": ["a", "b"], "args": ["c"]}),
        ("image: a/redis:7", {"container_image": "a/redis:7", "command": ["redis-server"]}),
        ("image: x", {"container_image": "x"}),
        ("command: c\nrestart: no", {"command": ["c"], "restart_policy": "Never"}),
        (
            "command: c\nenvironment: [A=yes, B=010, C]",
            {"command": ["c"], "env": {"A": "yes", "B": "010"}},
        ),
        (
            "command: c\ndeploy: {replicas: 2}\nports: ['80:80']",
            {"replicas": 2, "command": ["c"], "exposes": {"p-${index}": None}},
        ),
        ("command: c\nenv_file: a.env", {"command": ["c"], "env_file": "a.env"}),
        (
            "command: c\nenv_file: [a.env, {path: no.env, required: false}, {path: b.env}]",
            {"command": ["c"], "env_file": ["a.env", "b.env"]},
        ),
        ("command: c\nworking_dir: /w", {"command": ["c"], "start_dir": "/w"}),
        ("command: c\nstop_signal: SIGINT", {"command": ["c"], "stop_signal": "INT"}),
        ("command: c\nstop_signal: SIGRTMIN+3", {"command": ["c"]}),
        ("command: c\nenvironment: {1A: b}", {"command": ["c"]}),
        ("command: c\ndepends_on: [nowhere]", {"command": ["c"]}),
        ("command: c\nx-more: {a: b}", {"command": ["c"]}),
    ],
)
def test_a_service_becomes_a_process(tmp_path: Path, service: str, process: dict[str, Any]) -> None:
    assert process_of(tmp_path, service) == process


def test_directories_of_this_machine_become_start_directories(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "app.py").touch()
    result = imported(
        tmp_path,
        """
        services:
          here: {command: c, working_dir: /app, volumes: [".:/app"]}
          below: {command: c, working_dir: /app/src, volumes: ["./lib:/app:ro"]}
          built:
            command: c
            image: registry.example/web:2
            build: {context: web, dockerfile: ../Dockerfile, args: {A: 1}, target: t}
        """,
    )
    processes = result.document["processes"]
    assert "start_dir" not in processes["here"]
    assert processes["below"]["start_dir"] == "lib/src"
    mount = {"path": f"{tmp_path}/lib", "mount_path": "/app", "read_only": True}
    assert processes["below"]["volumes"] == [{"host_path": mount}]
    assert processes["built"] == {
        "container_image": "registry.example/web",
        "command": ["c"],
        "start_dir": "web",
    }
    assert result.document["images"] == {
        "registry.example/web": {
            "dockerfile": "Dockerfile",
            "context_directories": [{"name": "app.py", "path": "web/app.py"}],
            "build_options": ["--build-arg", "A=1", "--target", "t"],
        }
    }


def test_relative_paths_are_relative_to_the_directory_of_the_result(tmp_path: Path) -> None:
    text = "services: {p: {command: c, env_file: a.env}}\nsecrets: {t: {file: ./t.txt}}"
    document = imported(tmp_path, text, directory=tmp_path / "out").document
    assert document["secrets"] == {"t": "../t.txt"}
    expected = {"command": ["c"], "start_dir": "..", "env_file": "../a.env"}
    assert document["processes"]["p"] == expected


def test_host_names_become_variables(tmp_path: Path) -> None:
    document = imported(
        tmp_path,
        """
        services:
          web:
            command: serve --db my_db:5432 -h cache --name cache
            environment:
              DB: "postgres://me:pa$$s@my_db:5432/x?a=`b`"
              CACHE_HOST: cache
              CACHES: cache:6379,cache:1
              URL: http://api/v1
              NOT: mycache:6379 cache
          my_db: {command: postgres}
          cache: {image: "redis:7"}
          api: {command: api, expose: ["80"], scale: "2"}
        """,
    ).document
    web = document["processes"]["web"]
    assert web["cmd"] == (
        'exec serve --db "${SYMPH_MY_DB_ADDR}" -h "${SYMPH_CACHE_HOST}" --name cache'
    )
    assert web["preamble_cmds"] == [
        r'export DB="postgres://me:pa\$s@${SYMPH_MY_DB_ADDR}/x?a=\`b\`"',
        'export CACHE_HOST="${SYMPH_CACHE_HOST}"',
        'export CACHES="${SYMPH_CACHE_ADDR},${SYMPH_CACHE_HOST}:1"',
        'export URL="http://${SYMPH_API_0_HOST}/v1"',
    ]
    assert web["env"] == {"NOT": "mycache:6379 cache"}
    assert web["connects"] == ["my-db", "cache", "api-0"]
    processes = document["processes"]
    assert processes["my-db"] == {"command": ["postgres"], "binds": {"my-db": 5432}}
    assert processes["cache"]["binds"] == {"cache": 6379}
    assert processes["api"]["binds"] == {"api-${index}": None}


def test_two_services_do_not_have_one_port(tmp_path: Path) -> None:
    text = "services: {a: {ports: ['1:80'], expose: [80]}, b: {ports: ['2:80', '81']}}"
    result = imported(tmp_path, text)
    processes = result.document["processes"]
    assert processes["a"] == {"exposes": {"a": 80}, "binds": {"a": 80}}
    assert processes["b"] == {"exposes": {"b": None, "b-81": 81}}
    omissions = {str(omission) for omission in result.omissions}
    fix = "let the program listen on $SYMPH_B_PORT"
    assert f"services.b.ports: port 80 is that of service 'a'; {fix}" in omissions


@pytest.mark.parametrize(
    ("command", "words", "parameters"),
    [
        ("c $A ${B}", ["c", "${A}", "${B}"], {"A": "", "B": ""}),
        ("c ${A:-x} ${A:-y} ${B?no}", ["c", "${A}", "${A:-y}", "${B}"], {"A": "x", "B": None}),
        ("c ${FROM_FILE:-x}", ["c", "${FROM_FILE}"], {"FROM_FILE": "file"}),
        ("c $$A $${B}", ["c", "$A", "${B}"], None),
        ("c $${b.c}", ["c", "$${b.c}"], None),
        ("c $A $${B}", ["c", "${A}", "$${B}"], {"A": ""}),
        ("c ${A:+x}", ["c"], None),
    ],
)
def test_variables_become_parameters(
    tmp_path: Path, command: str, words: list[str], parameters: dict[str, Any] | None
) -> None:
    (tmp_path / ".env").write_text("FROM_FILE=file\nUNUSED=1")
    (tmp_path / "compose.yml").write_text(f"services: {{p: {{command: '{command}'}}}}")
    document = import_file(tmp_path / "compose.yml").document
    assert document["processes"]["p"]["command"] == words
    assert document.get("parameters") == parameters


def test_omissions_have_a_place_a_reason_and_a_fix(tmp_path: Path) -> None:
    (tmp_path / "compose.override.yml").touch()
    result = imported(
        tmp_path,
        """
        version: "3"
        include: [a.yml]
        secrets: {t: {environment: T}}
        services:
          p:
            image: x
            ports: ["8080:80"]
            healthcheck: {test: [X]}
            frobnicate: 1
            labels: [a=b]
            volumes: ["data:/data", "bad"]
            environment: {1A: b}
            secrets: [t]
        """,
    )
    assert reasons(result) == [
        "include: there is no equivalent",
        "secrets.t: only a file is supported",
        "services.p.ports: the port is 80, as in the container, and not 8080",
        "services.p.healthcheck: the value has an unexpected form",
        "services.p.frobnicate: the key is not known",
        "services.p: the command is that of the image, which only Kubernetes knows",
        "services.p.volumes: symphony does not create volume 'data'",
        "services.p.volumes: 'bad' has an unexpected form",
        "services.p.labels: labels of compose often configure other programs",
        "services.p.secrets: the file is not /run/secrets/t",
        "compose.override.yml: the file was not read",
        "processes.p.env.1A: variable name '1A' is not valid: use letters, digits, '_', '-' and "
        "'.', and do not begin with a digit",
    ]
    assert all(omission.fix for omission in result.omissions)


@pytest.mark.parametrize(
    ("text", "options", "name"),
    [
        ("name: My_Shop\nservices: {p: {command: c}}", {}, "my-shop"),
        ("name: shop\nservices: {p: {command: c}}", {"name": "other"}, "other"),
        ("services: {p: {command: c}}", {}, "project-1"),
    ],
)
def test_the_name_of_the_experiment(
    tmp_path: Path, text: str, options: dict[str, Any], name: str
) -> None:
    directory = tmp_path / "Project_1"
    directory.mkdir()
    assert imported(directory, text, **options).document["name"] == name


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("compose.yml", "a: b", "has no services"),
        ("compose.yml", "services: [a]", "has no services"),
        ("compose.yml", "services: {a: 1}", "service 'a' is not a mapping"),
        ("compose.yml", "services: {a_b: {}, a-b: {}}", "service 'a-b' cannot be imported"),
        ("compose.yml", "services: {a: [}", "compose.yml:1:"),
        ("Procfile", "# nothing", "no line NAME: COMMAND"),
        ("Procfile", "a: b\na: c", "Procfile:2: there are two processes with the name 'a'"),
        ("file.txt", "", "cannot be imported; give a compose file"),
    ],
)
def test_a_file_that_cannot_be_imported(tmp_path: Path, name: str, text: str, error: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError, match=error):
        import_file(tmp_path / name)
    with pytest.raises(NotFound):
        import_file(tmp_path / "missing" / "compose.yml")


def test_a_procfile(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("LEVEL=info")
    lines = [
        "# all",
        "web: ./web",
        "",
        "my_api:  node -p ${PORT}|cat",
        "worker: echo $PORTS",
        "bad",
    ]
    (tmp_path / "Procfile.dev").write_text("\n".join(lines))
    outcome = import_file(tmp_path / "Procfile.dev", name="shop")
    assert outcome.document == {
        "name": "shop",
        "env_file": ".env",
        "processes": {
            "web": {
                "preamble_cmds": "export PORT=$SYMPH_WEB_PORT",
                "cmd": "./web",
                "exposes": {"web": 5000},
            },
            "my-api": {
                "preamble_cmds": "export PORT=$SYMPH_MY_API_PORT",
                "cmd": "node -p ${PORT}|cat",
                "exposes": {"my-api": 5100},
            },
            "worker": {"cmd": "echo $PORTS"},
        },
    }
    assert reasons(outcome)[0] == "line 6: the line is not NAME: COMMAND"
    (tmp_path / ".env").write_text("PORT=8000")
    web = import_file(tmp_path / "Procfile.dev").document["processes"]["web"]
    assert web["exposes"] == {"web": 8000}
