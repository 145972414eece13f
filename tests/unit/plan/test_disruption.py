"""What follows if a process was taken away from outside: tables."""

import pytest

from symphony.plan.disruption import (
    Disrupted,
    Disruption,
    DisruptionCause,
    StartAgain,
    decide_disruption,
    started_again_text,
)
from symphony.plan.restart_policy import RestartPolicy

DRAINED = Disruption(cause=DisruptionCause.DRAINED, node="node1")
GONE = Disrupted(disruption=DRAINED)
LEAVING = Disrupted(disruption=DRAINED, is_running=True)
RUNNING = Disrupted(is_running=True)
FINISHED = Disrupted()
ALWAYS, ON_FAILURE = RestartPolicy(policy="Always"), RestartPolicy(policy="OnFailure")
USED_UP = RestartPolicy(policy="OnFailure", max_restarts=0)


@pytest.mark.parametrize(
    ("cause", "node", "detail", "text"),
    [
        (DisruptionCause.DRAINED, "node1", "", "node1 was drained"),
        (DisruptionCause.DRAINED, "", "", "its node was drained"),
        (DisruptionCause.PREEMPTED, "node1", "", "preempted on node1"),
        (DisruptionCause.EVICTED, "node1", "", "evicted from node1"),
        (DisruptionCause.EVICTED, "node1", "low on memory", "evicted from node1 (low on memory)"),
        (DisruptionCause.NODE_LOST, "node1", "", "node1 was lost"),
        (DisruptionCause.REMOVED, "node1", "its Pod was deleted", "its Pod was deleted"),
        (DisruptionCause.REMOVED, "", "", "it was removed"),
    ],
)
def test_words(cause, node, detail, text):
    assert str(Disruption(cause=cause, node=node, detail=detail)) == text


@pytest.mark.parametrize(
    ("policy", "process", "starts"),
    [
        (ALWAYS, GONE, True),
        (ON_FAILURE, GONE, True),
        # A disruption is not a restart, so it needs none of those that are permitted.
        (USED_UP, GONE, True),
        (RestartPolicy(), GONE, False),
        (ALWAYS, LEAVING, False),
        (ALWAYS, RUNNING, False),
        (ALWAYS, FINISHED, False),
        (ALWAYS, Disrupted(disruption=DRAINED, is_stopped=True), False),
    ],
)
def test_a_process(policy, process, starts):
    decision = decide_disruption(policy, {"server": process})
    expected = StartAgain(lost=("server",), reason="lost: node1 was drained") if starts else None
    assert decision == expected


@pytest.mark.parametrize(
    ("ranks", "lost", "others"),
    [
        ({"u-0": RUNNING, "u-1": GONE}, ("u-1",), ("u-0",)),
        ({"u-0": LEAVING, "u-1": GONE}, ("u-1",), ("u-0",)),
        ({"u-0": FINISHED, "u-1": GONE}, ("u-1",), ("u-0",)),
        ({"u-0": GONE, "u-1": GONE}, ("u-0", "u-1"), ()),
        ({"u-0": RUNNING, "u-1": LEAVING}, None, ()),
        ({"u-0": RUNNING, "u-1": RUNNING}, None, ()),
        ({"u-0": Disrupted(is_stopped=True), "u-1": GONE}, None, ()),
    ],
)
def test_the_ranks_of_a_unit_start_again_together(ranks, lost, others):
    decision = decide_disruption(ON_FAILURE, ranks)
    if lost is None:
        assert decision is None
        return
    reason = f"lost: {lost[0]} (node1 was drained)"
    assert decision == StartAgain(lost=lost, others=others, reason=reason)


def test_reason_of_a_process_that_runs_again():
    assert started_again_text("lost: node1 was drained") == "lost: node1 was drained; started again"
