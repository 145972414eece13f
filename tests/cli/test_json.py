"""The output of ``--json`` has exactly the fields that docs/reference/json.md lists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import FOREVER, Program

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
# Mappings whose keys are not fixed.
FREE = {"facts", "resources", "addresses", "exposed", "parameters"}
FILE = {
    "name": "rl",
    "processes": {
        "server": {
            "cmd": FOREVER,
            "binds": ["replay"],
            "exposes": ["board"],
            "labels": {"team": "red"},
        },
        "workers": {
            "processes": {"agent": {"cmd": "echo hello; exit 3", "connects": ["replay"]}},
            "starts_after": ["server"],
        },
    },
}


def documented(heading: str) -> list[set[str]]:
    """Return the fields in each table under a heading."""
    section = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (text,) = (part for part in section if part.startswith(f"{heading}\n"))
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [{name for row in table.splitlines()[2:] for name in names(row)} for table in tables]


def names(row: str) -> list[str]:
    return re.findall(r"`([^`]+)`", row.split("|")[1])


def of_command(command: str) -> set[str]:
    """Return the fields of a command in the last table of the page."""
    rows = PAGE.read_text(encoding="utf-8").split("## Other commands")[1].splitlines()
    (row,) = (row for row in rows if row.startswith(f"| `{command}`"))
    return set(re.findall(r"`([^`]+)`", re.sub(r"\(.*\)", "", row.split("|")[2])))


def fields(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all fields that contain no other fields."""
    if isinstance(value, dict) and path in FREE and value:
        yield f"{path}.*"
    elif isinstance(value, dict) and path not in FREE:
        for name, inner in value.items():
            yield from fields(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for inner in value:
            yield from fields(inner, f"{path}[]")
    else:
        yield path


def innermost(documented: set[str]) -> set[str]:
    """Return the documented fields without those that contain others."""
    return {
        name
        for name in documented
        if not any(other.startswith((f"{name}[]", f"{name}.")) for other in documented)
    }


@pytest.fixture
def file(program: Program) -> str:
    path = program.directory / "rl.yml"
    path.write_text(json.dumps(FILE), encoding="utf-8")
    return str(path)


@pytest.fixture
def launched(program: Program, file: str) -> None:
    program("launch", file)
    program.process("wait", "rl", "workers/agent")


def test_an_experiment(program: Program, launched: None) -> None:
    status, shown, usage, _ = documented("An experiment")
    plain = innermost(status) | {f"{shown.pop()}.*"}
    assert set(fields(program.json("ps", "rl"))) == plain
    # This machine reports all values, or gives reasons why it cannot.
    with_usage = set(fields(program.json("ps", "rl", "--usage"))) - {"usage.unavailable.*"}
    assert with_usage | {"usage.unavailable"} == plain | innermost(usage)
    (listed,) = program.json("ls")
    assert set(fields(listed)) == innermost(status)


def test_a_finished_experiment(program: Program) -> None:
    status, _, _, end = documented("An experiment")
    program("submit", "--name", "rl", "--", "true")
    assert set(fields(program.json("wait", "rl"))) == innermost(status) | end


def test_a_process(program: Program, launched: None) -> None:
    (process,) = documented("A process")
    # A process of this machine has no resources.
    assert set(fields(program.json("describe", "rl", "server"))) == innermost(process) - {
        "resources.*"
    } | {"resources"}


def test_lines(program: Program, launched: None) -> None:
    (line,) = documented("Lines of logs")
    assert set(json.loads(program.ok("logs", "rl", "--json", "--timestamps"))) == line


def test_a_topology(program: Program, file: str) -> None:
    (topology,) = documented("A topology")
    assert set(fields(program.json("graph", file))) == innermost(topology)


@pytest.mark.parametrize("backend", ["local", "tmux", "kube"])
def test_a_manifest(program: Program, file: str, backend: str) -> None:
    (manifest,) = documented("A manifest")
    words = ["--image", "rl:1", "--namespace", "n"] if backend == "kube" else []
    rendered = program.json("render", file, "-b", backend, *words)
    common = {"experiment", "backend", "ignored"}
    found = {name for name in fields(rendered) if name.partition("[")[0] in common}
    assert found == (common if backend == "kube" else innermost(manifest))


def test_findings(program: Program, file: str) -> None:
    (found,) = documented("Findings")
    assert (
        set(fields(program.json("check", file, "--target", "kube", "--offline", code=1))) == found
    )


def test_notes_are_not_counted_as_errors_or_warnings(program: Program) -> None:
    needs = {"command": "true", "container_image": "x", "resource_limit": {"gpu": 1}}
    found = program.json("check", program.file("rl", {"a": needs}), "--target", "kube", "--offline")
    assert [item["level"] for item in found["findings"]] == ["note"]
    assert (found["errors"], found["warnings"]) == (0, 0)
    (row,) = re.findall(
        r"^\| `findings\[\]\.level` .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert re.findall(r"`([^`]+)`", row) == ["findings[].level", "error", "warning", "note"]


@pytest.mark.parametrize(
    "words",
    [("backends",), ("config", "show"), ("config", "path"), ("config", "schema"), ("init", "new")],
)
def test_other_commands_without_an_experiment(program: Program, words: tuple[str, ...]) -> None:
    data = program.json(*words)
    record = data[0] if isinstance(data, list) else data
    assert set(record) == of_command(" ".join(words) if words[0] == "config" else words[0])


def test_other_commands(program: Program, launched: None) -> None:
    done = program("exec", "--json", "rl", "server", "--", "true")
    assert set(json.loads(done.stdout)) == of_command("exec")
    assert program.json("delete", "-f", "rl") == ["rl"]
