"""The supervisor: its decisions, and its work on a real cluster."""

import os
import select
import signal

import pytest

from symphony.status import State
from symphony_kube.lifecycle.supervisor.decisions import Decisions, decide
from symphony_kube.lifecycle.supervisor.detached import directory_of
from symphony_kube.lifecycle.supervisor.record import Record, decode_record, encode_record
from symphony_kube.render.roster import Unit
from symphony_kube.status.creation_problems import Problem
from symphony_kube.status.observe import Observation
from symphony_kube.status.pod_status import ContainerStatus

from .conftest import python, wait_until
from .held import HELD, release

RUNNING = ContainerStatus(state=State.RUNNING, started=1.0)
SUCCEEDED = ContainerStatus(state=State.SUCCEEDED, started=1.0, ended=2.0)
FAILED = ContainerStatus(state=State.FAILED, started=1.0, ended=2.0)
PENDING = ContainerStatus()
ROSTER = (
    Unit(name="a", processes=("a",)),
    Unit(name="b", processes=("b",), starts_after={"a": "succeeded"}),
    Unit(name="c", processes=("c",), starts_after={"b": "started"}),
)


def observed(**states):
    """Return the observation of units that exist, and of units in the state None that do not."""
    containers = {name: state or PENDING for name, state in states.items()}
    missing = frozenset(name for name, state in states.items() if state is None)
    return Observation(status=None, containers=containers, missing_units=missing)


@pytest.mark.parametrize(
    ("states", "excluded", "expected"),
    [
        ({"a": RUNNING, "b": None, "c": None}, "", Decisions()),
        ({"a": SUCCEEDED, "b": None, "c": None}, "", Decisions(create=("b",))),
        ({"a": FAILED, "b": None, "c": FAILED}, "", Decisions(finished=True)),
        ({"a": SUCCEEDED, "b": PENDING, "c": None}, "", Decisions()),
        ({"a": SUCCEEDED, "b": RUNNING, "c": None}, "", Decisions(create=("c",))),
        ({"a": SUCCEEDED, "b": RUNNING, "c": RUNNING}, "", Decisions(finished=True)),
        # A user has deleted the Pod of b.
        ({"a": SUCCEEDED, "b": None, "c": RUNNING}, "b", Decisions(finished=True)),
        # The first Pod was deleted before the supervisor started.
        ({"a": None, "b": None, "c": None}, "", Decisions(create=("a",))),
    ],
)
def test_decisions(states, excluded, expected):
    assert decide(ROSTER, observed(**states), excluded) == expected


def test_record_can_be_decoded():
    problem = Problem(text="exceeded quota", time=1.5, permanent=False)
    record = Record(created=frozenset({"a", "b"}), problems={"c": problem})
    assert decode_record(encode_record(record)) == record
    assert decode_record("") == Record()


def test_killed_supervisor_is_started_again_by_the_next_command(shared, name):
    exp = shared.new_experiment(name)
    python(exp, "first", HELD)
    python(exp, "second", "pass").starts_after("first", "succeeded")
    manifest = shared.launch(exp)
    directory = directory_of(shared.api, shared.scope(name))
    pid = directory.holder()
    assert manifest.notes == (
        f"the start order is continued by process {pid} on this machine; configure "
        "supervisor_image to run it in the cluster",
    )
    assert directory.path.stat().st_mode & 0o777 == 0o700
    supervisor = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([supervisor], [], [])
    os.close(supervisor)
    wait_until(lambda: shared.describe_experiment(name).processes[0].state is State.RUNNING)
    release(shared, name, "first")
    assert [item.state for item in shared.wait(name, timeout=60)] == [State.SUCCEEDED] * 2
    wait_until(lambda: not directory.path.exists())
    shared.delete(name)
