"""The checks before a launch, and the files that are written for the supervisor."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from symphony import SpecError
from symphony.supervised import preflight
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.render import HostManifest

UNPRIVILEGED_USER = 65534


def manifest(
    tmp_path: Path, *, secrets: dict[str, str] | None = None, **fields: Any
) -> HostManifest:
    spec = {"name": "p", "group": "g", "argv": ("true",), "cwd": str(tmp_path), **fields}
    return HostManifest(
        experiment="e",
        run_name="e-20261122-093011-7f3a",
        launched=1.0,
        run_id="r",
        directory=str(tmp_path),
        processes=(ProcessSpec(**spec),),
        env={"SYMPHONY_BACKEND": "local"},
        services={},
        exposed=(),
        secrets=secrets or {},
        ignored=(),
    )


def make_program(tmp_path: Path, name: str, mode: int = 0o755) -> Path:
    path = tmp_path / name
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_valid_commands_and_secrets_pass(tmp_path: Path) -> None:
    make_program(tmp_path, "prog")
    (tmp_path / "token").touch()
    preflight.check(manifest(tmp_path, secrets={"t": str(tmp_path / "token")}))
    for program in ("./prog", str(tmp_path / "prog"), f"../{tmp_path.name}/prog"):
        preflight.check(manifest(tmp_path, argv=(program,)))
    preflight.check(manifest(tmp_path, argv=("prog",), env={"PATH": str(tmp_path)}))


NOT_FOUND = "process 'g/p': command {!r} was not found on the PATH"


TOO_LONG = "/" + "x" * 300


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"argv": ("no-such-program",)}, NOT_FOUND.format("no-such-program")),
        ({"argv": ("true",), "env": {"PATH": "/nowhere"}}, NOT_FOUND.format("true")),
        (
            {"argv": ("true",), "env": {"PATH": "$PATH:/opt"}},
            NOT_FOUND.format("true")
            + " '$PATH:/opt'; variables in env are not replaced: write the directories",
        ),
        (
            {"argv": ("echo hello",)},
            NOT_FOUND.format("echo hello") + "; for a shell line use cmd='echo hello'",
        ),
        ({"argv": ("./none",)}, "process 'g/p': there is no {tmp}/none"),
        (
            {"argv": ("./plain",)},
            "process 'g/p': {tmp}/plain is not executable; "
            "run chmod +x on it, or name its interpreter",
        ),
        (
            {"argv": ("./directory",)},
            "process 'g/p': {tmp}/directory is a directory; name a program in it",
        ),
        ({"argv": ("/",)}, "process 'g/p': / is a directory; name a program in it"),
        ({"argv": ("",)}, "process 'g/p': the command is empty"),
        ({"cwd": "/no/such"}, "process 'g/p': start_dir /no/such is not a directory"),
        ({"cwd": "/etc/passwd"}, "process 'g/p': start_dir /etc/passwd is not a directory"),
        ({"cwd": TOO_LONG}, f"process 'g/p': start_dir {TOO_LONG} is not a directory"),
        ({"argv": (TOO_LONG,)}, f"process 'g/p': there is no {TOO_LONG}"),
        ({"secrets": {"t": "/no/token"}}, "secret 't': there is no file /no/token"),
        ({"secrets": {"t": TOO_LONG}}, f"secret 't': there is no file {TOO_LONG}"),
        ({"secrets": {"t": "/"}}, "secret 't': there is no file /"),
    ],
)
def test_invalid_commands_and_secrets_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    make_program(tmp_path, "plain", 0o644)
    (tmp_path / "directory").mkdir()
    with pytest.raises(SpecError) as refusal:
        preflight.check(manifest(tmp_path, **options))
    assert str(refusal.value) == message.format(tmp=tmp_path)


def test_unreadable_secret_is_refused() -> None:
    """The check runs in a child process without privileges, because root can read every file."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        make_program(directory, "token", 0o000)
        checked = manifest(directory, secrets={"t": str(directory / "token")})
        child = os.fork()
        if child == 0:
            code = 2
            try:
                if os.geteuid() == 0:
                    os.setresuid(UNPRIVILEGED_USER, UNPRIVILEGED_USER, UNPRIVILEGED_USER)
                preflight.check(checked)
            except SpecError as exc:
                code = 0 if "cannot be read by this user" in str(exc) else 3
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_written_files_are_private(tmp_path: Path) -> None:
    source = tmp_path / "token"
    source.write_bytes(b"\x00secret\xff")
    source.chmod(0o644)
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    checked = manifest(tmp_path, secrets={"t": str(source)})
    run.write_manifest(checked.to_dict())
    preflight.write_secrets(run, checked)
    assert (run.secrets / "t").read_bytes() == b"\x00secret\xff"
    for path, mode in ((run.secrets, 0o700), (run.secrets / "t", 0o600), (run.manifest, 0o600)):
        assert stat.S_IMODE(path.stat().st_mode) == mode
    assert run.load_manifest()["experiment"] == "e"


def test_no_secrets_directory_without_secrets(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    preflight.write_secrets(run, manifest(tmp_path))
    assert not run.secrets.exists()
