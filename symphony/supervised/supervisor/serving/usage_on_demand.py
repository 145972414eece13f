"""Sampling the resource use only if the experiment records it or a client asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.execution.supervised_process import ProcessTable
from symphony.supervised.supervisor.process_host import ProcessHost

if TYPE_CHECKING:
    import socket

    from symphony.supervised.supervisor.serving.record_usage import OnSample, UsageMonitor


class UsageOnDemand:
    """The samples of the resource use of one run."""

    def __init__(
        self, run: RunDirectory, loop: EventLoop, processes: ProcessTable, host: ProcessHost
    ) -> None:
        self._run = run
        self._loop = loop
        self._processes = processes
        self._host = host
        self._monitor: UsageMonitor | None = None

    def show(self, client: socket.socket) -> None:
        """Send samples of the resource use to a client until it closes the connection."""
        self._get_monitor().join(client)

    def set_recording(self, is_recording: bool) -> None:
        """Begin or stop recording the resource use."""
        if is_recording or self._monitor is not None:
            self._get_monitor().set_recording(is_recording)

    def _get_monitor(self) -> UsageMonitor:
        if self._monitor is None:
            # Most experiments do not record their resource use.
            from symphony.supervised.supervisor.serving.record_usage import UsageMonitor

            self._monitor = UsageMonitor(self._loop, self._run, self._sample)
        return self._monitor

    def _sample(self, on_sample: OnSample) -> None:
        specs = [process.spec for process in self._processes]
        devices = {spec.name: spec.devices for spec in specs if spec.devices}
        self._host.sample_usage(self._processes.leaders(), devices, on_sample)
