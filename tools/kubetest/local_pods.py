"""The programs of Pods that are stored in memory, as processes of this machine.

This is the part of a kubelet that tests of a client depend on: containers start, write logs, exit,
are restarted by the policy of their Pod, and receive TERM and later KILL when the Pod is deleted or
reaches its deadline. Containers share the files and the network of this machine. There are no
images, no tests of readiness, no hooks, no services, and no volumes except empty directories.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kubetest.hollow import running_status

Object = dict[str, Any]

NODE = "node1"
_DEFAULT_GRACE_SECONDS = 30.0
_RESTART_PAUSE_SECONDS = 0.1
_READ_BYTES = 1 << 16
_REFERENCE = re.compile(r"\$\$|\$\(([-._A-Za-z0-9]+)\)")


@dataclass(slots=True)
class Log:
    """The output of one execution of a container: lines with the times at which they ended.

    Only the last line can lack its newline.
    """

    _lines: list[tuple[str, bytes]] = field(default_factory=list)
    _ended: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, line: bytes) -> None:
        """Add a line at the present time."""
        at = f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%S.%f}000Z"
        with self._changed:
            self._lines.append((at, line))
            self._changed.notify_all()

    def end(self) -> None:
        """Note that there are no more lines."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def read(self, query: Mapping[str, str]) -> Iterator[bytes]:
        """Yield the lines that a query selects, with ``follow`` until the log ends."""
        follow, since = query.get("follow") == "true", query.get("sinceTime", "")
        with self._changed:
            position = 0
            if "tailLines" in query:
                position = max(0, len(self._lines) - int(query["tailLines"]))
        while True:
            with self._changed:
                while follow and position == len(self._lines) and not self._ended:
                    self._changed.wait()
                if position == len(self._lines):
                    return
                at, line = self._lines[position]
            position += 1
            if at[:19] >= since[:19]:
                yield f"{at} ".encode() + line if query.get("timestamps") == "true" else line


@dataclass(slots=True)
class _Execution:
    """One execution of a container."""

    started: str
    process: subprocess.Popen[bytes] | None = None
    log: Log = field(default_factory=Log)
    end: Object | None = None


