"""The work of an agent: start, signal and observe the processes of one node."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from symphony.plan.state import Track
from symphony.supervised.processes.identity import RUN_ID_VARIABLE, ProcessId
from symphony.supervised.processes.mark import remove_own_mark
from symphony.supervised.processes.scratch import SCRATCH_VARIABLE
from symphony.supervised.processes.signaling import send_signals
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.processes.tree import group_members
from symphony.supervised.record.directory import remove_tree
from symphony.supervised.record.note import NoteWriter
from symphony.supervised.supervisor.children import Child, StartRefused
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.execution.probe_thread import NOT_FINISHED
from symphony.supervised.supervisor.execution.probes import make_probe, served_by_other
from symphony.supervised.supervisor.execution.stopper import StopOrder
from symphony.supervised.supervisor.execution.strays import Stray
from symphony.supervised.supervisor.guardian import FORWARDED, SUPERVISES, Link
from symphony.supervised.supervisor.local_children import LocalChildren
from symphony.supervised.supervisor.orphans import OrphanReaper
from symphony.supervised.supervisor.process_handles import AdoptedChild
from symphony.supervised.supervisor.process_host import ThisHost
from symphony.usage import ExperimentUsage
from symphony_slurm.job.agent_connection import introduction, read_token
from symphony_slurm.job.agent_protocol import Channel, Message
from symphony_slurm.job.executions import Executions
from symphony_slurm.job.node_files import NodeFiles, NodeRunDirectory
from symphony_slurm.job.node_ports import NodePorts
from symphony_slurm.job.step_variables import remove_step_variables
from symphony_slurm.job.supervisor_link import SupervisorLink
from symphony_slurm.job.terminals import TerminalClients

# The interval at which the agent checks whether a process group still has members.
CHECK_INTERVAL_SECONDS = 0.05


def run_agent(directory: str, node: str, channel: Channel, files: NodeFiles, link: Link) -> None:
    """Carry out the orders of the supervisor until the connection is closed.

    ``link`` is the connection to the guardian. If this agent replaces another one that was killed,
    the signals of `guardian.FORWARDED` are blocked.
    """
    # The agent does not belong to a run from which this experiment was launched.
    os.environ.pop(RUN_ID_VARIABLE, None)
    hello = introduction(node)
    remove_step_variables(os.environ)
    remove_own_mark()
    agent = NodeAgent(NodeRunDirectory.of(Path(directory), files), channel, hello)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    # The guardian may have been killed.
    with contextlib.suppress(OSError):
        os.write(link.messages, SUPERVISES)
    agent.run()


class _Notes(NoteWriter):
    """Notes that the agent sends to the supervisor, which writes them."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._messages: dict[str, str] = {}
        self._send = send

    def set(self, topic: str, message: str) -> None:
        """Send the message for a topic."""
        self._messages[topic] = message
        self._send({"event": "note", "topic": topic, "message": message})


