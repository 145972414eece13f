"""Reading compose files that are merged, include other files or extend services of other files.

The expected results are those of ``docker compose config``.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from symphony import SpecError
from symphony.importing import Imported, compose_files
from symphony.importing.merge_compose_files import Override, Reset, merged, without_tags


def written(directory: Path, **files: str) -> list[Path]:
    """Write files whose names are those of the arguments, and return their paths."""
    paths = []
    for name, text in files.items():
        path = directory / f"{name.replace('__', '/')}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        paths.append(path)
    return paths


def contents_of(*paths: Path) -> dict[str, Any]:
    return compose_files.read(paths, Imported(document={}))


SERVICE = ("services", "web")


@pytest.mark.parametrize(
    ("key", "base", "over", "result"),
    [
        ("image", "a", "b", "b"),
        ("image", "a", None, "a"),
        ("command", ["a", "b"], ["c"], ["c"]),
        ("command", "a", None, None),
        ("entrypoint", "a", ["b"], ["b"]),
        ("environment", ["A=1", "B"], {"A": "2", "C": "3"}, {"A": "2", "B": None, "C": "3"}),
        ("labels", {"a": "1"}, ["a=2"], {"a": "2"}),
        ("ports", ["80:80"], ["80:80", "81:80"], ["80:80", "81:80"]),
        ("env_file", "a.env", ["b.env"], ["a.env", "b.env"]),
        ("tmpfs", "/a", "/b", ["/a", "/b"]),
        ("build", ".", {"target": "t"}, {"context": ".", "target": "t"}),
        (
            "depends_on",
            ["a"],
            {"b": {"condition": "service_healthy"}},
            {
                "a": {"condition": "service_started", "required": "true"},
                "b": {"condition": "service_healthy"},
            },
        ),
        ("networks", ["a"], {"b": {"aliases": ["x"]}}, {"a": None, "b": {"aliases": ["x"]}}),
        (
            "healthcheck",
            {"test": ["CMD", "a"], "retries": "3"},
            {"test": "b", "interval": "1s"},
            {"test": "b", "retries": "3", "interval": "1s"},
        ),
        (
            "logging",
            {"driver": "a", "options": {"x": "1"}},
            {"driver": "b", "options": {"y": "2"}},
            {"driver": "b", "options": {"y": "2"}},
        ),
        ("ulimits", {"a": "1"}, {"a": {"soft": "1"}, "b": "2"}, {"a": {"soft": "1"}, "b": "2"}),
        ("deploy", {"replicas": "2"}, {"resources": {}}, {"replicas": "2", "resources": {}}),
        ("ports", ["80"], Override(["81"]), ["81"]),
        ("ports", ["80"], Reset(), None),
        ("ports", Override(["80"]), ["81"], ["80", "81"]),
        ("ports", Reset(), ["81"], ["81"]),
    ],
)
def test_the_values_of_a_key_are_merged(key: str, base: Any, over: Any, result: Any) -> None:
    assert without_tags(merged({key: base}, {key: over}, SERVICE)).get(key) == result


def test_values_of_different_forms_are_not_merged() -> None:
    with pytest.raises(SpecError, match=r"services\.web\.ports has different forms in files"):
        merged({"ports": ["80"]}, {"ports": {"a": "80"}}, SERVICE)
    with pytest.raises(SpecError, match=r"services\.web\.labels is neither a mapping nor a list"):
        merged({"labels": ["a=b"]}, {"labels": "a"}, SERVICE)


def test_later_files_take_precedence(tmp_path: Path) -> None:
    paths = written(
        tmp_path,
        base="""
            services:
              web:
                command: base
                volumes: ["./a:/x", "./b:/y"]
                ports: ["1:1"]
                environment: {A: base, GONE: base}
            volumes: {data: }
            """,
        sub__prod="""
            services:
              web:
                volumes: ["./c:/x"]
                ports: !override ["2:2"]
                environment: {A: prod, GONE: !reset null}
              db: {image: db}
            """,
    )
    contents = contents_of(*paths)
    assert contents["services"] == {
        "web": {
            "command": "base",
            "volumes": ["./c:/x", "./b:/y"],
            "ports": ["2:2"],
            "environment": {"A": "prod"},
        },
        "db": {"image": "db"},
    }
    assert contents["volumes"] == {"data": None}


def test_an_override_file_is_merged_into_a_file_with_a_default_name(tmp_path: Path) -> None:
    (tmp_path / "compose.override.yml").write_text("services: {web: {image: override}}")
    for name, image in {"compose.yml": "override", "other.yml": "base"}.items():
        (tmp_path / name).write_text("services: {web: {image: base}}")
        assert contents_of(tmp_path / name)["services"]["web"]["image"] == image
    imported = Imported(document={})
    compose_files.read([tmp_path / "compose.yml"], imported)
    assert [omission.where for omission in imported.omissions] == ["compose.override.yml"]


def test_included_files_have_their_own_directory_and_variables(tmp_path: Path) -> None:
    (main, *_) = written(
        tmp_path,
        main="""
            include:
              - ${DIRECTORY:-sub}/a.yml
              - {path: [sub/b.yml, sub/c.yml], env_file: other.env}
            services: {own: {image: "i:${TAG:-main}"}, shared: {environment: {A: own}}}
            """,
        sub__a="""
            services:
              a:
                image: i:${TAG:-1}
                build: ./src
                env_file: a.env
                volumes: ["./data:/data", "named:/n"]
              shared: {environment: {A: included, B: included}}
            secrets: {s: {file: s.txt}}
            """,
        sub__b="services: {b: {image: 'i:${LEVEL}', command: b}}",
        sub__c="services: {b: {command: c, build: {target: t}}}",
    )
    (tmp_path / "sub" / ".env").write_text("TAG=sub")
    (tmp_path / "other.env").write_text("LEVEL=3")
    imported = Imported(document={})
    contents = compose_files.read([main], imported)
    assert contents["services"] == {
        "own": {"image": "i:${TAG:-main}"},
        "shared": {"environment": {"A": "own", "B": "included"}},
        "a": {
            "image": "i:${TAG:-sub}",
            "build": "./sub/src",
            "env_file": ["./sub/a.env"],
            "volumes": ["./sub/data:/data", "named:/n"],
        },
        "b": {"image": "i:${LEVEL}", "command": "c", "build": {"context": "./sub", "target": "t"}},
    }
    assert contents["secrets"] == {"s": {"file": "./sub/s.txt"}}
    assert imported.document["parameters"] == {"TAG": "", "LEVEL": "3"}


def test_a_service_extends_services_of_this_and_of_other_files(tmp_path: Path) -> None:
    (main, _) = written(
        tmp_path,
        main="""
            services:
              near: {extends: far, environment: [A=near]}
              far: {extends: {file: "${DIRECTORY:-sub}/base.yml", service: child}, image: own}
            """,
        sub__base="""
            services:
              parent: {command: run, environment: {A: base, B: base}, volumes: [".:/x"]}
              child: {extends: {service: parent}, image: child, env_file: e.env}
            """,
    )
    far = {
        "command": "run",
        "environment": {"A": "base", "B": "base"},
        "volumes": ["./sub:/x"],
        "image": "own",
        "env_file": ["./sub/e.env"],
    }
    services = contents_of(main)["services"]
    assert services == {"far": far, "near": {**far, "environment": {"A": "near", "B": "base"}}}


def test_a_variable_without_a_value_has_that_of_the_env_file(tmp_path: Path) -> None:
    (main,) = written(tmp_path, main="services: {p: {environment: [A, B, C=1]}}")
    (tmp_path / ".env").write_text("A=1")
    assert contents_of(main)["services"]["p"]["environment"] == {"A": "${A}", "B": None, "C": "1"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("services: {a: {extends: b}}", "there is no service 'b', which another service extends"),
        ("services: {a: {extends: b}, b: {extends: a}}", "service '[ab]' extends itself"),
        ("services: {a: {extends: {file: main.yml}}}", "service 'a' extends no service"),
        ("include: [main.yml]", "main.yml includes itself"),
        ("include: [{env_file: a}]", "names no file; write the path of one"),
        ("include: [https://example.org/c.yml]", "is not a file; copy it here"),
        ("include: [missing.yml]", "missing.yml: no such file"),
        ("services: {a: {image: !other b}}", "the tag !other is not supported"),
        ("[]", "the file is not a mapping"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, text: str, error: str) -> None:
    (main,) = written(tmp_path, main=text)
    with pytest.raises(Exception, match=error):
        contents_of(main)


def test_numbers_in_variables_are_those_that_compose_reads(tmp_path: Path) -> None:
    numbers = "1.50 1.5, -1.0 -1, .5 0.5, 022 18, 0x1F 31, +1_000 1000, 16.8 16.8, 0 0, '022' 022"
    numbers += ", 1:30 1:30, 0b11 3, 12345678901234567890 12345678901234567890"
    texts = dict(pair.split() for pair in numbers.split(", "))
    lines = "".join(f"        A{index}: {text}\n" for index, text in enumerate(texts))
    (tmp_path / "a.yml").write_text(
        f"services:\n  web:\n    build: {{args: {{V: 1.10}}}}\n    command: [a, '022']\n"
        f"    environment:\n{lines}        NUMBER: 0o17\n    mem_limit: 010\n"
    )
    imported = Imported(document={})
    service = compose_files.read([tmp_path / "a.yml"], imported)["services"]["web"]
    given = service["environment"]
    assert [given[f"A{index}"] for index in range(len(texts))] == list(texts.values())
    assert (service["build"]["args"], service["mem_limit"]) == ({"V": "1.1"}, "010")
    assert str(imported.omissions[-1]) == (
        "services.web.build.V: the value is 1.1, as compose reads the number 1.10; write it in "
        "quotes if it is a text"
    )
