"""Fetching the logs of an experiment whose nodes do not provide them."""

import threading

import pytest

from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import Scope
from symphony_kube.api.retries import Timeouts, pause
from symphony_kube.archive.fetch_logs import MAX_FAILURES, LogFetcher, LogLimits
from symphony_kube.state.pod_status import ContainerRef

SCOPE = Scope(experiment="e", namespace="e")
THREADS = 4


class Stream:
    def chunks(self):
        yield b"2026-01-01T00:00:00.000000000Z a line\n"

    def close(self):
        pass


class Server:
    """An API server whose node ``broken`` provides no logs."""

    connections = THREADS

    def __init__(self, status, detail="no answer"):
        self.status = status
        self.detail = detail
        self.requests = 0
        self.lock = threading.Lock()

    def open_stream(self, path, **_options):
        with self.lock:
            self.requests += 1
        name = path.split("/")[-2]
        if name.startswith("broken"):
            raise ApiError(f"pod {name}: {self.detail}", status=self.status, detail=self.detail)
        return Stream()


def ref(name, host):
    return ContainerRef(
        process=name, unit=name, pod=name, uid=name, host=host, state="terminated", has_log=True
    )


@pytest.mark.parametrize(("status", "tries"), [(500, MAX_FAILURES + THREADS), (403, 200)])
def test_logs_of_a_node_that_provides_none_are_given_up(tmp_path, status, tries):
    broken = [ref(f"broken-{number}", "10.0.0.1") for number in range(200)]
    others = [ref(f"other-{number}", "10.0.0.2") for number in range(5)]
    server = Server(status)
    directory = tmp_path / "logs"
    fetcher = LogFetcher(KubeExperiment(server, SCOPE), [*broken, *others], directory, LogLimits())
    fetcher.start()
    fetcher.finish()
    (problem,) = fetcher.problems()
    assert problem.startswith("the log of broken-0, broken-1, broken-2 and 197 more cannot be read")
    assert len(problem) < 300
    # Each node is asked for one log first.
    assert server.requests <= 2 + tries + len(others)
    assert len([path for path in directory.glob("*.log") if path.stat().st_size]) == len(others)


def test_a_node_without_address_is_asked_once_and_its_logs_take_no_space(tmp_path):
    detail = "no preferred addresses found; known addresses: []"
    server = Server(500, detail)
    refs = [ref(f"broken-{number}", "") for number in range(1000)]
    directory = tmp_path / "logs"
    fetcher = LogFetcher(KubeExperiment(server, SCOPE), refs, directory, LogLimits())
    fetcher.start()
    fetcher.finish()
    (problem,) = fetcher.problems()
    assert problem.startswith("the log of broken-0, broken-1, broken-2 and 997 more cannot be read")
    assert detail in problem
    assert server.requests == 1
    assert list(directory.iterdir()) == []


def test_a_request_to_a_node_without_address_is_not_repeated():
    repeated = []
    for detail in ("no preferred addresses found; known addresses: []", "connection refused"):
        error = ApiError(detail, status=500, detail=detail)
        repeated.append(pause(error, Timeouts(), failures=0, elapsed=0.0, outage=None) is not None)
    assert repeated == [False, True]
