from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from symphony.views.web.security import COOKIE, MAX_BODY_BYTES, Access, BodyTooLarge, Guard
from tests.web.asgi import Answer, ask

ACCESS = Access(port=8123, start="/experiment/local/rl")
HOST = "127.0.0.1:8123"
JSON = "application/json"


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the path and the size of the body."""
    try:
        size = len(await Request(scope, receive).body())
    except BodyTooLarge:
        await PlainTextResponse("too large", status_code=413)(scope, receive, send)
        return
    await PlainTextResponse(f"{scope['path']} {size}")(scope, receive, send)


def _ask(
    method: str = "GET",
    path: str = "api/session",
    *,
    access: Access = ACCESS,
    body: bytes = b"",
    query: str = "",
    **headers: str | None,
) -> Answer:
    """Send a request of the page. A keyword replaces or, with None, removes a header."""
    sent: dict[str, str | None] = {"host": HOST, "cookie": f"{COOKIE}={access.session}"}
    if method == "POST":
        sent.update(origin=f"http://{HOST}", content_type=JSON)
    sent.update(headers)
    given = {key.replace("_", "-"): value for key, value in sent.items() if value is not None}
    full_path = path if path.startswith("/") else access.directory + path
    return ask(Guard(_app, access), method, full_path, given, body, query)


def test_the_page_itself_can_read_and_change() -> None:
    assert _ask().body == "/api/session 0"
    assert _ask(sec_fetch_site="same-origin").status == 200
    assert _ask("POST", "api/control", body=b"{}").body == "/api/control 2"
    on_localhost = {"host": "localhost:8123", "origin": "http://localhost:8123"}
    assert _ask("POST", "api/control", **on_localhost).status == 200


def test_the_printed_address_is_exchanged_for_a_cookie_of_a_random_path() -> None:
    answer = _ask(path="/", query=f"token={ACCESS.token}", cookie=None)
    assert answer.status == 303
    assert answer.headers["location"] == f"{ACCESS.directory}#/experiment/local/rl"
    cookie = answer.headers["set-cookie"].lower()
    assert f"{COOKIE}={ACCESS.session}".lower() in cookie
    assert f"path={ACCESS.directory}".lower() in cookie
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert ACCESS.token not in str(answer)
    assert len(ACCESS.directory) > 16
    assert ACCESS.session != ACCESS.token


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/", ""),
        ("/", "token="),
        ("/", "token=%00"),
        ("/", f"token={ACCESS.token[:-1]}"),
        ("/", f"token={ACCESS.session}"),
        ("/api/session", f"token={ACCESS.token}"),
        ("/other/api/session", ""),
        (ACCESS.directory[:-1], ""),
    ],
    # The secrets are random, and must not become parts of the names of the tests.
    ids=["nothing", "empty", "zero", "too-short", "cookie", "call", "other-path", "no-slash"],
)
def test_without_the_token_nothing_is_shown(path: str, query: str) -> None:
    answer = _ask(path=path, query=query)
    assert answer.status == 403
    assert "symphony ui" in answer.body
    assert ACCESS.directory not in str(answer)


@pytest.mark.parametrize("cookie", [None, "", COOKIE, f"{COOKIE}=", f"{COOKIE}x=1", f"{COOKIE}=x"])
def test_calls_need_the_cookie(cookie: str | None) -> None:
    assert _ask(cookie=cookie).status == 403
    # The page contains no secrets. It explains what is missing.
    assert _ask(path="", cookie=cookie).status == 200


def test_a_cookie_of_another_server_on_this_host_does_not_hide_ours() -> None:
    assert _ask(cookie=f"{COOKIE}=theirs; {COOKIE}={ACCESS.session}").status == 200


@pytest.mark.parametrize(
    "host", ["evil.example:8123", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8123.evil.example", ""]
)
def test_other_host_names_are_refused(host: str) -> None:
    for path in ("/", "api/session"):
        answer = _ask(path=path, host=host, query=f"token={ACCESS.token}")
        assert answer.status == 421
        assert HOST in answer.body
    assert _ask("POST", "api/control", host=host, origin=f"http://{host}").status == 421


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "http://127.0.0.1:9999", f"https://{HOST}", ""]
)
def test_changes_from_other_pages_are_refused(origin: str | None) -> None:
    assert _ask("POST", "api/control", origin=origin).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_requests_from_other_pages_are_refused_even_with_the_cookie(site: str) -> None:
    assert _ask(sec_fetch_site=site).status == 403


def test_changes_must_be_json_that_is_not_too_large() -> None:
    for media_type in (None, "text/plain", "application/x-www-form-urlencoded"):
        assert _ask("POST", "api/control", content_type=media_type).status == 415
    assert _ask("POST", "api/control", content_type=f"{JSON}; charset=utf-8").status == 200
    assert _ask("POST", "api/control", body=b"x" * (MAX_BODY_BYTES + 1)).status == 413


def test_read_only_refuses_every_change() -> None:
    access = Access(port=8123, read_only=True)
    answer = _ask("POST", "api/control", access=access)
    assert (answer.status, "--read-only" in answer.body) == (403, True)
    assert _ask(access=access).status == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(method: str) -> None:
    assert _ask(method).status == 405


def test_every_response_forbids_foreign_resources_frames_and_caches() -> None:
    for answer in (_ask(), _ask(path=""), _ask(path="/"), _ask(host="x"), _ask(cookie=None)):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers
