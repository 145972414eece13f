"""Send signals to processes, from within their containers."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.cluster.matching import select_processes
from symphony.errors import BackendError, NotFound
from symphony.plan.requests import Refused, refuse_idle
from symphony.status import ProcessStatus
from symphony.support.signal_effects import HARMLESS_SIGNALS, SIGNALS_FOR_ALL
from symphony_kube.access import exec as exec_access
from symphony_kube.lifecycle.create import in_parallel
from symphony_kube.render.container_scripts import UNHANDLED_CODE, SignalMode, signal_command
from symphony_kube.state.pod_status import ContainerRef
from symphony_kube.status import experiments
from symphony_kube.status.find_pod import process_state

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment


def send_signal(
    experiment: KubeExperiment, processes: Sequence[str] | None, number: int, *, force: bool = False
) -> list[ProcessStatus]:
    """Send a signal to running processes; see `Cluster.signal_processes`."""
    state, _ = experiments.observe_once(experiment)
    status = experiments.current_status(experiment, state)
    selected = select_processes(status, processes)
    try:
        refuse_idle({process.path: process.state for process in selected})
    except Refused as exc:
        raise BackendError(f"experiment {experiment.name!r}: {exc}") from exc
    refs = {ref.process: ref for ref in state.objects.container_refs if ref.running}
    names = [process.name for process in selected]

    def run_in_all(mode: SignalMode) -> None:
        in_parallel(
            lambda name: _run_signal_script(experiment, name, refs.get(name), number, mode),
            names,
            threads=experiment.api.connections,
        )

    mode = _signal_mode(number, force=force)
    if mode is SignalMode.REFUSE and len(names) > 1:
        run_in_all(SignalMode.CHECK)
    run_in_all(mode)
    after = experiments.experiment_status(experiment)
    return [process for process in after if process.name in names]


def _signal_mode(number: int, *, force: bool) -> SignalMode:
    if number in SIGNALS_FOR_ALL:
        return SignalMode.EVERY
    return SignalMode.ALL if force or number in HARMLESS_SIGNALS else SignalMode.REFUSE


def _run_signal_script(
    experiment: KubeExperiment,
    process: str,
    ref: ContainerRef | None,
    number: int,
    mode: SignalMode,
) -> None:
    """Run the script that sends a signal in a process's container. Raises `BackendError`."""
    if ref is None:
        path, state = process_state(experiment, process)
        raise NotFound(f"process {path!r} is not running ({state}), so no signal can be sent to it")
    try:
        result = exec_access.run_in_container(experiment, ref, signal_command(number, mode))
    except NotFound as exc:
        raise BackendError(
            f"no signal can be sent to {process!r}, because its image contains no shell (sh)"
        ) from exc
    if result.exit_code == UNHANDLED_CODE:
        raise BackendError(
            f"no signal was sent: process {process!r} does not handle "
            f"{signal.Signals(number).name}, which would end it; to send it nevertheless, use "
            "--force"
        )
    if result.exit_code:
        details = result.stderr.strip() or f"exit code {result.exit_code}"
        raise BackendError(f"no signal could be sent to {process!r}: {details}")
