"""Making text safe for a terminal."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from symphony.commandline.parsing import completion
from symphony.model.document.files import to_yaml, to_yaml_documents
from symphony.support import escapes
from symphony.support.escapes import LogCleaner, escape, remove_controls
from tests.unit.scan_cost import passes

# Text with many beginnings and ends of control sequences.
PARTS = "\x1b [ ] 0; 31 m H 8;; \\ \x07 \x9b \x9c \x9d P \r \n \t \x08 \x7f \x85 \u202e a é ? >"
hostile = st.lists(st.sampled_from(PARTS.split(" ")), max_size=40).map("".join)

COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain é\t日\n", "plain é\t日\n"),
        ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
        ("\x1b[38:2::1:2:3mred\x1b[m", "\x1b[38:2::1:2:3mred\x1b[m"),
        ("\x1b[>4;2mkeys", "keys"),  # XTMODKEYS
        ("\x1b[?25lhidden cursor", "hidden cursor"),
        ("\x1b[2J\x1b[1;1H\x1b[3Aclear and move", "clear and move"),
        ("\x9b2Jclear", "clear"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]2;title\x1b\\text", "text"),
        ("\x9d0;title\x9ctext", "text"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;ZXZpbA==\x07clipboard", "clipboard"),
        ("\x1bPtmux;\x1b\x1b]0;title\x07\x1b\\text", "tmux;text"),
        ("\x1b_application\x1b\\text", "text"),
        ("\x1bcreset\x1b7\x1b(0", "reset"),
        ("\x1b]0;not terminated\nnext", "0;not terminated\nnext"),
        ("\x1b[31", "31"),
        ("at the end\x1b", "at the end"),
        ("\x1b\x1b[31mtwice", "\x1b[31mtwice"),
        ("secret\rpublic\r\nnext\r\r\n", "secret\npublic\nnext\n"),
        ("a\x08b\x7f\x0b\x0c\0\x85", "ab"),
        ("user\u202egnp.exe\u2066\u200f", "usergnp.exe"),
    ],
)
def test_log_keeps_only_colours(text: str, expected: str) -> None:
    assert remove_controls(text, keep_colours=True) == expected
    without_colours = remove_controls(text, keep_colours=False)
    assert without_colours == COLOUR.sub("", expected)


@given(hostile)
def test_nothing_but_colours_remains(text: str) -> None:
    cleaned = remove_controls(text, keep_colours=True)
    assert COLOUR.sub("", cleaned).replace("\n", "").replace("\t", "").isprintable()
    assert remove_controls(cleaned, keep_colours=True) == cleaned


@given(hostile, st.integers(1, 5))
def test_log_in_pieces_is_cleaned_as_a_whole(text: str, size: int) -> None:
    cleaner = LogCleaner(keep_colours=True)
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    cleaned = "".join(map(cleaner.clean, pieces)) + cleaner.clean_rest()
    # A string that contains a newline is not removed in either case.
    assert cleaned == "".join(
        remove_controls(line, keep_colours=True) for line in re.findall(r"[^\n]*\n|[^\n]+", text)
    )
    assert cleaner.has_colours == ("\x1b" in cleaned)


@pytest.mark.parametrize("keep_colours", [True, False])
def test_long_log_is_cleaned_fast(*, keep_colours: bool) -> None:
    assert passes(lambda log: remove_controls(log, keep_colours=keep_colours)) < 4


def test_line_with_carriage_returns_becomes_several_lines() -> None:
    cleaner = LogCleaner(keep_colours=True)
    assert cleaner.clean_lines("10%\r20%\x1b[K\r100%\r\na\r") == "10%\n20%\n100%\na"
    assert cleaner.clean_lines("") == ""


@given(hostile)
def test_other_text_is_escaped(text: str) -> None:
    assert escape(text).replace("\n", "").replace("\t", "").isprintable()
    coloured = escapes.escape_except_colours(text)
    assert COLOUR.sub("", coloured).replace("\n", "").replace("\t", "").isprintable()
    printable = "".join(character for character in text if character.isprintable())
    assert escape(printable) == escapes.escape_except_colours(printable) == printable


def test_escaped_text_is_readable() -> None:
    assert escape("a\x1b[31mb\x07\x9b\u202e\udc80é\n") == "a\\x1b[31mb\\x07\\x9b\\u202e\\udc80é\n"
    assert escapes.escape_except_colours("a\x1b[31mb\x1b[2J") == "a\x1b[31mb\\x1b[2J"


@given(hostile)
def test_yaml_contains_only_printable_characters(text: str) -> None:
    for written in (to_yaml({text: text}), to_yaml_documents([{text: text}])):
        assert written.replace("\n", "").replace("\t", "").isprintable()
        assert yaml.safe_load(written) == {text: text}


def test_completion_offers_no_word_with_control_characters() -> None:
    words = ["good", "go\x1b[31mod", "go\nod", "go\u202eod"]
    assert completion._with_prefix(words, "go") == ["good"]
