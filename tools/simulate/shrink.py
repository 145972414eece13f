"""Find the smallest scenario that still fails in the same way."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from simulate.scenario import Execution, Scenario

Data = dict[str, Any]

_PROCESS_DEFAULTS: Data = {
    "restart": "Never",
    "max_restarts": None,
    "backoff": None,
    "starts_after": {},
    "has_probe": False,
    "ready_timeout": 30.0,
    "max_failed_tests": None,
    "grace": 0.0,
    "deadline": None,
    "gang": None,
    "place_within": 0.0,
    "reserves": False,
}
_SCENARIO_DEFAULTS: Data = {
    "ends_with": [],
    "on_failure": "continue",
    "max_restarts": None,
    "backoff": None,
    "deadline": None,
    "delays": [],
    "repeats": [],
    "record_limit": None,
}


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool]) -> Scenario:
    """Return the smallest scenario for which ``fails`` still returns true.

    Each step removes a part of the scenario or replaces a value by a simpler one. The search ends
    when no single step is possible any more.
    """
    smallest = scenario.to_dict()
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidate in _simpler(smallest):
            if candidate != smallest and fails(Scenario.from_dict(candidate)):
                smallest, is_smaller = candidate, True
                break
    return Scenario.from_dict(smallest)


def size(scenario: Scenario) -> int:
    """Return the number of processes, executions, happenings and crashes of a scenario."""
    executions = sum(len(process.executions) for process in scenario.processes)
    return len(scenario.processes) + executions + len(scenario.happenings) + len(scenario.crashes)


def _simpler(data: Data) -> Iterator[Data]:
    """Yield simpler scenarios; those that are much simpler come first."""
    for number in reversed(range(len(data["processes"]))):
        if len(data["processes"]) > 1:
            yield _without_process(data, number)
    for key in ("happenings", "crashes"):
        for number in reversed(range(len(data[key]))):
            yield _without_item(data, key, number)
    for key, value in _SCENARIO_DEFAULTS.items():
        yield {**copy.deepcopy(data), key: value}
    yield from _with_simpler_processes(data)
    yield from _with_simpler_happenings(data)


def _without_item(data: Data, key: str, number: int) -> Data:
    copied = copy.deepcopy(data)
    copied[key].pop(number)
    return copied


def _without_process(data: Data, number: int) -> Data:
    copied = copy.deepcopy(data)
    name = copied["processes"].pop(number)["name"]
    for process in copied["processes"]:
        process["starts_after"].pop(name, None)
    copied["ends_with"] = [other for other in copied["ends_with"] if other != name]
    for happening in copied["happenings"]:
        happening["names"] = [other for other in happening["names"] if other != name]
    return copied


def _with_simpler_processes(data: Data) -> Iterator[Data]:
    plain = Execution()
    for number, process in enumerate(data["processes"]):
        for key, value in _PROCESS_DEFAULTS.items():
            yield _with_process(data, number, {key: value})
        executions = process["executions"]
        if len(executions) > 1:
            for left_out in reversed(range(len(executions))):
                rest = [each for other, each in enumerate(executions) if other != left_out]
                yield _with_process(data, number, {"executions": rest})
        for which, execution in enumerate(executions):
            for key in Execution.__slots__:
                simpler = dict(execution)
                simpler[key] = getattr(plain, key)
                changed = [*executions[:which], simpler, *executions[which + 1 :]]
                yield _with_process(data, number, {"executions": changed})


def _with_process(data: Data, number: int, values: Data) -> Data:
    """Return a copy in which a process has other values, and the other ranks of its gang too."""
    copied = copy.deepcopy(data)
    gang = copied["processes"][number]["gang"]
    for other, process in enumerate(copied["processes"]):
        is_rank = gang is not None and process["gang"] == gang and "executions" not in values
        if other == number or is_rank:
            process.update(copy.deepcopy(values))
    return copied


def _with_simpler_happenings(data: Data) -> Iterator[Data]:
    for key in ("happenings", "crashes"):
        for number, item in enumerate(data[key]):
            if key == "crashes":
                yield _with_item(data, key, number, {"downtime": 0.0})
                yield _with_item(data, key, number, {"torn": False})
                yield _with_item(data, key, number, {"codes_lost": False})
                continue
            if len(item["names"]) > 1:
                yield _with_item(data, key, number, {"names": item["names"][:1]})
                yield _with_item(data, key, number, {"names": item["names"][1:]})


def _with_item(data: Data, key: str, number: int, values: Data) -> Data:
    copied = copy.deepcopy(data)
    copied[key][number].update(values)
    return copied
