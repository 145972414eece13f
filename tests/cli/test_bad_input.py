"""Errors: one line, the exit code, and nothing that stays behind.

The rules for experiments and files have tests of their own. These tests check that errors reach the
user, one for each step at which a launch can be refused.
"""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import FOREVER, TIMEOUT, Program

FULL_DISK = "symphony: error: standard output: No space left on device\n"


def refused(program: Program, *args: object, code: int = 2, **env: str) -> str:
    """Run a command that must fail, and return its error message."""
    done = program(*args, **env)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("symphony: error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


# --- experiments and files ---


@pytest.mark.parametrize(
    ("processes", "error"),
    [
        pytest.param({"Agent_1": "true"}, "'Agent_1' is not valid", id="a rule for the file"),
        pytest.param(
            {
                "a": {"cmd": "true", "binds": "replay-server"},
                "b": {"cmd": "true", "connects": "replay-sever"},
            },
            "did you mean 'replay-server'?",
            id="a rule for the whole experiment",
        ),
        pytest.param(
            {"good": "true", "a": {"command": "no-such-program"}},
            "'no-such-program' was not found",
            id="a check of this machine",
        ),
        pytest.param(
            {"good": "true", "a": {"cmd": "true", "resource_limit": {"gpu": 1}}},
            "GPU",
            id="a resource of this machine",
        ),
    ],
)
def test_a_refused_launch_leaves_nothing(
    program: Program, processes: dict[str, object], error: str
) -> None:
    file = program.file("rl", processes)
    assert error in refused(program, "launch", file, CUDA_VISIBLE_DEVICES="")
    assert program.state_entries() == []


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("rl.yml", b"name: rl\nprocesses:\n  a: {cmd: [}\n", "rl.yml:3:"),
        ("rl.yml", b"name: \xff\n", "UTF-8"),
        ("rl.json", b'{"name": "rl",\n "processes": }', "rl.json:2:15: "),
        ("rl.toml", b"", "ends in '.toml'"),
        ("rl", b"", "has no file name extension"),
        ("Procfile", b"web: sleep 1", "; to convert it, use the command: import "),
        ("job.sh", b"", "; to run one command, use: submit -- sh "),
    ],
)
def test_an_invalid_file(program: Program, name: str, content: bytes, error: str) -> None:
    (program.directory / name).write_bytes(content)
    assert error in refused(program, "launch", name)


def test_a_missing_file(program: Program) -> None:
    assert "rl.yml: no such file" in refused(program, "launch", "rl.yml")
    assert "rl.py: no such file" in refused(program, "render", "rl.py")
    assert "is a directory" in refused(program, "launch", ".")
    assert "of an experiment, use start, stop or restart" in refused(program, "up", "web")
    (program.directory / "rl.py").mkdir()
    assert "rl.py: cannot be read" in refused(program, "launch", "rl.py")


@pytest.mark.parametrize("name", ["rl.yml", "rl.py"])
def test_an_unreadable_file(program: Program, name: str) -> None:
    """The file is a link to itself, which root cannot read either."""
    (program.directory / name).symlink_to(name)
    assert "cannot be read" in refused(program, "launch", name)


