"""Fetching the logs of an experiment whose nodes do not provide them."""

import threading

import pytest

from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.runs.fetch_logs import MAX_FAILURES, LogFetcher, LogLimits
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

    def __init__(self, status):
        self.status = status
        self.requests = 0
        self.lock = threading.Lock()

    def open_stream(self, path, **_options):
        with self.lock:
            self.requests += 1
        name = path.split("/")[-2]
        if name.startswith("broken"):
            raise ApiError(
                f"no log of pod {name}", status=self.status, detail=f"pod {name}: no address"
            )
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
    fetcher = LogFetcher(server, SCOPE, [*broken, *others], directory, LogLimits())
    fetcher.start()
    fetcher.finish()
    (problem,) = fetcher.problems()
    assert "pod broken-" in problem
    assert problem.startswith("the log of broken-0, broken-1, broken-2 and 197 more cannot be read")
    assert len(problem) < 300
    assert server.requests <= tries + len(others)
    assert len([path for path in directory.glob("*.log") if path.stat().st_size]) == len(others)
