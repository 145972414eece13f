"""The credentials, certificates and proxies that kubeconfigs configure, without a cluster."""

import base64
import contextlib
import http.server
import json
import ssl
import subprocess
import threading
import urllib.parse

import pytest

from symphony.errors import BackendError, Unreachable
from symphony_kube.api import credentials
from symphony_kube.api.client import Api
from symphony_kube.api.credentials import User, credentials_of
from symphony_kube.api.proxies import proxy_for
from symphony_kube.api.retries import Timeouts

IN_THE_PAST = 1e9
IN_THE_FUTURE = 1e11
VERSION = "client.authentication.k8s.io/v1"


def user(directory, entry, **cluster):
    return User(entry=entry, directory=directory, cluster=cluster, owner="alice")


def authorization(directory, entry, **cluster):
    return credentials_of(user(directory, entry, **cluster)).current().authorization


def id_token(expiry):
    """Return an unsigned JSON Web Token."""
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expiry}).encode()).decode().rstrip("=")
    return f"e30.{claims}.e30"


def oidc(expiry=IN_THE_FUTURE, **settings):
    config = {"id-token": id_token(expiry), "client-id": "me", **settings}
    return {"auth-provider": {"name": "oidc", "config": config}}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, None),
        ({"token": 123}, "Bearer 123"),
        ({"tokenFile": "token", "token": "t"}, "Bearer from-the-file"),
        ({"username": "me", "password": "secret"}, "Basic bWU6c2VjcmV0"),
        ({"username": "me"}, None),
        (oidc(), f"Bearer {id_token(IN_THE_FUTURE)}"),
    ],
)
def test_authorization_header(tmp_path, entry, expected):
    (tmp_path / "token").write_text("from-the-file\n")
    assert authorization(tmp_path, entry) == expected


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"tokenFile": "none"}, "No such file"),
        ({"tokenFile": "empty"}, "is empty"),
        ({"client-certificate": "none"}, "client-certificate: there is no file .*/none"),
        ({"client-key-data": "#"}, "client-key-data is not valid base64"),
        ({"exec": {"command": "true"}}, "there is no 'apiVersion'"),
        ({"auth-provider": {"name": "gcp"}}, "auth-provider 'gcp' is not supported; .*'exec'"),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": "x"}}}, "not a JSON Web Token"),
        (oidc(IN_THE_PAST), "there is no 'idp-issuer-url'"),
    ],
)
def test_unusable_credentials_are_reported(tmp_path, entry, message):
    (tmp_path / "empty").touch()
    with pytest.raises(BackendError, match=f"no credentials for alice: .*{message}") as caught:
        authorization(tmp_path, entry)
    assert "\n" not in str(caught.value)


def test_token_file_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(credentials, "TOKEN_FILE_SECONDS", 0)
    (tmp_path / "token").write_text("one")
    source = credentials_of(user(tmp_path, {"tokenFile": "token"}))
    (tmp_path / "token").write_text("two")
    assert source.current().authorization == "Bearer two"


def plugin(directory, status):
    """Write a plug-in that saves its request, and return its entry in the kubeconfig."""
    answer = json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})
    path = directory / "plugin"
    path.write_text(
        f"#!/bin/sh\necho $1 $EXTRA >> runs; echo $KUBERNETES_EXEC_INFO > request\necho '{answer}'"
    )
    path.chmod(0o755)
    settings = {
        "apiVersion": VERSION,
        "command": "./plugin",
        "args": [1],
        "provideClusterInfo": True,
    }
    return {"exec": {**settings, "env": [{"name": "EXTRA", "value": "x"}]}}


def test_plugin_gets_its_settings_and_the_cluster(tmp_path):
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    entry = plugin(tmp_path, {"token": "t"})
    given = {"server": "https://x", "extensions": [extension]}
    assert authorization(tmp_path, entry, **given) == "Bearer t"
    assert (tmp_path / "runs").read_text() == "1 x\n"
    request = json.loads((tmp_path / "request").read_text())
    assert (request["apiVersion"], request["kind"]) == (VERSION, "ExecCredential")
    assert request["spec"]["cluster"] == {**given, "config": {"audience": "a"}}


@pytest.mark.parametrize(
    ("expiry", "runs"), [("2001-01-01T00:00:00Z", 3), ("2999-01-01T00:00:00Z", 1)]
)
def test_plugin_is_run_again_when_its_token_has_expired(tmp_path, expiry, runs):
    entry = plugin(tmp_path, {"token": "t", "expirationTimestamp": expiry})
    source = credentials_of(user(tmp_path, entry))
    source.current()
    source.current()
    assert len((tmp_path / "runs").read_text().splitlines()) == runs


# --- servers ---


@contextlib.contextmanager
def server(answer, tls=None):
    """Run an HTTP server, and return its URL and its requests.

    ``answer`` returns the JSON content for the path and the body of a request.
    """
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.do_POST()

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            requests.append((self.path, body, self.headers))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer(self.path)).encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        if tls:
            listener.socket = tls.wrap_socket(listener.socket, server_side=True)
        thread = threading.Thread(target=listener.serve_forever, daemon=True)
        thread.start()
        yield f"http{'s' if tls else ''}://127.0.0.1:{listener.server_port}", requests
        listener.shutdown()
        thread.join()


