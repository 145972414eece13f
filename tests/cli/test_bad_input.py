"""What bad input gets: one line, the right exit code, nothing started and nothing left."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import FOREVER, Program


def refused(program: Program, *args: object, code: int = 2, **env: str) -> str:
    """Run what must be refused; the message."""
    done = program(*args, **env)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("symphony: error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def a(**keys: Any) -> dict[str, Any]:
    return {"cmd": "true", **keys}


SPECS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a bad name": ({"name": "My_Exp", "processes": {"a": a()}}, ["'My_Exp'", "'my-exp'"]),
    "a bad process name": ({"processes": {"Agent_1": a()}}, ["'Agent_1'", "'agent-1'"]),
    "no processes": ({"processes": {}}, ["has no processes"]),
    "a duplicate": (
        {"processes": {"a": a(), "g": {"processes": {"a": a()}}}},
        ["'a' already", "unique"],
    ),
    "connects without binds": (
        {"processes": {"a": a(binds="replay-server"), "b": a(connects="replay-sever")}},
        ["'b'", "'replay-sever'", "did you mean 'replay-server'?"],
    ),
    "a service bound twice": (
        {"processes": {"a": a(binds="s"), "b": a(binds="s")}},
        ["'s'", "'a'", "'b'"],
    ),
    "a port twice": (
        {"processes": {"a": a(binds={"s": 7123}), "b": a(binds={"t": 7123})}},
        ["7123", "'s'", "'t'"],
    ),
    "port 0": ({"processes": {"a": a(binds={"s": 0})}}, ["'s'", "0"]),
    "port 70000": ({"processes": {"a": a(binds={"s": 70000})}}, ["'s'", "70000"]),
    "port True": ({"processes": {"a": a(binds={"s": True})}}, ["'s'", "True"]),
    "a pool that ran dry": (
        {"port_range": [7950, 7951], "processes": {"a": a(binds=["s", "t", "u"])}},
        ["7950", "7951"],
    ),
    "an unknown keyword": (
        {"processes": {"a": a(conects="s")}},
        ["'conects'", "did you mean 'connects'"],
    ),
    "cmd with command": ({"processes": {"a": a(command="true")}}, ["'a'", "cmd", "command"]),
    "no command": ({"processes": {"a": {"container_image": "rl:1"}}}, ["'a'", "no command"]),
    "a missing secret": (
        {"secrets": ["token.txt"], "processes": {"a": a()}},
        ["'token.txt'", "there is no file"],
    ),
    "a command that does not exist": (
        {"processes": {"good": a(), "a": {"command": "no-such-program"}}},
        ["'a'", "'no-such-program'", "not found"],
    ),
    "a path that does not exist": (
        {"processes": {"a": {"command": "./run.sh"}}},
        ["'a'", "there is no", "run.sh"],
    ),
    "a folder that does not exist": (
        {"processes": {"a": a(start_dir="nowhere")}},
        ["'a'", "nowhere", "start_dir"],
    ),
    "a cycle": (
        {"processes": {"a": a(starts_after="b"), "b": a(starts_after="a")}},
        ["cycle", "'a'", "'b'"],
    ),
    "GPUs that are not there": (
        {"processes": {"good": a(), "a": a(resource_limit={"gpu": 1})}},
        ["'a'", "GPU"],
    ),
}


@pytest.mark.parametrize("what", SPECS)
def test_what_a_description_may_have_wrong(program: Program, what: str) -> None:
    spec, said = SPECS[what]
    file = program.file(
        "rl", spec["processes"], **{key: spec[key] for key in spec if key != "processes"}
    )
    message = refused(program, "launch", file, CUDA_VISIBLE_DEVICES="")
    assert [part for part in said if part not in message] == [], message
    assert program.left() == []


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rl.yml", b"name: rl\nprocesses:\n  a: {cmd: [}\n", "rl.yml:3:"),
        ("rl.yml", b"name: rl\nprocesses:\n  a:\n    cmd: x\n    prots: 3\n", "rl.yml:5:5: "),
        ("rl.yml", b"name: rl\nname: rl\nprocesses: {}\n", "rl.yml:2:1: "),
        ("rl.yml", b"", "the file is empty"),
        ("rl.yml", b"name: \xff\n", "UTF-8"),
        ("rl.json", b'{"name": "rl",\n "processes": }', "rl.json:2:15: "),
        ("rl.toml", b"", "ends in '.toml'"),
        ("rl", b"", "has no file name extension"),
    ],
)
def test_what_a_file_may_have_wrong(program: Program, name: str, content: bytes, said: str) -> None:
    (program.folder / name).write_bytes(content)
    assert said in refused(program, "launch", name)
    assert program.left() == []


def test_a_file_that_is_not_there(program: Program) -> None:
    assert "rl.yml: no such file" in refused(program, "launch", "rl.yml")
    assert "rl.py: no such file" in refused(program, "render", "rl.py")
    assert "is a directory" in refused(program, "launch", ".")
    (program.folder / "rl.py").mkdir()
    assert "rl.py: cannot be read" in refused(program, "launch", "rl.py")


@pytest.mark.parametrize("name", ["rl.yml", "rl.py"])
def test_a_file_that_cannot_be_read(program: Program, name: str) -> None:
    """A link to itself: that stops root too."""
    (program.folder / name).symlink_to(name)
    assert "cannot be read" in refused(program, "launch", name)


def test_a_fixed_port_in_use(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        file = program.file("rl", {"good": "true", "a": a(binds={"s": port})})
        message = refused(program, "launch", file)
    assert str(port) in message
    assert "'s'" in message
    assert program.left() == []


def test_a_program_that_cannot_be_executed_takes_back_what_was_started(program: Program) -> None:
    broken = program.folder / "broken"
    broken.write_bytes(b"\x7fELF, or so it says")
    broken.chmod(0o755)
    file = program.file("rl", {"good": f"touch started; {FOREVER}", "a": {"command": str(broken)}})
    assert "'a'" in refused(program, "launch", file)
    assert program.left() == []


def test_a_command_that_fails_is_not_one_that_does_not_exist(program: Program) -> None:
    program.launched("rl", {"a": {"command": ["sh", "-c", "exit 9"]}})
    assert program("wait", "rl").returncode == 9


def test_a_live_name_is_left_alone(program: Program) -> None:
    program.launched("rl", {"a": FOREVER})
    before = program.json("ps", "rl")
    said = refused(program, "launch", program.file("rl", {"b": "true"}))
    assert "'rl' is running and was not changed; delete it, or launch with --force\n" in said
    assert program.json("ps", "rl") == before


def test_what_is_wrong_with_the_new_one_shows_before_force_ends_the_old_one(
    program: Program,
) -> None:
    program.launched("rl", {"a": FOREVER})
    before = program.json("ps", "rl")
    refused(program, "launch", program.file("rl", {"b": {"command": "no-such-program"}}), "--force")
    assert program.json("ps", "rl") == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lanch", "rl.yml"], "unknown command 'lanch'; did you mean 'launch'?"),
        (["frobnicate"], "unknown command 'frobnicate'; choose from launch, render, check,"),
        (["ps"], "no current experiment on"),
        (["ps", "nowhere"], "no experiment 'nowhere'"),
        (["logs", "nowhere"], "no experiment 'nowhere'"),
        (["wait", "nowhere"], "no experiment 'nowhere'"),
        (["exec", "nowhere", "a", "--", "ls"], "no experiment 'nowhere'"),
        (["delete", "nowhere"], "no experiment 'nowhere'"),
        (["delete"], "EXPERIMENT"),
        (["launch"], "FILE"),
        (["ls", "more"], "unknown argument 'more'; see symphony ls --help"),
        (["ls", "--jsn"], "unknown option '--jsn'; did you mean '--json'?"),
        (["--jsn"], "unknown option '--jsn'"),
        (["ls", "--", "more"], "no arguments are accepted after --"),
        (["--", "ls"], "no arguments are accepted after --"),
        (["-b", "loca", "ls"], "no backend 'loca'; did you mean 'local'?"),
        (["ls", "-b"], "-b"),
        (["wait", "rl", "--timeout", "soon"], "90s or 5m, not 'soon'"),
        (["wait", "rl", "--timeout", "-1"], "--timeout"),
        (["logs", "rl", "--tail", "x"], "--tail"),
        (["logs", "rl", "--tial", "3", "a"], "unknown option '--tial'; did you mean '--tail'?"),
        (["logs", "rl", "a", "-f", "--jsn", "b"], "unknown option '--jsn'; did you mean '--json'"),
        (["ps", "rl", "--json", "more"], "unknown argument 'more'"),
        (["forward", "rl", "db", "--local", "8080"], "unknown option '--local'"),
        (
            ["ls", "more", "-n", "x"],
            "unknown option '-n'; it is an option of the kube backend: add -b kube",
        ),
        (["logs", "rl", "a", "--tail"], "--tail: expected one argument"),
    ],
)
def test_wrong_use(program: Program, words: list[str], said: str) -> None:
    assert said in refused(program, *words)


def test_a_since_that_is_no_time(program: Program) -> None:
    assert refused(program, "logs", "rl", "--since", "yesterday").removeprefix(
        "symphony: error: "
    ) == (
        "--since: a time must be a duration such as 90s or 5m, or an ISO 8601 time, not 'yesterday'; "
        "see symphony logs --help\n"
    )


def test_trouble_with_the_backend_is_another_code(program: Program, tmp_path: Path) -> None:
    """A state directory that is a file."""
    (tmp_path / "file").touch()
    file = program.file("rl", {"a": "true"})
    message = refused(program, "launch", file, code=3, SYMPHONY_STATE_DIR=str(tmp_path / "file"))
    assert str(tmp_path / "file") in message


def test_debug_shows_the_traceback_before_the_line(program: Program) -> None:
    for words in (["--debug", "ps", "nowhere"], ["ps", "nowhere", "--debug"]):
        done = program(*words)
        assert done.returncode == 2
        assert done.stderr.startswith("Traceback")
        assert done.stderr.splitlines()[-1].startswith("symphony: error: no experiment")


def test_a_full_disk_is_told(program: Program) -> None:
    with Path("/dev/full").open("w") as full:
        done = program.popen("ls", stdout=full, stderr=-1)
        _, said = done.communicate(timeout=60)
    assert (done.returncode, said) == (
        3,
        "symphony: error: standard output: No space left on device\n",
    )


@pytest.mark.parametrize("words", [["ps", "rl", "--json"], ["logs", "rl", "-f"]])
def test_a_full_disk_is_told_of_a_long_answer(program: Program, words: list[str]) -> None:
    program.ended("rl", {"a": "seq 20000", "b": "true"})
    with Path("/dev/full").open("w") as full:
        done = program.popen(*words, stdout=full, stderr=-1)
        _, said = done.communicate(timeout=60)
    assert (done.returncode, said) == (
        3,
        "symphony: error: standard output: No space left on device\n",
    )


def limited(program: Program, *words: object) -> str:
    """Run with files that can have no content, which fails as on a full disk: by a write, which knows no name."""
    command = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *program.argv(*words)]
    done = subprocess.run(
        command,
        env=program.env,
        cwd=program.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 3, done
    return done.stderr


def test_a_file_that_cannot_be_written_is_named(program: Program) -> None:
    program.ended("rl", {"a": "echo hi"})
    assert (
        limited(program, "logs", "rl", "--save", "kept")
        == "symphony: error: kept/a.log: File too large\n"
    )
    assert os.listdir(program.folder / "kept") == []
    place = program.state / "current" / "local"
    assert (
        limited(program, "switch-experiment", "rl") == f"symphony: error: {place}: File too large\n"
    )
    assert os.listdir(place.parent) == []


def test_a_working_folder_that_is_gone(program: Program) -> None:
    file = program.file("rl", {"a": "true"})
    (program.folder / "gone").mkdir()
    command = [
        "sh",
        "-c",
        'cd gone && rmdir ../gone && exec "$@"',
        "sh",
        *program.argv("launch", file),
    ]
    done = subprocess.run(
        command,
        env=program.env,
        cwd=program.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert (
        done.stderr
        == "symphony: error: the working directory no longer exists; change to one that exists\n"
    )
    assert program.left() == []
