"""The keys of encrypted services: who gets which, what their variables are called, and how they are made.

An experiment with encrypted services has two CURVE key pairs (CurveZMQ, https://rfc.zeromq.org/spec/26), made anew
by every launch: the server's and the clients'. Whoever binds an encrypted service gets both, whoever connects to one
gets the clients' pair and the server's public key, and everybody else none. A server lets in who has the clients' pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from symphony.errors import NotFound, PluginError
from symphony.names import env_name
from symphony.plan.addresses import PREFIX

SERVER_PUBLIC, SERVER_SECRET = "SYMPHONY_CURVE_SERVER_PUBLIC", "SYMPHONY_CURVE_SERVER_SECRET"
CLIENT_PUBLIC, CLIENT_SECRET = "SYMPHONY_CURVE_CLIENT_PUBLIC", "SYMPHONY_CURVE_CLIENT_SECRET"
OF_CLIENTS = (SERVER_PUBLIC, CLIENT_PUBLIC, CLIENT_SECRET)
OF_SERVERS = (*OF_CLIENTS, SERVER_SECRET)
CURVE = "curve"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Keys:
    """What one side of an encrypted service needs, in Z85: its own pair, and the other side's public key."""

    serves: bool
    public: str
    secret: str
    other: str


def variable(service: str) -> str:
    """The variable that tells every process that a service is encrypted; its value is ``curve``."""
    return f"{PREFIX}{env_name(service)}_ENCRYPTED"


def keys_for(service: str, environ: Mapping[str, str], *, serves: bool) -> Keys | None:
    """The keys for a service from the environment that symphony gave this process; None where it is not encrypted.

    Raises `NotFound` where it is and this process has no keys for that side.
    """
    if variable(service) not in environ:
        return None
    names = (
        (SERVER_PUBLIC, SERVER_SECRET, CLIENT_PUBLIC)
        if serves
        else (CLIENT_PUBLIC, CLIENT_SECRET, SERVER_PUBLIC)
    )
    missing = [name for name in names if name not in environ]
    if missing:
        verb, goal = ("binds", "bind it") if serves else ("connects", "connect to it")
        raise NotFound(
            f"service {service!r} is encrypted, and this process has no key to {goal} ({missing[0]}); "
            f"name it in the {verb} of this process"
        )
    public, secret, other = (environ[name] for name in names)
    return Keys(serves=serves, public=public, secret=secret, other=other)


def generate(variables: Iterable[str]) -> dict[str, str]:
    """New keys for those variables; where there are none, nothing is needed.

    Raises `PluginError` where pyzmq is missing or was made without encryption.
    """
    wanted = frozenset(variables)
    if not wanted:
        return {}
    try:
        import zmq
    except ImportError:
        raise PluginError(
            "keys for encrypted services are made with the package 'pyzmq'; "
            "install it with: pip install 'symphony-launcher[zmq]'"
        ) from None
    if not zmq.has("curve"):
        raise PluginError(
            "this pyzmq was made without CURVE, so services cannot be encrypted; install another build"
        )
    found: dict[str, str] = {}
    for public, secret in ((SERVER_PUBLIC, SERVER_SECRET), (CLIENT_PUBLIC, CLIENT_SECRET)):
        found[public], found[secret] = (key.decode() for key in zmq.curve_keypair())
    return {name: key for name, key in found.items() if name in wanted}
