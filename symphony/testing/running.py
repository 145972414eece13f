"""The pytest fixture `running`, for tests of programs that consist of several processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from symphony.cluster import Cluster
from symphony.cluster.running import Running, WaitFor
from symphony.model import Experiment

if TYPE_CHECKING:
    from typing import Protocol

    class StartExperiment(Protocol):
        """The type of the value of the fixture `running`."""

        def __call__(
            self,
            experiment: Experiment | str | Path,
            *,
            backend: str = ...,
            wait: WaitFor | None = ...,
            timeout: float | str | None = ...,
            parameters: dict[str, object] | None = ...,
            **options: Any,
        ) -> Running: ...


@pytest.fixture
def running(tmp_path: Path) -> Iterator[StartExperiment]:
    """Return a function that runs an experiment until the end of the test.

    The function takes an experiment or the path of an experiment file, launches it, waits until all
    processes are ready, and returns a `symphony.cluster.running.Running`. Its keyword arguments:

    * ``backend``: the name of the backend; the default is ``local``.
    * ``wait`` and ``timeout``: those of `Cluster.running`; the default timeout is a minute.
    * ``parameters``: the values of the file's parameters.
    * all others: the options of the backend. On one machine, the default of ``state_dir`` is a
      directory of the test, so that tests in other processes do not use the same names.

    The experiment is deleted at the end of the test, also if the test process is killed.
    """
    with contextlib.ExitStack() as stack:

        def start(
            experiment: Experiment | str | Path,
            *,
            backend: str = "local",
            wait: WaitFor | None = "ready",
            timeout: float | str | None = 60,
            parameters: dict[str, object] | None = None,
            **options: Any,
        ) -> Running:
            if backend in ("local", "tmux"):
                options.setdefault("state_dir", tmp_path / "symphony")
            described = experiment
            if not isinstance(described, Experiment):
                described = Experiment.load_file(described, parameters=parameters)
            cluster = Cluster.new(backend, **options)
            return stack.enter_context(cluster.running(described, wait=wait, timeout=timeout))

        yield start
