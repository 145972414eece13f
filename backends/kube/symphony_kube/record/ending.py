"""The end of an experiment: the decision of its supervisor, and the rules for it. Pure.

Both are annotations of the object with the roster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from symphony.plan.policies import Policies
from symphony.status import ReasonCode
from symphony_kube.render import codec

# The key of the parameters among the policies.
_PARAMETERS = "parameters"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedProcesses:
    """The processes that the supervisor stops, and the reason.

    ``time`` is the time of the decision, in seconds since the epoch. ``failed`` is true if the
    processes count as failed. ``never_started`` contains the processes that can never start, each
    with the reason, which is no longer visible when the processes are stopped that they wait for.
    """

    processes: tuple[str, ...]
    reason: str
    code: str
    time: float
    failed: bool
    never_started: dict[str, str] = field(default_factory=dict)


def encode_ending(ending: StoppedProcesses) -> str:
    """Encode an ending as an annotation value, which is compressed like the roster."""
    return codec.pack(codec.to_text(asdict(ending)))


def decode_ending(text: str) -> StoppedProcesses | None:
    """Decode an ending that `encode_ending` encoded.

    Return None if the text is empty or is not an ending, because other users of the namespace may
    be able to change the annotation.
    """
    if not text:
        return None
    try:
        ending = codec.build(StoppedProcesses, codec.from_text(codec.unpack(text)))
        ReasonCode(ending.code)
    except ValueError:
        return None
    return ending


def encode_policies(policies: Policies, parameters: Mapping[str, str]) -> str:
    """Encode policies and parameters as an annotation value."""
    return codec.to_text({**policies.to_dict(), _PARAMETERS: dict(parameters)})


def decode_policies(text: str) -> tuple[Policies, dict[str, str]]:
    """Return the policies and the parameters in an annotation. They are empty if the annotation is
    empty or damaged.
    """
    if not text:
        return Policies(), {}
    try:
        values = codec.from_text(codec.without_revision(text))
        parameters = dict(values.pop(_PARAMETERS, {}))
        shown = {str(name): str(value) for name, value in parameters.items()}
        return Policies.from_dict(values), shown
    except (ValueError, TypeError, AttributeError):
        return Policies(), {}
