"""Joining the samples of the nodes of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from symphony.supervised.processes.identity import ProcessId
from symphony.usage import ExperimentUsage, ProcessUsage
from symphony_slurm.job.node_usage import NodeSamples


@dataclass(eq=False)
class Agent:
    """An agent that only notes its orders."""

    node: str
    is_alive: bool = True
    orders: list[dict[str, Any]] = field(default_factory=list)

    def order(self, order: str, **arguments: Any) -> None:
        self.orders.append({"order": order, **arguments})


def answer(sample: int, process: str, **unavailable: str) -> dict[str, Any]:
    usages = (ProcessUsage(process=process, cpu=1.0),)
    usage = ExperimentUsage(at=1.0, processes=usages, unavailable=unavailable)
    return {"event": "usage", "sample": sample, "usage": usage.to_dict()}


def test_sample_is_complete_when_all_nodes_have_answered() -> None:
    samples, taken = NodeSamples(), []
    one, two, dead = Agent("one"), Agent("two"), Agent("dead", is_alive=False)
    leaders = [(agent, {agent.node[0]: ProcessId(7, 8.0)}) for agent in (one, two, dead)]
    samples.take(leaders, {"t": ["0"]}, taken.append)
    assert one.orders == [
        {"order": "usage", "sample": 1, "leaders": {"o": [7, 8.0]}, "devices": {}}
    ]
    assert two.orders[0]["devices"] == {"t": ["0"]}
    assert dead.orders == []
    samples.receive(two, answer(1, "t", gpu_memory="no driver"))
    assert taken == []
    samples.receive(one, answer(1, "o"))
    assert [usage.process for usage in taken[0].processes] == ["o", "t"]
    assert taken[0].unavailable == {"gpu_memory": "no driver"}


def test_node_that_does_not_answer_in_time_is_left_out() -> None:
    samples, taken = NodeSamples(), []
    one, two = Agent("one"), Agent("two")
    leaders = [(agent, {agent.node: ProcessId(7, 8.0)}) for agent in (one, two)]
    samples.take(leaders, {}, taken.append)
    samples.receive(one, answer(1, "one"))
    samples.take(leaders, {}, taken.append)
    assert [usage.process for usage in taken[0].processes] == ["one"]
    samples.receive(one, answer(2, "one"))
    samples.receive(two, answer(1, "late"))
    samples.receive(two, answer(2, "two"))
    assert [usage.process for usage in taken[1].processes] == ["one", "two"]


def test_sample_without_running_processes_is_empty() -> None:
    taken: list[ExperimentUsage] = []
    NodeSamples().take([], {}, taken.append)
    assert [usage.processes for usage in taken] == [()]
