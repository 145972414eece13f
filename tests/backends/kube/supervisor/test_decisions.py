"""What is decided after each change of the recorded histories; see ``histories/README.md``."""

from dataclasses import replace

import pytest

from symphony.plan.actions import Start, Stop
from symphony.plan.decide import decide
from symphony.plan.policies import Policies
from symphony.plan.state import apply
from symphony.status import ENDED
from symphony_kube.lifecycle.supervisor.facts import describe
from symphony_kube.lifecycle.supervisor.supervisor_record import Record
from symphony_kube.lifecycle.supervisor.wishes import make_wish
from symphony_kube.state.observe import ExperimentState
from tests.backends.kube.histories import NAMES, read_history

# How the units of a history are started again.
KUBERNETES = {}
SUPERVISED = {"supervised_restart": {"policy": "OnFailure", "max_restarts": 1}}
LOST = {"restart": "Always", "replaced_if_lost": True}


def decisions_of(name, fields, policies=None):
    """Yield the observation, the decision and the state that follows, after each change."""
    history = read_history(name)
    is_plain = all(not unit.job and not unit.job_set for unit in history.roster)
    units = tuple(replace(unit, **fields) if is_plain else unit for unit in history.roster)
    wish = make_wish(units, policies, experiment="e")
    observer = ExperimentState("e", roster=units)
    created = frozenset()
    for change in history.changes:
        observer.apply(change.kind, change.event, change.body)
        observation = observer.observe(change.at)
        created |= observation.unit_statuses.keys()
        situation = describe(
            units, observation, record=Record(created=created), now=change.at, launched=change.at
        )
        decision = decide(wish, situation.state, situation.facts, change.at)
        for event in decision.events:
            apply(situation.state, event)
        yield observation, decision, situation.state


@pytest.mark.parametrize("fields", [KUBERNETES, SUPERVISED, LOST])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_starts_twice_or_is_stopped(name, fields):
    for observation, decision, _ in decisions_of(name, fields):
        started = {action.process for action in decision.actions if isinstance(action, Start)}
        for status in observation.unit_statuses.values():
            if not status.has_ended:
                assert started.isdisjoint(status.containers)
        assert not any(isinstance(action, Stop) for action in decision.actions)


@pytest.mark.parametrize("name", NAMES)
def test_what_kubernetes_does_itself_is_not_decided(name):
    for _, decision, _ in decisions_of(name, KUBERNETES):
        assert [event["event"] for event in decision.events if event["event"] == "exited"] == []


@pytest.mark.parametrize("fields", [KUBERNETES, SUPERVISED, LOST])
@pytest.mark.parametrize("name", NAMES)
def test_the_state_of_decisions_agrees_with_the_status(name, fields):
    if fields is SUPERVISED and name == "03-two-containers":
        pytest.skip("all processes of a group are started again, also those that have ended")
    for observation, _, state in decisions_of(name, fields):
        shown = {process.name for process in observation.status if process.state in ENDED}
        decided = {name for name, track in state.tracks.items() if track.state in ENDED}
        assert decided == shown


@pytest.mark.parametrize("name", NAMES)
def test_a_deadline_stops_all_that_has_not_ended(name):
    for observation, decision, state in decisions_of(name, KUBERNETES, Policies(deadline=0.0)):
        stopped = {action.process for action in decision.actions if isinstance(action, Stop)}
        existing = {
            process
            for status in observation.unit_statuses.values()
            for process, own in status.executions.items()
            if own.state not in ENDED
        }
        assert stopped == existing
        assert state.stopping or all(track.state in ENDED for track in state.tracks.values())
