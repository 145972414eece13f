"""Kubeconfigs and the credentials in them."""

import base64
import contextlib
import json
import os
import pty
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import pytest
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config

from symphony.errors import BackendError, NotFound, SymphonyError
from symphony_kube.access.exec_stream import open_stream
from symphony_kube.api.client import Api
from symphony_kube.api.credentials import service_account
from symphony_kube.api.credentials.kubeconfig import load_context
from symphony_kube.api.credentials.proxies import proxy_for
from symphony_kube.api.errors import ApiError, UntrustedCertificate
from tests.backends.kube.conftest import write_kubeconfig

HTTPS = "https://10.1.2.3:6443"
PROXY = "http://proxy:3128"


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def plugin(directory, script, **settings):
    """Return a user of a kubeconfig whose credentials come from a plug-in."""
    path = directory / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": str(path), "args": [], **settings}}


def credential(**status):
    """Return the command with which a plug-in prints a credential."""
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    }
    return f"echo '{json.dumps(answer)}'"


def settings_of(path, context=None):
    return load_context(path, context).settings


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


# --- the same settings as the kubernetes package ---

USERS = {
    "nothing": {},
    "token": {"token": "abc"},
    "token-file": {"tokenFile": "files/token"},
    "token-before-password": {"token": "abc", "username": "u", "password": "p"},
    "password": {"username": "u", "password": "p:q"},
    "name-only": {"username": "u"},
    "certificate-data": {
        "client-certificate-data": encoded("cert"),
        "client-key-data": encoded("key"),
    },
    "certificate-files": {
        "client-certificate": "files/certificate",
        "client-key": "files/key",
    },
    "data-before-files": {
        "client-certificate": "files/certificate",
        "client-certificate-data": encoded("cert"),
        "client-key": "files/key",
        "client-key-data": encoded("key"),
    },
    "certificate-and-token": {
        "client-certificate-data": encoded("cert"),
        "client-key-data": encoded("key"),
        "token": "abc",
    },
}
CLUSTERS = {
    "http": {"server": "http://h", "certificate-authority": "files/authority"},
    "authority-data": {"certificate-authority-data": encoded("authority")},
    "authority-file": {"certificate-authority": "files/authority"},
    "no-verification": {"insecure-skip-tls-verify": True},
    "verification": {"insecure-skip-tls-verify": False},
    "server-name": {"tls-server-name": "other"},
    "path": {"server": "https://h/k8s/clusters/c-1/"},
}


@pytest.fixture
def files(tmp_path):
    """The files that `USERS` and `CLUSTERS` name."""
    (tmp_path / "files").mkdir()
    for name in ("token", "certificate", "key", "authority"):
        (tmp_path / "files" / name).write_text(f"the {name}")


def assert_same(path, context="here"):
    """Compare the settings, except for the proxy, with those of the kubernetes package."""
    ours, library = settings_of(path, context), Configuration()
    load_kube_config(str(path), context, library, persist_config=False)
    files = [library.ssl_ca_cert, library.cert_file, library.key_file]
    contents = [name and Path(name).read_bytes() for name in files]
    authorization = library.auth_settings().get("BearerToken", {}).get("value")
    assert (ours.server, ours.authorization) == (library.host.rstrip("/"), authorization)
    tls = ours.tls
    assert (tls.verify, tls.server_name) == (library.verify_ssl, library.tls_server_name)
    assert [tls.authority, tls.certificate, tls.key] == contents
    return ours


@pytest.mark.parametrize("user", USERS)
def test_user_is_read_as_the_kubernetes_package_reads_it(tmp_path, files, user):
    assert_same(write_kubeconfig(tmp_path / "k", HTTPS, USERS[user]))


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_cluster_is_read_as_the_kubernetes_package_reads_it(tmp_path, files, cluster):
    values = {"server": HTTPS, **CLUSTERS[cluster]}
    path = write_kubeconfig(tmp_path / "k", user=USERS["certificate-files"], **values)
    assert_same(path)


@pytest.mark.parametrize(
    "status",
    [{"token": "abc"}, {"clientCertificateData": "cert", "clientKeyData": "key"}],
    ids=["token", "certificate"],
)
def test_plugin_is_run_as_the_kubernetes_package_runs_it(tmp_path, status):
    script = f'[ "$1 $A" = "x y" ] && {credential(**status)}'
    user = plugin(tmp_path, script, args=["x"], env=[{"name": "A", "value": "y"}])
    user["exec"]["command"] = "./plugin"
    assert_same(write_kubeconfig(tmp_path / "k", HTTPS, {**user, "username": "u"}))


