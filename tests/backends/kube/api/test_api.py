"""Calls to an API server: errors and retries. `test_api_live.py` tests calls to a real server."""

import contextlib
import http.server
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from symphony.errors import BackendError, SymphonyError, Unreachable
from symphony_kube.api import connections
from symphony_kube.api.client import ACCEPT_METADATA_LIST, MERGE_PATCH, Api
from symphony_kube.api.errors import ApiError, UntrustedCertificate, api_error, one_line
from symphony_kube.api.retries import Outage, Timeouts, pause
from tests.backends.kube.conftest import write_kubeconfig

MAP = {"metadata": {"name": "m"}}
QUICK = Timeouts(pauses=(0.01, 0.02, 0.04))


@pytest.fixture
def kube_cluster(memory_cluster):
    return memory_cluster


@pytest.fixture
def api(kube_cluster):
    with contextlib.closing(Api(kubeconfig=kube_cluster.kubeconfig)) as api:
        yield api


@pytest.fixture
def through(kube_faults):
    """A client that has already reached the server, through the proxy."""
    with contextlib.closing(Api(kubeconfig=kube_faults.kubeconfig, timeouts=QUICK)) as api:
        api.call("GET", "/version")
        yield api


# --- connections ---


def test_watch_yields_events_until_it_is_closed(kube_cluster, api):
    maps = kube_cluster.path("configmaps")
    events = api.watch(maps, query={"fieldSelector": "metadata.name=m"}, seconds=30)
    api.call("POST", maps, body=MAP)
    event = next(events)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "m")
    events.close()


def test_stream_can_be_closed_by_another_thread(kube_cluster, api):
    answer = api.open_stream(kube_cluster.path("pods"), query={"watch": "true"})
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(answer.lines()))
    reader.start()
    answer.close()
    reader.join(10)
    assert not reader.is_alive()


def test_connections_are_persistent(kube_cluster, api, caplog):
    for _ in range(3):
        api.call("GET", "/version")
    (pool,) = [api._pool.pools[key] for key in api._pool.pools.keys()]  # noqa: SIM118
    assert (pool.num_connections, pool.num_requests) == (1, 3)


def test_answer_of_a_call_can_be_ignored(kube_cluster, kube_faults, through):
    maps = kube_cluster.path("configmaps")
    through.call("POST", maps, body=MAP)
    options = {"body": {}, "accept": ACCEPT_METADATA_LIST, "timeout": 9.0}
    kube_faults.answer(503, method="DELETE", times=1)
    through.call_without_answer("DELETE", maps, **options)
    assert through.call("GET", maps)["items"] == []
    kube_faults.answer(403, method="DELETE")
    with pytest.raises(ApiError):
        through.call_without_answer("DELETE", maps, **options)


# --- retries ---


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_temporary_server_errors_are_retried(kube_cluster, kube_faults, through, status):
    kube_faults.answer(status, method="POST", times=2)
    through.call("POST", kube_cluster.path("configmaps"), body=MAP)
    assert kube_faults.count(method="POST") == 3


@pytest.mark.parametrize("fault", ["reset", "drop"])
def test_timeouts_and_lost_connections_are_retried(kube_cluster, kube_faults, through, fault):
    """All calls run in parallel, because each timeout takes seconds."""
    maps = kube_cluster.path("configmaps")
    for name in ("m", "d"):
        kube_cluster.raw.call("POST", maps, {"metadata": {"name": name}})
    through.timeouts = replace(QUICK, response=6.0 if fault == "drop" else QUICK.response)
    calls = {
        "GET": (f"{maps}/m", None),
        "POST": (maps, {"metadata": {"name": "p"}}),
        "PATCH": (f"{maps}/m", {}),
        "DELETE": (f"{maps}/d", None),
    }
    for method in calls:
        getattr(kube_faults, fault)(method=method, times=1)

    def call(method):
        path, body = calls[method]
        through.call(
            method,
            path,
            body=body,
            content_type=MERGE_PATCH if method == "PATCH" else "application/json",
        )

    with ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(call, calls))
    assert [kube_faults.count(method=method, path=maps) for method in calls] == [2, 2, 2, 2]


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_client_errors_are_not_retried(kube_faults, through, status):
    kube_faults.answer(status, path="/refused")
    with pytest.raises(ApiError):
        through.call("GET", "/refused")
    assert kube_faults.count(path="/refused") == 1