def test_a_fixed_port_in_use(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        processes = {"good": "true", "a": {"cmd": "true", "binds": {"s": port}}}
        message = refused(program, "launch", program.file("rl", processes))
    assert str(port) in message
    assert "'s'" in message
    assert program.state_entries() == []


def test_a_failed_launch_is_rolled_back(program: Program) -> None:
    broken = program.directory / "broken"
    broken.write_bytes(b"\x7fELF without a valid header")
    broken.chmod(0o755)
    file = program.file("rl", {"good": f"touch started; {FOREVER}", "a": {"command": str(broken)}})
    assert "'a'" in refused(program, "launch", file)
    assert program.state_entries() == []


def test_the_exit_code_of_a_command_is_not_a_launch_error(program: Program) -> None:
    program.launch("rl", {"a": {"command": ["sh", "-c", "exit 9"]}})
    assert program("wait", "rl").returncode == 9


def test_a_running_experiment_is_not_replaced(program: Program) -> None:
    program.launch("rl", {"a": FOREVER})
    before = program.json("ps", "rl")
    message = refused(program, "launch", program.file("rl", {"b": "true"}))
    assert "'rl' is running and was not changed; delete it, or launch with --force\n" in message
    invalid = program.file("rl", {"b": {"command": "no-such-program"}})
    refused(program, "launch", invalid, "--force")
    misspelled = program.directory / "misspelled.yml"
    misspelled.write_text("name: rl\nends_with: [c]\nprocesses:\n  b: {cmd: 'true'}\n")
    error = f"symphony: error: {misspelled}:2:1: the experiment ends with 'c', which is not in"
    for command in (["launch"], ["launch", "--dry-run"], ["up"]):
        done = program(*command, misspelled)
        assert (done.returncode, done.stderr[: len(error)]) == (2, error)
    assert program.json("ps", "rl") == before


# --- the command line ---


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["lanch", "rl.yml"], "unknown command 'lanch'; did you mean 'launch'?"),
        (["logss"], "unknown command 'logss'; did you mean 'logs'?; see symphony --help\n"),
        (["frobnicate"], "unknown command 'frobnicate'; choose from init, "),
        (["kill", "rl", "a"], "use 'symphony delete rl', or 'symphony signal rl a --signal KILL'"),
        (
            ["launch", "-d", "rl.yml"],
            "unknown option '-d'; the processes always run in the background: remove it; ",
        ),
        (["logs", "rl", "-n", "x"], "-n: must be a whole number of at least 0, not 'x'"),
        (["ps"], "no experiment was launched from this directory; name an experiment"),
        (["ps", "nowhere"], "no experiment 'nowhere'"),
        (["exec", "nowhere", "a", "--", "ls"], "no experiment 'nowhere'"),
        (["delete", "nowhere"], "no experiment 'nowhere'"),
        (["delete"], "EXPERIMENT"),
        (["launch"], "FILE"),
        (["ls", "more"], "unknown argument 'more'; see symphony ls --help"),
        (["--jsn"], "unknown option '--jsn'"),
        (["ls", "--", "more"], "no arguments are accepted after --"),
        (["--", "ls"], "no arguments are accepted after --"),
        (["-b", "loca", "ls"], "no backend 'loca'; did you mean 'local'?"),
        (["ls", "-b"], "-b"),
        (["wait", "rl", "--timeout", "soon"], "90s or 5m, not 'soon'"),
        (["logs", "rl", "--tail", "x"], "--tail: must be a whole number of at least 0, not 'x'"),
        (
            ["logs", "rl", "--since", "yesterday"],
            "--since: a time must be a duration such as 90s or 5m, or an ISO 8601 time, "
            "not 'yesterday'; see symphony logs --help",
        ),
        (["logs", "rl", "--tial", "3", "a"], "unknown option '--tial'; did you mean '--tail'?"),
        (["logs", "rl", "a", "-f", "--jsn", "b"], "unknown option '--jsn'; did you mean '--json'"),
        (["logs", "rl", "--json", "--more"], "unknown option '--more'"),
        (["forward", "rl", "db", "--local", "8080"], "unknown option '--local'"),
        (["logs", "rl", "a", "--tail"], "--tail: expected one argument"),
    ],
)
def test_usage_errors(program: Program, words: list[str], error: str) -> None:
    assert error in refused(program, *words)


def test_a_backend_error_has_another_exit_code(program: Program, tmp_path: Path) -> None:
    """The state directory is a file."""
    (tmp_path / "file").touch()
    file = program.file("rl", {"a": "true"})
    message = refused(program, "launch", file, code=3, SYMPHONY_STATE_DIR=str(tmp_path / "file"))
    assert str(tmp_path / "file") in message