def test_merged_files_are_read_as_the_kubernetes_package_reads_them(tmp_path, files):
    (tmp_path / "other").mkdir()
    one = write_kubeconfig(tmp_path / "one", HTTPS, USERS["certificate-files"])
    text = one.read_text().replace('"here"', '"there"').replace("10.1.2.3", "10.9.9.9")
    two = tmp_path / "other" / "two"
    two.write_text(
        text.replace('"c"', '"c2"').replace('"u"', '"u2"').replace("files/", "../files/")
    )
    merged = f"{one}:{two}"
    assert assert_same(merged, "here").server == HTTPS
    assert assert_same(merged, "there").server == "https://10.9.9.9:6443"


# --- the same settings as kubectl ---


def test_first_current_context_counts(tmp_path, monkeypatch):
    one, two = write_kubeconfig(tmp_path / "one"), tmp_path / "two"
    two.write_text(one.read_text().replace("here", "there"))
    monkeypatch.setenv("KUBECONFIG", f"{one}:{tmp_path}/none:{two}")
    assert [load_context(None, name).name for name in ("there", None)] == ["there", "here"]


def test_files_of_a_user_are_relative_to_the_file_that_contains_the_user(tmp_path, files):
    (tmp_path / "other").mkdir()
    users = write_kubeconfig(tmp_path / "users", HTTPS, USERS["token-file"])
    rest = tmp_path / "other" / "rest"
    rest.write_text(users.read_text().replace('"users"', '"unused"'))
    assert settings_of(f"{rest}:{users}").authorization == "Bearer the token"


def test_numbers_are_text(tmp_path):
    path = tmp_path / "k"
    path.write_text(
        "clusters: [{name: 1, cluster: {server: 'http://h'}}]\n"
        "users: [{name: 2, user: {username: 3, password: 0123}}]\n"
        "contexts: [{name: 4, context: {cluster: 1, user: 2, namespace: 5}}]\n"
    )
    settings, namespace, _ = load_context(path, "4")
    assert (settings.authorization, namespace) == (f"Basic {encoded('3:0123')}", "5")


def test_token_file_is_read_again(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("first\n")
    user = {"tokenFile": "token", "token": "unused"}
    with contextlib.closing(Api(kubeconfig=write_kubeconfig(tmp_path / "k", user=user))) as api:
        first = api._current_settings()
        (tmp_path / "token").write_text("second\n")
        assert api._current_settings() is first
        monkeypatch.setattr("symphony_kube.api.client.time.time", lambda: first.expires)
        assert api._current_settings().authorization == "Bearer second"


def test_plugin_receives_the_description_of_the_cluster(tmp_path):
    user = plugin(
        tmp_path,
        f'echo "$KUBERNETES_EXEC_INFO" >{tmp_path}/asked; {credential(token="abc")}',
        provideClusterInfo=True,
    )
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"a": 1, "b": "2"}}
    cluster = {"insecure-skip-tls-verify": True, "tls-server-name": "n", "extensions": [extension]}
    settings_of(write_kubeconfig(tmp_path / "k", HTTPS, user, **cluster))
    assert json.loads((tmp_path / "asked").read_text())["spec"] == {
        "interactive": False,
        "cluster": {
            "server": HTTPS,
            "tls-server-name": "n",
            "insecure-skip-tls-verify": True,
            "config": {"a": 1, "b": "2"},
        },
    }


@pytest.mark.parametrize(
    ("mode", "on_terminal", "answer"),
    [
        ("IfAvailable", True, "Bearer yes"),
        ("IfAvailable", False, "Bearer none"),
        ("Never", True, "Bearer none"),
        ("Always", True, "Bearer yes"),
        ("Always", False, "requires a terminal"),
    ],
)
def test_plugin_asks_the_user_only_on_a_terminal(tmp_path, mode, on_terminal, answer):
    """The plug-in reads its token from standard input, which is empty if it may not ask."""
    print_token = credential(token="TOKEN").replace("TOKEN", "'\"$answer\"'")
    script = f"read answer; : ${{answer:=none}}; {print_token}"
    path = write_kubeconfig(tmp_path / "k", user=plugin(tmp_path, script, interactiveMode=mode))
    program = (
        "from symphony_kube.api.credentials.kubeconfig import load_context\n"
        f"try: print(load_context({str(path)!r}, None).settings.authorization)\n"
        "except Exception as exc: print(exc)"
    )
    ours, theirs = pty.openpty()
    os.write(ours, b"yes\n")
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdin=theirs,
        # In this case, a shell completes a command.
        stderr=theirs if on_terminal else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(ours)
    os.close(theirs)
    assert answer in done.stdout