def test_retry_after_is_respected(kube_faults, through, pauses):
    kube_faults.answer(429, path="/version", retry_after=1, times=1)
    through.call("GET", "/version")
    assert pauses == [1.0]


def test_permanent_server_error_is_raised(kube_faults, through):
    kube_faults.answer(500, path="/version")
    with pytest.raises(ApiError):
        through.call("GET", "/version")
    assert kube_faults.count(path="/version") == 1 + 1 + len(QUICK.pauses)
    kube_faults.clear()
    through.timeouts = replace(QUICK, outage=0.1)
    kube_faults.reset(path="/version")
    with pytest.raises(Unreachable, match="(was lost|cannot be reached): Connection reset by peer"):
        through.call("GET", "/version")


def test_server_that_has_answered_is_waited_for(kube_faults, through):
    through.timeouts = Timeouts(pauses=(0.01,), outage=30.0)
    kube_faults.reset(path="/version", times=5)
    through.call("GET", "/version")
    assert kube_faults.count(path="/version") == 1 + 5 + 1


def test_cancelled_call_is_not_retried(kube_faults, through):
    kube_faults.answer(429, path="/version", retry_after=30)
    cancelled = threading.Event()
    threading.Timer(0.3, cancelled.set).start()
    with pytest.raises(ApiError):
        through.call("GET", "/version", cancelled=cancelled)
    assert kube_faults.count(path="/version") == 1 + 1


ONE_SECOND = Timeouts(
    pauses=(0.1, 1.0), unreached=2.0, outage=5.0, retry_after_total=60.0, retry_after_longest=30.0
)
REFUSED = Unreachable("refused")


def refusal(status, retry_after=None):
    return api_error(status, {}, "", retry_after)


@pytest.mark.parametrize(
    ("exc", "failures", "elapsed", "outage", "expected"),
    [
        (REFUSED, 0, 0.0, None, 0.1),
        (REFUSED, 1, 0.5, None, 1.0),
        (REFUSED, 1, 1.5, None, None),  # a server that never answered
        (REFUSED, 1, 1.5, 1.5, 1.0),
        (REFUSED, 9, 3.5, 3.9, 1.0),  # the last pause is repeated
        (REFUSED, 1, 0.5, 4.5, None),  # an outage that began before this call
        (REFUSED, 1, 4.5, 0.0, None),  # only this call receives no answer
        (UntrustedCertificate("no"), 0, 0.0, 0.0, None),
        (BackendError("no"), 0, 0.0, None, None),
        (refusal(429), 0, 0.0, None, 0.1),
        (refusal(429), 2, 0.0, None, None),
        (refusal(429, 7.0), 5, 50.0, None, 7.0),
        (refusal(429, 7.0), 5, 54.0, None, None),
        (refusal(429, 0.0), 5, 0.0, None, 0.1),  # never without a pause
        (refusal(503, 90.0), 0, 0.0, None, 30.0),
        (refusal(500, 7.0), 0, 0.0, None, 0.1),
        (refusal(504), 1, 99.0, None, 1.0),
        (refusal(403), 0, 0.0, None, None),
        (refusal(409), 0, 0.0, None, None),
    ],
)
def test_pause_before_the_next_try(exc, failures, elapsed, outage, expected):
    assert pause(exc, ONE_SECOND, failures=failures, elapsed=elapsed, outage=outage) == expected