@pytest.mark.parametrize("words", [("--debug", "ps", "nowhere"), ("ps", "nowhere", "--debug")])
def test_debug_shows_the_traceback(program: Program, words: tuple[str, ...]) -> None:
    done = program(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("Traceback")
    assert done.stderr.splitlines()[-1].startswith("symphony: error: no experiment")


# --- the operating system ---


@pytest.mark.parametrize(
    "words", [["ls"], ["--help"], ["ps", "rl"], ["ps", "rl", "--json"], ["logs", "rl", "-f"]]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_standard_output_on_a_full_disk(
    program: Program, words: list[str], unbuffered: str
) -> None:
    program.env["PYTHONUNBUFFERED"] = unbuffered
    if "rl" in words:
        program.run("rl", {"a": "seq 20000", "b": "true"})
    with Path("/dev/full").open("w") as full:
        done = program.popen(*words, stdout=full, stderr=-1)
        _, stderr = done.communicate(timeout=TIMEOUT)
    # The events before the error are also reported.
    assert (done.returncode, stderr.splitlines(keepends=True)[-1]) == (3, FULL_DISK)


def run_in_shell(
    program: Program, command: str, *words: object
) -> subprocess.CompletedProcess[str]:
    """Run a shell command in which ``"$@"`` is a command of symphony."""
    return subprocess.run(
        ["sh", "-c", command, "sh", *program.argv(*words)],
        env=program.env,
        cwd=program.directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )


@pytest.mark.without_coverage
def test_a_file_that_cannot_be_written_is_named(program: Program) -> None:
    """The size of files is limited to 0, so that writes fail as on a full disk."""
    program.run("rl", {"a": "echo hi"})
    limit = 'ulimit -f 0; exec "$@"'
    saved = run_in_shell(program, limit, "logs", "rl", "--save", "kept")
    assert saved.stderr == "symphony: error: kept/a.log: File too large\n"
    assert os.listdir(program.directory / "kept") == []
    assert saved.returncode == 3


def test_the_working_directory_was_removed(program: Program) -> None:
    file = program.file("rl", {"a": "true"})
    (program.directory / "gone").mkdir()
    done = run_in_shell(program, 'cd gone && rmdir ../gone && exec "$@"', "launch", file)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "symphony: error: the working directory no longer exists; change to one that exists\n"
    )
    assert program.state_entries() == []


@pytest.mark.parametrize(
    ("setting", "position"),
    [
        ("command: [no-such-program]", "7:13"),
        ("command: [./none]", "7:13"),
        ("start_dir: nowhere, cmd: 'true'", "7:13"),
        ("container_image: i", "7:7"),
        ("binds: {s: PORT}, cmd: 'true'", "7:21"),
        ("exposes: {s: PORT}, cmd: 'true'", "7:23"),
        ("resource_limit: {gpu: 99}, cmd: 'true'", "7:13"),
    ],
)
def test_an_error_about_the_machine_contains_the_position_in_the_file(
    program: Program, setting: str, position: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        setting = setting.replace("PORT", str(server.getsockname()[1]))
        file = program.directory / "rl.yml"
        file.write_text(
            "name: rl\n"
            "processes:\n"
            "  good: {cmd: exit}\n"
            "  group:\n"
            "    processes:\n"
            "      # This comment is a line, too.\n"
            f"      bad: {{{setting}}}\n"
        )
        assert f"error: {file}:{position}: " in refused(program, "launch", file)


def test_a_missing_secret_has_the_position_of_the_secret(program: Program) -> None:
    file = program.directory / "rl.yml"
    file.write_text("name: rl\nsecrets: {t: none}\nprocesses: {a: {cmd: exit}}\n")
    assert f"{file}:2:11: secret 't': there is no file" in refused(program, "launch", file)
