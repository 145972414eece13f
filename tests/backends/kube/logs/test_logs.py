"""Logs: complete, merged, and followed over restarts and broken connections."""

import itertools
import threading
import time

import pytest

from symphony.errors import NotFound, SpecError
from symphony_kube.logs import follow
from symphony_kube.logs import lines as loglines
from symphony_kube.logs.lines import LineAssembler, LogPosition
from tests.backends.kube.conftest import wait_until
from tests.backends.kube.held import HELD, release
from tests.backends.kube.module_experiment import FOREVER, launched, python, through

COUNT = """
import time
for n in range(300): print("line", n); time.sleep(0.01)
print("unfinished", end="")
"""
LONG = "import sys; sys.stdout.write('a' * 50_000 + '\\n' + 'b' * 16384 + '\\n' + 'c' * 40_000)"
CRASH = """
import os, pathlib, time
runs = pathlib.Path("/keep/runs"); runs.touch()
run = len(runs.read_text()); runs.write_text("x" * (run + 1))
for n in range(20):
    print("run", run, "line", n); time.sleep(0.02)
    while run == n == 0 and not os.path.exists("/tmp/go"): time.sleep(0.02)
raise SystemExit(0 if run == 2 else 1)
"""
CRASHED = [f"run {run} line {n}" for run in range(3) for n in range(20)]


@pytest.fixture(scope="module")
def finished(kube_session):
    """Yield an experiment that has finished, and its lines as they were followed from the start."""

    def build(exp):
        python(exp, "count", COUNT)
        python(exp, "long", LONG)
        python(exp, "crash", CRASH).restart_policy("OnFailure").mount_empty_dir("/keep")
        group = exp.new_process_group("team").termination_grace_period(0)
        for name in ("one", "two"):
            group.new_process(
                name, command=["python3", "-u", "-c", f"print('{name}'); print('caf\\xe9')"]
            )
        python(exp, "job", "print('tried'); raise SystemExit(1)").job(backoff_limit=1)
        python(exp, "late", "print('late')").starts_after("count", "succeeded")
        python(exp, "never", "print('never')").starts_after("job", "succeeded")
        python(exp, "silent", "pass")

    lines = []
    with launched(kube_session, build, wait=False) as (cluster, name):
        follower = threading.Thread(
            target=lambda: lines.extend(cluster.iter_logs(name, follow=True))
        )
        follower.start()
        # Kubernetes keeps the output of the last two executions only.
        wait_until(lambda: any(line.process == "crash" for line in list(lines)))
        release(cluster, name, "crash")
        cluster.wait(name, timeout=110)
        follower.join(timeout=20)
        assert not follower.is_alive(), "following did not end with the processes"
        yield cluster, name, lines


def texts_of(lines, process):
    return [line.text for line in lines if line.process == process]


def test_followed_lines_are_complete_and_in_order(finished):
    _, _, lines = finished
    assert texts_of(lines, "count") == [*(f"line {n}" for n in range(300)), "unfinished"]
    assert texts_of(lines, "long") == ["a" * 50_000, "b" * 16384, "c" * 40_000]
    assert texts_of(lines, "crash") == CRASHED
    assert texts_of(lines, "one") == ["one", "café"]
    assert texts_of(lines, "job") == ["tried", "tried"]
    assert texts_of(lines, "late") == ["late"]
    assert texts_of(lines, "never") == texts_of(lines, "silent") == []


def test_complete_logs_and_tails(finished):
    cluster, name, _ = finished
    count = "".join(f"line {n}\n" for n in range(300)) + "unfinished"
    assert cluster.get_log(name, "count") == count
    assert cluster.get_log(name, "count", tail=2) == "line 299\nunfinished"
    assert cluster.get_log(name, "count", tail=0) == ""
    assert cluster.get_log(name, "count", tail=10_000) == count
    assert cluster.get_log(name, "long", tail=1) == "c" * 40_000
    assert cluster.get_log(name, "long", tail=2) == "b" * 16384 + "\n" + "c" * 40_000
    assert cluster.get_log(name, "long", since="1h") == cluster.get_log(name, "long")
    assert cluster.get_log(name, "two", "team") == "two\ncafé\n"
    assert cluster.get_log(name, "job") == "tried\ntried\n"
    assert cluster.get_log(name, "silent") == cluster.get_log(name, "never") == ""
    assert cluster.get_log(name, "count", since="2999-01-01") == ""
    with pytest.raises(NotFound, match="did you mean 'count'"):
        list(cluster.iter_logs(name, ["cuont"]))
    with pytest.raises(NotFound, match="no experiment"):
        list(cluster.iter_logs("symphony-test-none", follow=True))