# --- old credentials ---


def oidc(expires):
    """Return a user whose token expires at a time. The issuer of the token does not exist."""
    token = f"e30.{base64.urlsafe_b64encode(json.dumps({'exp': expires}).encode()).decode()}.x"
    config = {
        "id-token": token.replace("=", ""),
        "idp-issuer-url": "http://127.0.0.1:1",
        "client-id": "c",
        "client-secret": "s",
        "refresh-token": "r",
    }
    return {"auth-provider": {"name": "oidc", "config": config}}


def test_auth_provider_is_read_by_the_kubernetes_package(tmp_path):
    user = oidc(int(time.time()) + 3600)
    path = write_kubeconfig(tmp_path / "k", HTTPS, user)
    token = user["auth-provider"]["config"]["id-token"]
    assert settings_of(path).authorization == f"Bearer {token}"


def test_failed_auth_provider_is_reported_in_one_line(tmp_path, capfd):
    path = write_kubeconfig(tmp_path / "k", HTTPS, oidc(1))
    with pytest.raises(BackendError, match="no credentials for context 'here'") as caught:
        load_context(path, None)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.without_coverage
def test_kubernetes_package_is_not_imported_without_an_auth_provider(tmp_path):
    path = write_kubeconfig(tmp_path / "k", HTTPS, plugin(tmp_path, credential(token="abc")))
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from symphony_kube.api.client import Api; import symphony_kube.cluster;"
            f"Api(kubeconfig={str(path)!r});"
            "print([n for n in ('kubernetes', 'websocket', 'requests') if n in sys.modules])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


# --- invalid kubeconfigs ---


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("root:x:0:0:root:/root:/bin/bash\n", "is not a kubeconfig"),
        ("", "is not a kubeconfig"),
        ("a: [\n", "is not a kubeconfig"),
        ("[]", "is not a kubeconfig"),
        ("{}", "no current context"),
        ("contexts: 3\n", "is not a kubeconfig"),
        (
            "contexts: [{name: a}]\nclusters: []\nusers: []\ncurrent-context: a\n",
            "is not a kubeconfig",
        ),
        (
            "contexts: [{name: a, context: {cluster: b}}]\nclusters: []\nusers: "
            "[]\ncurrent-context: a\n",
            "no server for the cluster 'b' of its context 'a'",
        ),
        (b"\xff\xfe\x00", "is not a kubeconfig"),
        (
            "contexts: [{name: a, context: {cluster: b, user: u}}]\nclusters: [{name: b, cluster: "
            "{server: 'http://h'}}]\ncurrent-context: a\n",
            "has no user 'u', which its context 'a' names",
        ),
    ],
)
def test_invalid_kubeconfig_is_reported_in_one_line(tmp_path, content, message):
    path = tmp_path / "k"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SymphonyError, match=message) as caught:
        Api(kubeconfig=path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_kubeconfig_is_reported(tmp_path, monkeypatch):
    with pytest.raises(
        BackendError, match=f"no kubeconfig: there is no file {tmp_path}/none; set kubeconfig="
    ):
        Api(kubeconfig=tmp_path / "none")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
    with pytest.raises(BackendError, match=f"no file {tmp_path}/a and no {tmp_path}/b"):
        Api()
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BackendError, match=r"no file ~/\.kube/config"):
        Api()


def test_unknown_context_is_reported_with_a_suggestion(tmp_path):
    path = write_kubeconfig(tmp_path / "k")
    with pytest.raises(NotFound, match="no context 'here2'; did you mean 'here'"):
        Api(kubeconfig=path, context="here2")
    with pytest.raises(NotFound, match="no context 'zzz'; it has here"):
        Api(kubeconfig=path, context="zzz")
    assert Api(kubeconfig=path, context="here").namespace == "n"


