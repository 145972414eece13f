"""Importing compose files and Procfiles: the experiment, and what it leaves out."""

from __future__ import annotations

import json
import textwrap
import time
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
        ("command: python3 a.py 'b c' $$X", {"args": ["python3", "a.py", "b c", "$X"]}),
        ("command: [a, 1, yes]", {"args": ["a", "1", "yes"]}),
        ("command: [a, null]", {}),
        ("entrypoint: a b\ncommand: c", {"command": ["a", "b"], "args": ["c"]}),
        ("image: a/redis:7", {"container_image": "a/redis:7", "args": ["redis-server"]}),
        ("entrypoint: []\ncommand: c", {"command": ["c"]}),
        (
            "image: redis\ncommand: [--port, '1']",
            {"container_image": "redis", "args": ["--port", "1"]},
        ),
        ("image: x", {"container_image": "x"}),
        ("command: c\nrestart: no", {"args": ["c"], "restart_policy": "Never"}),
        (
            "command: c\nenvironment: [A=yes, B=010, C]",
            {"args": ["c"], "env": {"A": "yes", "B": "010"}},
        ),
        (
            "command: c\ndeploy: {replicas: 2}\nports: ['80:80']",
            {"replicas": 2, "args": ["c"], "exposes": {"p": 80}},
        ),
        ("command: c\nenv_file: a.env", {"args": ["c"], "env_file": "a.env"}),
        (
            "command: c\nenv_file: [a.env, {path: no.env, required: false}, {path: b.env}]",
            {"args": ["c"], "env_file": ["a.env", "b.env"]},
        ),
        ("command: c\nworking_dir: /w", {"args": ["c"], "start_dir": "/w"}),
        ("command: c\nstop_signal: SIGINT", {"args": ["c"], "stop_signal": "INT"}),
        ("command: c\nstop_signal: SIGRTMIN+3", {"args": ["c"]}),
        ("command: c\nenvironment: {1A: b}", {"args": ["c"]}),
        ("command: c\ndepends_on: [nowhere]", {"args": ["c"]}),
        (
            "command: c\nrestart: on-failure:3\ntty: true\nstdin_open: true",
            {
                "args": ["c"],
                "restart_policy": {"policy": "OnFailure", "max_restarts": 3},
                "tty": True,
            },
        ),
        ("command: c\ntty: false\nstop_signal: 2", {"args": ["c"], "stop_signal": "INT"}),
        (
            "command: c\nnetwork_mode: host",
            {"args": ["c"], "pod_yml": {"spec": {"hostNetwork": True}}},
        ),
        (
            "command: c\nenvironment: {A: ok, 1A: b}",
            {"args": ["c"], "env": {"A": "ok"}},
        ),
        ("command: c\nx-more: {a: b}", {"args": ["c"]}),
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
          image: {build: web}
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
        "args": ["c"],
        "start_dir": "web",
        "container_yml": {"workingDir": None},
    }
    assert processes["below"]["container_yml"] == {"workingDir": "/app/src"}
    assert "start_dir" not in processes["image"]
    del result.document["images"]["image"]
    assert result.document["images"] == {
        "registry.example/web": {
            "dockerfile": "Dockerfile",
            "context_directories": [{"name": "app.py", "path": "web/app.py"}],
            "build_options": ["--build-arg", "A=1", "--target", "t"],
        }
    }


@pytest.mark.parametrize(
    ("dockerfile", "service", "process"),
    [
        ('CMD ["a", "${B}"]', "", {"args": ["a", "${B}"]}),
        ('ENTRYPOINT ["e"]\nCMD ["a"]', "", {"command": ["e"], "args": ["a"]}),
        ('ENTRYPOINT ["e"]\nCMD ["a"]', "command: c", {"command": ["e"], "args": ["c"]}),
        ('ENTRYPOINT ["e"]\nCMD ["a"]', "entrypoint: f", {"command": ["f"]}),
        ('CMD ["a"]', "command: c", {"args": ["c"]}),
    ],
)
def test_the_program_in_a_dockerfile_is_that_of_the_process(
    tmp_path: Path, dockerfile: str, service: str, process: dict[str, Any]
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "Dockerfile").write_text(f"FROM x\n{dockerfile}\n")
    found = process_of(tmp_path, f"build: src\n{service}")
    context = {"start_dir": "src", "container_yml": {"workingDir": None}}
    assert found == {"container_image": "p", **process, **context}