def test_expired_openid_token_is_refreshed(tmp_path):
    fresh = id_token(IN_THE_FUTURE)

    def answer(path):
        if path == "/.well-known/openid-configuration":
            return {"token_endpoint": f"{url}/token"}
        return {"id_token": fresh, "refresh_token": "r2"}

    with server(answer) as (url, requests):
        settings = {"idp-issuer-url": f"{url}/", "refresh-token": "r1", "client-secret": "s"}
        source = credentials_of(user(tmp_path, oidc(IN_THE_PAST, **settings)))
        assert source.current().authorization == f"Bearer {fresh}"
    (_, (_, body, headers)) = requests
    assert dict(urllib.parse.parse_qsl(body)) == {
        "grant_type": "refresh_token",
        "refresh_token": "r1",
        "client_id": "me",
    }
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"me:s").decode()


def kubeconfig(directory, address, entry, **cluster):
    path = directory / "config"
    content = {
        "clusters": [{"name": "c", "cluster": {"server": address, **cluster}}],
        "users": [{"name": "u", "user": entry}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "here",
    }
    path.write_text(json.dumps(content))
    return path


def encoded(path):
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize("stored", ["files", "data", "plugin"])
def test_certificates_are_used_for_calls_and_websockets(tmp_path, stored):
    """The server requires a client certificate. Its own certificate is for another host name."""
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=server -addext subjectAltName=DNS:server.test -keyout key -out cert",
        shell=True,
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    cert, key = tmp_path / "cert", tmp_path / "key"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    tls.load_verify_locations(cert)
    tls.verify_mode = ssl.CERT_REQUIRED
    if stored == "files":
        entry = {"client-certificate": "cert", "client-key": "key"}
        authority = {"certificate-authority": "cert"}
    else:
        entry = {"client-certificate-data": encoded(cert), "client-key-data": encoded(key)}
        authority = {"certificate-authority-data": encoded(cert)}
    if stored == "plugin":
        status = {"clientCertificateData": "$cert", "clientKeyData": "$key"}
        entry = plugin(tmp_path, status)
        script = tmp_path / "plugin"
        text = script.read_text()
        for path in (cert, key):
            text = text.replace(f"${path.name}", path.read_text().replace("\n", "\\n"))
        script.write_text(text.replace("echo '{", "printf '%s' '{"))
    with server(lambda _: {"ok": True}, tls) as (url, _):
        names = {"tls-server-name": "server.test"}
        path = kubeconfig(tmp_path, url, entry, **authority, **names)
        with contextlib.closing(Api(kubeconfig=path)) as api:
            assert api.call("GET", "/version") == {"ok": True}
            with pytest.raises(BackendError, match="HTTP 200"):  # the server has no WebSockets
                api.websocket("/exec", query=[])
        path = kubeconfig(tmp_path, url, entry, **authority)
        with contextlib.closing(Api(kubeconfig=path)) as api:
            with pytest.raises(Unreachable, match="is not trusted .*127.0.0.1"):
                api.call("GET", "/version")
        with contextlib.closing(
            Api(
                kubeconfig=kubeconfig(tmp_path, url, {}, **authority, **names),
                timeouts=Timeouts(pauses=()),
            )
        ) as api:
            with pytest.raises(Unreachable, match="lost|certificate"):
                api.call("GET", "/version")


@pytest.mark.parametrize(
    ("host", "given", "environment", "expected"),
    [
        ("https://k:6443", None, {}, None),
        ("https://k:6443", "http://p:1", {}, "http://p:1"),
        ("https://k:6443", None, {"HTTPS_PROXY": "p:1"}, "http://p:1"),
        ("https://k:6443", "http://p:1", {"HTTPS_PROXY": "http://q:2"}, "http://p:1"),
        ("https://k:6443", None, {"HTTP_PROXY": "http://p:1"}, None),
        ("https://k:6443", None, {"all_proxy": "socks5://p:1"}, "socks5://p:1"),
        ("https://k:6443", "http://p:1", {"NO_PROXY": "a, k"}, None),
        ("https://k:6443", "http://p:1", {"NO_PROXY": "k:6443"}, None),
        ("https://k:6443", "http://p:1", {"NO_PROXY": "k:1"}, "http://p:1"),
        ("https://k.lab.org", "http://p:1", {"NO_PROXY": ".lab.org"}, None),
        ("https://k.mylab.org", "http://p:1", {"NO_PROXY": "lab.org"}, "http://p:1"),
        ("https://10.1.2.3", "http://p:1", {"NO_PROXY": "10.0.0.0/8"}, None),
        ("https://11.1.2.3", "http://p:1", {"NO_PROXY": "10.0.0.0/8"}, "http://p:1"),
        ("https://11.1.2.3", "http://p:1", {"NO_PROXY": "*"}, None),
    ],
)
def test_choice_of_the_proxy(monkeypatch, host, given, environment, expected):
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name}_proxy".upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(host, given) == expected


def test_calls_are_sent_through_the_proxy(tmp_path, monkeypatch):
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with server(lambda _: {"ok": True}) as (url, requests):
        path = kubeconfig(tmp_path, "http://cluster.test", {"token": "t"}, **{"proxy-url": url})
        with contextlib.closing(Api(kubeconfig=path)) as api:
            assert api.call("GET", "/version") == {"ok": True}
    ((path, _, headers),) = requests
    assert (path, headers["Authorization"]) == ("http://cluster.test/version", "Bearer t")
