"""Tables, ages, durations and help as text."""

from __future__ import annotations

import argparse

import pytest

from symphony.commandline.output.tables import Column, format_age, format_cell, format_table
from symphony.commandline.output.usage_columns import UsageTable, unavailable_lines
from symphony.commandline.parsing.arguments import (
    help_from_docstring,
    parse_count,
    parse_seconds,
    split_remainder,
)
from symphony.usage import EVERYTHING, ExperimentUsage, ProcessUsage

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


def test_without_rows_only_the_titles_are_shown() -> None:
    assert format_table(COLUMNS, []) == ["NAME  N  WHY"]


@pytest.mark.parametrize("width", [20, 30, 40, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = format_table(COLUMNS, [["n" * 50, 1, "w" * 70], ["n", 1234, "w"]], width)
    assert max(map(len, lines)) <= width
    assert ("…" in lines[1]) is (width < 130)


def test_optional_columns_are_shown_only_if_they_have_a_value() -> None:
    columns = (Column("A"), Column("B", optional=True))
    assert format_table(columns, [["a", ""]]) == ["A", "a"]
    assert format_table(columns, [["a", ""], ["c", "d"]])[2] == "c  d"


def test_nothing_is_cut_in_a_pipe() -> None:
    assert format_table(COLUMNS, [["n" * 500, 1, "w" * 500]])[1] == f"{'n' * 500}  1  {'w' * 500}"


def test_the_least_important_columns_are_removed_first() -> None:
    columns = (Column("A"), Column("B", drop=1), Column("C", drop=2))
    row = ["a" * 5, "b" * 5, "c" * 5]
    assert [line.split() for line in format_table(columns, [row], 12)] == [["A", "B"], row[:2]]
    assert [line.split() for line in format_table(columns, [row], 3)] == [["A"], row[:1]]


def test_empty_columns_are_removed_before_others() -> None:
    columns = (Column("A"), Column("B"), Column("C", drop=1))
    rows = [["a" * 5, None, "c" * 5]]
    assert format_table(columns, rows, 12)[0].split() == ["A", "C"]
    assert format_table(columns, rows, 15)[0].split() == ["A", "B", "C"]
    # Without rows no column counts as empty.
    assert format_table(columns, [], 5)[0].split() == ["A", "B"]


def test_names_are_cut_in_the_middle_and_prose_at_its_end() -> None:
    columns = (Column("NAME", flexible=True), Column("WHY", flexible=True, prose=True))
    rows = [["worker-with-a-long-name-1", "because of this and that"]]
    assert format_table(columns, rows, 34)[1] == "worker-w…-name-1  because of this…"


def test_the_last_column_is_cut_first() -> None:
    columns = (Column("NAME", flexible=True), Column("WHY", flexible=True, least=8, prose=True))
    assert format_table(columns, [["n" * 20, "w" * 30]], 30)[1] == f"{'n' * 20}  {'w' * 7}…"


def test_colours_do_not_count_in_the_width() -> None:
    def paint(title: str, text: str) -> str:
        return "<" if (title, text) == ("NAME", "a") else ""

    plain = format_table(COLUMNS, [["a", 1, "b"]])
    assert format_table(COLUMNS, [["a", 1, "b"]], paint=paint) == [plain[0], "<a   \x1b[0m  1  b"]


@pytest.mark.parametrize(
    ("value", "cell"),
    [(None, "-"), ("", "-"), (0, "0"), ("a\nb\t c", "a b c"), ("\x1b[31mred", "[31mred")],
)
def test_a_cell_is_one_line_of_printable_text(value: object, cell: str) -> None:
    assert format_cell(value) == cell


@pytest.mark.parametrize(
    ("seconds", "shown"),
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
def test_age(seconds: float, shown: str) -> None:
    assert format_age(seconds) == shown


def test_seconds() -> None:
    assert parse_seconds("1m30s") == 90
    with pytest.raises(argparse.ArgumentTypeError, match="a time must be seconds or a duration"):
        parse_seconds("soon")


def test_count() -> None:
    assert parse_count("0") == 0
    with pytest.raises(argparse.ArgumentTypeError):
        parse_count("-1")


@pytest.mark.parametrize(
    ("words", "split"),
    [
        (["a", "--", "b", "--", "c"], (["a"], ["b", "--", "c"])),
        (["a", "--"], (["a"], [])),
        (["a"], (["a"], None)),
    ],
)
def test_only_the_first_dashes_separate_the_remainder(words: list[str], split: object) -> None:
    assert split_remainder(words) == split


def test_help_is_the_docstring_with_the_name_of_the_program_in_examples() -> None:
    summary, text = help_from_docstring(
        "Do it, 100 % symphony fast.\n\n        Then:\n          symphony do it\n        ", "mine"
    )
    assert summary == "Do it, 100 %% symphony fast."
    assert text == "Do it, 100 %% symphony fast.\n\nThen:\n  mine do it"


# --- resource use ---


def sample(unavailable: dict[str, str] | None = None, **values: object) -> ExperimentUsage:
    """A sample of the process ``a`` with these values."""
    usage = ProcessUsage(process="a", **values)  # type: ignore[arg-type]
    return ExperimentUsage(at=1.0, processes=(usage,), unavailable=unavailable or {})


def test_usage_table_has_the_columns_with_values() -> None:
    table = UsageTable(
        sample(cpu=1.234, gpu_memory=3 << 30, gpu_utilization=1.5, devices=("0", "1"))
    )
    assert [column.title for column in table.columns] == ["CPU", "GPU", "GPU-MEM", "GPU-USE"]
    assert table.cells("a") == ["1.23", "0,1", "3Gi", "150%"]
    assert table.cells("ended") == [None, None, None, None]


def test_values_with_the_same_reason_share_a_line() -> None:
    reasons = {"gpu_memory": "no driver", "gpu_utilization": "no driver", "pss": "old kernel"}
    assert unavailable_lines(sample(reasons)) == [
        "gpu memory, gpu utilization: not available: no driver",
        "pss: not available: old kernel",
    ]
    assert unavailable_lines(sample({EVERYTHING: "no server"})) == [
        "resource use: not available: no server"
    ]
