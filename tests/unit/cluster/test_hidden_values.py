"""Hiding the values of secrets in what symphony shows."""

from __future__ import annotations

from typing import Any

import pytest

from symphony.archive.differences import find_differences, without_secrets
from symphony.cluster.hidden_output import details_without_secrets
from symphony.cluster.hidden_output import without_secrets as output_without_secrets
from symphony.events import EventKind, ExperimentEvent
from symphony.log_blocks import LogBlock
from symphony.plan.changes import RESTARTED, Changes, ProcessChange, SettingChange
from symphony.process_details import ProcessDetails, ProcessEvent
from symphony.status import ProcessStatus, State
from symphony.support.hidden_values import (
    HIDDEN,
    HiddenValues,
    lines_of_secret,
    secret_values,
    shown_at,
    shown_command,
    shown_document,
    shown_value,
)
from tests.unit.scan_cost import passes


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("SEED", "3", "3"),
        ("WANDB_API_KEY", "abc", HIDDEN),
        ("HF_TOKEN", "abc", HIDDEN),
        ("db_password", "abc", HIDDEN),
        ("DB_PASS", "abc", HIDDEN),
        ("MYSQL_PWD", "abc", HIDDEN),
        ("PWD", "/tmp", "/tmp"),
        ("AWS_SECRET_ACCESS_KEY", "abc", HIDDEN),
        ("DATABASE_URL", "postgres://me:pw@db/main", f"postgres://{HIDDEN}@db/main"),
        ("PROXY", "http://proxy:3128", "http://proxy:3128"),
        ("PGPASSWORD", "abc", HIDDEN),
        ("MAX_TOKENS", "4096", "4096"),
    ],
)
def test_values_whose_names_suggest_a_secret_are_hidden(name: str, value: str, shown: str) -> None:
    assert shown_value(name, value) == shown
    assert shown_at(f"processes.a.env.{name}", value) == shown
    assert shown_document({"env": {name: value}}) == {"env": {name: shown}}


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        ("parameters.token", 12, HIDDEN),
        ("definition.env.MY.API_KEY", "abc", HIDDEN),
        ("env.API_KEY", None, None),
        ("processes.a.replicas", 3, 3),
        ("processes.key", "abc", "abc"),
        ("command", ["x", "http://a:b@c"], ["x", f"http://{HIDDEN}@c"]),
    ],
)
def test_values_of_a_description_are_hidden_by_their_paths(
    path: str, value: Any, shown: Any
) -> None:
    assert shown_at(path, value) == shown


def test_a_secret_parameter_is_hidden_in_the_values_that_contain_it() -> None:
    document = {
        "parameters": {"db_password": "hunter-2", "mode": "debug"},
        "processes": {"a": {"env": {"DSN": "user=me password=hunter-2"}, "args": ["hunter-2"]}},
    }
    shown = shown_document(document)
    assert "hunter-2" not in str(shown)
    assert shown["parameters"]["mode"] == "debug"


def test_secret_parameters_of_a_command_line_are_hidden() -> None:
    words = ["symphony", "up", "a.yml", "--set", "api_key=x", "--set=token=y", "-b", "local"]
    hidden = ["--set", f"api_key={HIDDEN}", f"--set=token={HIDDEN}"]
    assert shown_command(words) == [*words[:3], *hidden, *words[-2:]]


def test_usual_words_and_short_values_are_shown_in_texts() -> None:
    text = "postgres is enabled, 12345"
    assert HiddenValues(["postgres", "enabled", "12345", ""]).in_text(text) == text


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
def test_values_are_hidden_wherever_a_text_is_divided(size: int) -> None:
    text = "a Secret-1 b\nSecret-12 c\n\nSecret-1Secret-1 -12345 end without newline Secret-1"
    hidden = HiddenValues(["Secret-1", "Secret-12", "-12345", "line-1\nline-2"])
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert "".join(hidden.in_pieces(pieces)) == hidden.in_text(text)
    assert "Secret" not in hidden.in_text(text)


def test_complete_lines_are_not_kept_back() -> None:
    pieces = HiddenValues(["Secret-1"]).in_pieces(iter(["one\n", "two\nSec", "ret-1\n"]))
    assert next(pieces) == "one\n"
    assert next(pieces) == "two\n"
    assert next(pieces) == f"{HIDDEN}\n"