def test_relative_paths_are_relative_to_the_directory_of_the_result(tmp_path: Path) -> None:
    text = "services: {p: {command: c, env_file: a.env}}\nsecrets: {t: {file: ./t.txt}}"
    document = imported(tmp_path, text, directory=tmp_path / "out").document
    assert document["secrets"] == {"t": "../t.txt"}
    assert document["processes"]["p"] == {
        "args": ["c"],
        "start_dir": "..",
        "env_file": "../a.env",
        "container_yml": {"workingDir": None},
    }


def test_addresses_replace_host_names(tmp_path: Path) -> None:
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
              BEHIND_A_PARAMETER: redis://cache:${PORT:-6379}/0
              URL: http://api/v1
              SEARCH: http://search:9300
              NOT: mycache:6379 cache
            healthcheck: {test: [CMD, ping, "my_db:5432"]}
          my_db: {command: postgres}
          cache: {image: "redis:7"}
          api: {command: api, expose: ["80"], scale: "2"}
          search: {image: search, ports: ["9200:9200", "9300:9300"]}
        """,
    ).document
    web = document["processes"]["web"]
    words = ["serve", "--db", "${my-db.addr}", "-h", "${cache.host}", "--name", "cache"]
    assert web["args"] == words
    assert web["ready"]["command"] == ["ping", "${my-db.addr}"]
    assert web["env"] == {
        "DB": "postgres://me:pa$s@${my-db.addr}/x?a=`b`",
        "CACHE_HOST": "${cache.host}",
        "CACHES": "${cache.addr},${cache.host}:1",
        "BEHIND_A_PARAMETER": "redis://${cache.host}:${PORT}/0",
        "URL": "http://${api.host}/v1",
        "SEARCH": "http://${search-9300.addr}",
        "NOT": "mycache:6379 cache",
    }
    assert web["connects"] == ["my-db", "cache", "api", "search-9300"]
    processes = document["processes"]
    assert processes["my-db"] == {"args": ["postgres"], "binds": {"my-db": 5432}}
    assert processes["cache"]["binds"] == {"cache": 6379}
    assert processes["api"]["binds"] == {"api": 80}
    assert processes["search"]["binds"] == {"search-9300": 9300}


def test_every_host_name_of_a_service_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "b.env").write_text(
        "LEVEL=info\nDB_URL=postgres://me:pw@database:5432\nCACHE=$${x}//database:5432\nA=//db:1\n"
    )
    result = imported(
        tmp_path,
        """
        services:
          app:
            command: run
            environment: {A: "//database:5432", B: "//named:5432", C: "//known:5432", OTHER: named}
            env_file: b.env
            links: ["db:database"]
          db:
            image: postgres
            container_name: named
            networks: {back: {aliases: [known], ipv4_address: 10.1.1.1}}
          other: {command: run, environment: {A: "//database:5432", HOST: nowhere, PEER_HOST: app}}
          settings: {command: run, environment: {A: "//${DATABASE_HOST:-db}:5432"}}
        """,
    )
    processes = result.document["processes"]
    address = "//${db.addr}"
    assert processes["app"]["env"] == {
        "A": address,
        "B": address,
        "C": address,
        "OTHER": "named",
    } | {"CACHE": f"$${{x}}{address}"}
    assert processes["app"]["starts_after"] == {"db": "started"}
    # The alias of a link is a host name only for the service that has the link.
    assert processes["other"]["env"]["A"] == "//database:5432"
    in_value = "the value contains the host name"
    assert [reason for reason in reasons(result) if "host name" in reason] == [
        "${DATABASE_HOST}: the default of parameter DATABASE_HOST contains a host name, which "
        "exists only in compose and on Kubernetes",
        f"services.app.environment.OTHER: {in_value} 'named', which exists only in compose",
        "services.app.env_file: the value of DB_URL in b.env contains a host name, which exists "
        "only in compose",
        "services.app.env_file: the value of CACHE in b.env contains a host name",
        f"services.other.environment.PEER_HOST: {in_value} 'app', which exists only in compose",
    ]


def test_processes_connect_to_those_on_which_they_depend(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "Dockerfile").write_text("FROM x\nEXPOSE $PORT 80/tcp 90 53/udp\n")
    result = imported(
        tmp_path,
        """
        services:
          web: {image: x, ports: ["1:443"], depends_on: [api, worker, seed]}
          api:
            build: api
            depends_on: {db: {condition: service_started}, seed: {condition: service_healthy}}
            links: [cache]
          worker:
            image: x
            depends_on: {seed: {condition: service_completed_successfully}, tools: {}, web: {}}
          db: {image: postgres}
          cache: {image: redis, expose: [6380]}
          queue: {image: nats, command: nats-server --port 4223}
          dump: {image: mysql, command: sh -c 'mysqldump -h db x'}
          seed: {image: x, command: seed}
          tools: {image: mysql, profiles: [debug]}
        """,
    )
    processes = result.document["processes"]
    assert {name: process.get("binds") for name, process in processes.items()} == {
        "web": None,
        "api": {"api": 80, "api-90": 90},
        "worker": None,
        "db": {"db": 5432},
        "cache": {"cache": 6380},
        "queue": {"queue": 4223},
        "dump": None,
        "seed": None,
        "tools": {"tools": 3306},
    }
    assert {name: process.get("connects") for name, process in processes.items()} == {
        **dict.fromkeys(["worker", "db", "cache", "queue", "dump", "seed", "tools"]),
        "web": ["api", "api-90"],
        "api": ["db", "cache"],
    }
    usual = "as its command or its image suggests"
    unknown = "its port is not known, without which its name is not a host name on Kubernetes"
    assert [reason for reason in reasons(result) if "port" in reason][1:] == [
        f"services.api: no port is given, and it binds 80 and 90, {usual}",
        f"services.db: no port is given, and it binds 5432, {usual}",
        f"services.queue: no port is given, and it binds 4223, {usual}",
        f"services.tools: no port is given, and it binds 3306, {usual}",
        f"services.worker: {unknown}",
        f"services.seed: {unknown}",
    ]


def test_services_of_one_experiment_can_have_one_port(tmp_path: Path) -> None:
    text = "services: {a: {ports: ['1:80'], expose: [80]}, b: {ports: ['2:80', '81-82', 5/udp]}}"
    result = imported(tmp_path, text)
    processes = result.document["processes"]
    assert processes["a"] == {"exposes": {"a": 80}, "binds": {"a": 80}}
    assert processes["b"] == {"exposes": {"b": 80, "b-81": 81, "b-82": 82}}
    assert "services.b.ports: port 5 is not a TCP port, and services are TCP services" in reasons(
        result
    )


def test_ports_and_exposed_ports_of_a_service_have_different_names(tmp_path: Path) -> None:
    service = "expose: [3306, '80', 33060]\nports: ['1:80', 81]"
    assert process_of(tmp_path, service) == {
        "exposes": {"p": 80, "p-81": 81},
        "binds": {"p": 80, "p-3306": 3306, "p-33060": 33060},
    }


def test_ports_can_be_parameters(tmp_path: Path) -> None:
    document = imported(
        tmp_path, "services: {p: {ports: ['${A:-80}:${A:-80}', '${B:-1}:${B:-1}', '${C:-3}:4']}}"
    ).document
    assert document["processes"]["p"]["exposes"] == {"p": "${A}", "p-b": "${B}", "p-4": 4}
    experiment = Experiment.load_dict(document)
    assert experiment.get_process("p").settings.exposes == {"p": 80, "p-b": 1, "p-4": 4}


def test_a_parameter_switches_a_profile_on(tmp_path: Path) -> None:
    result = imported(
        tmp_path,
        """
        services:
          web: {command: web, environment: {DEBUG: "http://tools:90/x", TOOLS_HOST: tools}}
          tools: {command: tools, profiles: [dev-tools, test], depends_on: [web]}
        """,
    )
    document = result.document
    assert document["parameters"] == {"profile_dev_tools_or_test": "0"}
    assert document["processes"]["tools"]["replicas"] == "${profile_dev_tools_or_test}"
    assert document["processes"]["web"]["env"] == {
        "DEBUG": "http://${tools.addrs}/x",
        "TOOLS_HOST": "tools",
    }
    omissions = {str(omission) for omission in result.omissions}
    switched_off = "the process is switched off; launch --set profile_dev_tools_or_test=1"
    assert f"services.tools.profiles: {switched_off}" in omissions
    names = [process.name for process in Experiment.load_dict(document).list_all_processes()]
    assert names == ["web"]
    chosen = Experiment.load_dict(document, parameters={"profile_dev_tools_or_test": "1"})
    assert [process.name for process in chosen.list_all_processes()] == ["web", "tools-0"]


def test_the_profiles_in_the_env_file_are_switched_on(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("COMPOSE_PROFILES=a,b")
    document = imported(
        tmp_path,
        "services: {p: {command: c, profiles: [b], scale: 2}, q: {command: c, profiles: [other]}}",
    ).document
    assert document["parameters"] == {"profile_b": "2", "profile_other": "0"}
    names = [process.name for process in Experiment.load_dict(document).list_all_processes()]
    assert names == ["p-0", "p-1"]


def test_files_of_compose_are_mounted_on_kubernetes(tmp_path: Path) -> None:
    result = imported(
        tmp_path,
        """
        services:
          p:
            command: c
            secrets: [token, {source: key, target: other}]
            configs: [{source: settings, target: /etc/app/settings.yml}]
            volumes:
              - {type: volume, source: data, target: /data, volume: {subpath: a/b, nocopy: true}}
              - {type: tmpfs, target: /t, tmpfs: {size: 1024, mode: 1777}}
              - {type: image, source: busybox, target: /i}
            tmpfs: /run:size=64m,mode=1777
        secrets: {token: {file: token.txt}, key: {file: key.txt}}
        configs: {settings: {file: settings.yml}}
        volumes: {data: {name: Real_name, driver: local}}
        """,
    )
    process = result.document["processes"]["p"]
    assert process["volumes"] == [
        {"empty_dir": {"mount_path": "/run", "memory": True, "size": "64Mi"}},
        {"pvc": {"claim": "real-name", "mount_path": "/data"}},
        {"empty_dir": {"mount_path": "/t", "memory": True, "size": 1024}},
        {
            "secret": {
                "secret": "other-token",
                "mount_path": "/run/secrets",
                "files": {"token": "token.txt", "other": "key.txt"},
            }
        },
        {
            "config": {
                "config": "settings",
                "mount_path": "/etc/app/settings.yml",
                "files": {"settings.yml": "settings.yml"},
            }
        },
    ]
    assert process["container_yml"]["volumeMounts"] == [
        {"mountPath": "/data", "subPath": "a/b"},
        {"mountPath": "/etc/app/settings.yml", "subPath": "settings.yml"},
    ]
    lost = [reason for reason in reasons(result) if "equivalent" in reason or "driver" in reason]
    assert lost == [
        "volumes.data.driver: symphony does not create volume 'data'",
        "services.p.tmpfs: the option mode=1777 of /run has no equivalent",
        "services.p.volumes: volume.nocopy of /data has no equivalent",
        "services.p.volumes: tmpfs.mode of /t has no equivalent",
        "services.p.volumes: a volume of type image has no equivalent",
    ]


def test_a_small_text_file_is_a_config_or_a_secret_on_kubernetes(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    for name in ("a.conf", "run.sh", "empty", "tls.key", "a b"):
        (tmp_path / "conf" / name).write_text("" if name == "empty" else "text")
    (tmp_path / "conf" / "run.sh").chmod(0o755)
    (tmp_path / "conf" / "own.txt").write_text("-----BEGIN PRIVATE KEY-----")
    (tmp_path / "conf" / "data").write_bytes(b"\xff")
    (tmp_path / "conf" / "large").write_text("x" * 200_000)
    names = ["run.sh", "empty", "a b", "data", "large", "missing"]
    lines = "".join(f"\n- ./conf/{name}:/{name}" for name in names)
    process = process_of(
        tmp_path,
        "volumes:\n- ./conf/a.conf:/etc/b.conf:ro\n- {type: bind, source: conf/tls.key, target: /k}"
        f"\n- ./conf/own.txt:/o\n- {tmp_path}/conf/a.conf:/absolute{lines}\n- ./conf:/conf",
    )
    *mounted, a, b, c = [
        (kind, details) for volume in process["volumes"] for kind, details in volume.items()
    ][::-1]
    assert [a, b, c] == [
        (
            "secret",
            {
                "secret": "conf-own-txt",
                "mount_path": "/o",
                "files": {"own.txt": "conf/own.txt"},
            },
        ),
        (
            "secret",
            {"secret": "conf-tls-key", "mount_path": "/k", "files": {"tls.key": "conf/tls.key"}},
        ),
        (
            "config",
            {
                "config": "conf-a-conf",
                "mount_path": "/etc/b.conf",
                "files": {"a.conf": "conf/a.conf"},
            },
        ),
    ]
    assert [kind for kind, _ in mounted] == ["host_path"] * 8
    assert process["container_yml"]["volumeMounts"] == [
        {"mountPath": "/etc/b.conf", "subPath": "a.conf"},
        {"mountPath": "/k", "subPath": "tls.key"},
        {"mountPath": "/o", "subPath": "own.txt"},
    ]


def test_variables_in_volumes(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MEDIA=/media/mine\nCLAIM=real")
    result = imported(
        tmp_path,
        """
        services:
          p:
            volumes:
              - ${MEDIA}:/media
              - ${MEDIA}/a:${TARGET:-/a}:${MODE:-ro}
              - ${PROJECT:-.}/b:/b
              - ${CLAIM}:/c
              - {type: bind, source: "${PROJECT:-.}/d", target: /d}
              - ${UNSET}:/e
              - ${TARGET:-/f}
            secrets: [s]
        secrets: {s: {file: "${PROJECT:-.}/s.txt"}}
        """,
    )
    document = result.document
    assert document["secrets"] == {"s": "./s.txt"}
    *volumes, _ = document["processes"]["p"]["volumes"]
    assert volumes == [
        {"host_path": {"path": "${MEDIA}", "mount_path": "/media"}},
        {
            "host_path": {
                "path": "${MEDIA}/a",
                "mount_path": "${TARGET:-/a}",
                "read_only": True,
            }
        },
        {"host_path": {"path": f"{tmp_path}/b", "mount_path": "/b"}},
        {"pvc": {"claim": "real", "mount_path": "/c"}},
        {"host_path": {"path": f"{tmp_path}/d", "mount_path": "/d"}},
        {"empty_dir": {"mount_path": "/e"}},
        {"empty_dir": {"mount_path": "${TARGET:-/f}"}},
    ]
    fixed = "is the default of a variable, which no parameter changes"
    assert [reason for reason in reasons(result) if fixed in reason] == [
        f"services.p.volumes: ./b of /b {fixed}",
        f"services.p.volumes: real of /c {fixed}",
        f"services.p.volumes: ./d of /d {fixed}",
    ]
    unset = "${UNSET} of /e has no default, and the directory is empty at first"
    assert f"services.p.volumes: {unset}" in reasons(result)


def test_variables_whose_values_determine_the_result(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    result = imported(
        tmp_path,
        """
        services:
          p:
            build: {context: "${DIR:-src}", args: {A: "${ARG:-1}"}}
            restart: ${POLICY:-unless-stopped}
            platform: ${PLATFORM:-}
            tty: ${TTY:-true}
            privileged: ${ROOT:-true}
            healthcheck: {test: "${TEST:-ping}", retries: "${TRIES:-2}", timeout: 1s, interval: 1s}
            mem_limit: ${MEMORY:-512m}
            deploy: {replicas: "${NUMBER:-2}", resources: {reservations: {memory: "${LEAST:-1g}"}}}
            gpus: ${GPUS:-2}
        """,
    )
    document = result.document
    assert document["parameters"] == {"ARG": "1", "TEST": "ping", "NUMBER": "2"}
    assert document["images"]["p"]["build_options"] == ["--build-arg", "A=${ARG}"]
    assert document["processes"]["p"] == {
        "container_image": "p",
        "restart_policy": "Always",
        "tty": True,
        "container_yml": {"securityContext": {"privileged": True}},
        "ready": {"command": ["sh", "-c", "${TEST}"], "timeout": 4},
        "resource_limit": {"memory": "512Mi", "gpu": 2},
        "resource_request": {"memory": "1Gi"},
        "replicas": "${NUMBER}",
    }
    fixed = "the value is the default of a variable, which no parameter changes"
    keys = ["build", "deploy", "healthcheck", "mem_limit", "platform", "privileged", "restart"]
    keys += ["tty", "gpus"]
    assert [reason for reason in reasons(result) if reason.endswith(fixed)] == [
        f"services.p.{key}: {fixed}" for key in keys
    ]


def test_a_service_that_autoheal_restarts_has_a_health_test(tmp_path: Path) -> None:
    result = imported(
        tmp_path,
        """
        services:
          db: {image: redis, expose: [6379]}
          healed:
            image: rl:1
            healthcheck: {test: [CMD, ping, "db:6379"], interval: 1500ms, retries: 2}
            labels: [autoheal=true]
          kept:
            image: rl:1
            restart: always
            healthcheck: {test: ping, timeout: 5s}
            labels: {autoheal: "true", traefik.enable: "true"}
          without: {image: rl:1, labels: {autoheal: "true"}}
          refused: {image: rl:1, healthcheck: {test: ping}, labels: {autoheal: "false"}}
        """,
    )
    processes = result.document["processes"]
    healed = processes["healed"]
    assert healed["healthy"] == {
        "command": ["ping", "${db.addr}"],
        "every": 2,
        "failures": 2,
        "timeout": 30,
    }
    assert (healed["ready"]["command"], healed["restart_policy"]) == (
        healed["healthy"]["command"],
        "OnFailure",
    )
    limits = {"every": 30, "failures": 3, "timeout": 5}
    assert processes["kept"]["healthy"] == {"command": ["sh", "-c", "ping"], **limits}
    assert processes["kept"]["restart_policy"] == "Always"
    assert "healthy" not in {**processes["without"], **processes["refused"]}
    assert [reason for reason in reasons(result) if "labels" in reason] == [
        "services.healed.labels.autoheal: the process is also restarted after other failures",
        "services.kept.labels: labels of compose often configure other programs",
    ]


def test_the_values_in_a_raw_env_file_are_unchanged(tmp_path: Path) -> None:
    (tmp_path / "raw.env").write_text("# no\nHASH=$2y$10$a\nHOME_DIR=${HOME}/x\nQUOTED='q' # q\n")
    document = imported(
        tmp_path,
        """
        services:
          p:
            command: ${COMMAND:-c}
            env_file: [{path: raw.env, format: raw}]
            environment: {QUOTED: own}
        """,
    ).document
    env = Experiment.load_dict(document).get_process("p").settings.env
    assert env == {"HASH": "$2y$10$a", "HOME_DIR": "${HOME}/x", "QUOTED": "own"}


@pytest.mark.parametrize(
    ("command", "words", "parameters"),
    [
        ("c $A ${B}", ["c", "${A}", "${B}"], {"A": "", "B": ""}),
        ("c ${A:-x} ${A:-y} ${B?no}", ["c", "${A:-x}", "${A:-y}", "${B}"], {"A": "", "B": None}),
        ("c ${A:-${B:-x}} ${B:-y}", ["c", "${A}", "${B}"], {"A": "x", "B": "y"}),
        ("c ${A:-${FROM_FILE}-$$}", ["c", "${A}"], {"A": "file-$"}),
        ("c ${EMPTY:-x} ${EMPTY-y}", ["c", "${EMPTY:-x}", "${EMPTY}"], {"EMPTY": ""}),
        ("c ${FROM_FILE:+x} ${A+y}", ["c", "x"], None),
        ("c ${index} $(date) $", ["c", "$(date)", "$"], None),
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
    (tmp_path / ".env").write_text("FROM_FILE=file\nUNUSED=1\nEMPTY=")
    (tmp_path / "compose.yml").write_text(f"services: {{p: {{command: '{command}'}}}}")
    document = import_file(tmp_path / "compose.yml").document
    assert document["processes"]["p"]["args"] == words
    assert document.get("parameters") == parameters


def test_omissions_have_a_place_a_reason_and_a_fix(tmp_path: Path) -> None:
    result = imported(
        tmp_path,
        """
        version: "3"
        models: {m: {}}
        networks: {n: {driver: bridge}}
        secrets: {t: {environment: T}}
        services:
          p:
            image: x
            ports: ["8080:80"]
            healthcheck: {test: [X]}
            frobnicate: 1
            labels: [a=b]
            volumes: ["data:/data:nocopy,rw", "bad"]
            environment: {1A: b, C: }
            secrets: [t]
            deploy:
              mode: global
              labels: {a: b}
              restart_policy: {condition: on-failure, delay: 5s, max_attempts: 3, window: 60s}
            gpus: all
            env_file: {path: none.env, format: raw}
            network_mode: none
            hostname: h
            user: me:1
        """,
    )
    assert reasons(result) == [
        "models: there is no equivalent",
        "networks: all processes of an experiment can connect to each other",
        "secrets.t: only a file is supported",
        "services.p.ports: the port is 80, as in the container, and not 8080",
        "services.p.healthcheck: the value has an unexpected form",
        "services.p.frobnicate: the key is not known",
        "services.p.environment.C: C has no value: local and tmux pass it on from the environment",
        "services.p.deploy.mode: there is no equivalent",
        "services.p.deploy.labels: there is no equivalent",
        "services.p.deploy.restart_policy.window: every attempt counts as a restart, also after a "
        "long time",
        "services.p.gpus: gpu is 1 instead of all GPUs",
        "services.p.network_mode: the network of a process cannot be disabled",
        "services.p.hostname: only Kubernetes applies this setting",
        "services.p.user: Kubernetes accepts only a number, and not 'me'",
        "services.p.user: only Kubernetes applies this setting",
        "services.p.env_file: none.env does not exist",
        "services.p.volumes: nocopy of /data has no equivalent",
        "services.p.volumes: symphony does not create volume 'data'",
        "services.p.volumes: 'bad' has an unexpected form",
        "services.p.secrets: the file is /run/secrets/t only on Kubernetes",
        "services.p.labels: labels of compose often configure other programs",
        "services.p: the program is that of the image, which only Kubernetes knows",
        "services.p.environment.1A: variable name '1A' is not valid: use letters, digits, '_', '-' "
        "and '.', and do not begin with a digit",
    ]
    assert all(omission.fix for omission in result.omissions)
    process = result.document["processes"]["p"]
    assert process["restart_policy"] == {"policy": "OnFailure", "max_restarts": 3, "backoff": 5}


def test_services_that_only_kubernetes_can_start_are_reported_in_one_line(tmp_path: Path) -> None:
    result = imported(
        tmp_path,
        """
        services:
          a: {image: unknown}
          b: {image: unknown, command: [--option]}
          c: {image: unknown, command: [run]}
          d: {image: other}
        """,
    )
    assert reasons(result) == [
        "services.a, services.b, services.d: the program is that of the image, which only "
        "Kubernetes knows",
    ]


@pytest.mark.parametrize(
    ("text", "options", "name"),
    [
        ("name: My_Shop\nservices: {p: {command: c}}", {}, "my-shop"),
        ("name: shop\nservices: {p: {command: c}}", {"name": "other"}, "other"),
        ("name: ${NAME:-my}-shop\nservices: {p: {command: c}}", {}, "my-shop"),
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
        ("compose.yml", "services: {a: {links: b}}", r"services\.a\.links is not a list; correct"),
        ("compose.yml", "services: {a: {}}\nvolumes: [a]", "volumes is not a mapping; correct"),
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
    assert reasons(outcome)[:2] == [
        "line 2: the program listens on port 5000 only if it reads the variable PORT",
        "line 6: the line is not NAME: COMMAND",
    ]
    (tmp_path / ".env").write_text("PORT=8000")
    web = import_file(tmp_path / "Procfile.dev").document["processes"]["web"]
    assert web["exposes"] == {"web": 8000}


@pytest.mark.parametrize(
    ("line", "process"),
    [
        ("PORT=7563 ./web", {"exposes": {"p": 7563}}),
        ("env A=b PORT=7563 ./web $PORT", {"exposes": {"p": 7563}}),
        ("serve -p 3000", {"exposes": {"p": 3000}}),
        ("redis-server --port 6399 --save ''", {"exposes": {"p": 6399}}),
        ("gunicorn --bind=0.0.0.0:8000 app:app", {"exposes": {"p": 8000}}),
        ("serve -b localhost:3000", {"exposes": {"p": 3000}}),
        ("serve -p ${PORT:-80}", {"exposes": {"p": 5000}}),
        ("redis-cli -p 6379 monitor", {}),
        ("until ready -p 80; do sleep 1; done", {}),
        ("serve --ports 90000", {}),
        ("serve -p 90000", {}),
    ],
)
def test_the_port_in_a_line_of_a_procfile(
    tmp_path: Path, line: str, process: dict[str, Any]
) -> None:
    (tmp_path / "Procfile").write_text(f"p: {line}\n")
    found = import_file(tmp_path / "Procfile").document["processes"]["p"]
    found.pop("preamble_cmds", None)
    assert found == {"cmd": line, **process}


@pytest.mark.one_python
def test_many_services_are_imported_in_linear_time(tmp_path: Path) -> None:
    count = 3_000
    services = {
        f"s{index}": {
            "image": "redis",
            "environment": {"URL": f"redis://s{index // 2}:6379"},
            "links": [f"s{index // 3}:db"] if index else [],
        }
        for index in range(count)
    }
    path = tmp_path / "compose.yml"
    path.write_text(json.dumps({"services": services}))
    begin = time.process_time()
    processes = import_file(path).document["processes"]
    # With a pattern that contains the names of all services, this takes about 15 s.
    assert time.process_time() - begin < 5
    assert processes["s2999"]["env"] == {"URL": "redis://${s1499.addr}"}
