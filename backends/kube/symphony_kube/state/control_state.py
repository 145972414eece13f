"""The requests to stop and start a unit, and its attempts: annotations of Pods and Jobs. Pure.

A Pod or Job is one attempt to run a unit. If the unit is started again, a new attempt replaces it.
The old object remains, because it contains the status and the logs of the attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from symphony_kube.render import codec
from symphony_kube.render.container_scripts import script

Object = Mapping[str, Any]

# This value replaces the script that stops programs in a recorded manifest.
_STOP_SCRIPT = '"symphony: script stop"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The latest requests for one attempt. All times are in seconds since the epoch.

    * ``stop``: the time of the request to stop the unit, or 0.0.
    * ``kill``: the time at which the unit is killed if it is still running, or 0.0 if its own grace
      period applies.
    * ``ended``: the time at which all processes were found to have exited, or 0.0. Only version 0.1
      records it.
    * ``start``: the time from which the next attempt is to be created, or 0.0.
    * ``replaced``: the time at which the creation of the next attempt began, or 0.0.
    * ``reason`` and ``code``: why the supervisor starts the unit again, or stops it because another
      rank has failed. Both are ``""`` if a user does.
    * ``in_row``: the number of restarts that count for the next delay, if the restart policy of the
      unit is the reason for the next attempt, or 0.
    * ``command``: the command that is recorded in other units after this one, or ``""``.
    * ``others``: these units with the numbers of their attempts, such as ``b:1 c:2``.
    * ``revision``: the number of the change of the experiment that requested the next attempt, or
      0 if no change did.
    """

    stop: float = 0.0
    kill: float = 0.0
    ended: float = 0.0
    start: float = 0.0
    replaced: float = 0.0
    reason: str = ""
    code: str = ""
    in_row: int = 0
    command: str = ""
    others: str = ""
    revision: int = 0

    def attempts_of_others(self) -> dict[str, int]:
        """Return the other units of the command, with the numbers of their attempts."""
        pairs = (item.rpartition(":") for item in self.others.split())
        return {name: int(number) for name, _, number in pairs if number.isdecimal()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The number of an attempt, and what it continues.

    * ``number``: 1 for the first attempt.
    * ``restarts``: the number of times that the unit was started before this attempt, including
      restarts by Kubernetes.
    * ``retries`` and ``in_row``: the restarts that the restart policy has caused since a user
      started the unit, and how many of them count for the delay of the next one.
    * ``round``: the number of times that the experiment was restarted before this attempt.
    * ``revision``: the number of the latest change of the experiment that replaced the unit.
    * ``lost``: the reason of `symphony.plan.disruption.StartAgain` if a disruption has ended the
      previous attempt, or ``""``.
    """

    number: int = 1
    restarts: int = 0
    retries: int = 0
    in_row: int = 0
    round: int = 0
    revision: int = 0
    lost: str = ""


NO_CONTROL, FIRST_ATTEMPT = Control(), Attempt()


def after_restarts(first: Attempt, restarts: int) -> Attempt:
    """Return the attempt after restarts by the controller of a JobSet."""
    return replace(first, number=first.number + restarts, restarts=first.restarts + restarts)


T = TypeVar("T", Control, Attempt)


def encode(value: Control | Attempt) -> str:
    """Encode requests or an attempt as an annotation value."""
    given = {key: item for key, item in asdict(value).items() if item}
    return codec.to_text(given)


def decode_control(text: str | None) -> Control:
    """Decode requests. A damaged value is ignored, because other users may be able to change it."""
    return _decode(text, NO_CONTROL)


def decode_attempt(text: str | None) -> Attempt:
    """Decode an attempt. A damaged value is ignored."""
    return _decode(text, FIRST_ATTEMPT)


def _decode(text: str | None, default: T) -> T:
    if not text:
        return default
    try:
        return codec.build(type(default), codec.from_text(text))
    except ValueError:
        return default


def encode_manifest(body: Object) -> str:
    """Encode the manifest of a Pod or Job as an annotation value.

    The script that stops programs is omitted, because it would take most of the space.
    """
    stop_script = codec.to_text(script("stop"))
    return codec.pack(codec.to_text(body).replace(stop_script, _STOP_SCRIPT))


def decode_manifest(text: str) -> dict[str, Any]:
    """Decode a manifest. Raises ValueError if it is damaged or too large."""
    stop_script = codec.to_text(script("stop"))
    body = codec.from_text(codec.unpack(text).replace(_STOP_SCRIPT, stop_script))
    if not isinstance(body, dict):
        raise ValueError("not a manifest")
    return body
