"""Leasing and holding the ports of a run again after its supervisor was killed.

The kernel has released the leases of the killed supervisor. While processes of the run are running,
launches do not use its ports (see `symphony.supervised.resources.unsupervised`), but they do
otherwise.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Any

from symphony.plan.state import Event
from symphony.status import ENDED
from symphony.supervised.record.event_file import fold_run, unfinished_previous
from symphony.supervised.resources.leases import hold_port, take_lease
from symphony.supervised.resources.unsupervised import service_ports
from symphony.support.data_classes import dataclass, field

# A launch leases a port for a moment before it finds out that processes of this run use the port.
_RETRY_SECONDS, _RETRY_PAUSE_SECONDS = 1.0, 0.01


@dataclass(slots=True)
class RegainedPorts:
    """The ports of a run.

    ``holds`` maps ports to the descriptors that are closed before the server of a port starts.
    ``lost`` contains the ports that another experiment has leased.
    """

    holds: dict[int, int] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)


def regain_ports(
    manifest: Mapping[str, Any], events: Iterable[Event], *, hold_until_bound: bool
) -> RegainedPorts:
    """Lease and hold the ports of a run until this process exits.

    A port is held if no process that serves it has been started, or if ``hold_until_bound`` is
    true. A port that a program uses cannot be held.
    """
    ports = RegainedPorts()
    processes = manifest["processes"]
    state = fold_run(manifest, events)
    if all(track.state in ENDED for track in state.tracks.values()) and not state.waits_for_start:
        return ports
    served = {
        port
        for process in processes
        if state.tracks[process["name"]].first_started is not None
        for port in process["releases"]
    }
    services = service_ports(dict(manifest))
    for process in unfinished_previous(state, manifest):
        for port in set(process["releases"]).difference(services):
            # The process can be running and serve the port.
            _lease(port)
    for port in services:
        if not _lease(port):
            ports.lost.add(port)
        elif hold_until_bound or port not in served:
            with contextlib.suppress(OSError):
                hold = hold_port(port)
                if not hold_until_bound:
                    ports.holds[port] = hold
    return ports


def _lease(port: int) -> bool:
    """Lease a port until this process exits. Return False if another program has leased it."""
    deadline = time.monotonic() + _RETRY_SECONDS
    while take_lease("port", str(port)) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_RETRY_PAUSE_SECONDS)
    return True
