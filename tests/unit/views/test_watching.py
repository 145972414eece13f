"""The model that the views of an experiment show, without a terminal or a browser."""

import threading

import pytest

from symphony.commandline.commands.table import TABLE
from symphony.errors import NotFound, SpecError, Unreachable
from symphony.events import EventKind, ExperimentEvent
from symphony.log_blocks import LogBlock
from symphony.plan.topology import Node, Topology
from symphony.status import ExperimentStatus, ProcessStatus, State
from symphony.support.hidden_values import HiddenValues
from symphony.usage import EVERYTHING, ExperimentUsage, ProcessUsage
from symphony.views.controls import UserAction
from symphony.views.experiment_model import (
    EventSeen,
    ExperimentModel,
    Gone,
    OutageSeen,
    StatusSeen,
    TopologySeen,
    UsageSeen,
    UsageUnavailable,
)
from symphony.views.feed import OVERLAP_SECONDS, ExperimentFeed, OutputFeed
from symphony.views.output_tail import MAX_LINE_CHARACTERS, OutputTail
from symphony.views.usage_history import UsageHistory


def process(name, state=State.RUNNING, **values):
    return ProcessStatus(name=name, state=state, **values)


def status(*processes, created=1.0):
    return ExperimentStatus(name="rl", backend="local", processes=processes, created=created)


def event(text, process=None, kind=EventKind.STARTED):
    return ExperimentEvent(at=1.0, kind=kind, process=process, text=text)


def model(*updates):
    folded = ExperimentModel("rl")
    for update in updates:
        folded.apply(update)
    return folded


def test_processes_that_need_attention_come_first():
    folded = model(
        StatusSeen(
            status(
                process("a", State.SUCCEEDED),
                process("b"),
                process("c", State.FAILED),
                process("d", State.FAILED, stopped=True),
                process("e", State.PENDING),
            )
        )
    )
    assert [row.name for row in folded.rows()] == ["c", "e", "b", "d", "a"]
    counts = {"failed": 1, "pending": 1, "running": 1, "stopped": 1, "succeeded": 1}
    assert folded.counts() == counts
    assert list(folded.counts()) == list(counts)


def test_a_view_draws_only_what_has_changed():
    folded = model(StatusSeen(status(process("a"), process("b"))))
    shown = folded.version
    folded.apply(StatusSeen(status(process("a"), process("b"))))
    assert folded.version == shown
    folded.apply(StatusSeen(status(process("a"), process("b", State.FAILED))))
    assert [row.name for row in folded.changed_processes(shown)] == ["b"]
    assert folded.versions.status == folded.version > folded.versions.topology


@pytest.mark.parametrize("was_deleted", [False, True])
def test_a_new_launch_replaces_what_is_known_of_the_earlier_run(was_deleted):
    folded = model(
        StatusSeen(status(process("a"), process("b"))),
        TopologySeen(Topology(experiment="rl")),
        EventSeen(event("launched"), 1),
        UsageSeen(ExperimentUsage(at=1.0, processes=(ProcessUsage(process="a", cpu=1.0),))),
    )
    if was_deleted:
        folded.apply(Gone("no experiment 'rl'"))
        assert folded.gone
    folded.apply(StatusSeen(status(process("a"), created=1.0 if was_deleted else 2.0)))
    folded.apply(EventSeen(event("launched again"), 2))
    folded.apply(EventSeen(event("late event of the earlier run"), 1))
    assert (folded.run, folded.gone) == (1, "")
    assert folded.topology is None
    assert folded.usage == {}
    assert [numbered.event.text for numbered in folded.events_since()] == ["launched again"]
    assert [row.name for row in folded.rows()] == ["a"]


def test_a_view_reads_only_new_events():
    folded = model(*(EventSeen(event(str(number)), 1) for number in range(3)))
    assert [numbered.event.text for numbered in folded.events_since(2)] == ["2"]


