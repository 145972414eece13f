"""The Slurm backend: each experiment is a job, which contains its supervisor.

The run directories are on a file system that the login nodes and the nodes share.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.cluster import OnChange
from symphony.cluster.matching import cannot_change, experiment_exists
from symphony.errors import (
    NotFound,
    SpecError,
    SymphonyError,
    Unreachable,
    error_path,
    shown,
)
from symphony.supervised.cluster import read_unchanging
from symphony.supervised.host_backend import HostBackend
from symphony.supervised.record import directory
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.run_paths import REMOTE_FILE
from symphony.supervised.terminal_cluster import TerminalCluster
from symphony.support.import_path import own_import_path
from symphony_slurm import slurm
from symphony_slurm.backend import SlurmBackend, check_fits_partition, supervisor_link
from symphony_slurm.run_files import JOB_FILE
from symphony_slurm.status import SlurmStatusReader
from symphony_slurm.stop_job import stop_job

if TYPE_CHECKING:
    from symphony.code.snapshot import CodeArchives
    from symphony.model import Experiment
    from symphony.model.settings.validators import Strings
    from symphony.plan.changes import Changes
    from symphony.plan.findings import Finding
    from symphony.status import ExperimentStatus
    from symphony.supervised.processes.spec import ProcessSpec
    from symphony.supervised.record.status import StatusReader
    from symphony.supervised.user_requests.request_change import Update
    from symphony.supervised.user_requests.requests import SupervisorLink
    from symphony_slurm.render import SlurmManifest

# The directories of the runs, which never have the same path twice.
_JOBS_NAME = ".jobs"
_POLL_SECONDS = 0.1
_TOKEN_BYTES = 32
# How long the events of a change may take to arrive over the shared file system.
EVENT_ARRIVAL_SECONDS = 5.0
# A change is given up if more ports than this are in use.
MAX_REFUSED_PORTS = 50


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
    backend_class: ClassVar[type[HostBackend]] = SlurmBackend
    # Slurm starts jobs again; see the option ``requeue``.
    resumes_after_reboot: ClassVar[bool] = False
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

    def _backend_arguments(self) -> dict[str, Any]:
        return {**super()._backend_arguments(), "partition": self._options.partition}

    # --- launching ---

    def _manifest(self, experiment: Experiment) -> SlurmManifest:
        """Return the job that a launch would submit at this moment.

        Slurm chooses the nodes later, so addresses contain placeholders such as ``node-0``.
        """
        from symphony.code.take_snapshots import take_snapshots

        return self._render_job(experiment, take_snapshots(experiment))

    def _render_job(self, experiment: Experiment, archives: CodeArchives) -> SlurmManifest:
        import shutil

        from symphony.supervised.render import render
        from symphony_slurm.batch import START_PYTHON
        from symphony_slurm.job.placement import (
            before_placement,
            placeholder_hosts,
            resolve_on_hosts,
        )
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
        from symphony_slurm.submit.resource_request import choose_shape
        from symphony_slurm.submit.sbatch_options import check_options

        # The slots depend on the plan, and the placeholders of the addresses on the slots.
        count = self._nodes or 1
        resolve = functools.partial(
            resolve_on_hosts,
            experiment,
            placeholder_hosts(count),
            backend=self.backend,
            defaults=self.defaults,
        )
        plan = resolve({})
        shape = choose_shape(
            plan, count, gpu_type=self._options.gpu_type, exclusive=self._options.exclusive
        )
        plan = resolve(shape.slots)
        run_id = os.urandom(16).hex()
        path = self._root / _JOBS_NAME / f"{experiment.name}.{run_id[:12]}"
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
        time_limit = time_limit_seconds(plan, self._options.time)
        check_time_limit(plan, time_limit)
        warning = warning_seconds(plan, time_limit)
        options = sbatch_options(
            experiment.name,
            run_id,
            path,
            shape,
            self._options,
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
            script=batch_script(options, command, self._options),
            sbatch=tuple(options),
            further=(*plan.sbatch_options, *self._options.sbatch),
            shape=shape,
            time_limit=time_limit,
            warning=warning,
            note=short_limit_note(plan, time_limit),
            requested=requested(plan, shape, self._options),
        )

    def _launch(
        self, experiment: Experiment, *, force: bool, on_change: OnChange = None
    ) -> SlurmManifest:
        from symphony.code.take_snapshots import take_snapshots
        from symphony_slurm.submit.node_check import check_before_first_launch

        slurm.check_installed()
        archives = take_snapshots(experiment)
        manifest = self._render_job(experiment, archives)
        self._check_files(manifest)
        check_fits_partition(manifest, self._options.partition)
        check_before_first_launch(self._root, manifest, self._options)
        if force and directory.find(self._root, experiment.name) is not None:
            slurm.check_replacement(manifest.script, slurm.submission_environment())
        with (
            directory.full_disk_errors(self._root, len(manifest.processes)),
            directory.staging_directory(self._root, experiment.name) as (staging, _),
        ):
            if not force:
                self._free_name(experiment.name)
            self._write(staging, experiment, manifest, archives)
            if force:
                # If a file cannot be written, the experiment that is replaced keeps running.
                self.delete(experiment.name)
            run = self._claim(staging, experiment.name, Path(manifest.directory))
            try:
                number = slurm.submit([], manifest.script, slurm.submission_environment())
                run.file(JOB_FILE).write_text(number)
            except BaseException:
                self._roll_back(manifest)
                raise
        if manifest.note and on_change is not None:
            with contextlib.suppress(NotFound):
                status = self.describe_experiment(experiment.name)
                on_change(replace(status, note=manifest.note))
        return manifest

    def check_nodes(self, experiment: Experiment, *, thorough: bool) -> Iterator[Finding]:
        """Check the job of an experiment; see `symphony.lint.targets.ChecksNodes`.

        A thorough check runs a short job on idle nodes.
        """
        from symphony.plan.findings import ERROR, NOTE, WARNING, Finding
        from symphony_slurm.submit.node_check import (
            CHECK_IDLE_WAIT_SECONDS,
            NodesNotChecked,
            check_nodes,
        )

        try:
            manifest = self._manifest(experiment)
        except SymphonyError:
            # Other rules report errors of the experiment.
            return
        if manifest.note:
            problem, _, hint = manifest.note.partition("; ")
            yield Finding(rule="nodes", level=WARNING, problem=problem, hint=hint)
        try:
            slurm.check_installed()
            self.check(manifest)
            problems = []
            if thorough:
                problems = check_nodes(
                    self._root,
                    manifest,
                    self._options,
                    at_least=manifest.shape.nodes,
                    idle_wait=CHECK_IDLE_WAIT_SECONDS,
                )
        except (Unreachable, NodesNotChecked) as exc:
            if thorough:
                problem = f"the nodes were not checked: {exc}"
                yield Finding(rule="nodes", level=NOTE, problem=problem)
            return
        except SymphonyError as exc:
            problems = [str(exc)]
        for text in problems:
            problem, _, hint = text.partition("; ")
            yield Finding(rule="nodes", level=ERROR, problem=problem, hint=hint)

    def _check_files(self, manifest: SlurmManifest) -> None:
        """Check that directories, commands and secrets exist on the shared file system.

        Modules and a prologue can provide commands that do not exist on this machine.
        """
        from symphony.supervised import preflight

        preflight.check(manifest if self._checks_commands else replace(manifest, processes=()))

    @property
    def _checks_commands(self) -> bool:
        return not self._options.modules and not self._options.prologue

    def _write(
        self,
        staging: RunDirectory,
        experiment: Experiment,
        manifest: SlurmManifest,
        archives: CodeArchives,
    ) -> None:
        """Write all files of a new run."""
        from symphony.archive.code_state import CodeCapture
        from symphony.plan.restart_policy import Backoff
        from symphony.supervised import preflight
        from symphony.supervised.record import archived_record as records
        from symphony.supervised.record.note import NOTE_BYTES

        preflight.write_manifest(staging, manifest)
        preflight.write_secrets(staging, manifest)
        preflight.write_code(staging, manifest, archives)
        job = {
            "backend": self.backend,
            "path": own_import_path(),
            "working_directory": str(Path.cwd()),
            "run_id": manifest.run_id,
            "launched": manifest.launched,
            "defaults": asdict(self.defaults),
            "backoff": (self._backoff or Backoff())._asdict(),
            "nodes": manifest.shape.nodes,
            "process_count": len(manifest.processes),
            "requested": manifest.requested,
        }
        staging.file(REMOTE_FILE).touch()
        # On a full disk, the job can overwrite this file.
        staging.note.write_bytes(b" " * NOTE_BYTES)
        staging.file("job.json").write_text(json.dumps(job))
        token = staging.file("token")
        token.touch(mode=0o600)
        token.write_bytes(os.urandom(_TOKEN_BYTES))
        source = experiment.base_dir or Path.cwd()
        with CodeCapture(source, staging.file(".")) as code:
            records.write_launch_record(
                staging,
                experiment,
                self.backend,
                manifest.run_name,
                manifest.launched,
                self._options_to_record(),
            )
            code.start()

    def _claim(self, staging: RunDirectory, name: str, path: Path) -> RunDirectory:
        """Move a run directory to its own path, and give it the name of the experiment."""
        path.parent.mkdir(mode=0o700, exist_ok=True)
        staging.path.rename(path)
        link = self._root / name
        try:
            link.symlink_to(Path(_JOBS_NAME) / path.name)
        except FileExistsError:
            path.rename(staging.path)
            raise self._name_in_use(name) from None
        return RunDirectory(link)

    def _free_name(self, name: str) -> None:
        """Remove a finished experiment of this name; see `HostCluster`."""
        found = directory.find(self._root, name)
        if found is None:
            return
        with contextlib.suppress(NotFound), found.pin() as run:
            reader = SlurmStatusReader(run)
            if not reader.read().ended:
                raise experiment_exists(name)
            if reader.waits_for_start:
                stop_job(run)
            self._remove(run)

    # --- stopping and deleting ---

    def _delete(
        self,
        experiment: str,
        run_id: str | None = None,
        *,
        purge: bool = False,
        in_order: bool = True,
        at_once: bool = False,
    ) -> None:
        found = directory.find(self._root, experiment)
        if found is None:
            return
        with contextlib.suppress(NotFound), found.pin() as run:
            if run_id is not None and run.run_id() != run_id:
                return
            run.grant_access()
            if run.is_current() and not run.is_run_directory():
                raise self._name_in_use(experiment)
            stop_job(run, in_order=in_order, at_once=at_once)
            self._remove(run, purge=purge)

    # --- changing ---

    def _difference(
        self,
        run: RunDirectory,
        reader: StatusReader,
        status: ExperimentStatus,
        experiment: Experiment,
        archives: CodeArchives,
        reserve_port: Callable[[int], str | None],
        avoid_port: Callable[[int], bool],
        *,
        start: Sequence[str] | None,
    ) -> Update:
        """Return the difference between a running experiment and ``experiment``.

        The supervisor reserves new ports when it changes the experiment, so ``reserve_port`` and
        ``avoid_port`` are not called. The same applies if the job has not started, but then it must
        be submitted again.
        """
        del reserve_port, avoid_port
        return self._difference_with(run, reader, status, experiment, archives, {}, (), start)

    def _difference_with(
        self,
        run: RunDirectory,
        reader: StatusReader,
        status: ExperimentStatus,
        experiment: Experiment,
        archives: CodeArchives,
        unavailable: Mapping[int, str],
        avoided: Collection[int],
        start: Sequence[str] | None,
    ) -> Update:
        """Return the difference. ``unavailable`` maps ports to the reasons why nothing can use
        them. Those in ``avoided`` are used last. ``start`` contains the processes that are started
        if they have exited.
        """
        from symphony.supervised.user_requests.request_change import Update
        from symphony_slurm import job_changes
        from symphony_slurm.job.placement import (
            Placement,
            RunIdentity,
            render_placed,
            resolve_on_hosts,
        )

        running = reader.manifest
        job = json.loads(run.file("job.json").read_bytes())["requested"]
        identity = RunIdentity(
            run_id=running["run_id"],
            launched=running["launched"],
            directory=self._root / _JOBS_NAME / run.path.resolve().name,
            working_directory=Path.cwd(),
        )
        services = running["services"].items()
        resolve = functools.partial(
            resolve_on_hosts,
            experiment,
            backend=self.backend,
            defaults=self.defaults,
            refuse=unavailable.get,
            avoid=lambda port: port in avoided,
            present={name: int(address.rpartition(":")[2]) for name, address in services},
        )
        problems: list[str] = []
        try:
            placement = Placement.load(run)
        except (OSError, ValueError):
            placement = Placement.before_start(job["shape"]["nodes"], job["shape"]["gpus"])
            problems.append("its job has not started")
        hosts = [node.host for node in placement.nodes]
        # The slots depend on the plan, and the addresses on the slots.
        plan = resolve(hosts, {})
        slots, misfits = job_changes.place_again(plan, running["slots"], job)
        plan = resolve(hosts, slots)
        snapshots = {name: archive.snapshot for name, archive in archives.items()}
        manifest = render_placed(plan, placement, slots, identity, snapshots)
        update = Update(
            run,
            reader,
            status,
            manifest,
            archives,
            start=start,
            checks_commands=self._checks_commands,
        )
        if problems and update.changes.is_empty:
            return update
        problems += [*misfits, *job_changes.other_requests(plan, job, self._options, self._nodes)]
        update.changes = replace(update.changes, relaunch=(*update.changes.relaunch, *problems))
        return update

    def _change(self, experiment: Experiment, *, start: Sequence[str] | None) -> Changes:
        """Change a running experiment; see `Cluster.up`."""
        from symphony.supervised.record.change_directory import change_lock

        with (
            directory.full_disk_errors(self._root, len(experiment.list_all_processes())),
            self._find(experiment.name).pin() as run,
            change_lock(run),
        ):
            reader = self._reader(run)
            status = read_unchanging(run, reader)
            return self._change_with_free_ports(run, reader, status, experiment, start)

    def _change_with_free_ports(
        self,
        run: RunDirectory,
        reader: StatusReader,
        status: ExperimentStatus,
        experiment: Experiment,
        start: Sequence[str] | None,
    ) -> Changes:
        """Change an experiment. If new ports are unavailable on their nodes, use other ports."""
        from symphony.code.take_snapshots import take_snapshots
        from symphony.supervised.resources.leases import CLOSED_CONNECTIONS
        from symphony.supervised.supervisor.process_host import port_of
        from symphony.supervised.user_requests.requests import AddressesUnavailable

        archives = take_snapshots(experiment)
        unavailable: dict[int, str] = {}
        avoided: set[int] = set()
        while True:
            update = self._difference_with(
                run, reader, status, experiment, archives, unavailable, avoided, start
            )
            if update.changes.is_empty:
                return update.changes
            if update.changes.relaunch:
                raise cannot_change(update.changes)
            try:
                _apply(run, update, experiment, functools.partial(self._send, run), avoided)
            except AddressesUnavailable as exc:
                found = {port_of(address): text for address, text in exc.reasons.items()}
                closed = {
                    port for port, text in found.items() if text.startswith(CLOSED_CONNECTIONS)
                }
                refused = {port: text for port, text in found.items() if port not in closed}
                is_known = closed <= avoided and refused.keys() <= unavailable.keys()
                if is_known or len(unavailable) + len(avoided) > MAX_REFUSED_PORTS:
                    raise
                avoided.update(closed)
                unavailable.update(refused)
            else:
                _wait_for_change(reader)
                return update.changes

    def _other_backend(self, name: str) -> str | None:
        del name
        return None

    # --- controlling processes ---

    # --- observing ---

    def _reader(self, run: RunDirectory) -> SlurmStatusReader:
        """Return a reader of the status."""
        return SlurmStatusReader(run)

    def _final_reader(self, run: RunDirectory) -> SlurmStatusReader:
        return SlurmStatusReader(run)

    def _supervisor_link(self, run: RunDirectory) -> SupervisorLink:
        """Return the way in which this program reaches the supervisor of a pinned run."""
        return supervisor_link(run)


def _apply(
    run: RunDirectory,
    update: Update,
    experiment: Experiment,
    send: Callable[..., None],
    accepted: Collection[int],
) -> None:
    """Let the supervisor change the experiment.

    ``send`` sends a request to the supervisor. For ``accepted``, see
    `ProcessHost.reserve_addresses`.
    """
    from symphony_slurm.job.placement import Placement
    from symphony_slurm.job_changes import choose_gpus

    running, manifest = update.running, update.manifest
    placement = Placement.load(run)
    slots = manifest.to_dict()["slots"]

    def choose(process: ProcessSpec, processes: Sequence[ProcessSpec]) -> Sequence[str]:
        return choose_gpus(process, processes, running, placement, slots)

    update.assign_gpus(choose)
    update.apply(experiment, send, keep_holds=False, accepted=accepted)


def _wait_for_change(reader: StatusReader) -> None:
    """Wait until the events of a change, which another node has written, can be read here."""
    revision = reader.state.revision + 1
    deadline = time.monotonic() + EVENT_ARRIVAL_SECONDS
    while time.monotonic() < deadline:
        reader.read()
        if reader.state.revision >= revision and not reader.state.is_changing:
            return
        time.sleep(_POLL_SECONDS)


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
