"""Each check of the trials fails if its invariant is broken."""

import contextlib
import resource
import socket
import subprocess

import pytest

from symphony.status import ExperimentStatus, ProcessStatus, State
from symphony.supervised.processes.identity import ProcessId, identify
from symphony.supervised.processes.mark import RLIMIT_LOCKS, mark_of
from torture import checks
from torture.checks import FoundProcess

RUN_ID = "0123456789abcdef0123456789abcdef"
IDENTITY = "a round of this test"


@contextlib.contextmanager
def sleeping(**variables):
    """Run a process whose environment contains only ``variables``, and yield its identity."""
    with subprocess.Popen(["/bin/sleep", "1000"], env=variables) as process:
        # Popen returns when the process has executed its program.
        yield identify(process.pid)
        process.kill()


def found(*arguments):
    return [(item.process, item.run_id) for item in checks.find_processes(IDENTITY, *arguments)]


def test_process_with_the_variable_of_the_round_is_found():
    with sleeping(**{checks.ROUND_VARIABLE: IDENTITY}) as process:
        assert found() == [(process, None)]
        (violation,) = checks.left_processes(checks.find_processes(IDENTITY))
        assert violation == f"process {process.pid} (/bin/sleep 1000) is left"
    assert found() == []


def test_process_of_a_run_is_found():
    with sleeping(**{checks.ROUND_VARIABLE: IDENTITY, "SYMPHONY_RUN": RUN_ID}) as process:
        assert found() == [(process, RUN_ID)]


def test_process_with_only_the_mark_is_found():
    with sleeping() as process:
        hard = resource.prlimit(process.pid, RLIMIT_LOCKS)[1]
        resource.prlimit(process.pid, RLIMIT_LOCKS, (mark_of(RUN_ID), hard))
        assert found() == []
        assert found([RUN_ID]) == [(process, RUN_ID)]


def test_recorded_process_without_any_sign_is_found():
    with sleeping() as process:
        other = ProcessId(process.pid, process.birth - 1)
        assert found([], [other]) == []
        assert found([], [process]) == [(process, "unknown")]


@pytest.mark.parametrize("name", ["exp", ".new-1", ".old-1"])
def test_file_that_is_left_is_reported(tmp_path, name):
    (tmp_path / ".lock").touch()
    assert checks.left_files(tmp_path) == []
    (tmp_path / name).mkdir()
    assert checks.left_files(tmp_path) == [f"{tmp_path / name} is left"]


@pytest.mark.parametrize("listens", [True, False])
def test_used_port_is_reported(listens):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        if listens:
            server.listen()
        assert checks.used_ports([port]) == [f"port {port} is not free: Address already in use"]
    assert checks.used_ports([port]) == []


@pytest.mark.parametrize(
    ("code", "output", "violations"),
    [
        (0, "", 0),
        (3, "symphony: the tmux server does not respond", 0),
        (4, "", 1),
        (-11, "", 1),
        (1, "Traceback (most recent call last):\n...\nValueError: x", 1),
        (1, "symphony: unexpected ValueError: x; run it again with --debug for the traceback", 1),
        (-6, "Traceback (most recent call last):", 2),
    ],
)
def test_wrong_answer_is_reported(code, output, violations):
    found = checks.wrong_answer(["ls"], code, output, is_permitted=checks.is_usual)
    assert len(found) == violations
    assert all(violation.startswith("symphony ls ") for violation in found)


@pytest.mark.parametrize(
    ("numbers", "violation"),
    [
        ([0, 1, 2], None),
        ([0, 2], "1 of 3 lines are lost: ['line 1']"),
        ([0, 1, 1, 2], "1 of 3 lines are doubled: ['line 1']"),
        ([0, 1, 2, 3], "1 of 3 lines are foreign: ['line 3']"),
        ([0, 1, 2, "2line"], "1 of 3 lines are foreign: ['line 2line']"),
        ([0, 2, 1], "the lines are in another order"),
    ],
)
def test_wrong_lines_are_reported(numbers, violation):
    lines = [f"line {number}" for number in numbers]
    assert checks.wrong_lines(3, lines) == ([violation] if violation else [])


def test_changed_text_is_reported():
    assert checks.changed_texts(["a", ""], ["a", ""]) == []
    assert checks.changed_texts(["a\n", "b"], ["a", "b"]) == ["'a\\n' arrived as 'a'"]
    assert checks.changed_texts(["a", ""], ["a"]) == ["2 texts were sent and 1 arrived: ['a']"]


def test_process_of_another_run_is_reported():
    processes = [
        FoundProcess(ProcessId(number, 0.0), "sleep", run_id)
        for number, run_id in enumerate(["one", "two", None])
    ]
    assert checks.several_runs(processes, ["one", "two"]) == []
    assert checks.several_runs(processes, ["one"]) == ["process 1 (sleep) of run two is orphaned"]
    assert len(checks.several_runs(processes, [])) == 2


def status_of(*states):
    processes = [
        ProcessStatus(name=f"p-{number}", group=None, state=state, pid=number)
        for number, state in enumerate(states)
    ]
    return ExperimentStatus(name="exp", backend="local", processes=tuple(processes))


@pytest.mark.parametrize(
    ("states", "running", "violation"),
    [
        ([State.RUNNING, State.FAILED], [0], None),
        ([State.RUNNING, State.FAILED], [0, 1], "process 1 runs and is not shown as running"),
        ([State.RUNNING, State.RUNNING], [0], "p-1 (1) is shown as running, but is not"),
        ([State.SUCCEEDED], [], "p-0 is shown as succeeded, which is impossible"),
    ],
)
def test_wrong_status_is_reported(states, running, violation):
    violations = checks.wrong_status(status_of(*states), running)
    assert violations == ([violation] if violation else [])


def test_process_that_is_not_running_is_reported():
    assert checks.not_running(None) == ["the experiment does not exist"]
    assert checks.not_running(status_of(State.RUNNING, State.RUNNING)) == []
    assert checks.not_running(status_of(State.RUNNING, State.FAILED)) == [
        "p-1 is failed, not running: "
    ]


def test_shared_port_is_reported():
    assert checks.shared_ports({"a": [1, 2], "b": [3]}) == []
    assert checks.shared_ports({"a": [1, 2], "b": [2]}) == ["a and b both have port 2"]