def test_only_an_end_that_can_be_the_start_of_a_value_is_kept() -> None:
    hidden = HiddenValues(["Secret-1", "one-line\nand more"])
    assert hidden.split_at_start("50 %\rSe") == ("50 %\r", "Se")
    assert hidden.split_at_start("password: ") == ("password: ", "")
    assert hidden.split_at_start("one\nlast one-line\n") == ("one\n", "last one-line\n")


def test_values_that_a_process_writes_in_parts_are_hidden() -> None:
    exited = ExperimentEvent(at=1.0, kind=EventKind.EXITED, process="a", text="")
    items = [
        LogBlock("a", "50 %\rSec", 1.0),
        LogBlock("b", "ret-1\n", 1.0),
        LogBlock("a", "ret-1 60 %\rSecret", 2.0),
        exited,
        LogBlock("b", "S", 3.0),
    ]
    assert list(output_without_secrets(items, HiddenValues(["Secret-1"]))) == [
        LogBlock("a", "50 %\r", 1.0),
        LogBlock("b", "ret-1\n", 1.0),
        LogBlock("a", f"{HIDDEN} 60 %\r", 2.0),
        LogBlock("a", "Secret", 2.0),
        exited,
        LogBlock("b", "S", 3.0),
    ]


def test_values_in_details_about_a_process_are_hidden() -> None:
    details = ProcessDetails(
        status=ProcessStatus(name="a", state=State.FAILED, reason="exit code 1: Secret-1"),
        facts={"command": "run --token Secret-1 redis://me:pw@host"},
        events=(ProcessEvent(at=1.0, text="exited: Secret-1"),),
    )
    shown = details_without_secrets(details, HiddenValues(["Secret-1"]))
    assert shown.status.reason == f"exit code 1: {HIDDEN}"
    assert shown.facts == {"command": f"run --token {HIDDEN} redis://{HIDDEN}@host"}
    assert shown.events == (ProcessEvent(at=1.0, text=f"exited: {HIDDEN}"),)


def test_passwords_in_urls_and_lines_of_secret_files_are_hidden_in_texts() -> None:
    document = {"env": {"URL": "redis://me:hunter-2@host:1/0"}}
    values = [*secret_values(document), *lines_of_secret(b"first-line-1\n  second-line-2 \n")]
    text = "hunter-2 first-line-1 second-line-2"
    assert HiddenValues(values).in_text(text) == " ".join([HIDDEN] * 3)


def test_changes_hide_secrets() -> None:
    settings = (
        SettingChange("env.TOKEN", "old", "new"),
        SettingChange("env.SEED", "1", "2"),
        SettingChange("env.NEW_KEY", None, "x"),
        SettingChange("command", ["run", "Secret-1", "a"], ["run", "Secret-2", "a"]),
    )
    change = ProcessChange(name="a", action=RESTARTED, settings=settings)
    changes = Changes(experiment="e", backend="local", processes=(change,))
    shown = changes.with_hidden_secrets(HiddenValues(["Secret-1", "Secret-2"]))
    assert shown.lines() == [
        f"stop a: env.TOKEN changed {HIDDEN}; env.SEED changed from '1' to '2'; "
        f"env.NEW_KEY set to '{HIDDEN}'; "
        f"command changed from \"run '{HIDDEN}' a\" to \"run '{HIDDEN} (changed)' a\"",
        "start a",
    ]
    assert shown.to_dict()["processes"][0]["settings"][0]["new"] == f"{HIDDEN} (changed)"


def test_differences_between_runs_hide_secrets() -> None:
    first = {"env": {"API_KEY": "a", "SEED": "1"}, "exit_code": 1}
    differences = find_differences(first, {"env": {"API_KEY": "b", "SEED": "2"}})
    assert without_secrets(differences, HiddenValues([])) == {
        "env.API_KEY": (HIDDEN, f"{HIDDEN} (changed)"),
        "env.SEED": ("1", "2"),
        "exit_code": (1, None),
    }
    derived = {"env.DSN": ("password=hunter-2", None)}
    assert without_secrets(derived, HiddenValues(["hunter-2"])) == {
        "env.DSN": (f"password={HIDDEN}", None)
    }


def test_values_are_searched_fast_in_a_long_log() -> None:
    hidden = HiddenValues(["hunter2-S3cret", "zz9-plural-Z", "passw0rdX"])
    assert passes(hidden.in_text) < 0.75
    assert passes(lambda log: list(hidden.in_pieces([log[:-1], log[-1:]]))) < 0.75