class LocalPod:
    """A Pod whose containers run on this machine.

    ``report`` stores a status of the Pod, and ``remove`` removes the Pod. Both are called in
    threads of the Pod.
    """

    def __init__(
        self, pod: Object, *, report: Callable[[Object], None], remove: Callable[[], None]
    ) -> None:
        self._pod = pod
        self._report, self._remove = report, remove
        self._directory = Path(tempfile.mkdtemp(prefix="pod-"))
        self._begun, self._started = time.monotonic(), _now()
        self._executions: dict[str, list[_Execution]] = {}
        self._changed = threading.Condition()
        # Otherwise an earlier status could replace a later one.
        self._sending = threading.Lock()
        self._stop_reason: str | None = None
        self._is_deleted = False
        self._deadline: threading.Timer | None = None

    def start(self) -> None:
        """Start all containers."""
        containers = self._pod["spec"]["containers"]
        self._executions = {container["name"]: [] for container in containers}
        for container in containers:
            self._in_thread(self._run, container)

    def log(self, container: str | None, *, previous: bool = False) -> Log | None:
        """Return the log of a container, or None if it does not have one."""
        with self._changed:
            name = container or self._pod["spec"]["containers"][0]["name"]
            executions = self._executions.get(name, [])
            index = 2 if previous else 1
            return executions[-index].log if len(executions) >= index else None

    def set_deadline(self, seconds: float) -> None:
        """Stop the Pod when it has existed for this time."""
        if self._deadline is not None:
            self._deadline.cancel()
        left = max(0.0, self._begun + seconds - time.monotonic())
        self._deadline = threading.Timer(left, self.stop, ["DeadlineExceeded"])
        self._deadline.daemon = True
        self._deadline.start()

    def stop(self, reason: str, grace: float | None = None) -> None:
        """Let all containers exit. They are killed after their grace period."""
        with self._changed:
            if self._stop_reason is None:
                self._stop_reason = reason
            self._changed.notify_all()
        if grace is None:
            spec = self._pod["spec"]
            grace = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
        self._in_thread(self._stop_containers, grace)

    def delete(self, grace: float | None) -> None:
        """Stop the Pod, and remove it when all of its containers have exited."""
        with self._changed:
            self._is_deleted = True
        self.stop("Deleted", grace)

    def close(self) -> None:
        """Kill all processes, and remove their files."""
        with self._changed:
            self._stop_reason = "Closed"
            self._changed.notify_all()
        if self._deadline is not None:
            self._deadline.cancel()
        self._signal(signal.SIGKILL)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _in_thread(self, target: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(target=target, args=arguments, daemon=True, name="local-pod").start()

    def _run(self, container: Object) -> None:
        """Run a container until it exits and is not restarted."""
        executions = self._executions[container["name"]]
        is_restarted = True
        while is_restarted and self._stop_reason is None:
            is_restarted = self._is_restarted(self._execute(container, executions))
            if is_restarted:
                self._wait_for_stop(_RESTART_PAUSE_SECONDS)
        self._send_status()
        if self._is_deleted and not self._running():
            self._remove()

    def _wait_for_stop(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stop_reason is not None, timeout=seconds)

    def _is_restarted(self, exited: _Execution) -> bool:
        policy = self._pod["spec"].get("restartPolicy", "Always")
        has_failed = exited.end is not None and exited.end["exitCode"] != 0
        is_wanted = policy == "Always" or (policy == "OnFailure" and has_failed)
        return is_wanted and self._stop_reason is None

    def _execute(self, container: Object, executions: list[_Execution]) -> _Execution:
        """Run a container once."""
        execution = _Execution(started=_now())
        variables = self._environment(container)
        words = [*container.get("command", []), *container.get("args", [])]
        with self._changed:
            execution.process = subprocess.Popen(
                [_expand(word, variables) for word in words],
                env=variables,
                cwd=container.get("workingDir") or self._directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            executions.append(execution)
            if self._stop_reason is not None:
                execution.process.kill()
        self._send_status()
        _copy_lines(execution.process, execution.log)
        code = execution.process.wait()
        with self._changed:
            execution.end = {
                "exitCode": code if code >= 0 else 128 - code,
                "reason": "Error" if code else "Completed",
                "startedAt": execution.started,
                "finishedAt": _now(),
            }
            self._changed.notify_all()
        execution.log.end()
        return execution

    def _environment(self, container: Object) -> dict[str, str]:
        """Return the variables of a container, in which paths of empty directories are local."""
        variables = {"PATH": os.environ["PATH"]}
        for item in container.get("env", []):
            text = _expand(item.get("value", ""), variables)
            for mount in container.get("volumeMounts", []):
                if text == mount["mountPath"]:
                    directory = self._directory / container["name"] / mount["name"]
                    directory.mkdir(parents=True, exist_ok=True)
                    text = str(directory)
            variables[item["name"]] = text
        return variables

    def _stop_containers(self, grace: float) -> None:
        if grace > 0:
            self._signal(signal.SIGTERM)
        with self._changed:
            self._changed.wait_for(lambda: not self._running(), timeout=grace)
        self._signal(signal.SIGKILL)
        if self._is_deleted:
            with self._changed:
                self._changed.wait_for(lambda: not self._running())
            self._remove()

    def _running(self) -> list[subprocess.Popen[bytes]]:
        latest = [executions[-1] for executions in self._executions.values() if executions]
        return [each.process for each in latest if each.process and each.end is None]

    def _signal(self, number: int) -> None:
        with self._changed:
            for process in self._running():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    def _send_status(self) -> None:
        with self._sending:
            self._report(self._status())

    def _status(self) -> Object:
        with self._changed:
            status = running_status(self._pod, address="10.245.0.1") | {"startTime": self._started}
            phases = [self._set_state(item) for item in status["containerStatuses"]]
            status["phase"] = _phase(phases)
            if status["phase"] == "Failed" and self._stop_reason == "DeadlineExceeded":
                status["reason"] = self._stop_reason
            if status["phase"] not in ("Running", "Pending"):
                status["conditions"] = []
            return status

    def _set_state(self, item: Object) -> str:
        """Set the state of a container in a status, and return the phase of a Pod that has only
        this container.
        """
        executions = self._executions[item["name"]]
        item["ready"] = item["started"] = bool(executions) and executions[-1].end is None
        item["restartCount"] = max(0, len(executions) - 1)
        if not executions:
            item["state"] = {"waiting": {"reason": "ContainerCreating"}}
            return "Pending"
        latest = executions[-1]
        if len(executions) > 1:
            item["lastState"] = {"terminated": executions[-2].end}
        if latest.end is None:
            item["state"] = {"running": {"startedAt": latest.started}}
            return "Running"
        item["state"] = {"terminated": latest.end}
        if self._is_restarted(latest):
            return "Running"
        return "Failed" if latest.end["exitCode"] or self._stop_reason else "Succeeded"


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with the values of ``$(NAME)``, as a kubelet replaces them."""

    def replacement(match: re.Match[str]) -> str:
        return "$" if match[1] is None else variables.get(match[1], match[0])

    return _REFERENCE.sub(replacement, text)


def _copy_lines(process: subprocess.Popen[bytes], log: Log) -> None:
    """Add the output of a process to a log until the process has closed it."""
    if process.stdout is None:
        return
    rest = b""
    with process.stdout as output:
        while data := os.read(output.fileno(), _READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                log.add(line + b"\n")
    if rest:
        log.add(rest)


def _phase(phases: list[str]) -> str:
    """Return the phase of a Pod, given those of its containers."""
    for phase in ("Pending", "Running", "Failed"):
        if phase in phases:
            return phase
    return "Succeeded"


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
