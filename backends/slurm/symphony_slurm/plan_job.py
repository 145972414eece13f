"""The job of an experiment: its batch script, what it requests, and the processes that it runs."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.code.take_snapshots import take_snapshots
from symphony.errors import error_path
from symphony.supervised.host_planner import HostPlanner
from symphony.supervised.render import render
from symphony_slurm.batch import START_PYTHON
from symphony_slurm.job.placement import before_placement, placeholder_hosts, resolve_on_hosts
from symphony_slurm.job_changes import requested
from symphony_slurm.render import (
    HONOURED,
    SlurmManifest,
    batch_script,
    check_time_limit,
    sbatch_options,
    short_limit_note,
    time_limit_seconds,
    warning_seconds,
)
from symphony_slurm.run_files import JOBS_NAME
from symphony_slurm.submit.resource_request import choose_shape
from symphony_slurm.submit.sbatch_options import check_options

if TYPE_CHECKING:
    from symphony.code.snapshot import CodeArchives
    from symphony.model import Experiment
    from symphony.plan.resolve import Defaults
    from symphony.supervised.host_options import HostOptions
    from symphony_slurm.job_options import SlurmJobOptions


class SlurmPlanner(HostPlanner):
    """Makes the jobs of experiments. Slurm chooses the nodes when a job starts."""

    def __init__(self, options: HostOptions, job: SlurmJobOptions) -> None:
        super().__init__(options)
        self._job = job.options
        self._nodes = job.nodes

    def manifest(self, experiment: Experiment, defaults: Defaults) -> SlurmManifest:
        """Return the job that a launch would submit at this moment.

        Slurm chooses the nodes later, so addresses contain placeholders such as ``node-0``.
        """
        return self.render_job(experiment, defaults, take_snapshots(experiment))

    def render_job(
        self, experiment: Experiment, defaults: Defaults, archives: CodeArchives
    ) -> SlurmManifest:
        """Return the job of an experiment, whose processes have the code in ``archives``."""
        # The slots depend on the plan, and the placeholders of the addresses on the slots.
        count = self._nodes or 1
        resolve = functools.partial(
            resolve_on_hosts,
            experiment,
            placeholder_hosts(count),
            backend=self._options.backend,
            defaults=defaults,
        )
        plan = resolve({})
        shape = choose_shape(
            plan, count, gpu_type=self._job.gpu_type, exclusive=self._job.exclusive
        )
        plan = resolve(shape.slots)
        run_id = os.urandom(16).hex()
        path = self._options.root / JOBS_NAME / f"{experiment.name}.{run_id[:12]}"
        manifest = render(
            plan,
            run_id=run_id,
            launched=time.time(),
            directory=path,
            working_directory=Path.cwd(),
            shell=shutil.which("bash") or "/bin/sh",
            honoured=HONOURED,
            snapshots={name: archive.snapshot for name, archive in archives.items()},
            copies_code=True,
        )
        manifest = before_placement(manifest, count, shape.slots)
        with error_path("sbatch_options"):
            check_options(plan.sbatch_options, "sbatch_options")
        time_limit = time_limit_seconds(plan, self._job.time)
        check_time_limit(plan, time_limit)
        warning = warning_seconds(plan, time_limit)
        options = sbatch_options(
            experiment.name,
            run_id,
            path,
            shape,
            self._job,
            further=plan.sbatch_options,
            time_limit=time_limit,
            warning=warning,
        )
        program = Path(__file__).with_name("batch.py")
        command = [*START_PYTHON, sys.executable, "-I", "-S", str(program), str(path)]
        command.append(str(shape.nodes))
        fields = {name: getattr(manifest, name) for name in manifest.__dataclass_fields__}
        return SlurmManifest(
            **fields,
            script=batch_script(options, command, self._job),
            sbatch=tuple(options),
            further=(*plan.sbatch_options, *self._job.sbatch),
            shape=shape,
            time_limit=time_limit,
            warning=warning,
            note=short_limit_note(plan, time_limit),
            requested=requested(plan, shape, self._job),
        )
