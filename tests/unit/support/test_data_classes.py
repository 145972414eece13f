"""Data classes that are created without the module `dataclasses`."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from typing import Any

import pytest

from symphony.support import data_classes

OPTIONS = [
    {},
    {"kw_only": True},
    {"slots": True},
    {"slots": True, "eq": False},
    {"frozen": True, "eq": False},
    {"frozen": True},
    {"frozen": True, "slots": True, "kw_only": True},
]


@data_classes.dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A pair that can be pickled, because its class is found in this module."""

    first: int
    second: list[int] = data_classes.field(default_factory=list)


def create(module: Any, options: dict[str, bool]) -> type[Any]:
    """Return the same data class, created by one of the two modules."""

    class Example:
        """An example."""

        first: int
        second: str = "b"
        third: list[int] = module.field(default_factory=list)
        hidden: float = module.field(default=0.0, compare=False, repr=False)

        @property
        def both(self) -> str:
            return f"{self.first}{self.second}"

    created: type[Any] = module.dataclass(**options)(Example)
    return created


def error_of(call: Any) -> str:
    with pytest.raises((TypeError, AttributeError)) as caught:
        call()
    return f"{type(caught.value).__name__}: {caught.value}"


@pytest.mark.parametrize("options", OPTIONS)
def test_class_behaves_as_one_of_the_library(options: dict[str, bool]) -> None:
    ours, theirs = create(data_classes, options), create(dataclasses, options)
    assert inspect.signature(ours).parameters.keys() == inspect.signature(theirs).parameters.keys()
    assert ours.__match_args__ == theirs.__match_args__
    assert hasattr(ours(first=1), "__dict__") == hasattr(theirs(first=1), "__dict__")
    for values in ({"first": 1}, {"first": 1, "second": "c", "third": [2], "hidden": 1.5}):
        assert repr(ours(**values)) == repr(theirs(**values))
        assert dataclasses.asdict(ours(**values)) == dataclasses.asdict(theirs(**values))
        assert ours(**values).both == theirs(**values).both
    is_compared = options.get("eq", True)
    assert (ours(first=1) == ours(first=1, hidden=2.0)) is is_compared
    assert (theirs(first=1) == theirs(first=1, hidden=2.0)) is is_compared
    # An instance of a class without a hash has the method None.
    assert (ours.__hash__ is object.__hash__) is (theirs.__hash__ is object.__hash__)
    assert ours(first=1) != ours(first=2)
    assert ours(first=1) != theirs(first=1)
    assert ours(first=1).third is not ours(first=1).third
    for wrong in ({}, {"first": 1, "other": 2}):
        assert error_of(lambda: ours(**wrong)) == error_of(lambda: theirs(**wrong))  # noqa: B023


def test_frozen_instance_has_a_hash_and_cannot_be_changed() -> None:
    pair = Pair(first=1, second=())  # type: ignore[arg-type]
    assert hash(pair) == hash(Pair(first=1, second=()))  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'first'"):
        pair.first = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'first'"):
        del pair.first
    assert not hasattr(pair, "other")


def test_instance_that_can_be_changed_has_no_hash() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(create(data_classes, {"slots": True})(first=1))


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))]
)
def test_copies_are_equal(duplicate: Any) -> None:
    pair = Pair(first=1, second=[2])
    assert duplicate(pair) == pair


REPLACE = [dataclasses.replace, data_classes.replace]
if sys.version_info >= (3, 13):
    REPLACE.append(copy.replace)


@pytest.mark.parametrize("replace", REPLACE)
@pytest.mark.parametrize("module", [dataclasses, data_classes])
def test_replacing_the_values_of_fields(replace: Any, module: Any) -> None:
    example = create(module, {"frozen": True})
    changed = replace(example(first=1, second="c"), first=2)
    assert changed == example(first=2, second="c")


def test_library_reads_the_fields() -> None:
    assert dataclasses.is_dataclass(Pair)
    names = [field.name for field in dataclasses.fields(Pair)]
    assert names == [field.name for field in data_classes.fields(Pair)] == ["first", "second"]
    assert [field.is_required for field in data_classes.fields(Pair)] == [True, False]


def test_library_finds_the_same_fields_each_time() -> None:
    """If each call created them, `dataclasses.replace` would take a hundred times as long."""
    first, again = dataclasses.fields(Pair), dataclasses.fields(Pair)
    assert all(one is other for one, other in zip(first, again, strict=True))


def test_class_of_the_library_extends_one_of_ours() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Triple(Pair):
        third: int

    triple = Triple(first=1, second=[2], third=3)
    assert (triple.first, triple.third) == (1, 3)
    assert data_classes.replace(triple, third=4).third == 4


def test_fields_of_a_base_class_are_refused() -> None:
    with pytest.raises(TypeError, match="Triple extends the data class Pair"):

        @data_classes.dataclass(frozen=True)
        class Triple(Pair):
            third: int


def test_after_creation_method_is_called() -> None:
    @data_classes.dataclass(slots=True)
    class Doubled:
        value: int

        def __post_init__(self) -> None:
            self.value *= 2

    assert Doubled(2).value == 4


def test_creating_a_class_does_not_import_the_library() -> None:
    code = "import sys; from symphony.support import data_classes; print(*sys.modules)"
    imported = subprocess.check_output([sys.executable, "-I", "-c", code], text=True)
    assert not {"dataclasses", "inspect"} & set(imported.split())


@pytest.mark.without_coverage
def test_supervisor_does_not_import_the_library() -> None:
    """The library takes a sixth of the time in which a supervisor imports its modules."""
    code = """
import sys
from symphony.supervised.supervisor import handover, orphans
from symphony.supervised.supervisor.execution import stopper, strays
from symphony.supervised.supervisor.serving import prepare_change, request_server
handover._import_modules("symphony.supervised.supervisor.local_children:LocalChildren")
print("dataclasses" in sys.modules)
"""
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed == "False\n"
