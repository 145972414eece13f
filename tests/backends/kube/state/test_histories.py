"""The states of processes after each change of recorded histories; see ``histories/README.md``."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from symphony.events import EventKind, events_between
from symphony.status import ENDED, State
from symphony_kube.api import labels
from symphony_kube.state.observed_objects import JOB_SETS, JOBS, PODS
from tests.backends.kube.histories import (
    NAMES,
    Change,
    History,
    Objects,
    apply_all,
    list_into,
    read_history,
)

RUNNING, SUCCEEDED, FAILED = State.RUNNING, State.SUCCEEDED, State.FAILED
SUCCESS = (SUCCEEDED, 0, 0)
LOST = (State.UNKNOWN, None, 0)
RUNS = (RUNNING, None, 0)
WAITS = (State.PENDING, None, 0)
# The state, the exit code and the number of restarts of each process at the end.
ENDS = {
    "01-pod-succeeds": {"p": SUCCESS},
    "02-pod-fails": {"p": (FAILED, 3, 0)},
    "03-two-containers": {
        "pair-a": SUCCESS,
        "pair-b": SUCCESS,
        "pair-bad-a": (FAILED, 5, 0),
        "pair-bad-b": SUCCESS,
    },
    "04-delete-ignores-term": {"killed": LOST, "waits": LOST, "polite": LOST},
    "05-delete-while-pending": {"unscheduled": LOST, "pulling": LOST},
    "06-job-retries-then-succeeds": {"j": (SUCCEEDED, 0, 2)},
    "07-job-fails": {"j": (FAILED, 4, 1), "once": (FAILED, 4, 0)},
    "08-job-policy-and-deadline": {
        "policy": (FAILED, 42, 0),
        "deadline": (FAILED, 0, 0),
        "deadline-stubborn": (FAILED, 137, 0),
    },
    "09-job-suspended-and-resumed": {"j": SUCCESS},
    "10-restarts-on-failure": {"p": (FAILED, 1, 3)},
    "11-image-cannot-be-pulled": dict.fromkeys(("not-found", "no-host", "bad-name", "never"), LOST),
    "12-unschedulable-gpu": {
        "too-many": LOST,
        "no-such": WAITS,
        "j": WAITS,
        "too-much-cpu": WAITS,
        "label": WAITS,
    },
    "13-ready-late": {"p": SUCCESS},
    "14-native-sidecar": {
        "good": SUCCESS,
        "bad": (FAILED, 3, 0),
        "stubborn": SUCCESS,
        "with-init": SUCCESS,
    },
    "15-eviction": {"polite": LOST, "stubborn": LOST, "guarded": RUNS, "j": SUCCESS},
    "19-pod-deadline": {"polite": (FAILED, 0, 0), "stubborn": (FAILED, 137, 0)},
    "20-jobset-restarts-once": dict.fromkeys(("js-0", "js-1", "js-2", "js-3"), (SUCCEEDED, 0, 1)),
    "22-kueue-group-waits-then-runs": dict.fromkeys(
        ("first-0", "first-1", "second-0", "second-1"), SUCCESS
    ),
    "23-kueue-group-deleted-while-waiting": {
        "first-0": RUNS,
        "first-1": RUNS,
        "second-0": LOST,
        "second-1": LOST,
    },
    "25-resize-in-place": {"p": RUNS, "restarts": (RUNNING, None, 1)},
}
every_history = pytest.mark.parametrize("name", NAMES)


def states(observer, now):
    """Return the state, the exit code and the number of restarts of each process."""
    processes = observer.observe(now).status
    return {item.name: (item.state, item.exit_code, item.restarts) for item in processes}


def has_result(process: str, objects: Objects) -> bool:
    """Return whether the server has decided on the result of a process.

    The container of a Pod decides while another container of the Pod is running.
    """
    changes = [*objects.deleted.values(), *objects.current.values()]
    jobs = [item for item in changes if item.kind == JOBS and _unit(item) == process]
    if jobs:
        return jobs[-1].uid in objects.deleted or _has_condition(jobs, "Complete", "Failed")
    job_sets = [item for item in changes if item.kind == JOB_SETS]
    if job_sets:
        return _has_condition(job_sets, "Completed", "Failed")
    pods = [item for item in changes if item.kind == PODS and process in _states(item)]
    if not pods:
        return False
    latest = pods[-1]
    phase = latest.body["status"]["phase"]
    if phase in ("Succeeded", "Failed") or latest.uid in objects.deleted:
        return True
    return _states(latest)[process] == "terminated" and "running" in _states(latest).values()


def _unit(change: Change) -> str:
    return change.body["metadata"]["labels"].get(labels.UNIT, "")


def _states(change: Change) -> dict[str, str]:
    """Return the words of Kubernetes for the state of each container of a Pod."""
    states = {container["name"]: "" for container in change.body["spec"]["containers"]}
    for status in change.body["status"].get("containerStatuses") or ():
        (states[status["name"]],) = status["state"]
    return states


def _has_condition(changes: list[Change], *kinds: str) -> bool:
    conditions = changes[-1].body.get("status", {}).get("conditions") or ()
    return any(item["type"] in kinds and item["status"] == "True" for item in conditions)


@every_history
def test_no_result_is_shown_before_the_server_has_one(name):
    history = read_history(name)
    observer, objects = history.observer(), Objects()
    for change in history.changes:
        observer.apply(change.kind, change.event, change.body)
        objects.apply(change)
        for process, (state, *_) in states(observer, change.at).items():
            if state not in ENDED:
                continue
            assert has_result(process, objects), (process, state, change.at)
            will_succeed = ENDS[name][process][0] is SUCCEEDED
            assert (state is SUCCEEDED) == will_succeed, (process, state, change.at)


@every_history
def test_results_exit_codes_and_restarts_at_the_end(name):
    history = read_history(name)
    observer = history.observer()
    apply_all(observer, history.changes)
    assert states(observer, history.end) == ENDS[name]


@pytest.mark.parametrize("name", ["05-delete-while-pending", "11-image-cannot-be-pulled"])
def test_process_whose_image_was_never_pulled_is_never_running(name):
    """Its container ends with 137 when the Pod is deleted."""
    history = read_history(name)
    observer, shown = history.observer(), set()
    for change in history.changes:
        observer.apply(change.kind, change.event, change.body)
        shown |= {state for state, *_ in states(observer, change.at).values()}
    assert shown == {State.PENDING, State.UNKNOWN}


def result_after_a_list(history: History, number: int, missed: int):
    """Return the states at the end if a watch ends after a number of changes, if it then misses
    some changes, and if it is continued with a list.
    """
    observer, objects = history.observer(), Objects()
    for change in history.changes[: number + missed]:
        objects.apply(change)
    apply_all(observer, history.changes[:number])
    observer.observe(history.changes[number].at)
    list_into(observer, objects)
    apply_all(observer, history.changes[number + missed :])
    return states(observer, history.end)


@every_history
def test_a_watch_that_ends_after_any_change_is_continued_with_a_list(name):
    history = read_history(name)
    for number in range(len(history.changes)):
        assert result_after_a_list(history, number, 0) == ENDS[name], number


def possible_results(history: History, process: str, result: State) -> tuple[State, ...]:
    """Return the states at the end if some changes were missed.

    The result of a process is lost with its Pod, unless a controller has counted it.
    """
    pods = [item for item in history.changes if item.kind == PODS and process in _states(item)]
    is_controlled = "ownerReferences" in pods[-1].body["metadata"]
    if pods[-1].event == "DELETED" and not is_controlled:
        return result, State.UNKNOWN
    return (result,)


@every_history
def test_changes_that_a_watch_misses(name):
    history = read_history(name)
    for number in range(len(history.changes)):
        found = result_after_a_list(history, number, 3)
        for process, (result, *_) in ENDS[name].items():
            assert found[process][0] in possible_results(history, process, result), number


@every_history
def test_changes_that_are_received_twice(name):
    history = read_history(name)
    observer = history.observer()
    for change in history.changes:
        apply_all(observer, (change, change))
        observer.observe(change.at)
    assert states(observer, history.end) == ENDS[name]


def delayed(history: History, kind: str, seconds: float) -> Iterable[Change]:
    """Return the changes in their order if those of one kind are received later."""

    def received(change: Change) -> float:
        return change.at + seconds if change.kind == kind else change.at

    return sorted(history.changes, key=received)


WATCHES = [
    (name, kind)
    for name in NAMES
    for kind in sorted({change.kind for change in read_history(name).changes})
]


@pytest.mark.parametrize(("name", "kind"), WATCHES)
@pytest.mark.parametrize("seconds", [0.02, 0.5, 3.0, 1000.0])
def test_watches_that_are_not_synchronized(name, kind, seconds):
    """The result is the same, and no process fails that succeeds in the end."""
    history = read_history(name)
    observer = history.observer()
    successes = [process for process, end in ENDS[name].items() if end[0] is SUCCEEDED]
    for change in delayed(history, kind, seconds):
        observer.apply(change.kind, change.event, change.body)
        found = states(observer, change.at + seconds)
        if seconds < 1000:
            for process in successes:
                assert found[process][0] not in (FAILED, State.UNKNOWN), (process, change.at)
    assert states(observer, history.end + seconds) == ENDS[name]


@every_history
def test_a_client_that_begins_after_any_change(name):
    """It does not know the Pods that were deleted before."""
    history = read_history(name)
    for number in range(1, len(history.changes)):
        observer, objects = history.observer(), Objects()
        for change in history.changes[:number]:
            objects.apply(change)
        list_into(observer, objects)
        apply_all(observer, history.changes[number:])
        found = states(observer, history.end)
        for process, (result, exit_code, restarts) in ENDS[name].items():
            state = found[process][0]
            assert state in possible_results(history, process, result), (process, number)
            if state is not State.UNKNOWN:
                assert found[process][1] in (exit_code, None), (process, number)
                assert found[process][2] == restarts, (process, number)


def words(name: str) -> dict[str, list]:
    """Return what is shown of each process from its first exit on, without repetitions."""
    history = read_history(name)
    observer = history.observer()
    found: dict[str, list] = {unit.name: [] for unit in history.roster}
    for change in history.changes:
        observer.apply(change.kind, change.event, change.body)
        for item in observer.observe(change.at).status:
            shown = (str(item.state), item.exit_code, item.reason)
            if not found[item.name] or found[item.name][-1] != shown:
                found[item.name].append(shown)
    return found


def test_the_words_for_a_job_that_retries():
    (shown,) = words("06-job-retries-then-succeeds").values()
    setup = [
        ("pending", None, "being scheduled"),
        ("pending", None, "ContainerCreating"),
        ("pending", None, "pulling image "),
        ("running", None, ""),
    ]
    retry = [("pending", 1, "exit code 1")]
    end = [
        ("running", None, "exited with 0; its Pod has not finished yet"),
        ("running", None, "exited with 0; its Job has not finished yet"),
        ("succeeded", 0, ""),
    ]
    assert shown[1:] == [*setup, *retry, *setup, *retry, *setup, *end]


def test_the_words_for_jobs_that_fail():
    assert words("07-job-fails")["j"][-3:] == [
        ("running", None, "exited with 4; its Pod has not finished yet"),
        ("running", None, "exited with 4; its Job has not finished yet"),
        ("failed", 4, "BackoffLimitExceeded: failed 2 times"),
    ]
    late = "DeadlineExceeded: ran longer than 6 s"
    assert words("08-job-policy-and-deadline")["deadline-stubborn"][-3:] == [
        ("running", None, "its Pod is being deleted"),
        ("running", None, late),
        ("failed", 137, late),
    ]


def test_the_next_attempt_of_a_job_is_announced_when_its_container_exits():
    history = read_history("06-job-retries-then-succeeds")
    observer = history.observer()
    for change in history.changes:
        observer.apply(change.kind, change.event, change.body)
        (process,) = observer.observe(change.at).status
        if process.exit_code is not None:
            break
    assert change.body["status"]["phase"] == "Running"
    assert process.next_start == process.ended + 10
    assert (process.restart_number, process.max_restarts) == (1, 2)


def event_texts(name: str) -> dict[str, list[str]]:
    """Return the texts of all events of each process, in the order in which they are shown."""
    history = read_history(name)
    observer = history.observer()
    texts: dict[str, list[str]] = {}
    previous = None
    for change in history.changes:
        observer.apply(change.kind, change.event, change.body)
        status = observer.observe(change.at).status
        for event in events_between(previous, status, change.at):
            if event.process is not None and event.kind is not EventKind.WAITING:
                texts.setdefault(event.process, []).append(event.text)
        previous = status
        assert not status.note
    return texts


def test_the_events_of_a_job_that_retries():
    assert event_texts("06-job-retries-then-succeeds")["j"] == [
        "started",
        "exited with 1",
        "restarting in 10 s (1 of 2)",
        "started again (restart 1)",
        "exited with 1",
        "restarting in 20 s (2 of 2)",
        "started again (restart 2)",
        "exited with 0",
    ]


def test_the_events_of_a_job_set_that_restarts():
    """A restart is announced once, although more and more is known of it."""
    texts = event_texts("20-jobset-restarts-once")
    failed = ["started", "exited with 5", "restarting (1 of 2)"]
    stopped = ["started", "restarting (1 of 2)"]
    again = ["started again (restart 1)", "exited with 0"]
    assert texts["js-2"] == [*failed, *again]
    assert texts["js-0"] == texts["js-1"] == [*stopped, *again]
    assert texts["js-3"] == ["started", "stopping", "restarting (1 of 2)", *again]


def test_the_cause_of_the_restart_of_a_job_set_is_remembered():
    reasons = [reason for _, _, reason in words("20-jobset-restarts-once")["js-0"]]
    causes = [reason for reason in reasons if "restarts" in reason]
    assert causes == ["the unit restarts: js-2 exited with 5"]


def test_pods_that_a_controller_deletes_do_not_mean_that_the_experiment_is_deleted():
    assert event_texts("08-job-policy-and-deadline")["deadline"][-1] == (
        "exited with 0 (DeadlineExceeded: ran longer than 6 s)"
    )
