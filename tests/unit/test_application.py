"""`symphony.address`: the address of a service from environment variables, and errors."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given

from symphony import Address, Experiment, NotFound, address
from symphony.plan.resolve import resolve
from tests.unit.strategies import SCHEME, experiments

ENV = {
    "SYMPHONY_EXPERIMENT": "e",
    "SYMPH_REPLAY_SERVER_HOST": "10.0.0.7",
    "SYMPH_REPLAY_SERVER_PORT": "7001",
    "SYMPH_REPLAY_SERVER_ADDR": "10.0.0.7:7001",
    "SYMPH_REPLAY_SERVER_BIND_HOST": "0.0.0.0",
}


def test_address() -> None:
    found = address("replay-server", ENV)
    assert found == Address(
        service="replay-server", host="10.0.0.7", port=7001, bind_host="0.0.0.0"
    )
    assert str(found) == "10.0.0.7:7001"
    assert found.tcp == "tcp://10.0.0.7:7001"
    assert found.bind_tcp == "tcp://0.0.0.0:7001"


def test_address_from_the_environment_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in ENV.items():
        monkeypatch.setenv(key, value)
    assert address("replay-server") == address("replay-server", ENV)


def test_bind_host_defaults_to_host() -> None:
    env = {key: value for key, value in ENV.items() if not key.endswith("BIND_HOST")}
    assert address("replay-server", env).bind_host == "10.0.0.7"


@given(experiments())
def test_address_is_that_of_the_plan(data: dict[str, Any]) -> None:
    plan = resolve(Experiment.load_dict(data), SCHEME)
    env = plan.environment(plan.processes[0])
    for name, endpoint in plan.addresses.items():
        found = address(name, env)
        assert (found.host, found.port, found.bind_host) == (
            endpoint.host,
            endpoint.port,
            endpoint.bind_host,
        )


@pytest.mark.parametrize(
    ("service", "env", "message"),
    [
        (
            "replay-sever",
            ENV,
            "no service 'replay-sever' in the environment (SYMPH_REPLAY_SEVER_HOST); "
            "did you mean 'replay-server'?",
        ),
        ("zzz", ENV, "(SYMPH_ZZZ_HOST); the services are: replay-server"),
        ("zzz", {"SYMPHONY_EXPERIMENT": "e"}, "the services are: none"),
        ("zzz", {}, "this process was not launched by symphony"),
        (
            "replay-server",
            {**ENV, "SYMPH_REPLAY_SERVER_PORT": "http"},
            "SYMPH_REPLAY_SERVER_PORT is 'http', which is not a port",
        ),
        (
            "foo",
            {"SYMPH_FOO_HOST": "h", "SYMPH_FOO_PORT": "-1"},
            "SYMPH_FOO_PORT is '-1', which is not a port",
        ),
        ("foo", {"SYMPH_FOO_HOST": "h"}, "(SYMPH_FOO_PORT); this process was not launched by"),
    ],
)
def test_missing_or_wrong_variables(service: str, env: dict[str, str], message: str) -> None:
    with pytest.raises(NotFound) as error:
        address(service, env)
    assert message in str(error.value)


def test_address_imports_only_the_standard_library() -> None:
    program = (
        "import sys; from symphony import address; print(address('replay-server').port);"
        "modules = ('pluggy', 'yaml', 'psutil', 'symphony.model');"
        "print([name for name in modules if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=ENV, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["7001", "[]"]
