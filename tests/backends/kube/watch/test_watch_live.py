"""Lists and watches of a real server: their number, lost connections, and deleted Pods."""

import pytest

from symphony.status import State
from tests.backends.kube.conftest import python, wait_until
from tests.backends.kube.held import HELD, release
from tests.backends.kube.watch.test_watch import cut, is_list, is_watch, through

__all__ = ["through"]


@pytest.fixture
def once_watched(shared, kube_faults, name, monkeypatch):
    """A function that returns a callback for ``on_change``.

    When the number of watches is reached, it calls ``first`` and releases the first process.
    """
    # Otherwise the events of a Pod that starts slowly are requested, too.
    monkeypatch.setattr("symphony_kube.status.event_sources.pod_events.SLOW_SETUP_SECONDS", 3600.0)

    def later(watches, first=lambda: None):
        done = []

        def see(status):
            if not done and status.processes[0].state is State.RUNNING:
                done.append(True)
                wait_until(lambda: is_watch(kube_faults) == watches)
                first()
                release(shared, status.name, status.processes[0].name)

        return see

    return later


def test_wait_makes_one_list_and_one_watch_of_each_kind_and_survives_an_outage(
    shared, through, kube_faults, name, once_watched
):
    experiment = shared.new_experiment(name)
    for index in range(3):
        python(experiment, f"p{index}", "pass" if index else HELD)
    shared.launch(experiment)
    assert through.wait(name, timeout=60, on_change=once_watched(1)).exit_code == 0
    assert (is_list(kube_faults), is_watch(kube_faults), kube_faults.count()) == (1, 1, 2)
    through.describe_experiment(name)
    assert kube_faults.count() == 3

    experiment = shared.new_experiment(f"{name}-job")
    python(experiment, "p", HELD)
    python(experiment, "job", "pass").job()
    shared.launch(experiment)
    assert through.wait(f"{name}-job", timeout=60, on_change=once_watched(3)).exit_code == 0
    assert (is_list(kube_faults), is_watch(kube_faults), kube_faults.count()) == (4, 3, 7)

    # A wait survives lost connections and an outage.
    experiment = shared.new_experiment(f"{name}-lost")
    python(experiment, "p", HELD)
    shared.launch(experiment)

    def break_off():
        kube_faults.reset(path="watch=true", times=2)
        kube_faults.answer(503, path="watch=true", times=2)
        cut(kube_faults)

    see = once_watched(4, break_off)
    status = through.wait(f"{name}-lost", timeout=60, on_change=see)
    assert status.processes[0].state is State.SUCCEEDED
    assert (is_list(kube_faults), is_watch(kube_faults)) == (5, 9)
