"""The Slurm backend: each experiment is a job, which contains its supervisor.

The run directories are on a file system that the login nodes and the nodes share.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.errors import SpecError, shown
from symphony.supervised.terminal_cluster import TerminalCluster
from symphony_slurm.backend import SlurmBackend
from symphony_slurm.job_options import SlurmJobOptions

if TYPE_CHECKING:
    from symphony.model import Experiment
    from symphony.model.settings.validators import Strings
    from symphony.plan.findings import Finding


class SlurmCluster(TerminalCluster):
    """The Slurm backend, which runs an experiment as one job with an agent on each node.

    ``state_dir`` must be on a file system that all nodes share. The default is below the home
    directory. The interpreter that runs this program must exist on the nodes.

    Options of the job:

    * ``partition``, ``account``, ``qos`` and ``time`` are those of sbatch. By default, the site
      chooses them. A duration such as ``"2h"`` is also a ``time``.
    * ``nodes`` is the number of nodes. All processes of a group run on the same node.
    * ``gpu_type`` is Slurm's name for the type of the GPUs, such as ``"a100"``. By default, GPUs of
      any type are used.
    * ``exclusive`` requests nodes that no other job uses.
    * ``requeue`` is how often the experiment starts again after Slurm has requeued its job, because
      of a preemption, a failed node or ``scontrol requeue``. The default is 0.
    * ``sbatch`` contains further options of sbatch, such as ``["--mail-type=END"]``, which override
      the others.
    * ``modules`` contains the names of modules that are loaded before the experiment, and
      ``prologue`` further shell lines of the batch script.

    The other options are those of `HostCluster`.
    """

    backend: ClassVar[str] = "slurm"
    children: ClassVar[str] = "symphony_slurm.remote_children:RemoteChildren"
    ports_are_here: ClassVar[bool] = False
    launch_option_names: ClassVar[tuple[str, ...]] = (
        "partition",
        "account",
        "qos",
        "time",
        "nodes",
        "gpu_type",
        "exclusive",
        "sbatch",
        "modules",
        "prologue",
        "requeue",
    )

    def __init__(
        self,
        *,
        partition: str | None = None,
        account: str | None = None,
        qos: str | None = None,
        time: str | int | None = None,
        nodes: int | str | None = None,
        gpu_type: str | None = None,
        exclusive: bool = False,
        sbatch: Strings | None = None,
        modules: Strings | None = None,
        prologue: Strings | None = None,
        requeue: int | str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        from symphony_slurm.render import JobOptions

        self._options = JobOptions(
            partition=_word(partition, "partition"),
            account=_word(account, "account"),
            qos=_word(qos, "qos"),
            time=_time_limit(time),
            gpu_type=_word(gpu_type, "gpu_type"),
            exclusive=_flag(exclusive, "exclusive"),
            sbatch=_sbatch_options(sbatch),
            modules=_texts(modules, "modules"),
            prologue=_texts(prologue, "prologue"),
            requeue=_count(requeue, "requeue", minimum=0) or 0,
        )
        self._nodes = _count(nodes, "nodes", minimum=1)

    @functools.cached_property
    def implementation(self) -> SlurmBackend:
        """The part of the cluster that launches, reads and controls experiments."""
        return SlurmBackend(self._host_options(), SlurmJobOptions(self._options, self._nodes))

    def check_nodes(self, experiment: Experiment, *, thorough: bool) -> Iterator[Finding]:
        """Check the job of an experiment; see `symphony.lint.targets.ChecksNodes`.

        A thorough check runs a short job on idle nodes.
        """
        return self.implementation.check_nodes(experiment, self.defaults, thorough=thorough)


def _word(value: object, name: str) -> str | None:
    """Validate an option of sbatch that is one word."""
    if value is None:
        return None
    if not isinstance(value, str) or not value or value.split() != [value]:
        raise SpecError(f"{name} must be one word, as for sbatch --{name}, not {shown(value)}")
    return value


def _time_limit(value: object) -> int | None:
    """Validate the time limit of a job, and return it in seconds. The value 0 means no limit."""
    if value is None:
        return None
    from symphony.model.settings.durations import parse_time_limit

    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise SpecError(f"time must be a time limit such as 30, 2:00:00 or 2h, not {shown(value)}")
    if str(value).lower() in ("unlimited", "infinite"):
        return 0
    try:
        return parse_time_limit(str(value))
    except SpecError as exc:
        raise SpecError(f"time: {exc}") from None


def _sbatch_options(value: Strings | None) -> tuple[str, ...]:
    if value is None:
        return ()
    from symphony.model.settings.validators import strings
    from symphony_slurm.submit.sbatch_options import check_options

    options = strings(value, "sbatch")
    check_options(options, "sbatch")
    return tuple(options)


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise SpecError(f"{name} must be true or false, not {shown(value)}")
    return value


def _texts(value: Strings | None, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    from symphony.model.settings.validators import strings

    texts = strings(value, name)
    for text in texts:
        if "\n" in text:
            raise SpecError(f"{name} must contain single lines, not {shown(text)}")
    return tuple(texts)


def _count(value: object, name: str, *, minimum: int) -> int | None:
    """Validate an option that is a number, which is a text on the command line."""
    if value is None:
        return None
    is_text = isinstance(value, str) and value.isdecimal()
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not (is_text or is_number) or int(value) < minimum:  # type: ignore[call-overload]
        words = "a positive number" if minimum else "a number of at least 0"
        raise SpecError(f"{name} must be {words}, not {shown(value)}")
    return int(value)  # type: ignore[call-overload, no-any-return]
