"""Resolving and rendering experiments for this machine, with ports that are free on it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.supervised.host_deletion import FINISH_TIMEOUT_SECONDS
from symphony.supervised.record import directory

# A launch first starts the process that becomes the supervisor, which then imports its modules
# while the launch resolves and renders. Most changes need no new port. Therefore, other modules are
# imported inside functions.
if TYPE_CHECKING:
    from symphony.code.snapshot import CodeArchives
    from symphony.model import Experiment
    from symphony.plan.resolve import Defaults
    from symphony.supervised.host_options import HostOptions
    from symphony.supervised.record.directory import RunDirectory
    from symphony.supervised.render import HostManifest
    from symphony.supervised.resources.ports import FinishingPorts
    from symphony.supervised.resources.unsupervised import UnsupervisedUsage


class HostPlanner:
    """Makes the manifests of experiments, for launches, dry runs and changes."""

    def __init__(self, options: HostOptions) -> None:
        self._options = options

    def manifest(self, experiment: Experiment, defaults: Defaults) -> HostManifest:
        """Return the manifest that a launch would use at this moment.

        The manifest contains ports that are free now. The ports of a running experiment of the same
        name count as free, because a launch either refuses the name or replaces that experiment.
        """
        from symphony.code.take_snapshots import take_snapshots
        from symphony.supervised.resources.leases import PortLeases
        from symphony.supervised.resources.ports import ExperimentPorts

        replaced = directory.find(self._options.root, experiment.name)
        unsupervised = self.unsupervised_usage(except_run=replaced)
        archives = take_snapshots(experiment)
        with PortLeases(ExperimentPorts(replaced), self.finishing_ports(), unsupervised) as ports:
            return self.render(
                experiment, defaults, ports.reserve, archives, avoid_port=ports.avoid
            )

    def render(
        self,
        experiment: Experiment,
        defaults: Defaults,
        reserve_port: Callable[[int], str | None],
        archives: CodeArchives,
        *,
        avoid_port: Callable[[int], bool] = lambda _: False,
        present: Mapping[str, int] | None = None,
        run_id: str | None = None,
        copies_code: bool = False,
    ) -> HostManifest:
        """Return the manifest of an experiment, whose processes have the code in ``archives``.

        ``reserve_port`` returns None if a port can be used, and otherwise the reason why it cannot
        be used. ``avoid_port`` returns whether another port is preferable. ``present`` maps the
        services of the running experiment to their ports, and ``run_id`` is its identifier. Its
        processes run from copies of the code with ``copies_code``.
        """
        from symphony.plan.resolution.addresses import AddressScheme
        from symphony.plan.resolve import resolve
        from symphony.supervised.render import HOST, render

        scheme = AddressScheme(
            backend=self._options.backend,
            host=lambda _: HOST,
            bind_host=HOST,
            refuse=reserve_port,
            avoid=avoid_port,
            present=present or {},
        )
        return render(
            resolve(experiment, scheme, defaults),
            run_id=run_id or os.urandom(16).hex(),
            launched=time.time(),
            directory=self._options.root / experiment.name,
            working_directory=Path.cwd(),
            shell=shutil.which("bash") or "/bin/sh",
            snapshots={name: archive.snapshot for name, archive in archives.items()},
            copies_code=self._options.copies_code or copies_code,
        )

    # --- resources of this machine ---

    def gpus(self) -> Sequence[str]:
        """Return the identifiers of the GPUs that launches may lease."""
        from symphony.supervised.resources.leases import visible_gpus

        return visible_gpus() if self._options.gpus is None else self._options.gpus

    def finishing_ports(self) -> FinishingPorts:
        """Return the ports of experiments whose supervisors are about to exit."""
        from symphony.supervised.resources.ports import FinishingPorts

        return FinishingPorts(self._options.root, FINISH_TIMEOUT_SECONDS)

    def unsupervised_usage(self, except_run: RunDirectory | None = None) -> UnsupervisedUsage:
        """Return the ports and GPUs of the other runs whose supervisors were killed."""
        from symphony.supervised.resources.unsupervised import UnsupervisedUsage

        return UnsupervisedUsage(directory.all_roots(self._options.root), except_run)
