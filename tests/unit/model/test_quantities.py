"""Amounts of CPU, memory and GPUs."""

from __future__ import annotations

from fractions import Fraction

import pytest

from symphony.errors import SpecError
from symphony.model.settings import quantities


@pytest.mark.parametrize(
    ("value", "amount"),
    [
        (2, Fraction(2)),
        (0.5, Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("2.", Fraction(2)),
        ("500m", Fraction(1, 2)),
        ("250u", Fraction(1, 4000)),
        ("1n", Fraction(1, 10**9)),
        ("1k", Fraction(1000)),
        ("4Gi", Fraction(4 * 2**30)),
        ("1.5Ki", Fraction(1536)),
        ("2E", Fraction(2 * 10**18)),
        ("2Ei", Fraction(2 * 2**60)),
        ("1e3", Fraction(1000)),
        ("1E-3", Fraction(1, 1000)),
    ],
)
def test_quantities_are_parsed_exactly(value: object, amount: Fraction) -> None:
    assert quantities.parse_quantity(value) == amount


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2, "2"),
        (0, "0"),
        (0.5, "0.5"),
        (2.0, "2"),
        (100.0, "100"),
        ("500m", "500m"),
        ("4Gi", "4Gi"),
        ("1e3", "1e3"),
        (".5", ".5"),
    ],
)
def test_quantities_keep_their_notation(value: object, text: str) -> None:
    assert quantities.quantity_text(value, "cpu") == text


@pytest.mark.parametrize(
    "value",
    ["many", "", "4 Gi", "4gi", "4K", "-1", -1, True, None, float("nan"), float("inf"), "1" * 41,
     pytest.param(10**5000, id="huge"), "1e100", "1.2.3", "²"],
)  # fmt: skip
def test_other_values_are_not_quantities(value: object) -> None:
    for parse in (quantities.parse_quantity, quantities.quantity_text):
        with pytest.raises(
            SpecError, match=r"cpu must be an amount such as 2, '500m' or '4Gi', not"
        ):
            parse(value, "cpu")


@pytest.mark.parametrize("value", ["5n", "5u"])
def test_an_experiment_cannot_use_units_below_one_thousandth(value: str) -> None:
    with pytest.raises(SpecError, match="must be an amount"):
        quantities.quantity_text(value, "cpu")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x", "cpu must be a number, not 'x'"),
        ("", "cpu must be a number, not ''"),
        (True, "cpu must be a number, not True"),
        (None, "cpu must be a number, not None"),
        (float("nan"), "cpu must be a number, not nan"),
        (float("inf"), "cpu must be a number, not inf"),
        ("${var.cpu}", "cpu must be a number, not '${var.cpu}'"),
        (-1, "cpu must be at least 0, not -1"),
        ("-0.5", "cpu must be at least 0, not '-0.5'"),
        (10**16, "cpu must be at most 10^15"),
        pytest.param(10**5000, "cpu must be at most 10^15, not a value of type int", id="huge"),
        ("1" * 5000, "cpu must be a number of at most 40 characters"),
    ],
)
def test_other_values_are_not_numbers(value: object, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        quantities.parse_number(value, "cpu")
    assert message in str(caught.value)


def test_numbers_are_rounded_up_to_whole_units() -> None:
    assert quantities.parse_number(0.1, "cpu") == Fraction(1, 10)
    assert quantities.parse_millicores("0.0001", "cpu") == 1
    assert quantities.parse_millicores("1500m", "cpu") == 1500
    assert quantities.parse_mebibytes(1.5, "memory") == 2
    assert quantities.parse_whole_number("4", "gpu_count") == 4


@pytest.mark.parametrize(("value", "message"), [(1.5, "a whole number"), (0, "at least 1")])
def test_whole_numbers_have_a_lower_bound(value: float, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        quantities.parse_whole_number(value, "gpu_count", least=1)


@pytest.mark.parametrize(
    ("value", "suggestion"),
    [
        ("8GB", "8G"),
        ("8gib", "8Gi"),
        ("8g", "8Gi"),
        ("8K", "8k"),
        ("8 G", "8G"),
        ("1,5", "1.5"),
    ],
)
def test_a_similar_notation_is_suggested(value: str, suggestion: str) -> None:
    with pytest.raises(SpecError, match=f"; did you mean '{suggestion}'\\?$"):
        quantities.quantity_text(value, "memory")


@pytest.mark.parametrize("value", ["100m", "8", "500k"])
def test_memory_of_less_than_a_megabyte_is_refused(value: str) -> None:
    number = value.rstrip("mk")
    with pytest.raises(SpecError, match=f"did you mean '{number}M' or '{number}Mi'"):
        quantities.memory_text(value, "memory")
    assert quantities.memory_text("0", "memory") == "0"
