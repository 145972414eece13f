"""Single values: the one form in which each is kept, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.errors import SpecError
from symphony.model import validators
from tests.unit.strategies import AWKWARD

Read = Callable[[Any, str], Any]


@pytest.mark.parametrize(
    ("read", "given", "kept"),
    [
        (validators.text, "a", "a"),
        (validators.text, "", ""),
        (validators.text, 1, "1"),
        (validators.text, 1.5, "1.5"),
        (validators.text, True, "True"),
        (validators.text, PurePosixPath("/a/b"), "/a/b"),
        (validators.strings, "a b", ["a b"]),
        (validators.strings, "", [""]),
        (validators.strings, 7, ["7"]),
        (validators.strings, [], []),
        (validators.strings, ["a", 1, Path("/x")], ["a", "1", "/x"]),
        (validators.strings, ("a", "b"), ["a", "b"]),
        (validators.lines, "a", ["a"]),
        (validators.lines, ["a", " b "], ["a", " b "]),
        (validators.path, "a", "a"),
        (validators.absolute, "/a", "/a"),
        (validators.whole, 0, 0),
        (validators.port, 1, 1),
        (validators.port, 65535, 65535),
        (validators.quantity, 2, "2"),
        (validators.quantity, 0, "0"),
        (validators.quantity, 0.5, "0.5"),
        (validators.quantity, 2.0, "2"),
        (validators.quantity, 100.0, "100"),
        (validators.quantity, "500m", "500m"),
        (validators.quantity, "4Gi", "4Gi"),
        (validators.quantity, "1e3", "1e3"),
        (validators.quantity, ".5", ".5"),
        (validators.services, "a", {"a": None}),
        (validators.services, ["a", "b"], {"a": None, "b": None}),
        (validators.services, ("a",), {"a": None}),
        (validators.services, {"b", "a"}, {"a": None, "b": None}),
        (validators.services, {"a": 80, "b": None}, {"a": 80, "b": None}),
        (validators.services, [], {}),
        (validators.env_pair, "", ("K", "")),
        (validators.env_pair, 0, ("K", "0")),
        (validators.label_pair, "v", ("K", "v")),
        (validators.label_pair, "", ("K", "")),
        (validators.mapping, {"a": 1}, {"a": 1}),
        (validators.files, "/a/token", {"token": "/a/token"}),
        (validators.files, Path("/a/token"), {"token": "/a/token"}),
        (validators.files, ["a/b", "c"], {"b": "a/b", "c": "c"}),
        (validators.files, {"t": "a/b"}, {"t": "a/b"}),
    ],
)
def test_kept(read: Callable[..., Any], given: Any, kept: Any) -> None:
    args = ("K", given) if read in (validators.env_pair, validators.label_pair) else (given, "it")
    assert read(*args) == kept


@pytest.mark.parametrize(
    ("read", "given", "message"),
    [
        (validators.text, None, "it is text, not None"),
        (validators.text, ["a"], "it is text, not ['a']"),
        (validators.text, {"a": 1}, "it is text, not {'a': 1}"),
        (validators.text, b"a", "it is text, not b'a'"),
        (validators.text, "a\0b", "it holds a NUL character"),
        (validators.text, "\ud800", "it is not valid Unicode"),
        (validators.strings, ["a", None], "element 1 of it is text, not None"),
        (validators.strings, {"a": 1}, "it is a string or a list of strings"),
        (validators.strings, {"a"}, "it is text"),
        (validators.lines, ["a", " \t"], "it has an empty line"),
        (validators.path, "", "it is empty"),
        (validators.absolute, "a/b", "it is an absolute path, not 'a/b'; for example '/a/b'"),
        (validators.absolute, "./a", "for example '/a'"),
        (validators.absolute, "", "it is empty"),
        (validators.whole, -1, "it is at least 0, not -1"),
        (validators.whole, True, "it is a whole number, not True"),
        (validators.whole, 1.0, "it is a whole number, not 1.0"),
        (validators.whole, "1", "it is a whole number, not '1'"),
        (validators.port, 0, "it is 0; ports go from 1 to 65535"),
        (validators.port, 70000, "it is 70000; ports go from 1 to 65535"),
        (validators.port, -1, "it is -1"),
        (validators.port, True, "it is a number from 1 to 65535, not True"),
        (validators.port, "80", "it is a number from 1 to 65535, not '80'"),
        (validators.port, 80.0, "it is a number from 1 to 65535, not 80.0"),
        (validators.quantity, "many", "it is an amount such as 2, '500m' or '4Gi', not 'many'"),
        (validators.quantity, -1, "not -1"),
        (validators.quantity, True, "not True"),
        (validators.quantity, float("nan"), "not nan"),
        (validators.quantity, float("inf"), "not inf"),
        (validators.quantity, "4 Gi", "not '4 Gi'"),
        (validators.quantity, "4Gi\n", "not '4Gi\\n'"),
        (validators.services, 5, "it takes a name, a list of names or {name: port}, not 5"),
        (validators.services, "Bad", "for example 'bad'"),
        (validators.services, ["a", "B"], "for example 'b'"),
        (validators.services, {"a": 0}, "the port of 'a' is 0"),
        (
            validators.services,
            {"a": False},
            "the port of 'a' is a number from 1 to 65535, not False",
        ),
        (validators.services, [None], "the name of a service must be text, not None"),
        (validators.mapping, [], "it is a mapping, not []"),
        (validators.mapping, {1: 2}, "it has a key that is not text: 1; quote it"),
        (validators.files, "/", "it: '' is no plain file name"),
        (
            validators.files,
            {"a/b": "c"},
            "it: 'a/b' is no plain file name; name it, as in {'token': 'c'}",
        ),
        (validators.files, {"..": "c"}, "it: '..' is no plain file name"),
        (validators.files, ["a/t", "b/t"], "it: two files are named 't': a/t and b/t"),
        (validators.files, [""], "it is empty"),
        (validators.files, {"a": None}, "it is text, not None"),
    ],
)
def test_refused(read: Read, given: Any, message: str) -> None:
    with pytest.raises(SpecError) as refusal:
        read(given, "it")
    assert message in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["", "1A", "A B", "A=B", "é", "A\n"])
def test_a_variable_name_is_one_that_every_backend_can_set(name: str) -> None:
    with pytest.raises(SpecError, match="is not valid"):
        validators.env_pair(name, "x")


@pytest.mark.parametrize("value", [True, False])
def test_a_bool_is_no_variable(value: bool) -> None:
    with pytest.raises(
        SpecError, match=r"variable 'A' is text, not (True|False); write '1', 'true' or"
    ):
        validators.env_pair("A", value)


@pytest.mark.parametrize("text", AWKWARD, ids=ascii)
def test_awkward_text_is_kept_as_it_is(text: str) -> None:
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
        ("a", "b c", "label 'a' has a value that is not valid: 'b c'"),
        ("a", "-b", "label 'a' has a value"),
        ("a", "x" * 64, "at most 63"),
    ],
)
def test_a_wrong_label(key: str, value: str, message: str) -> None:
    with pytest.raises(SpecError) as refusal:
        validators.label_pair(key, value)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ((7000, 8999), (7000, 8999)),
        ([1, 65535], (1, 65535)),
        (range(7000, 7010), (7000, 7009)),
        ((80, 80), (80, 80)),
    ],
)
def test_a_port_range(given: Any, kept: tuple[int, int]) -> None:
    assert validators.port_range(given) == kept


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7000, "port_range is its first and last port"),
        ((7000,), "port_range is its first and last port"),
        ((1, 2, 3), "port_range is its first and last port"),
        ("79", "port_range is its first and last port"),
        (range(0), "port_range is its first and last port"),
        (range(7000, 8000, 2), "port_range is its first and last port"),
        ((8000, 7000), "port_range begins at 8000 and ends before it, at 7000"),
        ((0, 7000), "an end of port_range is 0"),
        ((7000, 70000), "an end of port_range is 70000"),
        ((True, 7000), "an end of port_range is a number from 1 to 65535, not True"),
    ],
)
def test_a_wrong_port_range(given: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        validators.port_range(given)


def test_a_wrong_word_is_refused_with_the_near_miss() -> None:
    with pytest.raises(
        SpecError, match="policy is Always, Never, not 'never'; did you mean 'Never'"
    ):
        validators.one_of("never", ("Always", "Never"), "policy")


def test_an_unknown_keyword_is_refused_with_the_near_miss_and_where_it_stands() -> None:
    with pytest.raises(SpecError, match="it knows no 'imagee'; did you mean 'image'") as refusal:
        validators.refuse_unknown(["env", "imagee"], ["image", "env"], "it")
    assert refusal.value.path == ("imagee",)
    with pytest.raises(SpecError, match="it knows no 'zzz'; it knows image, env"):
        validators.refuse_unknown(["zzz"], ["image", "env"], "it")


@given(
    st.floats(0, 1e12, allow_subnormal=False).filter(lambda number: number == 0 or number > 1e-3)
)
def test_a_float_is_written_without_an_exponent_and_close(number: float) -> None:
    assert float(validators.quantity(number, "cpu")) == pytest.approx(number, abs=1e-6)
