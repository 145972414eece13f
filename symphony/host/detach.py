"""Both ends of starting a supervisor: what the launcher orders, and how the supervisor obeys and reports."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from symphony.errors import BackendError
from symphony.host.commands import MARK
from symphony.host.identity import ProcessId, identify
from symphony.host.policy import Backoff
from symphony.host.rundir import RunDirectory

STARTED, EXISTS, REFUSED = "started", "exists", "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How a launch went: ``started``, ``exists`` (the name was taken) or ``refused`` with the reason."""

    word: str
    reason: str = ""


def start(
    run: RunDirectory,
    final: Path,
    *,
    keep: Sequence[int],
    holds: Mapping[int, int],
    gpus: Mapping[str, list[int]],
    children: str,
    children_options: Mapping[str, Any],
    backoff: Backoff,
    inherited: Callable[[], None],
) -> Report:
    """Start a detached supervisor on a directory that has no name yet, and wait for its report.

    It inherits descriptors: ``keep`` as long as it lives (the lock, leases), ``holds`` by port until the server
    of that port starts, ``gpus`` by process until that has ended. ``children`` names what starts processes, with the
    keywords ``children_options``. ``inherited`` is called when it has them all and has not begun.

    Once it reported, whatever happens here no longer matters to it. An interruption while waiting is passed on
    when the launch is through, so that its caller can take it back.
    """
    read_end, write_end = os.pipe()
    descriptors = [*keep, write_end, *holds.values(), *(fd for fds in gpus.values() for fd in fds)]
    orders = {
        "path": sys.path,
        "directory": str(run.path),
        "final": str(final),
        "report": write_end,
        "descriptors": descriptors,
        "holds": dict(holds),
        "gpus": dict(gpus),
        "children": children,
        "children_options": dict(children_options),
        "backoff": asdict(backoff),
    }
    with os.fdopen(read_end, "rb") as report:
        try:
            try:
                _spawn(orders, run, final.name, descriptors, inherited)
            finally:
                os.close(write_end)
            said = report.read()
        except BaseException:  # interrupted: the caller takes back what now comes to be
            report.read()
            raise
    if not said:
        raise BackendError(f"the supervisor of {final.name!r} died while launching: {_last_words(run, final)}")
    return Report(**json.loads(said))


def _spawn(
    orders: Mapping[str, Any], run: RunDirectory, name: str, descriptors: list[int], inherited: Callable[[], None]
) -> None:
    program = Path(__file__).with_name("supervise.py")
    try:
        with run.supervisor_log.open("wb") as log:
            family = subprocess.Popen(
                [sys.executable, "-I", "-S", str(program), name],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=descriptors,
                cwd="/",
                env={key: value for key, value in os.environ.items() if key != MARK},
            )
    except OSError as exc:
        raise BackendError(f"cannot start a supervisor with {sys.executable!r}: {exc.strerror}") from exc
    inherited()  # it begins when it has read its orders
    with contextlib.suppress(BrokenPipeError):
        family.communicate(json.dumps(orders).encode())
    family.wait()


def _last_words(run: RunDirectory, final: Path) -> str:
    for place in (run, RunDirectory(final)):
        with contextlib.suppress(OSError):
            lines = place.supervisor_log.read_text(errors="replace").strip().splitlines()
            if lines:
                return lines[-1]
    return "it left no message"


# --- the other end ---


def obey(orders: Mapping[str, Any]) -> None:
    """Be the supervisor: launch, report, and supervise to the end."""
    for descriptor in orders["descriptors"]:
        os.set_inheritable(descriptor, False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    aside = RunDirectory(Path(orders["directory"]))
    aside.sign(identify(os.getpid()) or ProcessId(os.getpid(), 0.0))
    try:
        run = aside.claim(Path(orders["final"]))
    except FileExistsError:
        aside.remove()
        _report(orders["report"], Report(word=EXISTS))
        return
    try:
        _supervise(run, orders)
    except Exception:
        import traceback

        traceback.print_exc()
        raise


def _supervise(run: RunDirectory, orders: Mapping[str, Any]) -> None:
    from symphony.host.commands import Command
    from symphony.host.supervisor import LaunchRefused, Supervisor

    manifest = run.load_manifest()
    module, _, attribute = orders["children"].partition(":")
    supervisor = Supervisor(
        run,
        manifest["run_id"],
        {data["name"]: Command.from_dict(data).with_secrets(run.secrets) for data in manifest["processes"]},
        {**os.environ, **manifest["env"]},
        functools.partial(getattr(importlib.import_module(module), attribute), **orders["children_options"]),
        holds={int(port): descriptor for port, descriptor in orders["holds"].items()},
        gpus=orders["gpus"],
        backoff=Backoff(**orders["backoff"]),
    )
    try:
        supervisor.launch()
    except LaunchRefused as exc:
        supervisor.take_back()
        run.remove()
        _report(orders["report"], Report(word=REFUSED, reason=str(exc)))
        return
    _report(orders["report"], Report(word=STARTED))
    supervisor.run()


def _report(descriptor: int, report: Report) -> None:
    with contextlib.suppress(BrokenPipeError):  # the launcher was killed: nobody to report to
        os.write(descriptor, json.dumps(asdict(report)).encode())
    os.close(descriptor)