def test_previous_log_of_a_restarted_process(finished):
    cluster, name, _ = finished
    # Kubernetes keeps at most the logs of the last two runs.
    kept = cluster.get_log(name, "crash").splitlines()
    assert kept in (CRASHED[20:], CRASHED[40:])
    assert cluster.get_log(name, "job", previous=True) == "tried\n"
    with pytest.raises(NotFound, match="'count' has not been restarted"):
        cluster.get_log(name, "count", previous=True)
    with pytest.raises(SpecError, match="not both"):
        cluster.get_log(name, "crash", previous=True, follow=True)


def test_since_and_tail(finished):
    cluster, name, _ = finished
    path = f"/api/v1/namespaces/{name}/pods/{name}-count/log"
    lines = list(cluster.api.open_stream(path, query={"timestamps": "true"}).lines())
    starts = [loglines.line_time(lines[number])[:26] + b"000" for number in (110, 145)]
    since = [begin[:26].decode() + "Z" for begin in starts]
    first, second = (cluster.get_log(name, "count", since=at) for at in since)
    for begin, found in zip(starts, (first, second), strict=True):
        assert found.encode() == b"\n".join(
            loglines.line_content(line) for line in loglines.lines_since(lines, begin)
        )
    assert first.endswith(second)
    assert first.count("\n") > second.count("\n")
    assert cluster.get_log(name, "count", since=since[0], tail=2) == "line 299\nunfinished"
    assert [
        line.text for line in cluster.iter_logs(name, ["count"], since=since[1])
    ] == second.split("\n")


def test_lines_of_all_processes_are_merged_by_time(finished):
    cluster, name, _ = finished
    lines = list(cluster.iter_logs(name))
    assert texts_of(lines, "count") == [*(f"line {n}" for n in range(300)), "unfinished"]
    late = next(number for number, line in enumerate(lines) if line.process == "late")
    last = max(number for number, line in enumerate(lines) if line.process == "count")
    assert late > last
    assert [line.text for line in cluster.iter_logs(name, ["count", "late"], tail=1)] == [
        "unfinished",
        "late",
    ]
    assert list(cluster.iter_logs(name, ["count"], follow=True, tail=0)) == []
    assert [line.text for line in cluster.iter_logs(name, ["team/one"], follow=True)] == [
        "one",
        "café",
    ]


TALK = "import itertools, time\nfor n in itertools.count():\n print(n)\n time.sleep(0.005)"


AGAIN = f"""
import pathlib, signal
run = pathlib.Path("/keep/run")
if run.exists(): print("second"); signal.pause()
print("first")
{HELD}
run.touch(); print("end", end="")
"""


@pytest.fixture(scope="module")
def chatty(kube_session):
    def build(exp):
        python(exp, "talk", TALK)
        python(exp, "quiet", FOREVER)
        python(exp, "doomed", TALK)
        python(exp, "again", AGAIN).restart_policy("Always").mount_empty_dir("/keep")

    with launched(kube_session, build) as (cluster, name):
        cluster.wait(name, timeout=60, until="ready")
        yield cluster, name


def test_following_continues_after_a_restart(chatty):
    cluster, name = chatty
    lines = cluster.iter_logs(name, ["again"], follow=True)
    assert next(lines).text == "first"
    release(cluster, name, "again")
    assert [line.text for line in itertools.islice(lines, 2)] == ["end", "second"]
    # Kubernetes may report the restart after the process has written its line.
    wait_until(lambda: cluster.describe_process(name, "again").restarts == 1)
    assert cluster.get_log(name, "again") == "first\nendsecond\n"
    assert cluster.get_log(name, "again", previous=True) == "first\nend"
    assert cluster.get_log(name, "again", previous=True, tail=1) == "end"


def test_broken_connections_lose_and_repeat_no_line(chatty, kube_faults, kube_session, monkeypatch):
    opened = []
    really = follow.open_log
    monkeypatch.setattr(
        follow,
        "open_log",
        lambda *args, **kwargs: opened.append(really(*args, **kwargs)) or opened[-1],
    )
    _, name = chatty
    cluster = through(kube_faults.kubeconfig, kube_session, name)
    kube_faults.answer(500, path="follow=true", times=1)
    kube_faults.reset(path="follow=true", times=2)
    lines = cluster.iter_logs(name, ["talk"], follow=True, tail=5)
    numbers = [int(line.text) for line in itertools.islice(lines, 200)]
    opened[-1]._response.shutdown()
    numbers += [int(line.text) for line in itertools.islice(lines, 600)]
    opened[-1]._response.shutdown()
    numbers += [int(line.text) for line in itertools.islice(lines, 600)]
    lines.close()
    assert numbers == list(range(numbers[0], numbers[0] + 1400))
    assert kube_faults.count(path="follow=true") >= 5
    cluster.api.close()
    assert _threads_have_finished()


