"""Deciding which requests the server answers.

The server listens on 127.0.0.1, which every program and every user of this machine can reach, and
to which any page in the user's browser can send requests. Four things keep them out:

* The secret token. It is in the address that the command prints, and is exchanged for a cookie.
* The cookie (``HttpOnly``, ``SameSite=Strict``). Browsers send a cookie to all ports of a host, so
  its path is random: a server on another port does not receive it.
* ``Host``. A page whose name was changed to resolve to 127.0.0.1 (DNS rebinding) sends its name.
* ``Origin`` and ``Sec-Fetch-Site``. They are the address of the page that sends the request.

The content security policy lets the page use only resources of this server. Because of the trusted
types policy, text cannot become HTML, whatever the scripts do with it.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "symphony-session"
TOKEN_PARAMETER = "token"
STANDARD_PORT = 80
# The maximum size of the body of a request. Requests name processes, of which there can be many.
MAX_BODY_BYTES = 256 * 1024
CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


def _random_text() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The secrets of one server, and what its viewers may do.

    ``session`` is the value of the cookie, ``directory`` is the path below which everything is, and
    ``start`` is the fragment of the address with which the page begins.
    """

    port: int
    read_only: bool = False
    start: str = ""
    token: str = field(default_factory=_random_text)
    session: str = field(default_factory=_random_text)
    directory: str = field(default_factory=lambda: f"/{secrets.token_urlsafe(12)}/")

    @property
    def hosts(self) -> tuple[str, ...]:
        """The values of the header ``Host`` that are accepted."""
        # Browsers omit the standard port.
        suffix = "" if self.port == STANDARD_PORT else f":{self.port}"
        return f"127.0.0.1{suffix}", f"localhost{suffix}"

    @property
    def address(self) -> str:
        """The address that the user opens, with the token."""
        return f"http://{self.hosts[0]}/?{TOKEN_PARAMETER}={self.token}"


class Guard:
    """An application that passes the permitted requests to ``app``, and refuses all others.

    The paths of the passed requests are relative to the random directory. All responses have the
    headers `HEADERS`.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        if scope["type"] != "http":
            # The server has no WebSockets.
            await send({"type": "websocket.close", "code": 1008})
            return
        response = _refusal(self._access, scope) or _entry(self._access, scope)
        if response is not None:
            await response(scope, receive, send_with_headers)
            return
        inner = {**scope, "path": scope["path"][len(self._access.directory) - 1 :]}
        await self._app(inner, _limited(receive), send_with_headers)


class BodyTooLarge(Exception):
    """The body of a request has more than `MAX_BODY_BYTES` bytes."""


def _limited(receive: Receive) -> Receive:
    """Return a function that raises `BodyTooLarge` if the body of the request is too large."""
    size = 0

    async def receive_limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY_BYTES:
            raise BodyTooLarge
        return message

    return receive_limited


def _entry(access: Access, scope: Scope) -> Response | None:
    """Return the response to a request for the printed address, or None for other requests.

    The browser is redirected, so that the token is neither in its address bar nor in its history.
    """
    if scope["path"] != "/":
        return None
    given = parse_qs(scope["query_string"].decode("latin-1")).get(TOKEN_PARAMETER, [""])[0]
    if not _is_equal(given, access.token):
        return _no_access()
    target = f"{access.directory}#{access.start}" if access.start else access.directory
    response = RedirectResponse(target, status_code=303)
    response.set_cookie(
        COOKIE, access.session, path=access.directory, httponly=True, samesite="strict"
    )
    return response


def _refusal(access: Access, scope: Scope) -> Response | None:
    """Return the response to a request that is not permitted, or None if it is permitted."""
    headers = Headers(scope=scope)
    method, path = scope["method"], scope["path"]
    host = headers.get("host", "")
    if host not in access.hosts or len(headers.getlist("host")) != 1:
        return PlainTextResponse(
            f"this server answers only requests to {' and '.join(access.hosts)}; "
            "if the port is forwarded, forward the same port number\n",
            status_code=421,
        )
    if method not in ("GET", "HEAD", "POST"):
        return _problem(405, f"the method {method!r} is not permitted")
    if path == "/":
        return None if method == "GET" else _problem(405, "the address is opened with GET")
    if not path.startswith(access.directory):
        return _no_access()
    is_call = path.startswith(f"{access.directory}api/")
    if is_call and not _has_cookie(access, headers.getlist("cookie")):
        return _problem(403, "open the address that 'symphony ui' has printed")
    # Only the page itself sends these requests. Older browsers do not send this header.
    if is_call and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return _problem(403, "the request comes from another page")
    if method == "POST":
        return _refusal_of_change(access, headers, host)
    return None


def _refusal_of_change(access: Access, headers: Headers, host: str) -> Response | None:
    """Return the response to a request that may not change anything, or None if it may."""
    if headers.getlist("origin") != [f"http://{host}"]:
        return _problem(403, "the request comes from another page")
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        return _problem(415, "the body of the request must be JSON")
    if access.read_only:
        return _problem(403, "the server was started with --read-only")
    return None


def _no_access() -> Response:
    return PlainTextResponse(
        "open the address that 'symphony ui' has printed, which contains a token\n",
        status_code=403,
    )


def _problem(status_code: int, text: str) -> Response:
    return JSONResponse({"error": text}, status_code=status_code)


def _has_cookie(access: Access, cookie_headers: Iterable[str]) -> bool:
    """Return whether one of the cookies is that of the session.

    A server on another port can add a cookie of the same name.
    """
    found = False
    for header in cookie_headers:
        for cookie in header.split(";"):
            name, _, value = cookie.strip().partition("=")
            if name == COOKIE and _is_equal(value, access.session):
                found = True
    return found


def _is_equal(given: str, expected: str) -> bool:
    """Compare secrets in a time that does not depend on their contents."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
