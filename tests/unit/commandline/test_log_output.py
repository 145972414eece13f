"""Searching output for a regular expression, and the forms in which it is printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.commandline.output.printing import LogFormatter
from symphony.commandline.output.search import OutputSearch
from symphony.line_search.helper import LONGEST_LINE_BYTES, LineSearcher
from symphony.log_blocks import LogBlock
from symphony.log_text import printable
from tests.unit.scan_cost import passes

PIECE_CHARACTERS = 1 << 18
parts = st.sampled_from(["a", "b", "\n", "é", "\udcff", "x" * 20])
texts = st.lists(parts, max_size=20).map("".join)


def blocks(text: str, size: int = PIECE_CHARACTERS) -> Iterator[LogBlock]:
    return (LogBlock("p", text[start : start + size]) for start in range(0, len(text), size))


def matching(pattern: str, text: str, size: int = PIECE_CHARACTERS) -> str:
    found = OutputSearch(pattern).matching(blocks(text, size))
    return "".join(block.text for block in found if isinstance(block, LogBlock))


# --- searching ---


@pytest.mark.parametrize("pattern", ["b", "^a*$", "\ufffd", "é|x"])
@pytest.mark.parametrize("is_slow", [False, True])
@given(text=texts, size=st.integers(1, 30))
def test_lines_that_match_are_shown(pattern: str, text: str, size: int, *, is_slow: bool) -> None:
    lines = text.removesuffix("\n").split("\n") if text else []
    expected = [f"{line}\n" for line in lines if re.search(pattern, printable(line))]
    with pytest.MonkeyPatch.context() as patch:
        if is_slow:
            patch.setattr(LineSearcher, "select", lambda *_: None)
        assert matching(pattern, text, size) == "".join(expected)


def test_long_line_is_searched_as_a_whole() -> None:
    line = f"{'a' * (LONGEST_LINE_BYTES - 2)}found{'b' * LONGEST_LINE_BYTES}\n"
    assert matching("found", line) == line
    assert matching("^a.*b$", line) == line
    assert matching("^b", line) == ""


@pytest.mark.one_python
def test_line_that_takes_too_long_is_reported_and_does_not_hide_the_others() -> None:
    search = OutputSearch("^(a+)+$|found")
    text = f"found 1\n{'a' * 40}!\nfound 2\n"
    assert "".join(block.text for block in search.matching([LogBlock("p", text)])) == (  # type: ignore[union-attr]
        "found 1\nfound 2\n"
    )
    assert "takes too long" in search.problem


@pytest.mark.one_python
def test_long_log_is_searched_fast() -> None:
    assert passes(lambda log: matching("step", log)) < 10
    assert passes(lambda log: matching("no such text", log)) < 10


# --- printing ---


@pytest.mark.parametrize("timestamps", [False, True])
def test_each_line_is_a_json_object(*, timestamps: bool) -> None:
    formatter = LogFormatter(["p"], as_json=True, timestamps=timestamps)
    lines = formatter(LogBlock("p", 'a "b"\n\ncaf\udce9 \x1b\u2028\n', 1.5)).splitlines()
    at = {"at": 1.5} if timestamps else {}
    assert [json.loads(line) for line in lines] == [
        {"process": "p", "text": text, **at} for text in ('a "b"', "", "caf\ufffd \x1b\u2028")
    ]


@pytest.mark.one_python
def test_long_log_is_printed_as_json_fast() -> None:
    formatter = LogFormatter(["p"], as_json=True, timestamps=True)
    assert passes(lambda log: formatter(LogBlock("p", log, 1.5))) < 10
