"""Test encrypted services: their declaration, the keys of each launch, and rejected clients."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import zmq

from symphony import Cluster, Experiment, NotFound, PluginError, SpecError
from symphony.addons.zmq import ZmqClient, ZmqServer, ZmqTimeoutError
from symphony.plan.resolution import encryption_keys
from symphony.plan.resolve import resolve
from symphony.support.install_hints import install_command
from tests.unit.strategies import SCHEME

LONG = 30.0


def new_experiment(**options: Any) -> Experiment:
    exp = Experiment("e", **options)
    exp.new_process("server", command="c").binds(["replay", "plain"]).encrypts("replay")
    exp.new_process("client", command="c").connects("replay")
    exp.new_process("other", command="c").connects("plain")
    return exp


# --- declaration ---


def test_encryption_survives_dump_and_load(tmp_path: Path) -> None:
    exp = new_experiment()
    exp.dump_file(tmp_path / "e.yml")
    assert exp.dump_dict()["processes"]["server"]["encrypted"] == ["replay"]
    assert Experiment.load_file(tmp_path / "e.yml").dump_dict() == exp.dump_dict()
    short = (
        Experiment("e").new_process("server", command="c").binds({"replay": 7000}, encrypted=True)
    )
    assert short.dump() == {"command": ["c"], "binds": {"replay": 7000}, "encrypted": ["replay"]}


def test_keys_of_each_process() -> None:
    exp = new_experiment()
    group = exp.new_process_group("g").connects("replay")
    group.new_process("member", command="c")
    serving = exp.new_process_group("serving").binds("more", encrypted=True)
    serving.new_process("inside", command="c")
    plan = resolve(exp, SCHEME)
    assert {process.name: process.keys for process in plan} == {
        "server": encryption_keys.SERVER_VARIABLES,
        "client": encryption_keys.CLIENT_VARIABLES,
        "other": (),
        "member": encryption_keys.CLIENT_VARIABLES,
        "inside": encryption_keys.SERVER_VARIABLES,
    }
    assert set(plan.key_variables) == set(encryption_keys.SERVER_VARIABLES)
    environment = plan.environment(plan.processes[2])
    assert {key: value for key, value in environment.items() if "ENCRYPTED" in key} == {
        "SYMPH_REPLAY_ENCRYPTED": "curve",
        "SYMPH_MORE_ENCRYPTED": "curve",
    }


def test_no_keys_without_encrypted_services() -> None:
    exp = Experiment("e")
    exp.new_process("p", command="c").binds("replay")
    plan = resolve(exp, SCHEME)
    assert plan.key_variables == ()
    assert not any("ENCRYPTED" in key for key in plan.environment(plan.processes[0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda exp: exp.get_process("server").encrypts("repay"),
         "'server': encrypts service 'repay', which it does not bind; did you mean 'replay'?"),
        (lambda exp: exp.get_process("other").encrypts("replay"),
         "'other': encrypts service 'replay', which it does not bind"),
        (lambda exp: exp.get_process("client").set_env(encryption_keys.CLIENT_SECRET, "mine"),
         "'SYMPHONY_CURVE_CLIENT_SECRET' is reserved for an encryption key"),
        (lambda exp: exp.set_env(encryption_keys.SERVER_PUBLIC, "mine"),
         "is reserved for an encryption key"),
    ],
)  # fmt: skip
def test_invalid_declaration_is_rejected(change: Any, message: str) -> None:
    exp = new_experiment()
    change(exp)
    with pytest.raises(SpecError) as error:
        resolve(exp, SCHEME)
    assert message in str(error.value)


def test_keys_are_generated_for_each_launch() -> None:
    first = encryption_keys.generate(encryption_keys.SERVER_VARIABLES)
    second = encryption_keys.generate(encryption_keys.SERVER_VARIABLES)
    assert set(first) == set(encryption_keys.SERVER_VARIABLES)
    assert not set(first.values()) & set(second.values())
    assert {len(key) for key in first.values()} == {40}
    assert set(encryption_keys.generate(encryption_keys.CLIENT_VARIABLES)) == set(
        encryption_keys.CLIENT_VARIABLES
    )
    assert encryption_keys.generate([]) == {}


def test_launch_without_pyzmq_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)
    assert encryption_keys.generate([]) == {}
    exp = Experiment("e")
    exp.new_process("server", command="true").binds("replay", encrypted=True)
    cluster = Cluster.new("local", state_dir=str(tmp_path))
    message = f"require the package 'pyzmq'; install it with: {install_command('zmq')}"
    with pytest.raises(PluginError, match=re.escape(message)):
        cluster.launch(exp)
    assert cluster.list_experiments() == []


def test_manifest_does_not_show_keys() -> None:
    for backend, options in (("local", {}), ("kube", {"image": "i"})):
        cluster = Cluster.new(backend, **options)
        manifest = cluster.manifest(new_experiment())
        text = f"{manifest}{json.dumps(manifest.to_dict())}"
        assert "SYMPHONY_CURVE_SERVER_SECRET" in text
        assert ("(generated by the launch)" if backend == "local" else "<redacted>") in text
        for word in text.replace('"', " ").split():
            # A key has 40 characters, none of which is "_" or "-".
            assert len(word.strip("',:[]{}")) != 40 or "_" in word or "-" in word, word


def test_kubernetes_passes_keys_as_variables_of_a_secret(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("swordfish")
    exp = new_experiment(secrets={"token": str(tmp_path / "token")})
    cluster = Cluster.new("kube", namespace="team-a", image="i")
    manifest = cluster.manifest(exp)
    objects = list(manifest)  # type: ignore[call-overload]
    (secret,) = [item for item in objects if item["metadata"]["name"] == "e-symphony-keys"]
    assert set(secret["data"]) == set(encryption_keys.SERVER_VARIABLES)
    pods = {item["metadata"]["name"]: item["spec"] for item in objects if item["kind"] == "Pod"}
    for name, expected in (
        ("e-server", encryption_keys.SERVER_VARIABLES),
        ("e-client", encryption_keys.CLIENT_VARIABLES),
        ("e-other", ()),
    ):
        env = pods[name]["containers"][0]["env"]
        references = [item for item in env if "valueFrom" in item]
        assert [item["name"] for item in references] == [*expected]
        assert all(
            item["valueFrom"] == {"secretKeyRef": {"name": "e-symphony-keys", "key": item["name"]}}
            for item in references
        )
        assert "symphony-keys" not in json.dumps(pods[name].get("volumes"))
    manifest.write(tmp_path / "manifest.yml")
    assert "<redacted>" not in (tmp_path / "manifest.yml").read_text()


# --- use ---


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a process that binds and connects to an encrypted service."""
    with zmq.Context() as context, context.socket(zmq.REP) as holder:
        port = holder.bind_to_random_port("tcp://127.0.0.1")
    variables = {
        "SYMPHONY_EXPERIMENT": "e",
        "SYMPH_REPLAY_HOST": "127.0.0.1",
        "SYMPH_REPLAY_PORT": str(port),
        "SYMPH_REPLAY_BIND_HOST": "127.0.0.1",
        "SYMPH_REPLAY_ENCRYPTED": "curve",
        **encryption_keys.generate(encryption_keys.SERVER_VARIABLES),
    }
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    return variables


