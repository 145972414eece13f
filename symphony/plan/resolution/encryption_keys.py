"""The keys for encrypted services, and the variables in which processes receive the keys.

An experiment with encrypted services has two CURVE key pairs (CurveZMQ,
https://rfc.zeromq.org/spec/26): one for the servers and one for the clients. Every launch creates
new pairs. A process that binds an encrypted service receives both pairs. A process that connects to
an encrypted service receives the client pair and the servers' public key. Other processes receive
no keys. A server accepts only clients that use the client pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from symphony.errors import NotFound, PluginError
from symphony.plan.resolution.addresses import PREFIX
from symphony.support.names import service_env_name

SERVER_PUBLIC, SERVER_SECRET = "SYMPHONY_CURVE_SERVER_PUBLIC", "SYMPHONY_CURVE_SERVER_SECRET"
CLIENT_PUBLIC, CLIENT_SECRET = "SYMPHONY_CURVE_CLIENT_PUBLIC", "SYMPHONY_CURVE_CLIENT_SECRET"
CLIENT_VARIABLES = (SERVER_PUBLIC, CLIENT_PUBLIC, CLIENT_SECRET)
SERVER_VARIABLES = (*CLIENT_VARIABLES, SERVER_SECRET)
CURVE = "curve"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Keys:
    """The keys of one side of an encrypted service, encoded in Z85.

    ``public`` and ``secret`` are this side's key pair, and ``other`` is the other side's public
    key. ``serves`` is true if this side is the server.
    """

    serves: bool
    public: str
    secret: str
    other: str


def variable(service: str) -> str:
    """Return the name of the variable that is set to ``curve`` if a service is encrypted."""
    return f"{PREFIX}{service_env_name(service)}_ENCRYPTED"


def keys_for(service: str, environ: Mapping[str, str], *, serves: bool) -> Keys | None:
    """Return the keys for a service from ``environ``, or None if the service is not encrypted.

    Raises `NotFound` if the service is encrypted and the environment contains no keys for this
    side.
    """
    if variable(service) not in environ:
        return None
    if serves:
        names = (SERVER_PUBLIC, SERVER_SECRET, CLIENT_PUBLIC)
        setting, action = "binds", "bind it"
    else:
        names = (CLIENT_PUBLIC, CLIENT_SECRET, SERVER_PUBLIC)
        setting, action = "connects", "connect to it"
    missing = [name for name in names if name not in environ]
    if missing:
        raise NotFound(
            f"service {service!r} is encrypted, and this process has no key to {action} "
            f"({missing[0]}); add the service to the {setting} of this process"
        )
    public, secret, other = (environ[name] for name in names)
    return Keys(serves=serves, public=public, secret=secret, other=other)


def generate(variables: Iterable[str]) -> dict[str, str]:
    """Create new keys, and return a mapping from the names in ``variables`` to the keys.

    Raises `PluginError` if ``variables`` is not empty and pyzmq is missing or was built without
    encryption.
    """
    requested = frozenset(variables)
    if not requested:
        return {}
    try:
        import zmq
    except ImportError:
        from symphony.support.install_hints import install_command

        raise PluginError(
            "the keys of encrypted services require the package 'pyzmq'; "
            f"install it with: {install_command('zmq')}"
        ) from None
    if not zmq.has("curve"):
        raise PluginError(
            "this build of pyzmq has no CURVE support, so services cannot be encrypted; "
            "install another build"
        )
    keys: dict[str, str] = {}
    for public_name, secret_name in (
        (SERVER_PUBLIC, SERVER_SECRET),
        (CLIENT_PUBLIC, CLIENT_SECRET),
    ):
        public_key, secret_key = zmq.curve_keypair()
        keys[public_name] = public_key.decode()
        keys[secret_name] = secret_key.decode()
    return {name: key for name, key in keys.items() if name in requested}
