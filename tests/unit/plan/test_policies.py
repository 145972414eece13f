"""The decision to end or restart an experiment, and the options that it depends on."""

from __future__ import annotations

from typing import Any

import pytest

from symphony.errors import SpecError
from symphony.model import Experiment
from symphony.plan.policies import (
    Policies,
    RestartHistory,
    decide_end,
    seconds_to_deadline,
)
from symphony.plan.resolution.addresses import AddressScheme
from symphony.plan.resolve import check_experiment, resolve
from symphony.plan.restart_policy import Restart
from symphony.status import ProcessStatus, ReasonCode, State

SCHEME = AddressScheme(backend="test", host=lambda _: "127.0.0.1", bind_host="127.0.0.1")


def experiment(**options: Any) -> Experiment:
    """Return an experiment with a learner, a server, and a group of two agents."""
    result = Experiment("rl", **options)
    result.new_process("learner", command="x")
    result.new_process("server", command="x")
    group = result.new_process_group("agents")
    group.new_process("agent-0", command="x")
    group.new_process("agent-1", command="x")
    return result


# --- the options ---


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Policies()),
        ({"ends_with": "learner"}, Policies(ends_with=("learner",))),
        (
            {"ends_with": ["agents", "agent-0", "learner"]},
            Policies(ends_with=("agent-0", "agent-1", "learner")),
        ),
        ({"on_failure": "stop"}, Policies(on_failure="stop")),
        (
            {"on_failure": {"policy": "restart", "max_restarts": 3, "backoff": "30s"}},
            Policies(on_failure="restart", max_restarts=3, backoff=30),
        ),
        ({"deadline": "1h30m"}, Policies(deadline=5400)),
        ({"deadline": 0.5}, Policies(deadline=0.5)),
    ],
)
def test_options_are_resolved_and_survive_a_file(
    options: dict[str, Any], expected: Policies
) -> None:
    original = experiment(**options)
    loaded = Experiment.load_dict(original.dump_dict())
    assigned = experiment()
    for name, value in options.items():
        setattr(assigned, name, value)
    for candidate in (original, loaded, assigned):
        assert resolve(candidate, SCHEME).policies == expected
    assert Policies.from_dict(expected.to_dict()) == expected


def test_ends_with_accepts_processes_groups_and_replicated_processes() -> None:
    exp = experiment()
    exp.ends_with = [exp.get_process("learner"), exp.get_process_group("agents")]
    assert exp.ends_with == ["learner", "agents"]
    data = {
        "name": "rl",
        "ends_with": "agent",
        "processes": {"agent": {"count": 2, "command": "x"}, "server": {"command": "x"}},
    }
    replicated = Experiment.load_dict(data)
    assert resolve(replicated, SCHEME).policies.ends_with == ("agent-0", "agent-1")
    assert replicated.dump_dict()["ends_with"] == ["agent-0", "agent-1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deadline": 0}, "deadline must be above 0, not 0"),
        ({"deadline": -1}, "deadline must be seconds or a duration such as 90s or 5m, not -1"),
        ({"deadline": "6 hours"}, "deadline must be seconds or a duration such as 90s or 5m"),
        ({"deadline": "99999d"}, "deadline must be at most 2147483647 s, not '99999d'"),
        ({"on_failure": "restrt"}, "on_failure must be one of .*; did you mean 'restart'?"),
        ({"on_failure": {"max_restarts": 1}}, "on_failure needs policy: continue, stop, restart"),
        (
            {"on_failure": {"policy": "stop", "max_restarts": 1}},
            "on_failure has max_restarts, but stop restarts nothing; use restart",
        ),
        (
            {"on_failure": {"policy": "restart", "backoff": "6m"}},
            "backoff must be at most 300 s, not '6m'",
        ),
        ({"ends_with": "A b"}, "ends_with name 'A b' is not valid"),
    ],
)
def test_invalid_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        experiment(**options)


def test_unknown_names_are_reported_together_with_other_errors() -> None:
    exp = experiment(ends_with=["learnr", "agents"])
    exp.get_process("server").connects("replay")
    findings = list(check_experiment(exp))
    assert {finding.rule for finding in findings} >= {"ends-with", "unbound-service"}
    finding = next(finding for finding in findings if finding.rule == "ends-with")
    assert finding.path == ("ends_with", "learnr")
    assert finding.message == (
        "the experiment ends with 'learnr', which is not in the experiment; did you mean 'learner'?"
    )


def test_replicated_process_without_copies_cannot_end_an_experiment() -> None:
    data = {
        "name": "rl",
        "ends_with": "agent",
        "processes": {"agent": {"count": 0, "command": "x"}, "server": {"command": "x"}},
    }
    with pytest.raises(SpecError, match="ends with 'agent', which has no copies; set a count"):
        resolve(Experiment.load_dict(data), SCHEME)


def test_restarts_are_limited_by_the_restart_policy() -> None:
    exp = experiment()
    exp.get_process("learner").restart_policy("OnFailure", max_restarts=5, backoff="10s")
    loaded = Experiment.load_dict(exp.dump_dict())
    restart = next(iter(resolve(loaded, SCHEME))).restart
    assert (restart.policy, restart.max_restarts, restart.backoff) == ("OnFailure", 5, 10)
    with pytest.raises(SpecError, match="restart_policy has max_restarts, but Never restarts noth"):
        exp.get_process("server").restart_policy("Never", max_restarts=1)