def test_classes_use_the_keys_in_the_environment(environ: dict[str, str]) -> None:
    with ZmqServer(service="replay") as server, ZmqClient(service="replay", timeout=LONG) as client:
        server.start_loop(bytes)
        assert client.request(b"x") == b"x"
        shown = f"{server!r}{client!r}{client._socket_address}"
        assert not any(environ[key] in shown for key in encryption_keys.SERVER_VARIABLES)
        server.stop()
        assert server.join(LONG)
        with pytest.raises(ZmqTimeoutError):
            client.request(b"x", timeout=0.01)
        server.start_loop(bytes)
        assert client.request(b"with a new socket") == b"with a new socket"


def is_answered(
    address: str, client: dict[str, str], server: dict[str, str], *, timeout: float
) -> bool:
    """Return whether a plain socket with the keys of ``client`` gets a reply from the server.

    ``server`` has the public key that the client expects of the server.
    """
    with zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.linger = 0
        if client:
            socket.curve_publickey = client[encryption_keys.CLIENT_PUBLIC].encode()
            socket.curve_secretkey = client[encryption_keys.CLIENT_SECRET].encode()
            socket.curve_serverkey = server[encryption_keys.SERVER_PUBLIC].encode()
        socket.connect(address)
        socket.send(b"request")
        return bool(socket.poll(int(timeout * 1000)))