class NodeAgent:
    """The agent of a node; see `symphony_slurm.agent`. ``hello`` describes it to a supervisor."""

    def __init__(self, run: NodeRunDirectory, channel: Channel, hello: Message) -> None:
        self._run = run
        self._hello = hello
        self._loop = EventLoop(self._handle_error)
        self._link = SupervisorLink(
            self._loop,
            channel,
            read_token(str(run.path)),
            introduce=self._introduce,
            on_messages=self._carry_out,
            on_end=self._close,
        )
        self._children = LocalChildren(self._loop, run, self._handle_exit)
        self._host = ThisHost("", self._handle_stopped)
        self._executions = Executions()
        # The processes that are being stopped.
        self._stopping: dict[str, ProcessId] = {}
        self._terminals = TerminalClients(self._loop, self._children, self._send)
        self._environment = dict(os.environ)
        self._env: dict[str, str] = {}
        self._specs: dict[str, ProcessSpec] = {}
        self._is_closing = False
        self._notes = _Notes(self._send)
        self._logs = self._host.record_logs(self._loop, run, {}, self._notes)
        self._is_evicted = self._has_reported_eviction = False
        self._orders = self._table_of_orders()
        # The agent is stopped by its supervisor.
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCONT):
            self._loop.on_signal(number, lambda: None)
        signal.signal(signal.SIGTERM, self._handle_eviction)

    def _table_of_orders(self) -> Mapping[str, Callable[..., Any]]:
        """Return the functions that carry out the orders of the supervisor."""
        ports = NodePorts(self._run.files.ports)
        self._end_holds = ports.end_holds
        return {
            "finish": self._link.finish,
            "reserve": ports.reserve,
            "avoid": ports.avoid,
            "keep": ports.keep,
            "release": ports.release,
            "replace_port": ports.replace,
            "prepare": self._prepare,
            "start": self._start,
            "adopt": self._adopt,
            "stop": self._stop,
            "test": self._test,
            "signal_group": self._signal_group,
            "signal": _send_signals,
            "stop_strays": self._stop_strays,
            "find_strays": self._find_strays,
            "watch_stray": functools.partial(_watch_stray, self._loop, self._send),
            "usage": self._report_usage,
            "limits": self._logs.set_limits,
            "close_logs": self._logs.close,
            "join": self._terminals.join,
            "type": self._terminals.type,
            "leave": self._terminals.leave,
        }

    def run(self) -> None:
        """Work until the connection is closed and no process is running."""
        self._link.start()
        OrphanReaper(self._loop, self._child_pids).start()
        self._loop.run()

    def _child_pids(self) -> set[int]:
        found = map(self._children.get, self._specs)
        return {child.pid for child in found if child is not None}

    def _handle_eviction(self, number: int, frame: object) -> None:
        """Note that Slurm has sent SIGTERM to all processes of the job."""
        del number, frame
        self._is_evicted = True
        self._loop.post(self._report_eviction)

    def _report_eviction(self) -> None:
        if self._is_evicted and not self._has_reported_eviction:
            self._has_reported_eviction = True
            self._link.send({"event": "evicted"})

    def _send(self, message: Message) -> None:
        # The supervisor must know the reason of an exit before the exit.
        self._report_eviction()
        self._link.send(message)

    def _handle_error(self, exc: Exception) -> None:
        sys.__excepthook__(type(exc), exc, exc.__traceback__)
        self._send(
            {
                "event": "note",
                "topic": "agent",
                "message": f"agent of {self._hello['node']}: {exc!r}",
            }
        )

    def _carry_out(self, messages: list[Message]) -> None:
        for message in messages:
            order = self._orders[message.pop("order")]
            number = message.pop("number", None)
            answer = order(**message)
            if number is not None:
                self._send({"event": "answer", "number": number, "value": answer})

    def _introduce(self) -> Message:
        """Return the first message to a supervisor that replaces another one."""
        self._terminals.leave_all()
        stopping = {name: [item.pid, item.birth] for name, item in self._stopping.items()}
        return {
            **self._hello,
            **self._executions.report(),
            "stopping": stopping,
            "evicted": self._is_evicted,
        }

    # --- orders ---

    def _prepare(self, env: dict[str, str]) -> None:
        """Receive the variables that all processes share."""
        self._env = {**self._environment, **env}
        if not self._specs:
            # When a change sends new variables later, the processes keep their host.
            run_id = env[RUN_ID_VARIABLE]
            self._host = ThisHost(run_id, self._handle_stopped, record_path=self._run.stop_record)

    def _start(self, specs: list[dict[str, Any]]) -> None:
        """Start processes, and report each of them."""
        found = [ProcessSpec.from_dict(data).with_secrets(self._run.secrets) for data in specs]
        for spec in found:
            self._specs[spec.name] = spec
            self._end_holds(spec.releases)
        for spec, child in self._children.start(found, self._env):
            if isinstance(child, OSError):
                self._send(
                    {
                        "event": "refused",
                        "name": spec.name,
                        "errno": child.errno or errno.EIO,
                        "text": child.strerror or str(child),
                        "file": child.filename,
                        "is_final": isinstance(child, StartRefused),
                    }
                )
            else:
                self._executions.note_start(
                    spec.name, child.pid, child.birth, has_terminal=spec.tty
                )
                self._send(
                    {"event": "started", "name": spec.name, "pid": child.pid, "birth": child.birth}
                )
        names = [spec.name for spec in found]
        self._loop.post(lambda: self._logs.watch(names))

    def _adopt(
        self, processes: list[dict[str, Any]], groups: list[int], start: list[str]
    ) -> Message:
        """Take over the processes of an agent that was killed, and return their executions.

        Each item of ``processes`` contains the description of a process, and the pid and the
        creation time of its execution, or None if its start was not reported. ``groups`` are the
        process groups of exited processes that may have running members. ``start`` contains the
        processes that the agent should have started. Those that it has not started are started now.
        """
        tracks: dict[str, Track] = {}
        for item in processes:
            spec = ProcessSpec.from_dict(item["spec"]).with_secrets(self._run.secrets)
            self._specs[spec.name] = spec
            tracks[spec.name] = Track(pid=item["pid"], birth=item["birth"], ended=item["ended"])
        adopted = self._children.adopt([self._specs[name] for name in tracks], tracks)
        for child in adopted:
            # The terminal was closed with the agent.
            self._executions.note_start(child.name, child.pid, child.birth, has_terminal=False)
            if child.name in start:
                identity = {"name": child.name, "pid": child.pid, "birth": child.birth}
                self._send({"event": "started", **identity})
        leaders = {child.name: ProcessId(child.pid, child.birth) for child in adopted}
        for group in groups:
            if self._host.is_group_of_run(group, leaders):
                self._executions.note_group(group)
            self._observe_group(group)
        self._loop.post(lambda: self._logs.watch(list(leaders)))
        missing = [item["spec"] for item in processes if item["spec"]["name"] in start]
        self._start([spec for spec in missing if spec["name"] not in leaders])
        asked = [name for name, leader in leaders.items() if self._host.was_asked_to_exit(leader)]
        return {**self._executions.report(), "asked_to_exit": asked}

    def _signal_group(self, name: str, group: int, signal: int) -> None:
        self._host.signal_group(name, group, signal)

    def _stop(self, name: str, pid: int, birth: float, stop: dict[str, Any]) -> None:
        self._begin_stop(name, ProcessId(pid, birth), StopOrder.from_dict(stop))

    def _begin_stop(self, name: str, process: ProcessId, order: StopOrder) -> None:
        spec = self._specs[name]
        self._stopping[name] = process
        self._host.begin_stop(
            self._loop,
            spec,
            process,
            order,
            {**self._env, **spec.env},
            lambda problem: self._notes.set(f"stop {name}", problem),
        )

    def _handle_stopped(self, name: str) -> None:
        """Report that all programs of a process that was stopped have exited."""
        self._stopping.pop(name, None)
        self._send({"event": "stopped", "name": name})
        self._exit_if_closed()

    def _stop_strays(
        self,
        leaders: dict[str, list[float]],
        kill: bool,
        owners: list[str] | None,
        spares_commands: bool,
    ) -> bool:
        return self._host.stop_strays(
            _identities(leaders), kill=kill, owners=owners, spares_commands=spares_commands
        )

    def _find_strays(
        self, leaders: dict[str, list[float]], names: list[str]
    ) -> dict[str, tuple[int, float, str]]:
        found = self._host.find_strays(_identities(leaders), names)
        return {name: (*stray.process, stray.program) for name, stray in found.items()}

    def _report_usage(
        self, sample: int, leaders: dict[str, list[float]], devices: dict[str, list[str]]
    ) -> None:
        """Sample the resource use of processes, and report it."""

        def report(usage: ExperimentUsage) -> None:
            self._send({"event": "usage", "sample": sample, "usage": usage.to_dict()})

        self._host.sample_usage(_identities(leaders), devices, report)

    def _test(self, name: str, test: int, timeout: float, setting: str) -> None:
        """Run the command that tests whether a process is ready or healthy, and report the result.

        If the supervisor tests a connection, check that the process itself serves the port.
        """
        spec, child = self._specs[name], self._children.get(name)
        env = {**self._env, **spec.env}
        settings = getattr(spec, setting) or {}

        def run_test() -> str:
            if "command" in settings:
                log = self._run.log(name)
                return make_probe(spec, log, 0, env, None, setting=setting).test(timeout)
            if child is None:
                return NOT_FINISHED
            host, port, *_ = settings.get("tcp") or settings["http"]
            process = ProcessId(child.pid, child.birth)
            find = functools.partial(self._host.find_other_server, name, process)
            return served_by_other(find, host, port)

        def run() -> None:
            try:
                result = run_test()
            except Exception as exc:
                result = f"the probe failed with {type(exc).__name__}: {exc}"
            answer = {"event": "tested", "test": test, "result": result}
            self._loop.post(lambda: self._send(answer))

        threading.Thread(target=run, daemon=True).start()

    # --- exits ---

    def _handle_exit(
        self, child: Child, code: int | None, reason: str = "", log_bytes: int | None = None
    ) -> None:
        del log_bytes
        name, group = child.name, child.pid
        if code is None and isinstance(child, AdoptedChild):
            reason = "the agent that started it was killed"
        self._logs.record(name)
        self._host.handle_exit(name, ProcessId(group, child.birth))
        has_group = self._host.signal_group(name, group, 0)
        message = {
            "event": "exited",
            "name": name,
            "pid": group,
            "code": code,
            "reason": reason,
            "log_bytes": _file_size(self._run.log(name)),
            "has_group": has_group,
        }
        self._executions.note_exit(message)
        self._send(message)
        if has_group:
            self._observe_group(group)
        self._exit_if_closed()

    def _observe_group(self, group: int) -> None:
        """Report when a process group has no more running members."""
        if group_members(group):
            self._loop.after(CHECK_INTERVAL_SECONDS, lambda: self._observe_group(group))
        else:
            self._executions.note_group_end(group)
            self._send({"event": "group-gone", "pid": group})

    # --- the end ---

    def _close(self) -> None:
        """Stop all processes, because there is no supervisor any more."""
        self._is_closing = True
        running = [child for name in self._specs if (child := self._children.get(name))]
        for child in running:
            spec = self._specs[child.name]
            process = ProcessId(child.pid, child.birth)
            self._begin_stop(child.name, process, StopOrder.of(spec, spec.grace))
        self._exit_if_closed()

    def _exit_if_closed(self) -> None:
        if self._is_closing and not self._children and not self._stopping:
            self._host.stop_strays({}, kill=True)
            self._logs.close()
            _remove_scratch_directories(self._specs.values())
            self._loop.stop()


