"""Manifests with the values of secrets are only written to private files."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
import yaml

from symphony import Cluster, SpecError
from symphony.errors import NotFound
from tests.backends.kube.specimens import IMAGE, SPECIMENS
from tests.cli import in_process


def test_manifest_with_secrets_is_written_to_a_private_file(
    tmp_path: Path,
) -> None:
    manifest = SPECIMENS["everything"].manifest()
    for name in ("new.yml", "old.yml"):
        path = tmp_path / name
        if name == "old.yml":
            path.write_text("old")
            path.chmod(0o644)
        manifest.write(path)
        assert path.stat().st_mode & 0o777 == 0o600
        assert list(yaml.safe_load_all(path.read_text(encoding="utf-8"))) == list(manifest)
    assert {path.name for path in tmp_path.iterdir()} == {"new.yml", "old.yml"}


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ("", SpecError, "'' is not the name of a file"),
        ("-", SpecError, "'-' is not the name of a file"),
        ("{}/out/", SpecError, "out/' is not the name of a file"),
        (".", SpecError, r"cannot write to \.: it is a directory"),
        ("{}/directory", SpecError, "directory: it is a directory"),
        (
            "{}/pipe",
            SpecError,
            "pipe: it is a pipe; values of secrets are only written to a regular file",
        ),
        ("{}/to-pipe", SpecError, "to-pipe: it is a pipe"),
        ("{}/to-file", SpecError, "to-file: it is a link to .*/file"),
        ("{}/to-nothing", SpecError, "to-nothing: it is a link to .*/nothing"),
        ("{}/no/such.yml", NotFound, "no/such.yml: there is no directory '.*/no'"),
        ("{}/file/x.yml", NotFound, "file/x.yml: there is no directory '.*/file'"),
    ],
)
def test_only_regular_files_are_replaced(
    tmp_path: Path, target: str, error: type[Exception], message: str
) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("old")
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "file", "nothing"):
        (tmp_path / f"to-{name}").symlink_to(name)
    before = {path.name: path.lstat().st_ino for path in tmp_path.iterdir()}
    for dry_run in (True, False):
        with pytest.raises(error, match=message):
            SPECIMENS["group"].manifest().write(target.format(tmp_path), dry_run=dry_run)
    assert {path.name: path.lstat().st_ino for path in tmp_path.iterdir()} == before
    assert (tmp_path / "file").read_text() == "old"


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    SPECIMENS["group"].manifest().write(tmp_path / "new", dry_run=True)
    assert list(tmp_path.iterdir()) == []


def test_sources_of_the_experiment_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("swordfish")
    (tmp_path / "settings").write_text("x")
    (tmp_path / "second-name").hardlink_to(tmp_path / "settings")
    cluster = Cluster.new("kube", image=IMAGE, kubeconfig=str(tmp_path / "none"))
    exp = cluster.new_experiment("e", secrets=[str(tmp_path / "token")])
    exp.new_process("p", command="c").mount_config("m", "/m", files=[str(tmp_path / "settings")])
    manifest = cluster.manifest(exp)
    for name in ("token", "settings", "second-name"):
        with pytest.raises(SpecError, match=f"{name}: the experiment is created from that file"):
            manifest.write(tmp_path / name)
    assert (tmp_path / "token").read_text() == "swordfish"
    manifest.write(tmp_path / "other")


def test_write_error_names_the_target(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            SPECIMENS["group"].manifest().write(tmp_path / "new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_longest_file_name(tmp_path: Path) -> None:
    SPECIMENS["group"].manifest().write(tmp_path / ("x" * 255))
    with pytest.raises(OSError, match="too long") as caught:
        SPECIMENS["group"].manifest().write(tmp_path / ("x" * 256))
    assert caught.value.filename == str(tmp_path / ("x" * 256))


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("e.yml", "e.yml is the experiment file itself"),
        ("token", "cannot write to token: the experiment is created from that file"),
    ],
)
def test_command_line_reports_errors_in_one_line(
    tmp_path: Path, target: str, message: str, dry_run: bool
) -> None:
    process = {"command": "c", "container_image": IMAGE}
    experiment = {"name": "e", "secrets": ["token"], "processes": {"p": process}}
    (tmp_path / "e.yml").write_text(yaml.safe_dump(experiment))
    (tmp_path / "token").write_text("swordfish")
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    args = ["render", "e.yml", "-b", "kube", "--with-secrets", target]
    done = in_process.run(
        [*args, "--dry-run"] if dry_run else args,
        env=os.environ,
        cwd=tmp_path,
        input="",
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before