def test_client_without_the_keys_is_rejected(environ: dict[str, str]) -> None:
    other = encryption_keys.generate(encryption_keys.CLIENT_VARIABLES)
    with ZmqServer(service="replay") as server:
        server.start_loop(bytes)
        assert not is_answered(server.address, {}, {}, timeout=0.3)
        assert not is_answered(server.address, environ, other, timeout=0.3)
        assert not is_answered(server.address, other, environ, timeout=0.3)
        assert is_answered(server.address, environ, environ, timeout=LONG)


def test_client_rejects_server_without_the_key(environ: dict[str, str]) -> None:
    with zmq.Context() as context, context.socket(zmq.REP) as other:
        other.bind(f"tcp://127.0.0.1:{environ['SYMPH_REPLAY_PORT']}")
        with ZmqClient(service="replay", timeout=0.3) as client, pytest.raises(ZmqTimeoutError):
            client.request(b"secret")
        assert not other.poll(0)


@pytest.mark.parametrize(("kind", "verb"), [(ZmqServer, "binds"), (ZmqClient, "connects")])
def test_process_without_keys_is_rejected(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, kind: Any, verb: str
) -> None:
    for key in encryption_keys.SERVER_VARIABLES:
        monkeypatch.delenv(key)
    with pytest.raises(
        NotFound,
        match=f"is encrypted, and this process has no key .*to the {verb} of this process",
    ):
        kind(service="replay")


# --- launch ---

SERVER = """
from symphony.addons.zmq import ZmqServer
server = ZmqServer(service="replay")
def handle(message):
    if message == b"stop":
        server.stop()
    return message[::-1]
server.start_loop(handle, blocking=True)
"""
CLIENT = """
import os
from symphony.addons.zmq import ZmqClient
with ZmqClient(service="replay", timeout=5, retries=11) as client:
    print(client.request(b"abc").decode())
    client.request(b"stop", timeout=60)  # Not sent twice: the server stops after it.
print("SERVER_SECRET" in " ".join(os.environ))
"""
OUTSIDER = """
import os, zmq
from symphony import NotFound
from symphony.addons.zmq import ZmqClient
try:
    ZmqClient(service="replay")
except NotFound as exc:
    print(exc)
socket = zmq.Context().socket(zmq.REQ)
socket.linger = 0
socket.connect("tcp://" + os.environ["SYMPH_REPLAY_ADDR"])
socket.send(b"request")
print(socket.poll(500), [key for key in os.environ if "CURVE" in key])
"""


@pytest.fixture
def cluster(machine: Cluster) -> Cluster:
    """Return a cluster of local processes, then one of tmux."""
    return machine


def test_only_connected_processes_can_use_an_encrypted_service(
    cluster: Cluster, tmp_path: Path
) -> None:
    exp = cluster.new_experiment("e")
    exp.new_process("server", command=[sys.executable, "-c", SERVER]).binds(
        "replay", encrypted=True
    )
    exp.new_process("outsider", command=[sys.executable, "-c", OUTSIDER])
    client = exp.new_process("client", command=[sys.executable, "-c", CLIENT]).connects("replay")
    client.starts_after("outsider", "succeeded")
    manifest = cluster.launch(exp)
    status = cluster.wait("e", timeout=90)
    logs = {
        process.name: cluster.get_log("e", process.name).replace("\r", "") for process in status
    }
    assert status.exit_code == 0, logs
    assert logs["client"] == "cba\nFalse\n"
    error, *_, result = logs["outsider"].strip().split("\n")
    assert error.startswith("service 'replay' is encrypted, and this process has no key")
    assert result == "0 []"
    contents = _read_files(tmp_path / "state")
    key_files = [path for path in contents if path.name in encryption_keys.SERVER_VARIABLES]
    assert {path.name for path in key_files} == set(encryption_keys.SERVER_VARIABLES)
    assert {path.stat().st_mode & 0o777 for path in key_files} == {0o600}
    for secret in [contents[path] for path in key_files]:
        holders = {path.name for path, content in contents.items() if secret in content}
        assert holders <= set(encryption_keys.SERVER_VARIABLES)
        assert secret.decode() not in f"{manifest}{manifest.to_dict()}{exp.dump_dict()}{status}"


def _read_files(directory: Path) -> dict[Path, bytes]:
    """Return the contents of all files below a directory.

    The supervisor removes some of its files after the experiment has ended.
    """
    contents: dict[Path, bytes] = {}
    for path in directory.rglob("*"):
        if path.is_file():
            with contextlib.suppress(FileNotFoundError):
                contents[path] = path.read_bytes()
    return contents
