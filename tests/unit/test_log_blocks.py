"""Blocks of log lines, and their conversion to lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.log_blocks import LineAssembler, LogBlock, to_lines
from tests.unit.scan_cost import passes

parts = st.lists(st.sampled_from(["a", "b\n", "\n", "c\rd", "\r", ""]), max_size=20)


@given(parts)
def test_parts_of_lines_are_joined(texts: list[str]) -> None:
    lines = to_lines(LogBlock("p", text, at) for at, text in enumerate(texts))
    text = "".join(texts)
    expected = text.removesuffix("\n").split("\n") if text else []
    assert [line.text for line in lines] == expected


def test_lines_of_several_processes_are_kept_apart() -> None:
    blocks = [("p", "one ", 1.0), ("q", "1\n2", 2.0), ("p", "two\nthree", 3.0), ("p", "!", 4.0)]
    lines = to_lines(LogBlock(*block) for block in blocks)
    assert [(line.process, line.text, line.at) for line in lines] == [
        ("q", "1", 2.0),
        ("p", "one two", 3.0),
        ("q", "2", 2.0),
        ("p", "three!", 4.0),
    ]


def test_memory_for_a_progress_bar_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LineAssembler, "MAX_LINE_CHARACTERS", 8)
    texts = ["\r 10%", "\r 20%", "\r 30%", "\n", "end\n"]
    lines = to_lines(LogBlock("p", text) for text in texts)
    assert [line.text for line in lines] == ["\r 10%\r 20%", "\r 30%", "end"]


@pytest.mark.one_python
def test_progress_bar_in_many_parts_is_joined_fast() -> None:
    blocks = [LogBlock("p", f"\r{number}%") for number in range(100_000)]
    assert passes(lambda _: list(to_lines(blocks))) < 30