def test_all_calls_share_an_outage(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("symphony_kube.api.retries.time.monotonic", lambda: clock[0])
    outage = Outage()
    assert outage.note_failure(ONE_SECOND) == 0.0
    clock[0] += 3.0
    assert outage.note_failure(ONE_SECOND) == 3.0
    clock[0] += 6.0  # longer than the limit, without any call
    assert outage.note_failure(ONE_SECOND) == 0.0
    clock[0] += 1.0
    outage.end()
    assert outage.note_failure(ONE_SECOND) == 0.0


def test_one_line():
    assert one_line("a\n  b\tc") == "a b c"
    assert len(one_line("x" * 10_000)) == 600


# --- unreachable servers ---


def first_error(kubeconfig, **options):
    """Return the error of the first call. Its message has one line."""
    with (
        pytest.raises(SymphonyError) as caught,
        contextlib.closing(Api(kubeconfig=kubeconfig, **options)) as api,
    ):
        api.call("GET", "/version")
    assert "\n" not in str(caught.value)
    return caught.value


def test_refused_connection_is_reported_within_two_seconds(tmp_path, pauses):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # the port is bound, but not listening
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        error = first_error(write_kubeconfig(tmp_path / "k", address))
    assert 0 < sum(pauses) <= 2.0
    assert isinstance(error, Unreachable)
    assert str(error).startswith(f"the API server {address} (context 'here') cannot be reached: ")
    assert "refused" in str(error)


def test_silent_server_is_reported_without_retries(tmp_path, pauses):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        timeouts = Timeouts(first_response=0.5, unreached=0.2)
        error = first_error(write_kubeconfig(tmp_path / "k", address), timeouts=timeouts)
    assert pauses == []
    assert Timeouts().unreached < Timeouts().first_response < 10
    assert isinstance(error, Unreachable)
    assert "timed out" in str(error)


def test_server_that_is_only_slow_is_waited_for(tmp_path):
    """It needs longer than the first timeout for a large answer, and not for a small one."""
    requests, is_over = [], threading.Event()

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            if requests == ["/pods"]:
                is_over.wait(30)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        path = write_kubeconfig(tmp_path / "k", f"http://127.0.0.1:{server.server_port}")
        timeouts = Timeouts(pauses=(0.01,), first_response=0.3)
        with contextlib.closing(Api(kubeconfig=path, timeouts=timeouts)) as api:
            assert api.call("GET", "/pods") == {}
        is_over.set()
        server.shutdown()
    assert requests == ["/pods", "/version", "/pods"]


def test_connect_timeout_is_reported_without_retries(tmp_path, pauses):
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)  # if its queue is full, it accepts no connection
        first.connect(listener.getsockname())
        second.setblocking(False)
        second.connect_ex(listener.getsockname())
        address = f"https://127.0.0.1:{listener.getsockname()[1]}"
        timeouts = Timeouts(connect=0.5, unreached=0.2)
        error = first_error(write_kubeconfig(tmp_path / "k", address), timeouts=timeouts)
    assert pauses == []
    assert Timeouts().unreached < Timeouts().connect < 10
    assert isinstance(error, Unreachable)


def test_response_of_another_server_is_reported(tmp_path, pauses):
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>log in</html>")

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        error = first_error(
            write_kubeconfig(tmp_path / "k", f"http://127.0.0.1:{server.server_port}")
        )
        server.shutdown()
    assert pauses == []
    assert "does not answer like an API server: '<html>log in</html>'" in str(error)


PLAIN = {"disable-compression": True}


@pytest.mark.parametrize(("settings", "expected"), [({}, "gzip"), (PLAIN, "identity")])
def test_kubeconfig_disables_the_compression_of_responses(tmp_path, settings, expected):
    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(dict(self.headers)).encode())

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        path = write_kubeconfig(tmp_path / "k", address, **settings)
        with contextlib.closing(Api(kubeconfig=path)) as api:
            assert api.call("GET", "/version")["Accept-Encoding"] == expected


def test_end_of_a_tunnel_is_not_near(monkeypatch):
    monkeypatch.setattr(connections, "NEAR_SECONDS", 60)
    with socket.create_server(("127.0.0.1", 0)) as tunnel:
        with socket.create_connection(tunnel.getsockname()) as connected:
            assert not connections.is_near(connected)
