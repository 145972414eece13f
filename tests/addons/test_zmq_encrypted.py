"""Encrypted services: asked for in the description, keys made by each launch, and nobody else lets himself in."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import zmq

from symphony import Cluster, Experiment, NotFound, PluginError, SpecError
from symphony.addons.zmq import ZmqClient, ZmqServer, ZmqTimeoutError
from symphony.plan import encryption_keys
from symphony.plan.resolve import resolve
from tests.unit.strategies import SCHEME

LONG = 30.0


def described(**options: Any) -> Experiment:
    exp = Experiment("e", **options)
    exp.new_process("server", command="c").binds(["replay", "plain"]).encrypts("replay")
    exp.new_process("client", command="c").connects("replay")
    exp.new_process("other", command="c").connects("plain")
    return exp


# --- described ---


def test_it_is_kept_dumped_and_loaded(tmp_path: Path) -> None:
    exp = described()
    exp.dump_file(tmp_path / "e.yml")
    assert exp.dump_dict()["processes"]["server"]["encrypted"] == ["replay"]
    assert Experiment.load_file(tmp_path / "e.yml").dump_dict() == exp.dump_dict()
    short = (
        Experiment("e").new_process("server", command="c").binds({"replay": 7000}, encrypted=True)
    )
    assert short.dump() == {"command": ["c"], "binds": {"replay": 7000}, "encrypted": ["replay"]}


def test_who_gets_which_keys() -> None:
    exp = described()
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
    told = plan.environment(plan.processes[2])
    assert {key: value for key, value in told.items() if "ENCRYPTED" in key} == {
        "SYMPH_REPLAY_ENCRYPTED": "curve",
        "SYMPH_MORE_ENCRYPTED": "curve",
    }


def test_without_encrypted_services_there_is_nothing_of_it() -> None:
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
        (lambda exp: exp.set_env(encryption_keys.SERVER_PUBLIC, "mine"), "is reserved for an encryption key"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(change: Any, message: str) -> None:
    exp = described()
    change(exp)
    with pytest.raises(SpecError) as refusal:
        resolve(exp, SCHEME)
    assert message in str(refusal.value)


def test_keys_are_new_every_time_and_only_those_asked_for() -> None:
    first, second = (
        encryption_keys.generate(encryption_keys.SERVER_VARIABLES),
        encryption_keys.generate(encryption_keys.SERVER_VARIABLES),
    )
    assert set(first) == set(encryption_keys.SERVER_VARIABLES)
    assert not set(first.values()) & set(second.values())
    assert {len(key) for key in first.values()} == {40}
    assert set(encryption_keys.generate(encryption_keys.CLIENT_VARIABLES)) == set(
        encryption_keys.CLIENT_VARIABLES
    )
    assert encryption_keys.generate([]) == {}


def test_without_pyzmq_there_are_no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)
    assert encryption_keys.generate([]) == {}
    exp = Experiment("e")
    exp.new_process("server", command="true").binds("replay", encrypted=True)
    cluster = Cluster.new("local", state_dir=str(tmp_path))
    with pytest.raises(
        PluginError, match=r"require the package 'pyzmq'; install it with: pip install 'symphony"
    ):
        cluster.launch(exp)
    assert cluster.list_experiments() == []


def test_the_text_of_a_manifest_has_no_key() -> None:
    for backend, options in (("local", {}), ("kube", {"image": "i"})):
        cluster = Cluster.new(backend, **options)
        manifest = cluster.manifest(described())
        text = f"{manifest}{json.dumps(manifest.to_dict())}"
        assert "SYMPHONY_CURVE_SERVER_SECRET" in text
        assert ("(generated by the launch)" if backend == "local" else "<redacted>") in text
        for word in text.replace('"', " ").split():
            assert len(word.strip("',:[]{}")) != 40 or "_" in word or "-" in word, word


def test_on_kubernetes_the_keys_are_a_secret_that_is_mounted_nowhere(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("swordfish")
    exp = described(secrets={"token": str(tmp_path / "token")})
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


# --- used ---


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a process that binds and connects to an encrypted service."""
    with zmq.Context() as context, context.socket(zmq.REP) as holder:
        port = holder.bind_to_random_port("tcp://127.0.0.1")
    found = {
        "SYMPHONY_EXPERIMENT": "e",
        "SYMPH_REPLAY_HOST": "127.0.0.1",
        "SYMPH_REPLAY_PORT": str(port),
        "SYMPH_REPLAY_BIND_HOST": "127.0.0.1",
        "SYMPH_REPLAY_ENCRYPTED": "curve",
        **encryption_keys.generate(encryption_keys.SERVER_VARIABLES),
    }
    for key, value in found.items():
        monkeypatch.setenv(key, value)
    return found


def test_the_classes_find_the_keys_by_themselves(environ: dict[str, str]) -> None:
    with ZmqServer(service="replay") as server, ZmqClient(service="replay", timeout=LONG) as client:
        server.start_loop(bytes)
        assert client.request(b"x") == b"x"
        assert not any(
            environ[key] in f"{server!r}{client!r}{client._socket_address}"
            for key in encryption_keys.SERVER_VARIABLES
        )
        server.stop()
        assert server.join(LONG)
        with pytest.raises(ZmqTimeoutError):
            client.request(b"x", timeout=0.01)
        server.start_loop(bytes)
        assert client.request(b"with a fresh socket") == b"with a fresh socket"