def test_an_outage_keeps_the_last_known_status():
    folded = model(StatusSeen(status(process("a"))), OutageSeen("no answer"))
    assert folded.counts() == {"running": 1}
    assert folded.outage == "no answer"
    version = folded.version
    folded.apply(OutageSeen(""))
    assert folded.outage == ""
    assert folded.versions.outage > version


def test_usage_is_kept_for_the_processes_of_the_experiment():
    sample = ExperimentUsage(
        at=2.0,
        processes=(ProcessUsage(process="a", memory=5), ProcessUsage(process="removed", memory=6)),
        unavailable={"gpu_memory": "there is no GPU"},
    )
    folded = model(StatusSeen(status(process("a"))), UsageSeen(sample))
    assert list(folded.usage) == ["a"]
    assert folded.usage["a"].latest == ProcessUsage(process="a", memory=5)
    assert folded.usage_unavailable == {"gpu_memory": "there is no GPU"}
    folded.apply(UsageUnavailable("no metrics"))
    assert folded.usage_unavailable == {EVERYTHING: "no metrics"}


def test_a_usage_history_keeps_its_first_and_latest_samples():
    history = UsageHistory(limit=10)
    for second in range(1000):
        history.add(float(second), ProcessUsage(process="a", memory=second))
    times = [sample.at for sample in history.samples]
    assert len(times) <= 10
    assert times == sorted(times)
    assert (times[0], times[-1]) == (0.0, 999.0)
    assert times[-2] == 998.0


def test_a_node_counts_the_states_of_its_processes():
    node = Node(processes=("a", "b", "c"))
    folded = model(
        StatusSeen(status(process("a"), process("b"), process("c", State.FAILED))),
        TopologySeen(Topology(experiment="rl", members=("a",), nodes=(node,))),
    )
    assert folded.states_of(node) == {"running": 2, "failed": 1}


def test_an_output_tail_numbers_its_lines_and_keeps_the_last_ones():
    tail = OutputTail(max_lines=3)
    tail.add(LogBlock("a", "0\n1\n2", 5.0))
    assert [line.text for line in tail.lines(0, 10)] == ["0", "1"]
    tail.add(LogBlock("b", "x\n"))
    tail.add(LogBlock("a", " is complete\n"))
    tail.add(event("exited with 1", "a", EventKind.EXITED))
    assert (tail.first, tail.end) == (2, 5)
    assert [(line.process, line.text, line.is_event) for line in tail.lines(0, 5)] == [
        ("b", "x", False),
        ("a", "2 is complete", False),
        ("a", "exited with 1", True),
    ]
    assert tail.lines(4, 5) == tail.lines(0, 5)[-1:]


def test_an_output_tail_limits_its_size():
    tail = OutputTail(max_lines=100, max_characters=1000)
    tail.add(LogBlock("a", "y" * 10 * MAX_LINE_CHARACTERS + "\n"))
    assert tail.lines(0, 1) == []
    tail.add(LogBlock("a", ("z" * 99 + "\n") * 50))
    assert sum(len(line.text) for line in tail.lines(0, tail.end)) <= 1000
    tail.add(LogBlock("a", "".join(f"{number}\n" for number in range(100_000))))
    assert [line.text for line in tail.lines(tail.first, tail.end)][-1] == "99999"
    assert tail.end - tail.first == 100


# --- feeds ---


class Collector:
    """The updates of a feed, which a test can wait for."""

    def __init__(self):
        self.items = []
        self._changed = threading.Condition()

    def __call__(self, item):
        with self._changed:
            self.items.append(item)
            self._changed.notify_all()

    def wait_for(self, condition):
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.items), timeout=20), self.items