def _remove_scratch_directories(specs: Iterable[ProcessSpec]) -> None:
    """Remove the scratch directories of this node's processes.

    Other nodes can share the directory that contains them.
    """
    paths = [spec.env.get(SCRATCH_VARIABLE) for spec in specs]
    for path in [Path(path) for path in paths if path is not None]:
        remove_tree(path)
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def _send_signals(
    leaders: dict[str, list[float]], signal: int, force: bool, dry_run: bool
) -> dict[str, str]:
    """Send a signal to processes, or only report why this is not possible."""
    return send_signals(_identities(leaders), _signal(signal), force=force, dry_run=dry_run)


def _watch_stray(
    loop: EventLoop, send: Callable[[Message], None], name: str, pid: int, birth: float
) -> None:
    """Report the exit of a program that a process has left behind."""
    gone = {"event": "stray-gone", "name": name, "pid": pid}
    Stray(ProcessId(pid, birth), "").watch(loop, lambda: send(gone))


def _identities(leaders: dict[str, list[float]]) -> dict[str, ProcessId]:
    return {name: ProcessId(int(pid), birth) for name, (pid, birth) in leaders.items()}


def _file_size(path: Path) -> int:
    """Return the size of a file, or 0 if it cannot be read."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _signal(number: int) -> signal.Signals:
    return signal.Signals(number)
