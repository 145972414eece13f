"""Env files: their format, their precedence, and their errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symphony import Experiment, SpecError
from symphony.model.document import env_files
from symphony.plan.resolve import check_experiment, resolve
from tests.unit.strategies import SCHEME

ENVIRON = {"HOME": "/home/me", "EMPTY": "", "BOTH": "outer"}


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("", {}),
        ("\n  \n# A=1\n  # B=2\n", {}),
        ("A=1\nB=2", {"A": "1", "B": "2"}),
        ("A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("\ufeffA=1", {"A": "1"}),
        ("  export   A = 1 2  \nexported=3", {"A": "1 2", "exported": "3"}),
        ("A=\nB=''\nC=\"\"", {"A": "", "B": "", "C": ""}),
        ("A=1 # comment\nB=1#2\nC=#3\nD= # 4", {"A": "1", "B": "1#2", "C": "", "D": ""}),
        ("A=b=c", {"A": "b=c"}),
        ("A=1\nA=2", {"A": "2"}),
        ("A.b-c=1", {"A.b-c": "1"}),
        ('A=it\'s "x"', {"A": 'it\'s "x"'}),
        (r"A='$HOME \n # \'x\' \\'", {"A": r"$HOME \n # 'x' \\"}),
        (r'A="a\tb\n\"c\" \$HOME \\ \x $$1" # c', {"A": 'a\tb\n"c" $HOME \\ \\x $1'}),
        ("A='1\n2' # c\nB=\"3\n4\"\nC=5", {"A": "1\n2", "B": "3\n4", "C": "5"}),
        ('A=$HOME/x\nB="${HOME}"', {"A": "/home/me/x", "B": "/home/me"}),
        ("A=1\nB=${A}2$$", {"A": "1", "B": "12$"}),
        ("BOTH=inner\nA=$BOTH", {"BOTH": "inner", "A": "outer"}),
        ("A=${NO:-d}${EMPTY:-e}${EMPTY-f}${NO-}", {"A": "de"}),
        ("A=日本", {"A": "日本"}),
    ],
)
def test_the_format(tmp_path: Path, text: str, variables: dict[str, str]) -> None:
    (tmp_path / "a.env").write_bytes(text.encode())
    assert env_files.read(tmp_path / "a.env", ENVIRON) == variables


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A=1\ns3cret", "a.env:2: the line has no '='; write NAME=value"),
        ("s3 cret=1", "a.env:1: the text before '=' is not the name of a variable; "),
        ("=s3cret", "a.env:1: the text before '=' is not the name of a variable; "),
        ("\nA='s3cret\nB=1", "a.env:2: the value of A has no closing '; add it"),
        ('A="s3cret\\"', 'a.env:1: the value of A has no closing "; add it'),
        ("A='s3'cret", "a.env:1: there is text after the closing ' of A; "),
        ("A=$s3cret", "a.env:1: the value of A refers to a variable that is not set; "),
        ('B=1\nA="\n${s3cret}"', "a.env:2: the value of A refers to a variable that is not set; "),
        ("A=s3cret$", "a.env:1: a '$' in the value of A is not followed by the name of a variable"),
        ("A=$(s3cret)", "a.env:1: a '$' in the value of A is not followed by the name of a varia"),
        ("A=${s3cret", "a.env:1: a '$' in the value of A is not followed by the name of a variab"),
        ("A=s3cret\0", "a.env:1: the line contains a NUL character; remove it"),
        ("A='s3cret\n\0'", "a.env:1: the value of A contains a NUL character; remove it"),
    ],
)
def test_errors_have_a_line_and_no_value(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        env_files.parse(text, "a.env", {})
    assert str(caught.value).startswith(message)
    assert "s3" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"A=\xff", "not UTF-8 text (byte 2)"),
        (b"#" * (env_files.MAX_BYTES + 1), "larger than 1 MiB"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "a.env").write_bytes(content)
    experiment = Experiment.load_dict(
        {"name": "e", "processes": {"p": {"command": "c", "env_file": ["a.env"]}}}
    )
    experiment.base_dir = tmp_path
    with pytest.raises(SpecError) as caught:
        resolve(experiment, SCHEME)
    assert str(caught.value).startswith(f"process 'p': {tmp_path}/a.env: {message}")
    assert caught.value.path == ("processes", "p", "env_file", 0)


def test_env_takes_precedence_over_files_of_the_same_level(tmp_path: Path) -> None:
    names = ("outer", "outer2", "group", "process")
    for number, name in enumerate(names):
        variables = [f"V{other}={name}" for other in range(2 * number, 12)]
        (tmp_path / f"{name}.env").write_text("\n".join(variables))
    # Each level sets the variable after those that only its file sets.
    experiment = Experiment(
        "e", env_file=["outer.env", Path("outer2.env")], env={"V3": "env", "S": "env"}
    )
    experiment.base_dir = tmp_path
    group = experiment.new_process_group("g").add_env_file("group.env").set_env("V5", "env")
    group.new_process("p", command="c", env_file="process.env", env={"V7": "env"})
    experiment.new_process("q", command="c")
    plan = resolve(experiment, SCHEME)
    first, second = plan
    values = [first.env[f"V{number}"] for number in range(8)]
    assert values == ["outer", "outer", "outer2", "env", "group", "env", "process", "env"]
    assert (second.env["V3"], second.env["V4"]) == ("env", "outer2")
    assert first.settings.env_file == []
    assert group.settings.env == {"V5": "env"}
    assert Experiment.load_dict(experiment.dump_dict()).dump_dict() == experiment.dump_dict()


def test_a_variable_of_a_secret_is_not_in_a_file_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("TOKEN=1")
    process = {"command": "c", "env_secrets": {"TOKEN": "t"}}
    data: dict[str, Any] = {"name": "e", "secrets": {"t": "t.txt"}, "processes": {"p": process}}
    experiment = Experiment.load_dict({**data, "env_file": "a.env"})
    experiment.base_dir = tmp_path
    assert "TOKEN" not in next(iter(resolve(experiment, SCHEME))).env
    experiment = Experiment.load_dict(
        {**data, "processes": {"p": {**process, "env_file": "a.env"}}}
    )
    experiment.base_dir = tmp_path
    (finding,) = check_experiment(experiment)
    assert finding.rule == "variable-twice"


@pytest.mark.parametrize("value", [{"path": "a.env", "required": False}, [{"path": "a.env"}]])
def test_the_long_form_of_compose_has_a_hint(value: Any) -> None:
    with pytest.raises(SpecError, match="write 'a.env'"):
        Experiment.load_dict({"name": "e", "env_file": value})
