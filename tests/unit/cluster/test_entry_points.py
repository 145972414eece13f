"""Reading entry points without `importlib.metadata` gives the same result as with it."""

from __future__ import annotations

import shutil
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from symphony.cluster.entry_points import EntryPoint, read_entry_points

TEXT = """\
[console_scripts]
far = other:main

[far.backends]
# near = far.near
far = far.plugin
away=far.plugin : hook [extra]
"""
POINTS = [
    EntryPoint("away", "far.plugin : hook [extra]", "far-backend"),
    EntryPoint("far", "far.plugin", "far-backend"),
]


@pytest.mark.parametrize("group", ["symphony.backends", "console_scripts", "pytest11"])
def test_the_installed_distributions_have_the_same_entry_points(group: str) -> None:
    by_library = {(point.name, point.value) for point in metadata.entry_points(group=group)}
    assert {(point.name, point.value) for point in read_entry_points(group)} == by_library
    assert by_library


@pytest.mark.parametrize(
    "metadata_directory",
    ["far_backend-1.0.dist-info", "Far.Backend.egg-info", "far_backend-1.0.egg/EGG-INFO", "zip"],
)
def test_every_kind_of_installation_is_found(
    metadata_directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if metadata_directory == "zip":
        on_path = tmp_path / "far.zip"
        with zipfile.ZipFile(on_path, "w") as archive:
            archive.writestr("far_backend-1.0.dist-info/METADATA", "Name: far_backend\n")
            archive.writestr("far_backend-1.0.dist-info/entry_points.txt", TEXT)
    else:
        directory = tmp_path / metadata_directory
        directory.mkdir(parents=True)
        (directory / "entry_points.txt").write_text(TEXT)
        for name in ("METADATA", "PKG-INFO"):
            (directory / name).write_text("Name: far_backend\n")
        on_path = directory.parent
    monkeypatch.setattr(sys, "path", [str(tmp_path / "missing"), str(on_path), str(on_path)])
    assert sorted(read_entry_points("far.backends")) == POINTS


def test_of_two_versions_only_the_first_on_the_path_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version, value in (("2.0", "new"), ("1.0", "old")):
        directory = tmp_path / version / f"far-{version}.dist-info"
        directory.mkdir(parents=True)
        (directory / "entry_points.txt").write_text(f"[far.backends]\nfar = {value}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "2.0"), str(tmp_path / "1.0")])
    assert read_entry_points("far.backends") == [EntryPoint("far", "new", "far")]
    # Metadata is read once, until a distribution is installed or removed.
    shutil.rmtree(tmp_path / "2.0" / "far-2.0.dist-info")
    assert read_entry_points("far.backends") == [EntryPoint("far", "old", "far")]


def test_another_finder_of_distributions_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Frozen(metadata.Distribution):
        def read_text(self, filename: str) -> str | None:
            return {"METADATA": "Name: far_backend\n", "entry_points.txt": TEXT}.get(filename)

        def locate_file(self, path: object) -> Path:
            return tmp_path / str(path)

    class Finder:
        @staticmethod
        def find_distributions(context: object) -> list[metadata.Distribution]:
            return [Frozen()]

        @staticmethod
        def find_spec(*_: object) -> None:
            return None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert sorted(read_entry_points("far.backends")) == POINTS


def test_an_attribute_of_a_module_is_loaded() -> None:
    import json.decoder

    assert EntryPoint("x", "json.decoder", "x").load() is json.decoder
    assert EntryPoint("x", "json:decoder.JSONDecoder [y]", "x").load() is json.decoder.JSONDecoder
