"""How a command is offered in the views, and what a user asks for there.

A command that the views offer declares it with ``CONTROL`` in its module. Every command of this
kind imports this module, which therefore imports nothing that takes time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from symphony.support.data_classes import dataclass

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.status import ProcessStatus

_MAX_NAMES = 8

# The states of processes for which a control has an effect.
RUNNING = "running"
ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAction:
    """An action of a user on an experiment, or on some of its processes.

    ``action`` is the name of the command. ``processes`` contains names or patterns as in
    `Cluster.stop_processes`, and None stands for all processes. ``value`` is what the user has
    entered for a control with `Control.entry`.
    """

    action: str
    experiment: str
    processes: tuple[str, ...] | None = None
    value: str = ""

    @property
    def selection(self) -> list[str] | None:
        """The processes as an argument of the cluster's methods."""
        return None if self.processes is None else list(self.processes)

    @property
    def target(self) -> str:
        """The processes in the words of a question, such as ``learner of rl``."""
        if self.processes is None:
            return f"all processes of {self.experiment}"
        return name_processes(self.experiment, self.processes)


class Question(NamedTuple):
    """A question to the user. ``confirm`` is the answer that carries out the control."""

    text: str
    confirm: str


def ask_nothing(_: UserAction) -> None:
    """Ask no question, because the control ends no process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueEntry:
    """The value that the user enters before a control is carried out.

    ``title`` is what ``top`` asks for, with ``{target}`` and ``{experiment}``, and ``label`` is
    what the page asks for. ``parse`` returns the value for an entered text, and raises `SpecError`
    if it is invalid. ``choices`` maps the values that the page offers to their texts. With
    ``is_count``, the value sets numbers of replicas, such as ``agent=16``, and the page asks for
    that of one name.
    """

    title: str
    label: str
    hint: str
    parse: Callable[[str], str]
    default: str = ""
    choices: Mapping[str, str] | None = None
    is_count: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A command that ``top`` offers as a key, and the page as a button.

    ``perform`` carries it out with the value that the user has entered, and returns what was done
    in one line. It returns when the control is done, and raises the errors of the cluster's
    methods. ``question`` returns the question to ask first, or None if the control ends no process.

    ``key`` is the key of ``top``, and ``help`` says what it does. The footer of ``top`` shows it if
    ``in_footer`` is set. With ``whole_experiment``, the control does not apply to selected
    processes. ``effective_for`` is `RUNNING` or `ENDED` if it has an effect for such processes
    only.
    """

    key: str
    help: str
    perform: Callable[[Cluster, UserAction], str]
    question: Callable[[UserAction], Question | None] = ask_nothing
    entry: ValueEntry | None = None
    in_footer: bool = False
    whole_experiment: bool = False
    effective_for: str = ""


# Maps the names of the commands that the views offer to their declarations, in the order in which
# they are shown.
Controls = Mapping[str, Control]


def name_processes(experiment: str, names: Sequence[str], limit: int = _MAX_NAMES) -> str:
    """Return the names of processes and of their experiment, such as ``learner of rl``."""
    from symphony.support.names import join_names

    return f"{join_names(names, limit=limit)} of {experiment}"


def describe_processes(experiment: str, processes: Sequence[ProcessStatus]) -> str:
    """Return the paths of processes and the name of their experiment, such as ``a, b of rl``."""
    return name_processes(experiment, [process.path for process in processes])


def describe_started(verb: str, experiment: str, processes: Sequence[ProcessStatus]) -> str:
    """Return which processes a request has started, and why it has not started the others."""
    started = [process for process in processes if process.has_started]
    if not processes:
        return f"{experiment}: nothing to start"
    texts = [f"{verb} {describe_processes(experiment, started)}"] if started else []
    texts += [
        f"{process.path} is {process.displayed_state}: {process.reason}"
        for process in processes
        if not process.has_started
    ]
    return "; ".join(texts)