def test_kubeconfig_without_a_current_context(tmp_path):
    path = write_kubeconfig(tmp_path / "k")
    content = json.loads(path.read_text())
    del content["current-context"]
    path.write_text(json.dumps(content))
    with pytest.raises(NotFound, match="no current context; choose one of here with context="):
        Api(kubeconfig=path)
    assert Api(kubeconfig=path, context="here").context == "here"


def test_service_account_is_used_in_a_pod(kube_cluster, tmp_path, monkeypatch):
    """Uses a real account of the server, in a directory like the one that Kubernetes mounts."""
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    content = json.loads(kube_cluster.user("inside", rules).read_text())
    given = content["clusters"][0]["cluster"]
    server = urllib.parse.urlsplit(given["server"])
    certificate = given.get("certificate-authority-data")
    known = (
        base64.b64decode(certificate)
        if certificate
        else Path(given["certificate-authority"]).read_bytes()
    )
    for name, data in (
        ("token", content["users"][0]["user"]["token"].encode()),
        ("ca.crt", known),
        ("namespace", kube_cluster.namespace.encode()),
    ):
        (tmp_path / name).write_bytes(data)
    monkeypatch.setattr(service_account, "DIRECTORY", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(server.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port or 443))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with contextlib.closing(Api()) as api:
        assert (api.namespace, api.context) == (kube_cluster.namespace, None)
        assert api.call("GET", kube_cluster.path("pods"))["items"] == []
        with pytest.raises(
            ApiError, match=f"system:serviceaccount:{kube_cluster.namespace}:inside"
        ):
            api.call("GET", kube_cluster.path("secrets"))


# --- unusable credentials ---


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"client-certificate-data": "a"}, "client-certificate-data is not base64"),
        ({"client-key": "none"}, "client-key: .*/none: No such file"),
        ({"tokenFile": "none"}, "tokenFile: .*/none: No such file"),
        ({"tokenFile": "/dev/null"}, "tokenFile: /dev/null is empty"),
        ({"exec": "program"}, "exec of the user 'u' is not a mapping"),
        ({"client-key-data": encoded("key")}, "client-certificate is missing"),
        (USERS["certificate-data"], "are not a PEM certificate and its key"),
        (
            {**USERS["certificate-data"], "client-key-data": encoded("ENCRYPTED PRIVATE KEY")},
            "client-key is encrypted",
        ),
    ],
)
def test_unusable_credentials_are_reported_in_one_line(tmp_path, user, message):
    path = write_kubeconfig(tmp_path / "k", HTTPS, user)
    with pytest.raises(BackendError, match=f"credentials for .*{message}") as caught:
        Api(kubeconfig=path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"certificate-authority": "/dev/null"}, "certificate-authority is not a PEM certificate"),
        ({"proxy-url": "ftp://x"}, "the proxy ftp://x .* cannot be used"),
    ],
)
def test_unusable_cluster_is_reported_in_one_line(tmp_path, cluster, message):
    with pytest.raises(BackendError, match=message) as caught:
        Api(kubeconfig=write_kubeconfig(tmp_path / "k", HTTPS, **cluster))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo log in first >&2; exit 3", "log in first; install it, or log in again"),
        ("echo nonsense", "decode"),
        ("echo '{}'", "missing key"),
        (credential(clientKeyData="key"), "neither token nor clientCertificateData"),
        (credential(clientCertificateData="x"), "only one of"),
        (credential(token="x", expirationTimestamp="soon"), "'soon', which is no time"),
        (credential(token="x").replace("/v1", "/v2"), "/v2' instead of"),
    ],
)
def test_failed_credential_plugin_is_reported_and_not_printed(tmp_path, script, message, capfd):
    with pytest.raises(
        BackendError, match=f"the credential plug-in for context 'here'.*failed: .*{message}"
    ) as caught:
        settings_of(write_kubeconfig(tmp_path / "k", user=plugin(tmp_path, script)))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_missing_credential_plugin_is_reported_with_its_hint(tmp_path):
    user = plugin(tmp_path, "", command="no-such-plugin", installHint="get it\nhere")
    with pytest.raises(BackendError, match="no-such-plugin: No such file.*; get it here"):
        settings_of(write_kubeconfig(tmp_path / "k", user=user))


# --- renewed credentials ---


@pytest.fixture
def server(kube_cluster):
    """The server of the test and its settings, and a user who may use it."""
    content = json.loads(kube_cluster.kubeconfig.read_text())
    cluster = content["clusters"][0]["cluster"]
    return cluster.pop("server"), cluster, content["users"][0]["user"]


