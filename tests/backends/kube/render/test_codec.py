"""The encoding of the values in annotations and Secrets."""

import base64
import json
import zlib
from dataclasses import dataclass, field
from typing import Any

import pytest

from symphony_kube.lifecycle.supervisor.supervisor_record import (
    Record,
    Round,
    decode_record,
    encode_record,
)
from symphony_kube.record.change_log import decode_changes
from symphony_kube.record.creation_problems import Problem, decode_problems
from symphony_kube.record.ending import StoppedProcesses, decode_ending, encode_ending
from symphony_kube.render import codec
from symphony_kube.state.control_state import (
    FIRST_ATTEMPT,
    NO_CONTROL,
    Control,
    decode_attempt,
    decode_control,
    encode,
)

DEEP = "[" * 100_000


@dataclass(frozen=True)
class Values:
    name: str
    number: int = 0
    time: float = 0.0
    flag: bool = False
    names: tuple[str, ...] = ()
    lists: dict[str, list[str]] = field(default_factory=dict)
    anything: dict[str, Any] = field(default_factory=dict)


def test_fields_have_their_types():
    given = {"name": "a", "number": 2, "time": 3, "flag": True, "names": ["b"], "further": 1}
    given |= {"lists": {"c": ["d"]}, "anything": {"e": [1, None]}}
    built = codec.build(Values, json.loads(json.dumps(given)))
    expected = Values("a", 2, 3.0, True, ("b",), {"c": ["d"]}, {"e": [1, None]})
    assert built == expected
    assert isinstance(built.time, float)
    assert codec.build(Values, {"name": "a"}) == Values("a")


@pytest.mark.parametrize(
    "given",
    [
        None,
        [],
        "name",
        {},
        {"name": 1},
        {"name": None},
        {"name": "a", "number": 1.0},
        {"name": "a", "number": True},
        {"name": "a", "time": True},
        {"name": "a", "time": "1"},
        {"name": "a", "time": 10**400},
        {"name": "a", "flag": 1},
        {"name": "a", "names": "b"},
        {"name": "a", "names": [1]},
        {"name": "a", "lists": {"c": "d"}},
        {"name": "a", "lists": [["c", ["d"]]]},
    ],
)
def test_fields_of_other_types_are_refused(given):
    with pytest.raises(ValueError, match="not valid: "):
        codec.build(Values, given)


def test_texts_are_compressed():
    text = "ä" * 100_000
    assert codec.unpack(codec.pack(text)) == codec.decompress(codec.compress(text)) == text
    assert len(codec.pack(text)) < 1000


@pytest.mark.parametrize(
    "text",
    [
        "no base64",
        base64.b64encode(b"not compressed").decode(),
        base64.b64encode(zlib.compress(b"\xff")).decode(),
        base64.b64encode(zlib.compress(b" " * (9 << 20))).decode(),
    ],
    ids=["no base64", "not compressed", "no UTF-8", "too large"],
)
def test_damaged_texts_are_refused(text):
    with pytest.raises(ValueError, match="not valid|decode|base64"):
        codec.unpack(text)


def test_text_can_be_larger_where_that_is_permitted():
    text = " " * (9 << 20)
    assert codec.decompress(codec.compress(text), max_bytes=0) == text


DAMAGED = ["", "{", "null", "1", "[1]", '{"a": 1}', '{"stop": "x"}', DEEP, "5:[{}]", "5:{}"]


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_annotations_count_as_missing(text):
    assert decode_control(text) == NO_CONTROL
    assert decode_attempt(text) == FIRST_ATTEMPT
    assert decode_changes(text) == ()
    assert decode_problems(text) == {}
    assert decode_ending(text) is decode_ending(codec.pack(text)) is None


@pytest.mark.parametrize("text", ["{", "null", "1", "[]", '{"created": 1}', '{"round": []}', DEEP])
def test_damaged_record_is_refused(text):
    with pytest.raises(ValueError, match="not valid|property name"):
        decode_record(text)


def test_values_that_earlier_versions_have_stored():
    """They have fewer fields, other spaces, and the keys of some are sorted."""
    assert decode_record('{"created":["a"]}') == Record(created=frozenset(["a"]))
    problems = '{"b": {"permanent": true, "text": "no", "time": 1}, "c": {"text": 1}}'
    assert decode_problems(problems) == {"b": Problem(text="no", time=1.0, permanent=True)}
    assert decode_control('{"stop":5}') == Control(stop=5.0)
    (change,) = decode_changes('3:[{"revision": 3, "at": 1.5, "lines": ["a"]}]')
    assert (change.revision, change.at, change.lines) == (3, 1.5, ("a",))


def test_stored_values_are_read_back():
    ending = StoppedProcesses(
        processes=("a", "b"), reason="stopped", code="stopped", time=2.5, failed=False
    )
    record = Record(
        created=frozenset("ab"),
        ended=frozenset("a"),
        problems={"c": Problem(text="no", time=1.0, permanent=True)},
        ending=ending,
        round=Round(number=1, start=2.0, in_row=1, reason="x"),
        revision=4,
    )
    assert decode_record(encode_record(record)) == record
    assert decode_ending(encode_ending(ending)) == ending
    control = Control(stop=1.5, command="stop", others="b:1", revision=2)
    assert decode_control(encode(control)) == control
