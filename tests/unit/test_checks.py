"""What must hold on this machine before anything starts, each with its own message."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from symphony import SpecError
from symphony.host import preflight
from symphony.host.processes.spec import ProcessSpec
from symphony.host.render import HostManifest
from symphony.host.run.directory import RunDirectory

NOBODY = 65534


def manifest(
    tmp_path: Path, *, secrets: dict[str, str] | None = None, **command: Any
) -> HostManifest:
    filled = {"name": "p", "group": "g", "argv": ("true",), "cwd": str(tmp_path), **command}
    return HostManifest(
        experiment="e", run_id="r", directory=str(tmp_path), processes=(ProcessSpec(**filled),),
        env={"SYMPHONY_BACKEND": "local"}, services={}, exposed=(), secrets=secrets or {}, ignored=(),
    )  # fmt: skip


def program(tmp_path: Path, name: str, mode: int = 0o755) -> Path:
    path = tmp_path / name
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_what_is_there_passes(tmp_path: Path) -> None:
    program(tmp_path, "prog")
    (tmp_path / "token").touch()
    preflight.check(manifest(tmp_path, secrets={"t": str(tmp_path / "token")}))
    for argv in (("./prog",), (str(tmp_path / "prog"),), (f"../{tmp_path.name}/prog",)):
        preflight.check(manifest(tmp_path, argv=argv))
    preflight.check(manifest(tmp_path, argv=("prog",), env={"PATH": str(tmp_path)}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"argv": ("no-such-program",)},
            "process 'g/p': command 'no-such-program' was not found on the PATH",
        ),
        (
            {"argv": ("true",), "env": {"PATH": "/nowhere"}},
            "command 'true' was not found on the PATH",
        ),
        (
            {"argv": ("echo hello",)},
            "was not found on the PATH; for a shell line use cmd='echo hello'",
        ),
        ({"argv": ("./none",)}, "process 'g/p': there is no {tmp}/none"),
        (
            {"argv": ("./plain",)},
            "process 'g/p': {tmp}/plain is not executable; run chmod +x on it, or name its interpret",
        ),
        (
            {"argv": ("./folder",)},
            "process 'g/p': {tmp}/folder is a directory; name a program in it",
        ),
        ({"argv": ("/",)}, "process 'g/p': / is a directory; name a program in it"),
        ({"argv": ("",)}, "process 'g/p' has an empty command"),
        (
            {"cwd": "/no/such/folder"},
            "process 'g/p': start_dir /no/such/folder is not a directory",
        ),
        (
            {"cwd": "/etc/passwd"},
            "process 'g/p': start_dir /etc/passwd is not a directory",
        ),
        ({"secrets": {"t": "/no/token"}}, "secret 't': there is no file /no/token"),
        ({"secrets": {"t": "/"}}, "secret 't': there is no file /"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    program(tmp_path, "plain", 0o644)
    (tmp_path / "folder").mkdir()
    with pytest.raises(SpecError) as refusal:
        preflight.check(manifest(tmp_path, **options))
    assert message.format(tmp=tmp_path) in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


def test_a_secret_that_cannot_be_read_is_refused() -> None:
    """In a child that is an ordinary user where this one is root, who may read everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        program(folder, "token", 0o000)
        given = manifest(folder, secrets={"t": str(folder / "token")})
        child = os.fork()
        if child == 0:
            code = 2
            try:
                if os.geteuid() == 0:
                    os.setresuid(NOBODY, NOBODY, NOBODY)
                preflight.check(given)
            except SpecError as exc:
                code = 0 if "cannot be read by this user" in str(exc) else 3
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_secrets_are_copied_where_only_this_user_can_read_them(tmp_path: Path) -> None:
    source = tmp_path / "token"
    source.write_bytes(b"\x00secret\xff")
    source.chmod(0o644)
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    preflight.write(run, manifest(tmp_path, secrets={"t": str(source)}))
    assert (run.secrets / "t").read_bytes() == b"\x00secret\xff"
    for path, mode in ((run.secrets, 0o700), (run.secrets / "t", 0o600), (run.manifest, 0o600)):
        assert stat.S_IMODE(path.stat().st_mode) == mode
    assert run.load_manifest()["experiment"] == "e"


def test_without_secrets_there_is_no_folder_for_them(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    preflight.write(run, manifest(tmp_path))
    assert not run.secrets.exists()
