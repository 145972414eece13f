"""`symphony.address`: what the environment says, as an object, and why there is none."""

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


def test_an_address() -> None:
    found = address("replay-server", ENV)
    assert found == Address(
        service="replay-server", host="10.0.0.7", port=7001, bind_host="0.0.0.0"
    )
    assert str(found) == "10.0.0.7:7001"
    assert found.tcp == "tcp://10.0.0.7:7001"
    assert found.bind_tcp == "tcp://0.0.0.0:7001"


def test_it_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in ENV.items():
        monkeypatch.setenv(key, value)
    assert address("replay-server") == address("replay-server", ENV)


def test_without_a_bind_host_one_listens_where_one_connects() -> None:
    env = {key: value for key, value in ENV.items() if not key.endswith("BIND_HOST")}
    assert address("replay-server", env).bind_host == "10.0.0.7"


@given(experiments())
def test_it_says_what_the_plan_says(data: dict[str, Any]) -> None:
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
        ("replay-sever", ENV, "no service 'replay-sever' in the environment (SYMPH_REPLAY_SEVER_HOST); did you mean "
                              "'replay-server'?"),
        ("zzz", ENV, "no service 'zzz' in the environment (SYMPH_ZZZ_HOST); there are replay-server"),
        ("zzz", {"SYMPHONY_EXPERIMENT": "e"}, "there are none"),
        ("zzz", {}, "this process was not launched by symphony"),
        ("replay-server", {**ENV, "SYMPH_REPLAY_SERVER_PORT": "http"},
         "no service 'replay-server' in the environment: SYMPH_REPLAY_SERVER_PORT is 'http', which is no port"),
        ("foo", {"SYMPH_FOO_HOST": "h", "SYMPH_FOO_PORT": "-1"}, "SYMPH_FOO_PORT is '-1', which is no port"),
        ("foo", {"SYMPH_FOO_HOST": "h"}, "no service 'foo' in the environment (SYMPH_FOO_PORT); this process was not"),
    ],
)  # fmt: skip
def test_a_service_that_is_not_there(service: str, env: dict[str, str], message: str) -> None:
    with pytest.raises(NotFound) as missing:
        address(service, env)
    assert message in str(missing.value)


def test_asking_needs_the_standard_library_alone() -> None:
    program = (
        "import sys; from symphony import address; print(address('replay-server').port);"
        "print([name for name in ('pluggy', 'yaml', 'psutil', 'symphony.model') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=ENV, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["7001", "[]"]