def test_token_of_a_plugin_is_renewed(server, tmp_path):
    address, cluster, user = server
    rejected = {"token": "old"}
    expired = {"token": user["token"], "expirationTimestamp": "2020-01-01T00:00:00.123456789Z"}
    for old in (rejected, expired):
        script = (
            f"cd {tmp_path}; echo >>asked; if [ $(wc -l <asked) = 2 ]; "
            f"then {credential(token=user['token'])}; else {credential(**old)}; fi"
        )
        path = write_kubeconfig(tmp_path / "k", address, plugin(tmp_path, script), **cluster)
        with contextlib.closing(Api(kubeconfig=path)) as api:
            for _ in range(2):
                assert api.call("GET", "/api/v1/namespaces/default")["kind"] == "Namespace"
        assert (tmp_path / "asked").read_text() == "\n\n"
        (tmp_path / "asked").unlink()


def test_replaced_certificate_authority_is_used(server, tmp_path):
    address, cluster, user = server
    path = write_kubeconfig(tmp_path / "k", address, user)
    with contextlib.closing(Api(kubeconfig=path)) as api:
        with pytest.raises(UntrustedCertificate):
            api.call("GET", "/version")
        write_kubeconfig(path, address, user, **cluster)
        assert api.call("GET", "/version")["major"]


def test_credentials_are_not_sent_to_another_server(tmp_path):
    path = write_kubeconfig(tmp_path / "k", user=plugin(tmp_path, credential(token="x")))
    with contextlib.closing(Api(kubeconfig=path)) as api:
        write_kubeconfig(path, "http://127.0.0.1:2", {"token": "y"})
        with pytest.raises(BackendError, match="is now http://127.0.0.1:2; start this program"):
            api._renewed_settings(api._settings)


# --- proxies ---


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({"HTTPS_PROXY": PROXY}, PROXY),
        ({"https_proxy": PROXY, "HTTPS_PROXY": "http://other"}, PROXY),
        ({"HTTP_PROXY": PROXY}, None),
        ({"ALL_PROXY": PROXY}, PROXY),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "a.b, 10.1.2.3"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.1.2.3:6443"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.1.2.3:443"}, PROXY),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.2.0.0/16,,.x"}, PROXY),
    ],
)
def test_proxy_of_the_environment(monkeypatch, variables, proxy):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(HTTPS, None) == proxy


@pytest.mark.parametrize(
    ("hosts", "proxy"), [("example.org", None), (".Example.org", None), ("ample.org", PROXY)]
)
def test_no_proxy_includes_subdomains(tmp_path, monkeypatch, hosts, proxy):
    monkeypatch.setenv("NO_PROXY", hosts)
    path = write_kubeconfig(tmp_path / "k", "https://api.EXAMPLE.org", **{"proxy-url": PROXY})
    assert settings_of(path).proxy == proxy


class Tunnel(socketserver.StreamRequestHandler):
    """An HTTP proxy that opens tunnels, and keeps the heads of the requests."""

    def handle(self):
        lines = list(iter(lambda: self.rfile.readline().decode().strip(), ""))
        self.server.heads.append(lines)
        with socket.create_connection(self.server.target) as target:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            threading.Thread(target=self.relay, args=(target, self.connection)).start()
            self.relay(self.connection, target)

    @staticmethod
    def relay(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def test_requests_and_upgraded_connections_use_the_proxy(kube_cluster, server, tmp_path):
    address, cluster, user = server
    target = urllib.parse.urlsplit(address)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tunnel) as proxy:
        proxy.heads, proxy.target = [], (target.hostname, target.port)
        threading.Thread(target=proxy.serve_forever).start()
        cluster["proxy-url"] = f"http://me:secret@127.0.0.1:{proxy.server_address[1]}"
        path = write_kubeconfig(tmp_path / "k", address, user, **cluster)
        with contextlib.closing(Api(kubeconfig=path)) as api:
            assert api.call("GET", "/version")["major"]
            path = kube_cluster.path("pods/none/exec")
            with pytest.raises(ApiError, match="404"):
                open_stream(api, path, query=[("command", "true")], channels=[])
        proxy.shutdown()
    assert [head[0].split()[:2] for head in proxy.heads] == [["CONNECT", target.netloc]] * 3
    for head in proxy.heads:
        assert f"proxy-authorization: basic {encoded('me:secret')}".lower() in [
            line.lower() for line in head
        ]
