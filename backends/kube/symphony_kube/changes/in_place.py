"""Restart programs in place, if only their code has changed and they have ``sync``.

The Pod remains. The next attempt to run it is created from the new manifest, so a program that is
restarted later by the supervisor or by a command has the new code, too.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError
from symphony.plan.changes import ADDED, REMOVED, RESTARTED, STARTED_AGAIN, Changes, ProcessChange
from symphony.status import State
from symphony_kube.access.sync_code import restart_with_update
from symphony_kube.archive.recording import recorded_code
from symphony_kube.lifecycle import attempts
from symphony_kube.lifecycle.create import in_parallel
from symphony_kube.render.container_scripts import stop_command
from symphony_kube.state.control_state import Control

if TYPE_CHECKING:
    from symphony.code.snapshot import CodeArchive
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.lifecycle.description import Description, NewDescription
    from symphony_kube.state.observe import ExperimentState, Observation
    from symphony_kube.state.pod_status import ContainerRef
    from symphony_kube.state.unit_status import UnitStatus

Object = Mapping[str, Any]

_IN_PLACE = "restarted in place"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """A program that is restarted in place, with the present and the new code."""

    process: str
    unit: str
    status: UnitStatus
    ref: ContainerRef
    old: CodeArchive
    new: CodeArchive


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlace:
    """The programs that a change restarts in place.

    ``obstacles`` maps the other processes with ``sync`` to the reasons why their Pods are replaced.
    ``problems`` contains the reasons that were found during the change.
    """

    programs: tuple[_Program, ...] = ()
    obstacles: Mapping[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def processes(self) -> set[str]:
        """The names of the processes."""
        return {program.process for program in self.programs}

    @property
    def units(self) -> set[str]:
        """The names of their units."""
        return {program.unit for program in self.programs}

    def explained(self, changes: Changes) -> Changes:
        """Return the changes with the reasons of this object."""
        reasons = {
            name: f"its Pod is replaced, because {why}" for name, why in self.obstacles.items()
        }
        reasons.update(dict.fromkeys(self.processes, _IN_PLACE))
        processes = []
        for process in changes.processes:
            if process.name in reasons:
                added = (*process.reasons, reasons[process.name])
                process = replace(process, reasons=added)
            processes.append(process)
        return replace(changes, processes=tuple(processes))

    def corrected(self, changes: Changes) -> Changes:
        """Return the changes with the reasons of Pods that had to be replaced after all."""
        processes = []
        notes = list(changes.notes)
        for process in changes.processes:
            problem = self.problems.get(process.name)
            if problem is not None:
                others = tuple(reason for reason in process.reasons if reason != _IN_PLACE)
                reason = f"its Pod was replaced, because {problem}"
                process = replace(process, reasons=(*others, reason))
                notes.append(f"the Pod of {process.path} was replaced, because {problem}")
            processes.append(process)
        return replace(changes, processes=tuple(processes), notes=tuple(notes))

    def restart(
        self, experiment: KubeExperiment, manifests: Mapping[str, Object], revision: int
    ) -> set[str]:
        """Restart the programs, and return the units that have to be replaced instead.

        ``manifests`` maps the units to the Pods from which their next attempts are created.
        """

        def change(control: Control) -> Control:
            if control.revision > revision:
                raise BackendError(f"another command has changed experiment {experiment.name!r}")
            return replace(control, revision=revision)

        statuses = {program.unit: program.status for program in self.programs}
        failed = set()
        for name, status in statuses.items():
            if attempts.request(experiment, status, change, manifests[name]) is None:
                failed.add(name)
        programs = [program for program in self.programs if program.unit not in failed]
        in_parallel(
            lambda program: self._restart(experiment, program, manifests[program.unit]),
            programs,
            threads=experiment.api.connections,
        )
        failed.update(item.unit for item in programs if item.process in self.problems)
        return failed

    def _restart(self, experiment: KubeExperiment, program: _Program, pod: Object) -> None:
        from symphony.code.delta import difference

        update = difference(program.old, program.new)
        if update is None:
            self.problems[program.process] = "the name of a removed file contains a line break"
            return
        grace = program.status.pods[-1].grace_seconds
        stop = _stop_command(pod, program.process) or stop_command(signal.SIGTERM, round(grace))
        problem = restart_with_update(experiment, program.ref, update, grace, stop)
        if problem:
            self.problems[program.process] = problem


def find_in_place(
    experiment: KubeExperiment,
    running: Description,
    new: NewDescription,
    state: ExperimentState,
    observation: Observation,
    changes: Changes,
) -> InPlace:
    """Return the programs that are restarted in place, because only their code has changed."""
    settings = {name: item.settings for name, item in new.snapshot.processes.items()}
    candidates = [item for item in changes.processes if _has_only_new_code(item)]
    candidates = [item for item in candidates if settings[item.name].get("sync")]
    if not candidates or running.is_unfinished:
        return InPlace()
    recorded = recorded_code(experiment)
    refs = {ref.process: ref for ref in state.objects.container_refs if ref.running}
    programs, obstacles = [], {}
    for item in candidates:
        unit = item.group or item.name
        status = observation.unit_statuses.get(unit)
        old = recorded.get(item.name)
        sync = settings[item.name]["sync"]
        if sync is not True:
            obstacles[item.name] = str(sync)
        elif status is None or item.name not in refs or not _is_running(status, item.name):
            obstacles[item.name] = "it is not running"
        elif status.job is not None:
            obstacles[item.name] = "it belongs to a Job"
        elif old is None or old.snapshot.short_digest != item.settings[0].old:
            obstacles[item.name] = "its present code is not recorded on this machine"
        else:
            program = _Program(
                process=item.name,
                unit=unit,
                status=status,
                ref=refs[item.name],
                old=old,
                new=new.archives[item.name],
            )
            programs.append(program)
    replaced = set(_replaced_units(changes, {program.process for program in programs}))
    kept = tuple(program for program in programs if program.unit not in replaced)
    return InPlace(programs=kept, obstacles=obstacles)


def _stop_command(pod: Object, container: str) -> list[str]:
    """Return the command that stops the program of a container before the container ends.

    It is empty if the container has no such command.
    """
    for item in pod["spec"]["containers"]:
        if item["name"] == container:
            hook = (item.get("lifecycle") or {}).get("preStop") or {}
            return list((hook.get("exec") or {}).get("command") or ())
    return []


def _has_only_new_code(change: ProcessChange) -> bool:
    if change.action != RESTARTED or change.reasons:
        return False
    return [item.setting for item in change.settings] == ["code"]


def _is_running(status: UnitStatus, process: str) -> bool:
    control = status.control
    is_stopping = control.stop or control.start or control.replaced
    return not is_stopping and status.containers[process].state is State.RUNNING


def _replaced_units(changes: Changes, in_place: Collection[str]) -> Iterator[str]:
    """Yield the units of which another process changes, so that their Pods are replaced."""
    for item in changes.processes:
        if item.action in (ADDED, REMOVED, *STARTED_AGAIN) and item.name not in in_place:
            yield item.group or item.name