def asked(
    address: str, *, expect: bool, public: str = "", secret: str = "", server: str = ""
) -> None:
    with zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.linger = 0
        if server:
            socket.curve_publickey, socket.curve_secretkey = public.encode(), secret.encode()
            socket.curve_serverkey = server.encode()
        socket.connect(address)
        socket.send(b"let me in")
        assert bool(socket.poll(int(LONG * 1000) if expect else 300)) is expect


def test_who_has_no_key_or_another_is_not_let_in(environ: dict[str, str]) -> None:
    stranger = encryption_keys.generate(encryption_keys.CLIENT_VARIABLES)
    with ZmqServer(service="replay") as server:
        server.start_loop(bytes)
        public, secret = (
            environ[encryption_keys.CLIENT_PUBLIC],
            environ[encryption_keys.CLIENT_SECRET],
        )
        asked(server.address, expect=False)
        asked(
            server.address,
            expect=False,
            public=public,
            secret=secret,
            server=stranger[encryption_keys.SERVER_PUBLIC],
        )
        asked(
            server.address,
            expect=False,
            public=stranger[encryption_keys.CLIENT_PUBLIC],
            secret=stranger[encryption_keys.CLIENT_SECRET],
            server=environ[encryption_keys.SERVER_PUBLIC],
        )
        asked(
            server.address,
            expect=True,
            public=public,
            secret=secret,
            server=environ[encryption_keys.SERVER_PUBLIC],
        )


def test_a_client_talks_to_no_server_without_the_key(environ: dict[str, str]) -> None:
    with zmq.Context() as context, context.socket(zmq.REP) as impostor:
        impostor.bind(f"tcp://127.0.0.1:{environ['SYMPH_REPLAY_PORT']}")
        with ZmqClient(service="replay", timeout=0.3) as client, pytest.raises(ZmqTimeoutError):
            client.request(b"secret")
        assert not impostor.poll(0)


@pytest.mark.parametrize(("kind", "verb"), [(ZmqServer, "binds"), (ZmqClient, "connects")])
def test_a_process_without_keys_is_told_to_name_the_service(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, kind: Any, verb: str
) -> None:
    for key in encryption_keys.SERVER_VARIABLES:
        monkeypatch.delenv(key)
    with pytest.raises(
        NotFound,
        match=f"is encrypted, and this process has no key .*to the {verb} of this process",
    ):
        kind(service="replay")


# --- launched ---

SERVER = """
from symphony.addons.zmq import ZmqServer
server = ZmqServer(service="replay")
def answer(message):
    if message == b"stop":
        server.stop()
    return message[::-1]
server.start_loop(answer, blocking=True)
"""
CLIENT = """
import os
from symphony.addons.zmq import ZmqClient
with ZmqClient(service="replay", timeout=5, retries=11) as client:
    print(client.request(b"abc").decode())
    client.request(b"stop", timeout=60)  # once: nobody answers a second time
print("SERVER_SECRET" in " ".join(os.environ))
"""
STRANGER = """
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
socket.send(b"let me in")
print(socket.poll(500), [key for key in os.environ if "CURVE" in key])
"""


@pytest.fixture
def cluster(machine: Cluster) -> Cluster:
    """Local processes, and tmux."""
    return machine


def test_an_experiment_talks_and_a_stranger_does_not(cluster: Cluster, tmp_path: Path) -> None:
    exp = cluster.new_experiment("e")
    exp.new_process("server", command=[sys.executable, "-c", SERVER]).binds(
        "replay", encrypted=True
    )
    exp.new_process("stranger", command=[sys.executable, "-c", STRANGER])
    client = exp.new_process("client", command=[sys.executable, "-c", CLIENT]).connects("replay")
    client.starts_after("stranger", "succeeded")
    manifest = cluster.launch(exp)
    status = cluster.wait("e", timeout=90)
    logs = {
        process.name: cluster.get_log("e", process.name).replace("\r", "") for process in status
    }
    assert status.exit_code == 0, logs
    assert logs["client"] == "cba\nFalse\n"
    told, tried = logs["stranger"].strip().split("\n")[0], logs["stranger"].strip().split("\n")[-1]
    assert told.startswith("service 'replay' is encrypted, and this process has no key")
    assert tried == "0 []"
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    kept = {
        path.name: path.read_bytes()
        for path in files
        if path.name in encryption_keys.SERVER_VARIABLES
    }
    assert set(kept) == set(encryption_keys.SERVER_VARIABLES)
    assert all(
        path.stat().st_mode & 0o777 == 0o600
        for path in files
        if path.name in encryption_keys.SERVER_VARIABLES
    )
    for secret in kept.values():
        assert {path.name for path in files if secret in path.read_bytes()} <= set(
            encryption_keys.SERVER_VARIABLES
        )
        assert secret.decode() not in f"{manifest}{manifest.to_dict()}{exp.dump_dict()}{status}"
