"""Why a Pod does not run, in words that fit a table. Pure.

Kubernetes tells causes in sentences that differ between its versions, and between container runtimes.
"""

from __future__ import annotations

import re
import signal

from symphony_kube.api.errors import one_line

LIMIT = 160

IMAGE = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
# The image was asked for and is not there; Kubernetes goes on asking, for ever.
NO_IMAGE = frozenset({"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
CANNOT_START = frozenset({"StartError", "ContainerCannotRun", "RunContainerError"})

_NODES = re.compile(r"(\d+/\d+) nodes are available: (.*)", re.DOTALL)
# What the scheduler adds of preemption is about other Pods: nothing that the reader could do.
_ASIDE = re.compile(r"\.? *(no new claims to deallocate|preemption:).*", re.DOTALL)
_EACH = re.compile(r"(\d+) (.+?)(?=, \d+ |$)")
_TAINT = re.compile(r"node\(s\) had (?:untolerated )?taint(?:\(s\))? \{([^}]*?):? *\}.*")
_SELECTOR = re.compile(r"node\(s\) didn't match (?:Pod's )?node (?:selector|affinity).*")
_VOLUME = re.compile(r'^\w+\.\w+ failed for volume "[^"]*" ?: ')
_EXEC = re.compile(r'exec: "(?P<command>[^"]*)": (?P<why>.*?)(?:: unknown)?$')
_STAT = re.compile(r"^(?:stat|fork/exec|lstat) \S+: ")
_BACK_OFF = re.compile(r"back-off (?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)? restarting", re.IGNORECASE)


def unschedulable(message: str) -> str:
    """Why no node takes a Pod, from the scheduler's message."""
    told = _ASIDE.sub("", one_line(message)).rstrip(". ")
    nodes = _NODES.match(told)
    if nodes is None:
        return f"Unschedulable: {short(told)}" if told else "Unschedulable"
    causes = [f"{count} {_node_cause(cause)}" for count, cause in _EACH.findall(nodes[2])] or [
        nodes[2]
    ]
    causes.sort(key=lambda cause: "insufficient" not in cause)
    return f"Unschedulable: {nodes[1]} nodes fit: {short(', '.join(causes))}"


def _node_cause(cause: str) -> str:
    taint = _TAINT.fullmatch(cause)
    if taint:
        return f"with taint {taint[1].replace(': ', '=')}"
    if _SELECTOR.fullmatch(cause):
        return "not matching the node selector"
    return cause.removeprefix("node(s) ").replace("Insufficient", "insufficient")


def image(reason: str, name: str, message: str) -> str:
    """Why an image is not there."""
    if reason == "ErrImageNeverPull":
        return f"{reason}: {name} is not on its node, and its pull policy is Never"
    *_, last = one_line(message).rsplit(": ", 1)
    why = "" if '"' in last or last == message else f": {short(last)}"
    return f"{reason}: {name}{why}"


def mounting(message: str) -> str:
    """Why a volume is not mounted, from what its node said."""
    told = _VOLUME.sub("", one_line(message))
    _, output, last = told.rpartition(" Output: ")
    return short(last if output else told)


def cannot_start(message: str) -> str:
    """Why a container's command was not started, from what its runtime said."""
    told = one_line(message)
    found = _EXEC.search(told)
    if found:
        return f"cannot be started with {found['command']!r}: {_STAT.sub('', found['why'])}"
    *_, last = told.removesuffix(": unknown").rpartition("container process: ")
    return f"cannot be started: {short(last)}" if last else "cannot be started"


def exit_reason(code: int) -> str:
    """What an exit code says of itself."""
    if code > 128:
        try:
            return f"killed by {signal.Signals(code - 128).name}"
        except ValueError:
            return ""
    return {126: "its command cannot be run", 127: "its command was not found"}.get(code, "")


def restarts(code: int | None, message: str = "") -> str:
    """That a container starts again; ``message`` is Kubernetes' of its back-off."""
    delay = _BACK_OFF.search(message)
    of = f"exit code {'unknown' if code is None else code}"
    if delay is None:
        return f"restarts now ({of})"
    hours, minutes, seconds = (int(part or 0) for part in delay.groups())
    return f"CrashLoopBackOff: restarts in {hours * 3600 + minutes * 60 + seconds} s ({of})"


def because(reason: str, message: str) -> str:
    """Kubernetes' word and what it says of it, in one."""
    told = short(message)
    return ": ".join(part for part in (reason, told) if part)


def short(text: str) -> str:
    """A message in one line that fits a table."""
    return one_line(text, limit=LIMIT).rstrip(". ")
