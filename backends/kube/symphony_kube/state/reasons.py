"""Explain why a Pod is not running, with a reason code and with text that fits into a table.

Kubernetes reports causes as sentences, whose wording differs between Kubernetes versions and
between container runtimes. All functions are pure.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from symphony.status import ReasonCode
from symphony_kube.api.errors import one_line

MAX_REASON_CHARS = 160

IMAGE_REASONS = frozenset(
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
# These reasons usually mean that the image does not exist or must not be pulled. Kubernetes
# nevertheless keeps retrying.
IMAGE_NOT_FOUND_REASONS = frozenset({"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
START_FAILURE_REASONS = frozenset({"StartError", "ContainerCannotRun", "RunContainerError"})

# The reasons that Kubernetes reports for Pods that a node rejected, except for the reasons that
# begin with "OutOf".
_NODE_REJECTIONS = frozenset(
    {"NodeAffinity", "NodeSelectorMismatching", "UnexpectedAdmissionError"}
)
# The delays of the kubelet's back-off (CrashLoopBackOff), unless the settings of a node differ.
_CRASH_LOOP_SECONDS = 10.0
_MAX_CRASH_LOOP_SECONDS = 300.0
_CRASH_LOOP_RESET_SECONDS = 600.0

_MOUNT_EVENTS = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})

_NODES = re.compile(r"(\d+/\d+) nodes are available: (.*)", re.DOTALL)
# The scheduler appends remarks about preemption. These remarks concern other Pods, so the user
# cannot act on them.
_PREEMPTION_REMARK = re.compile(r"\.? *(no new claims to deallocate|preemption:).*", re.DOTALL)
_NODE_COUNT_AND_CAUSE = re.compile(r"(\d+) (.+?)(?=, \d+ |$)")
_TAINT = re.compile(r"node\(s\) had (?:untolerated )?taint(?:\(s\))? \{([^}]*?):? *\}.*")
_SELECTOR = re.compile(r"node\(s\) didn't match (?:Pod's )?node (?:selector|affinity).*")
_VOLUME = re.compile(r'^\w+\.\w+ failed for volume "[^"]*" ?: ')
_EXEC = re.compile(r'exec: "(?P<command>[^"]*)": (?P<cause>.*?)(?:: unknown)?$')
_STAT = re.compile(r"^(?:stat|fork/exec|lstat) \S+: ")
_BACK_OFF = re.compile(r"back-off (?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)? restarting", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason for a process's state: text for people, and a code for programs."""

    text: str = ""
    code: ReasonCode | None = None

    def __str__(self) -> str:
        return self.text


NO_REASON = Reason()
EXIT_UNKNOWN = "exit status unknown"
CREATING = Reason("ContainerCreating", ReasonCode.CREATING)
SCHEDULING = Reason("being scheduled", ReasonCode.SCHEDULING)


def unschedulable(message: str) -> str:
    """Return why no node fits a Pod, using the message from the scheduler."""
    line = _PREEMPTION_REMARK.sub("", one_line(message)).rstrip(". ")
    nodes = _NODES.match(line)
    if nodes is None:
        return f"Unschedulable: {shorten(line)}" if line else "Unschedulable"
    available, details = nodes.groups()
    causes = [
        f"{count} {_node_cause(cause)}" for count, cause in _NODE_COUNT_AND_CAUSE.findall(details)
    ]
    # List insufficient resources first, because they are the most frequent cause.
    causes.sort(key=lambda cause: "insufficient" not in cause)
    return f"Unschedulable: {available} nodes fit: {shorten(', '.join(causes) or details)}"


def _node_cause(cause: str) -> str:
    taint = _TAINT.fullmatch(cause)
    if taint:
        return f"with taint {taint[1].replace(': ', '=')}"
    if _SELECTOR.fullmatch(cause):
        return "not matching the node selector"
    return cause.removeprefix("node(s) ").replace("Insufficient", "insufficient")


def image_unavailable(reason: str, image: str, message: str) -> str:
    """Return why an image is not available on the node."""
    if reason == "ErrImageNeverPull":
        return f"{reason}: {image} is not on its node, and its pull policy is Never"
    *_, last = one_line(message).rsplit(": ", 1)
    if '"' in last or last == message:  # The message contains no cause after its last colon.
        return f"{reason}: {image}"
    return f"{reason}: {image}: {shorten(last)}"