# --- the decision ---

RUNNING: dict[str, Any] = {"state": State.RUNNING}
DONE: dict[str, Any] = {"state": State.SUCCEEDED, "exit_code": 0, "ended": 50.0}
FAILED: dict[str, Any] = {"state": State.FAILED, "exit_code": 3, "ended": 50.0}
LATER = {**FAILED, "ended": 60.0}
STOPPED = {**FAILED, "stopped": True}
LOST: dict[str, Any] = {"state": State.UNKNOWN, "reason": "exit status unknown"}
ENDS = Policies(ends_with=("learner",))
WITH_LEARNER = "the experiment ended with learner"
CAUSE = "server failed (exit code 3)"

DECISIONS: dict[str, tuple[Policies, dict[str, Any], dict[str, Any], str, str]] = {
    "continue": (Policies(), RUNNING, FAILED, "", ""),
    "all finished": (ENDS, DONE, DONE, "", ""),
    "ends with": (ENDS, DONE, RUNNING, "finish", WITH_LEARNER),
    "ends with a failure": (ENDS, FAILED, RUNNING, "finish", WITH_LEARNER),
    "ends with one of two": (
        Policies(ends_with=("learner", "server")),
        DONE,
        RUNNING,
        "",
        "",
    ),
    "backing off": (ENDS, {"state": State.PENDING, "exit_code": 3}, RUNNING, "", ""),
    "stop": (
        Policies(on_failure="stop"),
        RUNNING,
        FAILED,
        "stop",
        f"the experiment failed: {CAUSE}",
    ),
    "stop after a lost process": (
        Policies(on_failure="stop"),
        RUNNING,
        LOST,
        "stop",
        "the experiment failed: server failed (exit status unknown)",
    ),
    "stopped by symphony": (Policies(on_failure="stop"), RUNNING, STOPPED, "", ""),
    "nothing left to stop": (Policies(on_failure="stop"), DONE, FAILED, "", ""),
    "restart": (
        Policies(on_failure="restart"),
        RUNNING,
        FAILED,
        "restart",
        f"the experiment restarts: {CAUSE}",
    ),
    "restart of a finished experiment": (
        Policies(on_failure="restart"),
        DONE,
        FAILED,
        "restart",
        f"the experiment restarts: {CAUSE}",
    ),
    "no restart left": (
        Policies(on_failure="restart", max_restarts=2),
        RUNNING,
        FAILED,
        "stop",
        f"the experiment failed: {CAUSE}; not restarted again, because the limit is 2",
    ),
    "failure after the end": (
        Policies(ends_with=("learner",), on_failure="restart"),
        DONE,
        LATER,
        "",
        "",
    ),
    "failure before the end": (
        Policies(ends_with=("learner",), on_failure="restart"),
        {**DONE, "ended": 70.0},
        LATER,
        "restart",
        f"the experiment restarts: {CAUSE}",
    ),
    "failure of what it ends with": (
        Policies(ends_with=("learner",), on_failure="restart"),
        FAILED,
        RUNNING,
        "restart",
        "the experiment restarts: learner failed (exit code 3)",
    ),
    "before the deadline": (Policies(deadline=91.0), RUNNING, RUNNING, "", ""),
    "at the deadline": (Policies(deadline=90.0), RUNNING, FAILED, "deadline", "deadline exceeded"),
    "finished before the deadline": (Policies(deadline=90.0), DONE, FAILED, "", ""),
    "ends with at the deadline": (
        Policies(ends_with=("learner",), deadline=90.0),
        DONE,
        RUNNING,
        "finish",
        WITH_LEARNER,
    ),
}


@pytest.mark.parametrize("case", DECISIONS)
def test_decision_depends_on_policies_and_states(case: str) -> None:
    policies, learner, server, action, reason = DECISIONS[case]
    tracks = {
        "learner": ProcessStatus(name="learner", **learner),
        "server": ProcessStatus(name="server", **server),
    }
    history = RestartHistory(restarts=2, in_row=2, started=10.0)
    ending = decide_end(policies, tracks, launched=10.0, now=100.0, history=history)
    found = ("", "") if ending is None else (ending.action, ending.reason)
    assert found == (action, reason)


def test_endings_name_their_cause() -> None:
    tracks = {"a": ProcessStatus(name="a", **FAILED), "b": ProcessStatus(name="b", **RUNNING)}
    policies = Policies(on_failure="restart", backoff=30)
    history = RestartHistory(restarts=1, in_row=1, started=90.0)
    ending = decide_end(policies, tracks, launched=0.0, now=100.0, history=history)
    assert ending is not None
    assert (ending.failed, ending.restart) == ("a", Restart(30.0, 2))
    assert ending.reason_code is ReasonCode.EXPERIMENT_RESTARTS


def test_remaining_time_is_measured_from_the_launch() -> None:
    policies = Policies(deadline=60)
    assert seconds_to_deadline(policies, launched=100.0, now=130.0) == 30
    assert seconds_to_deadline(policies, launched=100.0, now=300.0) == 0
    assert seconds_to_deadline(Policies(), launched=100.0, now=300.0) is None