def _threads_have_finished():
    deadline = time.monotonic() + 10
    while left := [t.name for t in threading.enumerate() if t.name.startswith(("log-", "watch-"))]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)
    return True


def test_follow_with_tail_or_since(chatty):
    cluster, name = chatty
    for options, starts in (
        ({"tail": 0}, lambda first, before: first > before),
        ({"tail": 3}, lambda first, before: first > before - 3),
        # The process writes at most 200 lines a second.
        ({"since": "5s"}, lambda first, before: before - 1400 < first <= before),
    ):
        before = int(cluster.get_log(name, "talk", tail=1))
        lines = cluster.iter_logs(name, ["talk"], follow=True, **options)
        numbers = [int(line.text) for line in itertools.islice(lines, 300)]
        lines.close()
        assert numbers == list(range(numbers[0], numbers[0] + 300))
        assert starts(numbers[0], before)


def test_following_ends_when_the_pod_is_deleted(chatty, kube_session):
    cluster, name = chatty
    lines = cluster.iter_logs(name, ["doomed"], follow=True)
    next(lines)
    kube_session.api.call(
        "DELETE", f"/api/v1/namespaces/{name}/pods/{name}-doomed", {"gracePeriodSeconds": 0}
    )
    numbers = [int(line.text) for line in lines]
    assert numbers == list(range(1, len(numbers) + 1))


# --- lines ---


def line(second, text=b"x", nano=0):
    return b"2024-01-01T00:00:%02d.%09dZ " % (second, nano) + text


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_chunks_become_lines(size):
    data = b"a\n\nbc\nrest"
    pieces = LineAssembler()
    found = [
        one for start in range(0, len(data), size) for one in pieces.add(data[start : start + size])
    ]
    assert (found, pieces.flush()) == ([b"a", b"", b"bc"], [b"rest"])


def test_timestamps():
    line_in_other_zone = b"2024-01-01T02:00:00.000000001+02:00 x"
    assert loglines.line_time(line_in_other_zone) == b"2024-01-01T00:00:00.000000001"
    assert loglines.line_content(line_in_other_zone) == b"x"
    time = loglines.to_line_time(1704067200.5)
    assert time == b"2024-01-01T00:00:00.500000000"
    assert loglines.to_since_time(time, earlier_seconds=1) == "2023-12-31T23:59:59Z"


def test_timestamps_within_long_lines_are_removed():
    whole = b"p" * (1 << 14)
    assert (
        loglines.line_content(line(1, whole + line(2, whole + line(3, b"end"))))
        == whole + whole + b"end"
    )
    user = whole + b"and " + line(2, b"of mine")
    assert loglines.line_content(line(1, user)) == user


def test_repeated_lines_are_removed():
    numbers = LogPosition()
    old = [line(1), line(2, b"a"), line(2, b"a"), line(2, b"b")]
    numbers.remember(old)
    assert numbers.since_time() == "2024-01-01T00:00:01Z"
    again = [*old, line(2, b"a"), line(1, b"late"), line(3)]
    assert numbers.new_line_filter().filter(again) == [line(2, b"a"), line(1, b"late"), line(3)]


def test_the_log_of_the_next_execution_is_recognized():
    position = LogPosition()
    assert not position.new_line_filter().has_missed_latest
    position.remember([line(1), line(2)])
    same, following = position.new_line_filter(), position.new_line_filter()
    assert same.filter([line(1), line(2), line(3)]) == [line(3)]
    assert not same.has_missed_latest
    assert following.filter([line(3)]) == [line(3)]
    assert following.has_missed_latest


def test_the_previous_log_is_read_from_before_the_lines_of_the_next_execution():
    position = LogPosition()
    position.remember([line(1), line(30)])
    assert position.since_time() == "2024-01-01T00:00:29Z"
    assert position.since_time(previous=True) is None
    assert position.new_line_filter().filter([line(1), line(2)]) == [line(2)]
    with_floor = LogPosition(b"2024-01-01T00:00:05")
    with_floor.remember([line(30)])
    assert with_floor.since_time(previous=True) == "2024-01-01T00:00:05Z"


def test_lines_older_than_all_remembered_lines_are_removed():
    numbers = LogPosition()
    many = [line(1, b"%d" % number, nano=number) for number in range(1500)]
    numbers.remember(many)
    assert numbers.since_time(previous=True) == "2024-01-01T00:00:01Z"
    assert numbers.new_line_filter().filter([*many, line(1, nano=2000)]) == [line(1, nano=2000)]
    assert LogPosition(b"2024-01-01T00:00:05").new_line_filter().filter([line(4), line(5)]) == [
        line(5)
    ]


def test_message_of_a_kubelet_without_the_log():
    assert loglines.is_missing_log(b"unable to retrieve container logs for containerd://4e653d")
    assert not loglines.is_missing_log(b"unable to retrieve container logs for x\nmore\n")
