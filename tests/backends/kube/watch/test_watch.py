"""Lists and watches: the number of requests, and recovery from failures."""

import contextlib
import http.server
import json
import subprocess
import sys
import threading
import time
import types
from weakref import WeakKeyDictionary

import pytest

from kubetest.rawapi import MERGE_PATCH
from symphony.errors import NotFound, Unreachable
from symphony.status import State
from symphony_kube.api.client import Api
from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import ROSTER, Scope
from symphony_kube.api.retries import Timeouts
from symphony_kube.render.roster import Unit, encode_roster
from symphony_kube.state.observe import ExperimentState
from symphony_kube.watch import informer
from symphony_kube.watch.all_experiments import ExperimentsWatch
from symphony_kube.watch.experiment_informer import REST_FACTOR
from symphony_kube.watch.informer import Change, Informer
from symphony_kube.watch.observations import ObservationStream
from tests.backends.kube.conftest import FOREVER, python, unschedulable, wait_until

SCOPE = Scope(experiment="rl", namespace="rl")
PODS = {"pods": "/api/v1/namespaces/rl/pods"}


# --- a server with scripted responses ---


def pod(version: int, name: str = "p") -> dict:
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "resourceVersion": str(version),
            "labels": {"symphony/unit": name},
        },
        "spec": {"containers": [{"name": name}]},
    }


def event(kind: str, version: int) -> dict:
    return {"type": kind, "object": pod(version)}


def error(code: int) -> dict:
    return {
        "type": "ERROR",
        "object": {"kind": "Status", "code": code, "reason": "Expired", "message": "too old"},
    }