class ScriptedCluster:
    """A cluster whose answers are given, because no real backend fails on demand."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def hidden_values(self, _experiment):
        return HiddenValues([])

    def _next(self):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def watch_experiment(self, experiment):
        from contextlib import nullcontext

        from symphony.cluster import WatchedStatuses

        return nullcontext(lambda: WatchedStatuses([self._next()]))

    def describe_topology(self, experiment):
        return Topology(experiment=experiment)

    def iter_events(self, experiment, *, follow):
        return iter([event("launched")])


def test_a_feed_survives_an_outage_a_deletion_and_a_new_launch(monkeypatch):
    monkeypatch.setattr("symphony.views.feed.RETRY_SECONDS", 0.05)
    monkeypatch.setattr("symphony.views.feed.STATUS_INTERVAL_SECONDS", 0.05)
    cluster = ScriptedCluster(
        status(process("a")),
        Unreachable("no answer"),
        status(process("a")),
        NotFound("no experiment 'rl'"),
        status(process("b"), created=2.0),
    )
    updates = Collector()
    feed = ExperimentFeed(cluster, "rl", updates)
    feed.start()
    new_run = StatusSeen(status(process("b"), created=2.0))
    updates.wait_for(lambda items: new_run in items and EventSeen(event("launched"), 2) in items)
    feed.close()
    assert OutageSeen("the states may be out of date: no answer; trying again") in updates.items
    assert Gone("no experiment 'rl'") in updates.items
    folded = model(*updates.items)
    assert [row.name for row in folded.rows()] == ["b"]
    assert (folded.outage, folded.gone) == ("", "")


def test_output_continues_where_it_was_interrupted(monkeypatch):
    monkeypatch.setattr("symphony.views.feed.RETRY_SECONDS", 0.05)
    calls = []

    class InterruptedCluster:
        def describe_experiment(self, experiment):
            return status(process("a"))

        def hidden_values(self, experiment):
            return HiddenValues([])

        def iter_output(self, experiment, processes, *, follow, tail, since, events):
            calls.append((tail, since))
            yield LogBlock("a", "1\n", at=1.0)
            yield event("started")
            if len(calls) == 1:
                raise Unreachable("no answer")
            # This line was written before the error, and had not arrived.
            yield LogBlock("a", "2\n", at=2.0)

    output = Collector()
    feed = OutputFeed(InterruptedCluster(), "rl", ["a"], output)
    feed.start()
    output.wait_for(lambda items: items[-1] is None)
    feed.close()
    assert [item.text for item in output.items[:-1]] == ["1\n", "started", "2\n"]
    (first_tail, first_since), (second_tail, second_since) = calls
    assert (first_tail, first_since, second_tail) == (1000, None, None)
    assert second_since > OVERLAP_SECONDS


# --- controls ---


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ({"action": "stop"}, "Stop all processes of rl?"),
        ({"action": "restart", "processes": ("a", "b")}, "Restart a, b of rl?"),
        ({"action": "signal", "processes": ("a",), "value": "HUP"}, "Send HUP to a of rl?"),
        ({"action": "start"}, None),
        ({"action": "scale", "value": "a=+2"}, None),
        ({"action": "scale", "value": "a=2"}, "Change a=2 of rl? Processes can be removed."),
        (
            {"action": "delete"},
            "Delete rl? Its processes are stopped. The record of the run and its logs are kept.",
        ),
    ],
)
def test_controls_that_end_processes_are_confirmed(action, expected):
    asked = TABLE.controls[action["action"]].question(UserAction(experiment="rl", **action))
    assert (asked and asked.text) == expected


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("signal", "10", "SIGUSR1"), ("scale", "a=+2 b=3", "a=+2, b=3")],
)
def test_entries_of_controls_are_parsed(name, text, value):
    entry = TABLE.controls[name].entry
    assert entry.parse(text) == value
    with pytest.raises(SpecError):
        entry.parse("nothing like it")


def test_controls_report_what_was_done():
    class Processes:
        def stop_processes(self, experiment, processes):
            return [process(name, State.SUCCEEDED) for name in processes]

        def delete(self, experiment):
            pass

    def perform(**action):
        request = UserAction(experiment="rl", **action)
        return TABLE.controls[request.action].perform(Processes(), request)

    assert perform(action="stop", processes=("a",)) == "stopped a of rl"
    assert perform(action="delete") == "deleted rl"
