"""Answers of a real API server of version 1.36 to requests that it refuses or warns about.

Only the fields of the answers that matter here were kept. `test_watch.py` has the errors in the
events of a watch.
"""

import contextlib
import http.server
import json
import threading

import pytest

from symphony_kube.api.client import Api
from symphony_kube.api.errors import ApiError
from symphony_kube.api.retries import Timeouts
from tests.backends.kube.conftest import write_kubeconfig

PAUSES = (0.001, 0.001)
ONCE, EACH_TIME = 1, 1 + len(PAUSES)


class Answers(http.server.BaseHTTPRequestHandler):
    """A server that gives the same answer to each request, and counts the requests."""

    status = 200
    warnings: tuple[str, ...] = ()
    content = b"{}"
    requests = 0

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).requests += 1
        self.send_response(self.status)
        for warning in self.warnings:
            self.send_header("Warning", warning)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *_):
        pass


@pytest.fixture
def post(tmp_path):
    """A function that sends a request to a server with a given answer.

    It returns the class of the server and the client.
    """
    with contextlib.ExitStack() as stack:

        def send(status, content, warnings=()):
            answers = {"status": status, "content": content.encode(), "warnings": warnings}
            handler = type("Handler", (Answers,), answers)
            server = stack.enter_context(http.server.HTTPServer(("127.0.0.1", 0), handler))
            stack.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            path = write_kubeconfig(tmp_path / "k", f"http://127.0.0.1:{server.server_port}")
            api = Api(kubeconfig=path, timeouts=Timeouts(pauses=PAUSES))
            stack.callback(api.close)
            with contextlib.suppress(ApiError):
                api.call("POST", "/api/v1/namespaces/n/pods", body={})
            return handler, api

        yield send


def status(code, reason, message, **details):
    """Return the body of an answer that refuses a request."""
    return json.dumps(
        {
            "kind": "Status",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message,
            "details": details,
        }
    )


TOO_LARGE = "Timeout: Too large resource version: 900, current: 11"
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
NOT_DECLARED = (
    "failed to create typed patch object (/p; /v1, Kind=Pod): .spec.colour: field not declared"
)


@pytest.mark.parametrize(
    ("answer", "requests"),
    [
        ((409, status(409, "AlreadyExists", 'pods "p" already exists', name="p")), ONCE),
        ((409, status(409, "Conflict", "the object has been modified", name="p")), ONCE),
        ((422, status(422, "Invalid", 'Pod "p" is invalid:\n@@ -1 +1 @@\n-a\n+b')), ONCE),
        ((404, "404 page not found\n"), ONCE),
        ((429, status(429, "TooManyRequests", BUDGET)), EACH_TIME),
        ((500, status(500, "", NOT_DECLARED)), EACH_TIME),
        ((504, status(504, "Timeout", TOO_LARGE, retryAfterSeconds=1)), EACH_TIME),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else "",
)
def test_refusal_is_one_line_with_the_reason(post, answer, requests):
    """Refusals that may be temporary are tried again."""
    handler, api = post(*answer)
    assert handler.requests == requests
    with pytest.raises(ApiError) as caught:
        api.call("POST", "/", body={})
    code, content = answer
    body = json.loads(content) if content.startswith("{") else {"message": content, "reason": ""}
    assert (caught.value.status, caught.value.reason) == (code, body["reason"])
    assert caught.value.detail == " ".join(body["message"].split())
    assert str(code) in str(caught.value)


def test_each_header_with_a_warning_is_read(post):
    _, api = post(
        201,
        "{}",
        (
            '299 - "unknown field \\"spec.containers[0].comand\\""',
            '299 - "unknown field \\"spec.colour\\""',
            '299 - "spec.containers[0].env[1]: hides previous definition of \\"A\\", which may be '
            'dropped when using apply"',
        ),
    )
    assert api.warnings.take() == (
        'unknown field "spec.containers[0].comand"',
        'unknown field "spec.colour"',
        'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when '
        "using apply",
    )