class Server(http.server.ThreadingHTTPServer):
    """Answers watches from a script, then keeps them open.

    Each entry is a list of events, an incomplete line as text, or a status code.
    """

    daemon_threads = True

    def __init__(self, *script):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = list(script)
        self.watched: list[str] = []
        self.listed = 0
        self.items = [pod(1)]
        # A step "gate" in a script waits for this event.
        self.gate = threading.Event()
        self.over = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        if "watch=true" not in self.path:
            self.server.listed += 1
            version = str(100 * self.server.listed)
            self.answer(
                json.dumps(
                    {"metadata": {"resourceVersion": version}, "items": self.server.items}
                ).encode()
            )
            return
        self.server.watched.append(self.path.partition("resourceVersion=")[2].partition("&")[0])
        step = self.server.script.pop(0) if self.server.script else None
        if isinstance(step, int):
            self.answer(b"{}", step)
            return
        self.send_response(200)
        self.end_headers()
        if step is None:
            self.wfile.flush()
            self.server.over.wait(20)
            return
        for part in step:
            if part == "gate":
                self.wfile.flush()
                self.server.gate.wait(20)
                continue
            self.wfile.write(
                part.encode() if isinstance(part, str) else json.dumps(part).encode() + b"\n"
            )

    def answer(self, content: bytes, status: int = 200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """A function that starts a `Server` and returns it with an `Api`."""
    monkeypatch.setattr(informer, "FIRST_PAUSE_SECONDS", 0.01)
    servers = []

    def start(*script):
        server = Server(*script)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = tmp_path / "config"
        config.write_text(
            json.dumps(
                {
                    "clusters": [
                        {
                            "name": "c",
                            "cluster": {"server": f"http://127.0.0.1:{server.server_port}"},
                        }
                    ],
                    "users": [{"name": "u", "user": {}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "c",
                }
            )
        )
        return server, Api(kubeconfig=config, timeouts=Timeouts(pauses=()))

    yield start
    for server in servers:
        server.over.set()
        server.gate.set()
        server.shutdown()
        server.server_close()


def start(pods: Informer, **options) -> None:
    """List the Pods, which is the first change, and watch them."""
    objects = pods.start("pods", **options)
    assert [item["metadata"]["name"] for item in objects] == ["p"]
    (listed,) = take_changes(pods, 1)
    assert (listed.event, listed.objects) == ("LISTED", objects)


# The changes that an informer returned together with those that a test asked for.
further_changes: WeakKeyDictionary[Informer, list[Change]] = WeakKeyDictionary()


def take_changes(pods: Informer, number: int) -> list[Change]:
    """Return the next changes. Several can arrive together."""
    found = further_changes.pop(pods, [])
    while len(found) < number:
        changes = pods.changes(30)
        assert changes, f"no more than {found}"
        found.extend(changes)
    further_changes[pods] = found[number:]
    return found[:number]


def versions(changes: list[Change]) -> list[tuple[str, str]]:
    return [(change.event, change.objects[0]["metadata"]["resourceVersion"]) for change in changes]


def test_ended_watch_is_continued(serve):
    server, api = serve([event("MODIFIED", 101), event("MODIFIED", 102)], [event("DELETED", 103)])
    with Informer(api, PODS, "a=b") as pods:
        start(pods)
        assert versions(take_changes(pods, 3)) == [
            ("MODIFIED", "101"),
            ("MODIFIED", "102"),
            ("DELETED", "103"),
        ]
        assert (server.watched[:2], server.listed) == (["100", "102"], 1)


def test_bookmark_only_changes_the_version(serve):
    server, api = serve([event("BOOKMARK", 180)], [event("MODIFIED", 181)])
    with Informer(api, PODS, "a=b") as pods:
        start(pods)
        assert versions(take_changes(pods, 1)) == [("MODIFIED", "181")]
        assert server.watched[:2] == ["100", "180"]


@pytest.mark.parametrize(
    "end",
    [
        [event("MODIFIED", 101), '{"type": "MODI'],
        [event("MODIFIED", 101), error(500)],
        [event("MODIFIED", 101), error(429)],
    ],
    ids=["half a line", "an error of the server's own", "too many requests"],
)
@pytest.mark.parametrize("answer", [503, 429])
def test_lost_watch_is_continued(serve, end, answer):
    server, api = serve(end, answer, [event("MODIFIED", 102)])
    with Informer(api, PODS, "a=b") as pods:
        start(pods)
        assert versions(take_changes(pods, 2)) == [("MODIFIED", "101"), ("MODIFIED", "102")]
        assert (server.watched[:3], server.listed) == (["100", "101", "101"], 1)


@pytest.mark.parametrize(
    "end",
    [410, 504, [error(410)], [error(504)]],
    ids=["an answer", "too new", "an event", "an event, too new"],
)
def test_unavailable_version_causes_a_new_list(serve, end):
    server, api = serve(end, [event("MODIFIED", 201)])
    with Informer(api, PODS, "a=b") as pods:
        start(pods)
        first, second = take_changes(pods, 2)
        assert (first.event, len(first.objects)) == ("LISTED", 1)
        assert versions([second]) == [("MODIFIED", "201")]
        assert (server.watched[:2], server.listed) == (["100", "200"], 2)


@pytest.mark.parametrize("end", [410, [error(410)]], ids=["an answer", "an event"])
def test_watch_of_an_old_version_raises(serve, end):
    _, api = serve(end)
    with pytest.raises(ApiError) as caught:
        next(api.watch(PODS["pods"], query={"resourceVersion": "1"}))
    assert caught.value.status == 410


def test_long_outage_is_reported(serve):
    _, api = serve(*[503] * 1000)
    began = time.monotonic()
    with Informer(api, PODS, "a=b", outage_seconds=0.2) as pods:
        start(pods)
        with pytest.raises(ApiError, match="503"):
            take_changes(pods, 1)
        assert time.monotonic() - began > 0.2


def test_slow_list_is_not_an_outage(serve, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(informer, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    server, api = serve(503, [event("MODIFIED", 101)])
    asked = api.call

    def slowly(*given, **more):
        clock[0] += 100
        return asked(*given, **more)

    monkeypatch.setattr(api, "call", slowly)
    with Informer(api, PODS, "a=b", outage_seconds=60) as pods:
        start(pods)
        assert versions(take_changes(pods, 1)) == [("MODIFIED", "101")]
        assert server.watched[:2] == ["100", "100"]


def test_optional_objects_that_may_not_be_watched_are_listed_again(serve):
    server, api = serve(403, 403)
    with Informer(api, PODS, "a=b") as pods:
        start(pods, optional=True, poll_seconds=0.01)
        assert [change.event for change in take_changes(pods, 2)] == ["LISTED"] * 2
    server, api = serve(403)
    with Informer(api, PODS, "a=b") as pods:
        start(pods, optional=True)
        assert further_changes[pods] == pods.changes(0.5) == []
        assert (len(server.watched), server.listed) == (1, 1)


def test_client_error_is_reported_immediately(serve):
    _, api = serve(403)
    with Informer(api, PODS, "a=b") as pods:
        pods.start("pods")
        # The error can arrive before the listed Pods are taken.
        with pytest.raises(ApiError, match="403"):
            take_changes(pods, 2)


def test_close_wakes_a_waiting_thread(serve):
    _, api = serve()
    of_other_tests = set(threading.enumerate())
    following = ObservationStream(KubeExperiment(api, SCOPE))
    assert following.first().status.processes[0].name == "p"
    timer = threading.Timer(0.2, following.close)
    timer.start()
    assert next(following, None) is None
    timer.join()
    join_watches(of_other_tests)


def test_close_ends_a_watch_that_waits_for_the_next_try(serve):
    server, api = serve(503)
    api.timeouts = Timeouts(pauses=(60.0,))
    of_other_tests = set(threading.enumerate())
    with Informer(api, PODS, "a=b") as pods:
        start(pods)
        wait_until(lambda: server.watched)
    join_watches(of_other_tests)


def join_watches(before):
    """Wait for the end of the watches, except for those whose threads are in ``before``."""
    for thread in threading.enumerate():
        if thread.name.startswith("watch-") and thread not in before:
            thread.join(30)
            assert not thread.is_alive()


def test_readiness_timeout_needs_no_event(serve, monkeypatch):
    """The timeout is reported although the server sends no event."""
    running = {"running": {"startedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}}
    status = {
        "phase": "Running",
        "containerStatuses": [{"name": "p", "state": running, "ready": False}],
    }
    changed = {**pod(101), "status": status}
    changed["spec"]["containers"][0]["readinessProbe"] = {}
    _, api = serve([{"type": "MODIFIED", "object": changed}])
    roster = (Unit(name="p", processes=("p",), ready={"p": 2.0}),)
    with ObservationStream(KubeExperiment(api, SCOPE), roster=roster) as following:
        late = next(seen for seen in following if seen.containers["p"].never_ready)
        assert late.status.processes[0].reason == "not ready within 2 s"


def test_changes_that_have_arrived_are_observed_without_time_to_wait(serve):
    """A supervisor whose next decision is due must not decide from an old observation for ever."""
    changed = {**pod(101), "status": {"phase": "Succeeded"}}
    _, api = serve([{"type": "MODIFIED", "object": changed}])
    with ObservationStream(KubeExperiment(api, SCOPE)) as following:
        latest = following.first()
        deadline = time.monotonic() + 30
        while not latest.status.ended and time.monotonic() < deadline:
            latest = following.next(0) or latest
        assert latest.status.ended


# --- several readers of one experiment ---


def of_run(version: int, name: str = "p", *, run: str = "one", phase: str = "Pending") -> dict:
    """Return a Pod of a run, with the roster of its experiment."""
    item = pod(version, name)
    metadata = item["metadata"]
    metadata["labels"] |= {"symphony/run": run, "symphony/experiment": "rl"}
    metadata["annotations"] = {ROSTER: encode_roster((Unit(name=name, processes=(name,)),))}
    minute = {"one": 1, "two": 2}[run]
    metadata["creationTimestamp"] = f"2026-01-01T00:0{minute}:00Z"
    return {**item, "status": {"phase": phase}}


def test_readers_share_one_watch(serve):
    server, api = serve()
    server.items = [of_run(1)]
    of_other_tests = set(threading.enumerate())
    with (
        ObservationStream(KubeExperiment(api, SCOPE)) as first,
        ObservationStream(KubeExperiment(api, SCOPE)) as second,
    ):
        first.first()
        second.first()
        assert first.observe() is second.observe()
        wait_until(lambda: server.watched)
        first.close()
        assert first.next() is None
        assert (server.listed, server.watched) == (2, ["100"])
        assert second.next(0.01) is None
    join_watches(of_other_tests)
    with ObservationStream(KubeExperiment(api, SCOPE)) as later:
        later.first()
        wait_until(lambda: len(server.watched) == 2)


def test_all_readers_receive_each_change(serve):
    done = of_run(301, phase="Succeeded")
    server, api = serve(["gate", {"type": "MODIFIED", "object": done}])
    server.items = [of_run(1)]
    with (
        ObservationStream(KubeExperiment(api, SCOPE)) as first,
        ObservationStream(KubeExperiment(api, SCOPE)) as second,
    ):
        assert [stream.first().status.ended for stream in (first, second)] == [False, False]
        server.gate.set()
        assert [stream.next(30).status.ended for stream in (first, second)] == [True, True]


def test_reader_sees_what_its_caller_has_seen(serve):
    """The watch can be late."""
    server, api = serve()
    server.items = [of_run(1)]
    with (
        ObservationStream(KubeExperiment(api, SCOPE)) as first,
        ObservationStream(KubeExperiment(api, SCOPE)) as second,
    ):
        assert not first.first().status.ended
        server.items = [of_run(150, phase="Succeeded")]
        assert second.first().status.ended
        assert first.next(30).status.ended


def test_changes_that_a_list_contains_are_not_applied_again(serve):
    old = {**pod(101), "status": {"phase": "Failed"}}
    new = {**pod(250, "q"), "status": {"phase": "Running"}}
    server, api = serve(
        ["gate", {"type": "MODIFIED", "object": old}, {"type": "ADDED", "object": new}]
    )
    with Informer(api, PODS, "a=b") as pods:
        start(pods)
        server.items = [{**pod(150), "status": {"phase": "Succeeded"}}]
        pods.start("pods")
        server.gate.set()
        assert versions(take_changes(pods, 2)) == [("LISTED", "150"), ("ADDED", "250")]


def test_changes_during_a_list_call_are_applied_after_it(serve, monkeypatch):
    server, api = serve(["gate", event("MODIFIED", 199), event("MODIFIED", 201)])
    with Informer(api, PODS, "a=b") as pods:
        start(pods)
        asked = api.call

        def late(*given, **more):
            answer = asked(*given, **more)
            server.gate.set()
            take_changes(pods, 2)
            return answer

        monkeypatch.setattr(api, "call", late)
        pods.start("pods")
        assert versions(take_changes(pods, 2)) == [("LISTED", "1"), ("MODIFIED", "201")]


@pytest.mark.parametrize("is_same_second", [False, True])
def test_reader_after_another_launch_does_not_share_what_was_known(serve, is_same_second):
    server, api = serve()
    server.items = [of_run(1)]
    with (
        ObservationStream(KubeExperiment(api, SCOPE)) as first,
        ObservationStream(KubeExperiment(api, SCOPE)) as second,
    ):
        first.first()
        replacing = of_run(150, "q", run="two")
        if is_same_second:
            created = server.items[0]["metadata"]["creationTimestamp"]
            replacing["metadata"]["creationTimestamp"] = created
        server.items = [replacing]
        assert [item.name for item in second.first().status] == ["q"]
        with pytest.raises(NotFound, match="replaced by another launch"):
            first.next(30)
        second.next(0.01)


# --- a server in memory ---


@pytest.fixture
def kube_cluster(memory_cluster):
    return memory_cluster


@pytest.fixture
def through(kube_cluster, kube_faults, open_cluster):
    """A cluster with the shared namespace, through the proxy."""
    return open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)


def is_list(proxy) -> int:
    return sum(
        "watch=true" not in call.path for call in proxy.calls(method="GET", path=r"/(pods|jobs)\?")
    )


def is_watch(proxy) -> int:
    return proxy.count(method="GET", path="watch=true")


def cut(proxy) -> None:
    """Close all connections, as a restarting load balancer does."""
    proxy._loop.call_soon_threadsafe(lambda: [task.cancel() for task in proxy._tasks])


def test_several_experiments_are_described_with_one_list(shared, through, kube_faults, name):
    names = [f"{name}-{number}" for number in range(3)]
    for each in names:
        experiment = shared.new_experiment(each)
        unschedulable(experiment, "p")
        unschedulable(experiment, "task").job()
        shared.launch(experiment)
    statuses = through.describe_experiments(names, on_error=pytest.fail)
    assert is_list(kube_faults) == 2
    assert [(status.name, len(status.processes)) for status in statuses] == [
        (each, 2) for each in names
    ]
    expected = [shared.describe_experiment(each).state for each in names]
    assert [status.state for status in statuses] == expected


@pytest.mark.parametrize("kind", ["pods", "jobs"])
def test_an_experiment_that_is_launched_while_all_are_listed_is_not_shown_as_deleted(
    shared, name, kind
):
    """The Pods are listed before the launch, and the other objects after it."""
    experiment = shared.new_experiment(name)
    process = unschedulable(experiment, "p")
    if kind == "jobs":
        process.job()
    with ExperimentsWatch(shared.api, namespace=shared.namespace, follow=False) as watch:
        watch.start()
        shared.launch(experiment)
        watch.start_names()
        (status,) = watch.read()
        assert [process.state for process in status] == [State.PENDING]
        shared.delete(name)


@pytest.mark.parametrize("is_watched", [False, True])
def test_a_job_without_pods_is_known_if_the_pod_with_the_roster_was_deleted(
    kube_cluster, shared, name, is_watched
):
    """A drained node can take away the first Pod and that of a Job, which creates another one."""
    experiment = shared.new_experiment(name)
    for process in ("first", "other"):
        unschedulable(experiment, process)
    unschedulable(experiment, "task").job()
    shared.launch(experiment)
    kube_cluster.raw.call("DELETE", kube_cluster.path(f"pods/{name}-first"))
    if is_watched:
        with ObservationStream(KubeExperiment(shared.api, shared.scope(name))) as stream:
            status = stream.first().status
    else:
        status = shared.describe_experiment(name)
    states = {process.name: process.state for process in status}
    assert states == {"first": State.UNKNOWN, "other": State.PENDING, "task": State.PENDING}
    shared.delete(name)


def test_an_experiment_whose_pods_were_deleted_is_listed_once(
    kube_cluster, kube_faults, shared, through, name
):
    experiment = shared.new_experiment(name)
    unschedulable(experiment, "p")
    shared.launch(experiment)
    kube_cluster.raw.call("DELETE", kube_cluster.path(f"pods/{name}-p"))
    with ExperimentsWatch(through.api, namespace=shared.namespace, follow=False) as watch:
        watch.start()
        watch.start_names()
        (status,) = watch.read()
        assert [process.state for process in status] == [State.UNKNOWN]
        before = is_list(kube_faults)
        watch.read()
        assert is_list(kube_faults) == before


def succeed(kube_cluster, pod_name):
    """Let a Pod succeed that no node accepts."""
    path = kube_cluster.path(f"pods/{pod_name}/status")
    kube_cluster.raw.call("PATCH", path, {"status": {"phase": "Succeeded"}}, MERGE_PATCH)


def read_until(read, holds):
    """Read statuses until a condition holds, and return them."""
    return wait_until(lambda: watched if holds(watched := read()) else None)


@contextlib.contextmanager
def watching_ps(proxy, namespace, name, errors):
    """Run ``ps --watch``, with its standard error in a file, and yield its lines."""
    words = ["ps", name, "--watch", "-b", "kube", "--namespace", namespace]
    command = [sys.executable, "-m", "symphony", *words, "--kubeconfig", proxy.kubeconfig]
    with (
        errors.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as watching,
    ):
        try:
            yield watching.stdout
        finally:
            watching.terminate()


def test_tables_are_updated_without_further_lists_and_survive_an_outage(
    kube_cluster, shared, through, kube_faults, name, tmp_path, monkeypatch
):
    monkeypatch.setattr("symphony_kube.watch.statuses.OUTAGE_SECONDS", 0.0)
    names = [f"{name}-{number}" for number in range(2)]
    for each in names:
        experiment = shared.new_experiment(each)
        unschedulable(experiment, "p")
        shared.launch(experiment)
    errors = tmp_path / "errors"
    with (
        watching_ps(kube_faults, kube_cluster.namespace, names[0], errors) as lines,
        through.watch_experiment(names[0]) as read_one,
        through.watch_experiments(on_error=pytest.fail) as read_all,
    ):
        assert "NAME" in lines.readline()
        assert [status.name for status in read_all().statuses] == names
        wait_until(lambda: is_watch(kube_faults) == 6)
        before = kube_faults.count()
        experiment = shared.new_experiment(names[1])
        unschedulable(experiment, "q")
        shared.launch(experiment, force=True)

        def shows_second_launch(watched):
            return [item.name for item in watched.statuses[-1]] == ["q"]

        read_until(read_all, shows_second_launch)

        kube_faults.interrupt(silent=False)
        for read in (read_one, read_all):
            watched = read_until(read, lambda watched: watched.outage)
            assert "the API server http" in watched.outage
            assert watched.statuses[0].state is State.PENDING
        wait_until(errors.read_text)
        succeed(kube_cluster, f"{names[0]}-p")
        kube_faults.restore()

        def has_new_states(watched):
            states = [(item.name, item.state) for item in watched.statuses]
            return states == [(names[0], State.SUCCEEDED), (names[1], State.PENDING)]

        read_until(read_all, lambda watched: has_new_states(watched) and not watched.outage)
        read_until(read_one, lambda watched: watched.statuses[0].state is State.SUCCEEDED)
        assert any("succeeded" in line for line in lines)
        # The six watches were opened again. If the test takes long, the reason of a Pod that still
        # waits for a node is looked up in the events.
        later = [call.path for call in kube_faults.calls()[before:] if "/events?" not in call.path]
        assert (len(later), is_watch(kube_faults)) == (6, 12), later
    (message,) = errors.read_text().splitlines()
    assert message.startswith("the states may be out of date: the API server http")


def test_many_changes_are_observed_together(kube_cluster, shared, name, monkeypatch):
    """Otherwise a reader of many processes would use the CPU all the time while they change."""
    seconds = 0.02
    observe = ExperimentState.observe
    times = []

    def observe_slowly(observer, now):
        time.sleep(seconds)
        times.append(time.monotonic())
        return observe(observer, now)

    def change_pods():
        path = kube_cluster.path(f"pods/{name}-p/status")
        for number in range(60):
            status = {"phase": "Pending", "message": str(number)}
            kube_cluster.raw.call("PATCH", path, {"status": status}, MERGE_PATCH)
            time.sleep(0.005)
        succeed(kube_cluster, f"{name}-q")

    experiment = shared.new_experiment(name)
    unschedulable(experiment, "p")
    unschedulable(experiment, "q")
    shared.launch(experiment)
    monkeypatch.setattr(ExperimentState, "observe", observe_slowly)
    with ObservationStream(KubeExperiment(shared.api, shared.scope(name))) as stream:
        stream.first()
        changing = threading.Thread(target=change_pods)
        changing.start()
        for observation in stream:
            if observation.containers["q"].state is State.SUCCEEDED:
                break
        changing.join()
    assert (len(times) - 1) * seconds * REST_FACTOR <= times[-1] - times[0]


def test_users_who_may_not_watch_receive_lists(shared, through, kube_faults, name):
    kube_faults.answer(403, path="watch=true")
    with through.watch_experiments(on_error=pytest.fail) as read:
        assert not read().statuses
        experiment = shared.new_experiment(name)
        unschedulable(experiment, "p")
        shared.launch(experiment)
        read_until(read, lambda watched: watched.statuses)


def test_wait_reports_a_permanent_outage(kube_cluster, kube_faults, open_cluster, name):
    through = open_cluster(kubeconfig=str(kube_faults.kubeconfig), namespace=kube_cluster.namespace)
    timeouts = Timeouts(pauses=(), outage=1.0)
    api = Api(kubeconfig=kube_faults.kubeconfig, timeouts=timeouts)
    vars(through.implementation.options.connection)["api"] = api
    experiment = through.new_experiment(name)
    python(experiment, "p", FOREVER)
    through.launch(experiment)

    def go_away(status):
        kube_faults.reset(path="watch=true")
        cut(kube_faults)

    with pytest.raises(Unreachable, match="was lost"):
        through.wait(name, timeout=60, on_change=go_away)


def test_wait_for_an_unknown_experiment(shared, name):
    with pytest.raises(NotFound, match=f"no experiment '{name}'"):
        shared.wait(name, timeout=5)
    for odd in ("", "Not A Name", "a=b", "../x"):
        with pytest.raises(NotFound):
            shared.wait(odd, timeout=5)
        with pytest.raises(NotFound):
            shared.describe_experiment(odd)