def mount_failure(message: str) -> str:
    """Return why a volume is not mounted, using the message from the node."""
    line = _VOLUME.sub("", one_line(message))
    _, separator, output = line.rpartition(" Output: ")
    return shorten(output if separator else line)


def start_failure(message: str) -> str:
    """Return why a container's command did not start, using the message from the runtime."""
    line = one_line(message)
    match = _EXEC.search(line)
    if match:
        return f"cannot start {match['command']!r}: {_STAT.sub('', match['cause'])}"
    *_, last = line.removesuffix(": unknown").rpartition("container process: ")
    return f"cannot start: {shorten(last)}" if last else "cannot start"


def exited(exit_code: int) -> Reason:
    """Return the meaning of a nonzero exit code. The text is empty for most exit codes."""
    if exit_code > 128:
        try:
            name = signal.Signals(exit_code - 128).name
        except ValueError:
            return Reason("", ReasonCode.EXITED)
        return Reason(f"killed by {name}", ReasonCode.KILLED)
    texts = {126: "the command cannot be executed", 127: "the command was not found"}
    return Reason(texts.get(exit_code, ""), ReasonCode.EXITED)


def restart_delay_seconds(message: str) -> int:
    """Return the delay in the back-off message of a kubelet, or 0 if it contains none."""
    delay = _BACK_OFF.search(message)
    if delay is None:
        return 0
    hours, minutes, seconds = (int(part or 0) for part in delay.groups())
    return hours * 3600 + minutes * 60 + seconds


def crash_loop_seconds(restarts: int, ran_seconds: float) -> float:
    """Return the delay before a kubelet restarts a container, with the default settings of nodes.

    The container was restarted ``restarts`` times, and its latest execution took ``ran_seconds``.
    The first restart has no delay, and neither has a restart after a long execution.
    """
    if restarts == 0 or ran_seconds >= _CRASH_LOOP_RESET_SECONDS:
        return 0.0
    # A larger exponent would exceed the range of floats, and does not change the result.
    exponent = min(restarts - 1, 10)
    return min(_CRASH_LOOP_SECONDS * 2.0**exponent, _MAX_CRASH_LOOP_SECONDS)


def pod_ended(reason: str, message: str) -> Reason:
    """Return why Kubernetes terminated an entire Pod."""
    if reason == "DeadlineExceeded":
        code = ReasonCode.DEADLINE_EXCEEDED
    elif reason.startswith("OutOf") or reason in _NODE_REJECTIONS:
        code = ReasonCode.UNSCHEDULABLE
    elif reason == "DeletionByPodGC":
        code = ReasonCode.LOST
    else:
        code = ReasonCode.EVICTED
    return Reason(with_message(reason, message), code)


def setup_failure(reason: str, message: str) -> Reason:
    """Return why a Pod's setup is stuck, using a warning event from its node."""
    code = ReasonCode.MOUNT_FAILED if reason in _MOUNT_EVENTS else ReasonCode.CREATING
    return Reason(with_message(reason, mount_failure(message)), code)


def with_message(reason: str, message: str) -> str:
    """Join a reason from Kubernetes with its message.

    >>> with_message("Evicted", "The node was low on resource: memory.")
    'Evicted: The node was low on resource: memory'
    """
    parts = [reason, shorten(message)]
    return ": ".join(part for part in parts if part)


def shorten(text: str) -> str:
    """Shorten ``text`` to a single line that fits into a table."""
    return one_line(text, limit=MAX_REASON_CHARS).rstrip(".: ")


def deadline_exceeded(seconds: int) -> Reason:
    """Return the failure reason of a Pod or Job that ran longer than ``seconds`` seconds."""
    return Reason(f"DeadlineExceeded: ran longer than {seconds} s", ReasonCode.DEADLINE_EXCEEDED)


def waiting_for_queue(queue: str) -> Reason:
    """Return the reason of a Pod or Job that a queue of Kueue has not admitted."""
    return Reason(f"waiting for quota in queue {queue}", ReasonCode.SCHEDULING)


def exit_unknown(why: str) -> Reason:
    """Return the reason to report for a process whose exit status is unknown."""
    return Reason(f"{EXIT_UNKNOWN}: {why}", ReasonCode.LOST)
