"""Running something behind the preamble of a process, with each shell that there may be."""

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

from symphony.host import exec
from symphony.host.exec import CommandNotRunError
from symphony.host.processes.spec import ProcessSpec

ENV = {**os.environ, "P": "begun"}


@pytest.fixture(params=[name for name in ("bash", "dash", "sh") if shutil.which(name)])
def shell(request: pytest.FixtureRequest) -> str:
    return shutil.which(request.param) or ""


def process(folder: Path, *preamble: str, shell: str = "/bin/sh") -> ProcessSpec:
    return ProcessSpec(
        name="p", argv=(shell, "-c", "no matter"), cwd=str(folder), preamble=preamble
    )


def run(
    command: ProcessSpec, *argv: str, env: dict[str, str] = ENV, **options: Any
) -> subprocess.CompletedProcess[str]:
    return exec.run(command, argv, env, capture_output=True, **options)


def test_without_a_preamble_there_is_no_shell(tmp_path: Path) -> None:
    done = run(process(tmp_path, shell="/no/shell"), "sh", "-c", 'echo "$P"; pwd')
    assert (done.stdout, done.stderr, done.returncode) == (f"begun\n{tmp_path}\n", "", 0)


def test_a_preamble_sets_variables_folder_and_what_else_a_shell_hands_on(
    tmp_path: Path, shell: str
) -> None:
    (tmp_path / "deep").mkdir()
    command = process(tmp_path, "export P=$P,more # a comment", "cd deep; umask 027", shell=shell)
    done = run(command, "sh", "-c", 'echo "$P"; pwd; umask; exit 3')
    assert (done.stdout, done.returncode) == (f"begun,more\n{tmp_path}/deep\n0027\n", 3)


def test_standard_input_and_output_are_those_of_the_command(tmp_path: Path, shell: str) -> None:
    done = run(process(tmp_path, "echo said; cat", shell=shell), "cat", input="given")
    assert (done.stdout, done.stderr) == ("given", "said\n")


@pytest.mark.parametrize("line", ["set -eu", "set -C", "set -a"])
def test_options_of_the_shell_are_no_matter(tmp_path: Path, shell: str, line: str) -> None:
    assert run(process(tmp_path, line, shell=shell), "echo", "fine").stdout == "fine\n"


@pytest.mark.parametrize(
    ("preamble", "why"),
    [
        (["true", "(exit 7)", "echo later >&2"], "its preamble failed with exit code 7"),
        (["echo one >&2; echo two >&2; false"], "its preamble failed with exit code 1: two"),
        (["exit 0"], "its preamble failed with exit code 0"),
        (["kill -9 $$"], "its preamble failed with exit code 137"),
        (["if"], "its preamble failed with exit code 2: .*"),
    ],
)
def test_a_preamble_that_fails_is_told_from_a_command_that_does(
    tmp_path: Path, shell: str, preamble: list[str], why: str
) -> None:
    with pytest.raises(CommandNotRunError, match=f"^{why}$"):
        run(process(tmp_path, *preamble, shell=shell), "touch", "never")
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("preamble", [[], ["true"]])
@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("no-such-thing", "it was not found on the PATH of the process"),
        ("", "it was not found on the PATH of the process"),
        ("./none", "No such file or directory"),
        ("./plain", "Permission denied"),
        ("./folder", "it is a directory"),
    ],
)
def test_what_cannot_run_says_why(
    tmp_path: Path, shell: str, preamble: list[str], program: str, why: str
) -> None:
    (tmp_path / "plain").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(CommandNotRunError, match=f"^{why}$"):
        run(process(tmp_path, *preamble, shell=shell), program)


def test_a_program_is_looked_for_on_the_path_and_in_the_folder_of_the_preamble(
    tmp_path: Path, shell: str
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mine"
    program.write_text("#!/bin/sh\nexit 127\n")
    program.chmod(0o755)
    assert run(process(tmp_path, "PATH=bin:$PATH", shell=shell), "mine").returncode == 127
    assert run(process(tmp_path, "cd bin", shell=shell), "./mine").returncode == 127


@pytest.mark.parametrize("preamble", [[], ["true"]])
def test_a_folder_that_is_gone_is_named(tmp_path: Path, preamble: list[str]) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(CommandNotRunError, match=f"^its directory {gone} does not exist$"):
        run(process(gone, *preamble), "true")


words = st.text(st.characters(blacklist_characters="\0\r", blacklist_categories=["Cs"]), max_size=8)


@given(st.lists(words, max_size=4))
def test_arguments_arrive_untouched(args: list[str]) -> None:
    command = process(Path("/"), "true")
    done = run(command, "printf", "%s\\0", *args, encoding="utf-8")
    assert done.stdout == "".join(f"{arg}\0" for arg in args or [""])


def test_nothing_is_left_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run(process(tmp_path, "true"), "true")
    with pytest.raises(CommandNotRunError):
        run(process(tmp_path, "false"), "true")
    assert list(tmp_path.iterdir()) == []
