"""Decisions about observed experiments, for tests: objects in, lines of actions out."""

from symphony.plan.decide import Decision, decide
from symphony_kube.lifecycle.requested_steps import RequestedSteps
from symphony_kube.lifecycle.supervisor.facts import describe
from symphony_kube.lifecycle.supervisor.loop import find_later_units
from symphony_kube.lifecycle.supervisor.supervisor_record import Record
from symphony_kube.lifecycle.supervisor.wishes import make_wish

NOW = 1_700_000_100.0


def decided(
    units, observation, *, record=None, policies=None, launched=0.0, now=NOW, creatable=None
) -> Decision:
    """Return what a supervisor decides about an observation."""
    situation = describe(
        units,
        observation,
        record=record or Record(),
        launched=launched,
        now=now,
        creatable=creatable,
    )
    wish = make_wish(units, policies, experiment="e")
    return decide(wish, situation.state, situation.facts, now)


def actions(units, observation, **options) -> list[str]:
    """Return the actions of a decision as lines, without the answers to requests."""
    lines = [str(action) for action in decided(units, observation, **options).actions]
    return [line for line in lines if not line.startswith("answer ")]


def started(units, observation, **options) -> list[str]:
    """Return the processes that start."""
    words = [line.split() for line in actions(units, observation, **options)]
    return [line[1] for line in words if line[0] == "start"]


def find_startable(units, observation, now=NOW) -> list[str]:
    """Return the units that a client starts again on request."""
    return list(RequestedSteps(units).find(observation, now).starts)


def created_later(units, observation, *, record=None, now=NOW) -> list[str]:
    """Return the units that the supervisor can still create, as it decides after an observation."""
    situation = describe(units, observation, record=record or Record(), now=now)
    decision = decide(make_wish(units), situation.state, situation.facts, now)
    names = [unit.name for unit in units]
    return find_later_units(units, situation, decision, observation, names)
