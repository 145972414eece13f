"""Checks of single values: the normal form of valid values, and the messages for other values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from symphony.errors import SpecError
from symphony.model.settings import validators
from tests.unit.strategies import AWKWARD


@pytest.mark.parametrize(
    ("check", "value", "result"),
    [
        (validators.text, "", ""),
        (validators.text, 1.5, "1.5"),
        (validators.text, True, "True"),
        (validators.text, PurePosixPath("/a/b"), "/a/b"),
        (validators.strings, "a b", ["a b"]),
        (validators.strings, "", [""]),
        (validators.strings, 7, ["7"]),
        (validators.strings, [], []),
        (validators.strings, ["a", 1, Path("/x")], ["a", "1", "/x"]),
        (validators.strings, ("a", "b"), ["a", "b"]),
        (validators.shell_lines, "a", ["a"]),
        (validators.shell_lines, ["a", " b "], ["a", " b "]),
        (validators.nonempty_text, "a", "a"),
        (validators.absolute_path, "/a", "/a"),
        (validators.whole_number, 0, 0),
        (validators.port, 1, 1),
        (validators.port, 65535, 65535),
        (validators.services, "a", {"a": None}),
        (validators.services, ["a", "b"], {"a": None, "b": None}),
        (validators.services, ("a",), {"a": None}),
        (validators.services, {"b", "a"}, {"a": None, "b": None}),
        (validators.services, {"a": 80, "b": None}, {"a": 80, "b": None}),
        (validators.services, [], {}),
        (validators.mapping, {"a": 1}, {"a": 1}),
        (validators.files, "/a/token", {"token": "/a/token"}),
        (validators.files, Path("/a/token"), {"token": "/a/token"}),
        (validators.files, ["a/b", "c"], {"b": "a/b", "c": "c"}),
        (validators.files, {"t": "a/b"}, {"t": "a/b"}),
    ],
)
def test_valid_values_have_one_normal_form(
    check: Callable[[Any, str], Any], value: Any, result: Any
) -> None:
    assert check(value, "value") == result


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (validators.text, None, "value must be text, not None"),
        (validators.text, ["a"], "value must be text, not ['a']"),
        (validators.text, {"a": 1}, "value must be text, not {'a': 1}"),
        (validators.text, b"a", "value must be text, not b'a'"),
        (validators.text, "a\0b", "value contains a NUL character"),
        (validators.text, "\ud800", "value is not valid Unicode"),
        (validators.strings, ["a", None], "element 1 of value must be text, not None"),
        (validators.strings, {"a": 1}, "value must be a string or a list of strings"),
        (validators.strings, {"a"}, "value must be text"),
        (validators.shell_lines, ["a", " \t"], "value has an empty line"),
        (validators.nonempty_text, "", "value is empty"),
        (
            validators.absolute_path,
            "a/b",
            "must be an absolute path, not 'a/b'; for example '/a/b'",
        ),
        (validators.absolute_path, "./a", "for example '/a'"),
        (validators.absolute_path, "", "value is empty"),
        (validators.whole_number, -1, "value must be at least 0, not -1"),
        (validators.whole_number, True, "value must be a whole number, not True"),
        (validators.whole_number, 1.0, "value must be a whole number, not 1.0"),
        (validators.whole_number, "1", "value must be a whole number, not '1'"),
        (validators.port, 0, "value must be a number from 1 to 65535, not 0"),
        (validators.port, 70000, "not 70000"),
        (validators.port, True, "not True"),
        (validators.port, "80", "not '80'"),
        (validators.port, 80.0, "not 80.0"),
        (
            validators.services,
            5,
            "value must be a name, a list of names or {name: port}, not 5; "
            "write for example {web: 5}",
        ),
        (
            validators.services,
            True,
            "value must be a name, a list of names or {name: port}, not Tr",
        ),
        (validators.services, [80], "a port belongs to a service with a name, as in exposes: {web"),
        (validators.services, "Bad", "for example 'bad'"),
        (validators.services, ["a", "B"], "for example 'b'"),
        (validators.services, {"a": 0}, "the port of 'a' must be a number from 1 to 65535"),
        (validators.services, [None], "the name of a service"),
        (validators.mapping, [], "value must be a mapping, not []"),
        (validators.mapping, {1: 2}, "value has the key 1, which is not text; put it in quotes"),
        (validators.files, "/", "value: '' is not a plain file name"),
        (validators.files, {"a/b": "c"}, "give it a name, as in {'token': 'c'}"),
        (validators.files, {"..": "c"}, "value: '..' is not a plain file name"),
        (validators.files, ["a/t", "b/t"], "value: two files are named 't': a/t and b/t"),
        (validators.files, [""], "value is empty"),
        (validators.files, {"a": None}, "value must be text, not None"),
    ],
)
def test_other_values_are_refused_with_a_message(
    check: Callable[[Any, str], Any], value: Any, message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        check(value, "value")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "1A", "A B", "A=B", "é", "A\n"])
def test_a_variable_needs_a_name_that_every_backend_supports(name: str) -> None:
    with pytest.raises(SpecError, match="is not valid"):
        validators.env_pair(name, "x")


def test_a_boolean_is_not_the_value_of_a_variable() -> None:
    with pytest.raises(SpecError, match=r"variable 'A' must be text, not True; write '1', 'true'"):
        validators.env_pair("A", True)
    assert validators.env_pair("A", 0) == ("A", "0")


@pytest.mark.parametrize("text", AWKWARD, ids=ascii)
def test_awkward_text_is_not_changed(text: str) -> None:
    assert validators.strings([text, text], "args") == [text, text]
    assert validators.env_pair("A", text) == ("A", text)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("a b", "c", "label key 'a b' is not valid"),
        ("", "c", "label key '' is not valid"),
        ("a/b/c", "d", "label key 'a/b/c' is not valid"),
        ("A.b/c", "d", "is not valid"),
        ("x" * 64, "d", "is not valid"),
        ("a", "b c", "label 'a' has the value 'b c', which is not valid"),
        ("a", "-b", "label 'a' has the value"),
        ("a", "x" * 64, "at most 63"),
    ],
)
def test_labels_are_those_of_kubernetes(key: str, value: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        validators.label_pair(key, value)
    assert message in str(caught.value)
    assert validators.label_pair("example.org/a", "") == ("example.org/a", "")


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ((7000, 8999), (7000, 8999)),
        ([1, 65535], (1, 65535)),
        (range(7000, 7010), (7000, 7009)),
        ((80, 80), (80, 80)),
    ],
)
def test_a_port_range_is_a_pair_or_a_range(value: Any, result: tuple[int, int]) -> None:
    assert validators.port_range(value) == result


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (7000, "port_range must be the first and the last port"),
        ((7000,), "port_range must be the first and the last port"),
        ("79", "port_range must be the first and the last port"),
        (range(0), "port_range must be the first and the last port"),
        (range(7000, 8000, 2), "port_range must be the first and the last port"),
        ((8000, 7000), "must not begin at 8000, which is after its end at 7000"),
        ((0, 7000), "the first port of port_range must be a number from 1 to 65535, not 0"),
        ((7000, 70000), "the last port of port_range must be a number from 1"),
    ],
)
def test_other_port_ranges_are_refused(value: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        validators.port_range(value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rl:1", "must not have a tag or a digest; write 'rl'"),
        ("rl@sha256:0", "must not have a tag or a digest; write 'rl'"),
        ("host:5000/rl:1", "write 'host:5000/rl'"),
        ("Rl", r"is not valid: use \[registry\[:port\]/\]name.*for example 'rl'"),
        ("a..b", "is not valid"),
        ("-rl", "is not valid"),
    ],
)
def test_a_repository_has_no_tag(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        validators.repository(name)


def test_an_unknown_word_or_key_gets_a_suggestion() -> None:
    with pytest.raises(
        SpecError, match="policy must be one of Always, Never, not 'never'; did you"
    ):
        validators.one_of("never", ("Always", "Never"), "policy")
    with pytest.raises(
        SpecError, match="it has the unknown key 'imagee'; did you mean 'image'"
    ) as e:
        validators.refuse_unknown(["env", "imagee"], ["image", "env"], "it")
    assert e.value.path == ("imagee",)
    with pytest.raises(SpecError, match="it has the unknown key 'zzz'; known keys: image, env"):
        validators.refuse_unknown(["zzz"], ["image", "env"], "it")
