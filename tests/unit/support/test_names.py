"""Valid names, suggestions for other names, and names in messages."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from symphony.errors import SpecError, shown
from symphony.support.names import (
    MAX_LENGTH,
    check_name,
    did_you_mean,
    join_names,
    service_env_name,
    suggested_name,
)
from tests.unit.strategies import names

# RFC 1035, section 2.3.1. Written independently of the code under test.
DNS_1035 = re.compile(r"\A[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?\Z")


@given(names)
def test_a_valid_name_is_returned_unchanged(name: str) -> None:
    assert DNS_1035.match(name)
    assert check_name(name, "process") == name


@given(st.text(max_size=80))
def test_a_suggested_name_is_valid_or_empty(name: str) -> None:
    hint = suggested_name(name)
    assert not hint or DNS_1035.match(hint)


@given(st.text(st.characters(codec="ascii"), min_size=1))
def test_there_is_a_suggestion_for_text_with_a_letter_or_digit(name: str) -> None:
    assert bool(suggested_name(name)) == any(char.isalnum() for char in name)


@given(st.one_of(st.text(max_size=80), st.from_regex(r"[A-Za-z0-9_. -]{1,70}", fullmatch=True)))
def test_other_names_are_refused_with_a_suggestion(name: str) -> None:
    assume(not DNS_1035.match(name))
    with pytest.raises(SpecError) as error:
        check_name(name, "process")
    message = str(error.value)
    assert shown(name) in message
    assert message.startswith("process name")
    assert len(message.splitlines()) == 1
    assert repr(suggested_name(name)) in message or not suggested_name(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("My_exp", "my-exp"),
        ("myExp", "my-exp"),
        ("my exp", "my-exp"),
        ("1st", "p1st"),
        ("-a-", "a"),
        ("a.b", "a-b"),
        ("RL", "rl"),
        ("a__b", "a-b"),
        ("x" * 70, "x" * 63),
        ("x" * 62 + "-y", "x" * 62),
        ("1" + "x" * 63, "p1" + "x" * 61),
        ("é", ""),
        ("", ""),
        ("___", ""),
    ],
)
def test_suggested_name(name: str, hint: str) -> None:
    assert suggested_name(name) == hint


@pytest.mark.parametrize("name", ["a\n", "\na", "a\0", "\uff41", "a²", "x" * (MAX_LENGTH + 1)])
def test_names_that_look_valid_are_refused(name: str) -> None:
    with pytest.raises(SpecError):
        check_name(name, "process")


@pytest.mark.parametrize("name", [None, 1, b"a", ["a"], True])
def test_a_name_must_be_text(name: object) -> None:
    with pytest.raises(SpecError, match=r"the name of an experiment must be text, not "):
        check_name(name, "experiment")


def test_env_name() -> None:
    assert service_env_name("replay-server-2") == "REPLAY_SERVER_2"


@given(names, names)
def test_different_names_have_different_variables(one: str, other: str) -> None:
    assert (service_env_name(one) == service_env_name(other)) == (one == other)


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("serer", ["server", "client"], "; did you mean 'server'?"),
        ("worker", ["worker-1", "worker-2"], "; did you mean 'worker-2' or 'worker-1'?"),
        ("zzz", ["server"], ""),
        (
            "image",
            ["cmd", "container_image", "image_pull_policy"],
            "; did you mean 'container_image' or 'image_pull_policy'?",
        ),
        ("image", ["container_image", "images"], "; did you mean 'images'?"),
        ("", ["a_"], ""),
        ("a", [], ""),
    ],
)
def test_did_you_mean(name: str, known: list[str], hint: str) -> None:
    assert did_you_mean(name, known) == hint


@pytest.mark.parametrize(
    ("names", "limit", "text"),
    [
        ([], 8, "none"),
        (["a"], 8, "a"),
        (["a", "b"], 2, "a, b"),
        (["a", "b", "c"], 2, "a, b and 1 more"),
    ],
)
def test_join_names(names: list[str], limit: int, text: str) -> None:
    assert join_names(names, limit=limit) == text
