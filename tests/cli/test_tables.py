"""Tables, ages and times as text."""

from __future__ import annotations

import argparse

import pytest

from symphony.commandline.output.tables import Column, format_age, format_cell, format_table
from symphony.commandline.parsing.arguments import (
    help_from_docstring,
    parse_count,
    parse_seconds,
    split_remainder,
)

COLUMNS = (
    Column("NAME", flexible=True),
    Column("N", right=True, drop=1),
    Column("WHY", flexible=True),
)


def test_columns_are_aligned_and_empty_cells_are_a_dash() -> None:
    assert format_table(COLUMNS, [["a", 10, ""], ["longer", 2, "it is so"]]) == [
        "NAME     N  WHY",
        "a       10  -",
        "longer   2  it is so",
    ]


def test_no_rows_is_the_titles() -> None:
    assert format_table(COLUMNS, []) == ["NAME  N  WHY"]


@pytest.mark.parametrize("width", [20, 30, 40, 200])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    lines = format_table(COLUMNS, [["n" * 50, 1, "w" * 70], ["n", 1234, "w"]], width)
    assert max(map(len, lines)) <= width
    assert ("…" in lines[1]) is (width < 130)


def test_a_pipe_is_never_cut() -> None:
    assert format_table(COLUMNS, [["n" * 500, 1, "w" * 500]])[1] == f"{'n' * 500}  1  {'w' * 500}"


def test_what_matters_least_goes_first() -> None:
    columns = (Column("A"), Column("B", drop=1), Column("C", drop=2))
    row = ["a" * 5, "b" * 5, "c" * 5]
    assert [line.split() for line in format_table(columns, [row], 12)] == [["A", "B"], row[:2]]
    assert [line.split() for line in format_table(columns, [row], 3)] == [["A"], row[:1]]


def test_what_says_nothing_goes_before_all_else() -> None:
    columns = (Column("A"), Column("B"), Column("C", drop=1))
    rows = [["a" * 5, None, "c" * 5]]
    assert format_table(columns, rows, 12)[0].split() == ["A", "C"]
    assert format_table(columns, rows, 15)[0].split() == ["A", "B", "C"]
    assert format_table(columns, [], 5)[0].split() == [
        "A",
        "B",
    ]  # without rows nothing is known of what they will say


def test_names_are_cut_in_the_middle_and_prose_at_its_end() -> None:
    columns = (Column("NAME", flexible=True), Column("WHY", flexible=True, prose=True))
    rows = [["worker-with-a-long-name-1", "because of this and that"]]
    assert format_table(columns, rows, 34)[1] == "worker-w…-name-1  because of this…"


def test_text_is_cut_to_its_least_before_names_are_cut() -> None:
    columns = (Column("NAME", flexible=True), Column("WHY", flexible=True, least=8, prose=True))
    assert format_table(columns, [["n" * 20, "w" * 30]], 30)[1] == f"{'n' * 20}  {'w' * 7}…"


def test_colour_is_beside_the_text_not_in_the_width() -> None:
    plain = format_table(COLUMNS, [["a", 1, "b"]])
    painted = format_table(
        COLUMNS,
        [["a", 1, "b"]],
        paint=lambda title, text: "<" if (title, text) == ("NAME", "a") else "",
    )
    assert painted == [plain[0], "<a   \x1b[0m  1  b"]


def test_a_cell_is_one_line_of_printable_text() -> None:
    assert [format_cell(value) for value in (None, "", 0, "a\nb\t c", "\x1b[31mred")] == [
        "-",
        "-",
        "0",
        "a b c",
        "[31mred",
    ]


@pytest.mark.parametrize(
    ("lasted", "shown"),
    [
        (-3, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (61, "1m1s"),
        (3600, "1h"),
        (3661, "1h1m"),
        (90_000, "1d1h"),
    ],
)
def test_age(lasted: float, shown: str) -> None:
    assert format_age(lasted) == shown


@pytest.mark.parametrize(
    ("text", "value"),
    [("90", 90), ("1.5", 1.5), ("90s", 90), ("1m30s", 90), ("2h", 7200), ("5ms", 0.005)],
)
def test_seconds(text: str, value: float) -> None:
    assert parse_seconds(text) == value


@pytest.mark.parametrize("text", ["", "s", "-1", "1x", "1m30", "nan", "inf", "1 m", "9" * 400])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_seconds(text)


def test_count() -> None:
    assert parse_count("0") == 0
    with pytest.raises(argparse.ArgumentTypeError):
        parse_count("-1")


def test_only_the_first_dashes_count() -> None:
    assert split_remainder(["a", "--", "b", "--", "c"]) == (["a"], ["b", "--", "c"])
    assert split_remainder(["a", "--"]) == (["a"], [])
    assert split_remainder(["a"]) == (["a"], None)


def test_help_is_the_docstring_with_the_name_of_the_program_in_examples() -> None:
    summary, text = help_from_docstring(
        "Do it, 100 % symphony fast.\n\n        Then:\n          symphony do it\n        ", "mine"
    )
    assert summary == "Do it, 100 %% symphony fast."
    assert text == "Do it, 100 %% symphony fast.\n\nThen:\n  mine do it"
