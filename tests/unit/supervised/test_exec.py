"""Running a command in the environment of a process, with every available shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.supervised.access import exec_command
from symphony.supervised.access.exec_command import CommandNotRunError
from symphony.supervised.processes.spec import ProcessSpec

ENV = {**os.environ, "P": "initial"}
SHELLS = [name for name in ("bash", "dash", "sh") if shutil.which(name)]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    return shutil.which(request.param) or ""


def run(
    directory: Path, preamble: list[str], *argv: str, shell: str = "/bin/sh", **options: Any
) -> subprocess.CompletedProcess[str]:
    spec = ProcessSpec(name="p", argv=(shell,), cwd=str(directory), preamble=tuple(preamble))
    return exec_command.run(spec, argv, ENV, capture_output=True, **options)


def test_no_shell_runs_without_a_preamble(tmp_path: Path) -> None:
    done = run(tmp_path, [], "sh", "-c", 'echo "$P"; pwd', shell="/no/shell")
    assert (done.stdout, done.stderr, done.returncode) == (f"initial\n{tmp_path}\n", "", 0)


def test_command_inherits_settings_of_the_preamble(tmp_path: Path, shell: str) -> None:
    (tmp_path / "deep").mkdir()
    preamble = ["export P=$P,more # a comment", "cd deep; umask 027"]
    done = run(tmp_path, preamble, "sh", "-c", 'echo "$P"; pwd; umask; exit 3', shell=shell)
    assert (done.stdout, done.returncode) == (f"initial,more\n{tmp_path}/deep\n0027\n", 3)


def test_preamble_does_not_use_standard_input_and_output(tmp_path: Path, shell: str) -> None:
    done = run(tmp_path, ["echo text; cat"], "cat", input="input", shell=shell)
    assert (done.stdout, done.stderr) == ("input", "text\n")


@pytest.mark.parametrize("line", ["set -eu", "set -C", "set -a"])
def test_shell_options_of_the_preamble_are_harmless(tmp_path: Path, shell: str, line: str) -> None:
    assert run(tmp_path, [line], "echo", "fine", shell=shell).stdout == "fine\n"


@pytest.mark.parametrize(
    ("preamble", "reason"),
    [
        (["true", "(exit 7)", "echo later >&2"], "its preamble failed with exit code 7"),
        (["echo one >&2; echo two >&2; false"], "its preamble failed with exit code 1: two"),
        (["exit 0"], "its preamble failed with exit code 0"),
        (["kill -9 $$"], "its preamble failed with exit code 137"),
        (["if"], "its preamble failed with exit code 2: .*"),
    ],
)
def test_failed_preamble_is_an_error(
    tmp_path: Path, shell: str, preamble: list[str], reason: str
) -> None:
    with pytest.raises(CommandNotRunError, match=f"^{reason}$"):
        run(tmp_path, preamble, "touch", "never", shell=shell)
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("preamble", [[], ["true"]])
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("no-such-thing", "it was not found on the PATH of the process"),
        ("", "it was not found on the PATH of the process"),
        ("./none", "No such file or directory"),
        ("./plain", "Permission denied"),
        ("./directory", "it is a directory"),
    ],
)
def test_command_that_cannot_run_is_an_error(
    tmp_path: Path, shell: str, preamble: list[str], program: str, reason: str
) -> None:
    (tmp_path / "plain").touch()
    (tmp_path / "directory").mkdir()
    with pytest.raises(CommandNotRunError, match=f"^{reason}$"):
        run(tmp_path, preamble, program, shell=shell)


def test_command_is_found_with_the_path_and_directory_of_the_preamble(
    tmp_path: Path, shell: str
) -> None:
    program = tmp_path / "bin" / "mine"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 127\n")
    program.chmod(0o755)
    assert run(tmp_path, ["PATH=bin:$PATH"], "mine", shell=shell).returncode == 127
    assert run(tmp_path, ["cd bin"], "./mine", shell=shell).returncode == 127


@pytest.mark.parametrize("preamble", [[], ["true"]])
def test_missing_directory_is_an_error(tmp_path: Path, preamble: list[str]) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(CommandNotRunError, match=f"^its directory {missing} does not exist$"):
        run(missing, preamble, "true")


words = st.text(st.characters(blacklist_characters="\0\r", blacklist_categories=["Cs"]), max_size=8)


@given(st.lists(words, max_size=4))
def test_arguments_pass_the_preamble_unchanged(args: list[str]) -> None:
    done = run(Path("/"), ["true"], "printf", "%s\\0", *args, encoding="utf-8")
    assert done.stdout == "".join(f"{arg}\0" for arg in args or [""])


def test_no_temporary_file_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run(tmp_path, ["true"], "true")
    with pytest.raises(CommandNotRunError):
        run(tmp_path, ["false"], "true")
    assert list(tmp_path.iterdir()) == []
