"""Create the windows of one session in batches, and query their states."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from symphony.supervised.processes.identity import (
    RUN_ID_VARIABLE,
    ProcessId,
    identify,
    is_alive,
    read_stat,
)
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import process_names
from symphony_tmux import render
from symphony_tmux.render import Limits, Pane, Session, Window
from symphony_tmux.tmux_commands import OLDEST_VERSION, Answer, Tmux

# A tmux server exits when its last session is closed. To a client, this exit looks as if the server
# had been killed.
SERVER_GONE = "the tmux server is not running (it was killed, or its last session was closed)"
SERVER_SILENT = "the tmux server does not respond"
SESSION_CLOSED = "its tmux session was closed"
# The maximum time limit for queries, in seconds. By default, the limit for launches is longer.
QUERY_TIMEOUT_SECONDS = 5.0


class Windows:
    """An experiment's session on the tmux server ``server_name``.

    The object records the limit on open files, which the processes receive. The caller must
    therefore create the object before raising the supervisor's own limit.
    """

    def __init__(self, run: RunDirectory, server_name: str, answer_within: float) -> None:
        self._name = server_name
        self._timeout = answer_within
        self._tmux = Tmux(name=server_name, timeout=answer_within)
        self._server: ProcessId | None = None
        manifest = run.load_manifest()
        self.session = Session(
            run,
            manifest["run_id"],
            {name: index for index, name in enumerate(process_names(manifest))},
            manifest["env"],
            Limits(
                umask=_umask(),
                files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
                run_id=manifest["run_id"],
            ),
        )
        # The variables that the session of a killed supervisor can have.
        self._found_env: Mapping[str, str] = manifest.get("previous", manifest)["env"]
        self.made = False
        self._panes: dict[str, str] = {}

    # --- the session of a killed supervisor ---

    def find(self) -> dict[str, Pane]:
        """Find the existing session of the run, and return the panes of its processes.

        Windows that tmux has created, but to which no process belongs yet, are removed. Raises
        TimeoutError if the server does not respond in time.
        """
        try:
            socket = self.session.run.file("socket").read_text()
        except OSError:
            return {}
        self._tmux = Tmux(socket=socket, timeout=self._timeout)
        # The server can still be busy with the commands of the killed supervisor.
        answer = self._tmux.run(self.session.find())
        if answer.timed_out:
            raise TimeoutError(answer.error)
        owned_panes = render.owned_panes(answer.lines, self.session.run_id)
        if not owned_panes:
            return {}
        self._note_server(answer)
        panes: dict[str, Pane] = {}
        for owned in owned_panes:
            if owned.process in self.session.windows:
                # The user can have split the window.
                panes.setdefault(owned.process, owned.pane)
                self._panes.setdefault(owned.process, owned.id)
            elif not owned.process and _has_run(owned.pane.pid, self.session.run_id):
                self._tmux.run([f"kill-pane -t {owned.id}"], timeout=QUERY_TIMEOUT_SECONDS)
        self._set_variables(self._found_env)
        return panes

    def end_keepers(self, panes: Mapping[str, Pane]) -> None:
        """Kill the keepers of processes that wait at their gates, and wait until all have exited.

        The windows remain. A process that is only about to exit, because tmux has closed its
        terminal, could still read the line that opens the gate for the next start.
        """
        if not panes:
            return
        from symphony.supervised.processes.membership import list_pids
        from symphony.supervised.processes.tree import stop_processes

        self._tmux.run(
            [self.session.keep_window(self._panes[name]) for name in panes],
            timeout=QUERY_TIMEOUT_SECONDS,
        )
        sessions = {pane.pid for pane in panes.values()}

        def find() -> list[ProcessId]:
            stats = [read_stat(pid) for pid in list_pids()]
            return [stat.process for stat in stats if stat and stat.session in sessions]

        stop_processes(find, grace=0.0)

    def pane_of(self, process: str) -> str:
        """Return the identifier of a process's pane, or ``""`` if it has none."""
        return self._panes.get(process, "")

    def has_log(self, process: str) -> bool:
        """Return whether tmux writes the output of a process to its log.

        If it does, the gate of the process is open.
        """
        return self.sink(process) is not None

    # --- creating ---

    def send(self, batch: Sequence[ProcessSpec], env: Mapping[str, str]) -> Callable[[], Answer]:
        """Create the windows of a batch, or restart processes in their existing windows.

        Return a function that waits for the response and returns it.
        """
        if not self.made:
            # If the supervisor is killed before it receives the answer, the session must be found.
            self._record_socket(self._tmux.socket)
            answer = self._tmux.run(self.session.create(batch, env), start=True)
            self._note_server(answer)
            return lambda: answer
        return self._tmux.send([self._window(command, env) for command in batch])

    def _window(self, command: ProcessSpec, env: Mapping[str, str]) -> str:
        pane = self._panes.get(command.name)
        if pane is None:
            return self.session.add(command, env)
        return self.session.respawn(command, env, pane)

    def _note_server(self, answer: Answer) -> None:
        found = render.server(answer.lines)
        if found is not None:
            self.made = True
            pid, socket = found
            self._server = identify(pid)
            self._tmux = Tmux(socket=socket, timeout=self._timeout)
            self._record_socket(socket)

    def _record_socket(self, socket: str) -> None:
        self.session.run.file("socket").write_text(socket)

    def take(
        self, batch: Sequence[ProcessSpec], answer: Answer, env: Mapping[str, str]
    ) -> dict[str, Window | str]:
        """Return the window of each process in a batch, or the reason why it has no window."""
        created = render.windows(answer.lines)
        result: dict[str, Window | str] = {}
        for command in batch:
            window, response = created.get(self.session.windows[command.name]), answer
            if window is None and self.made:
                window, response = self._add_at_end(command, env, answer)
            if window is None and _is_session_gone(response):
                window, response = self._create_again(command, env)
            if window is None:
                result[command.name] = self._failure_reason(response)
            else:
                result[command.name] = window
                self._panes[command.name] = window.pane
        return result

    def _add_at_end(
        self, command: ProcessSpec, env: Mapping[str, str], failed: Answer
    ) -> tuple[Window | None, Answer]:
        """Create a new window, at the end of the session, for a process that is being restarted.

        The process needs a new window, because the user closed the original window or opened
        another window at its index.
        """
        if failed.timed_out:
            return None, failed
        answer = self._tmux.run([self.session.add(command, env, anywhere=True)])
        window = render.windows(answer.lines).get(self.session.windows[command.name])
        if window is not None:
            self._tmux.run([self.session.name(command, window)])
        return window, answer

    def _create_again(
        self, command: ProcessSpec, env: Mapping[str, str]
    ) -> tuple[Window | None, Answer]:
        """Create the session with the window of one process, because the session was killed.

        If the server was killed, it is started again, too.
        """
        self.made = False
        self._panes.clear()
        answer = self._tmux.run(self.session.create([command], env), start=True)
        self._note_server(answer)
        window = render.windows(answer.lines).get(self.session.windows[command.name])
        return window, answer

    def _failure_reason(self, answer: Answer) -> str:
        """Return a message that explains why there is no window and how to fix the problem."""
        name, session = self._name, self.session.run.name
        if answer.timed_out:
            return f"got no window: {answer.error}"
        if "duplicate session" in answer.error:
            return (
                f"got no window: the tmux server {name!r} has a session {session!r} that does not "
                "belong to this state directory; choose another name, or remove the session: "
                f"tmux -L {name} kill-session -t {session}"
            )
        if any(
            words in answer.error
            for words in ("invalid option", "unknown option", "unknown command", "unknown flag")
        ):
            return (
                f"got no window: this tmux ({self._tmux.program}) is older than {OLDEST_VERSION}; "
                "install a newer version"
            )
        error = answer.error or "no reason was given"
        message = f"got no window from the tmux server {name!r}: {error}"
        if self.made:
            return message
        directory = os.environ.get("TMUX_TMPDIR") or "/tmp"
        return f"{message}; its socket is below {directory} (TMUX_TMPDIR)"

    def log(self, commands: Sequence[ProcessSpec]) -> None:
        """Start logging the output of processes. This also opens the processes' gates; see
        `symphony_tmux.gates`.
        """
        self._tmux.run(
            [self.session.log(command, self._panes[command.name]) for command in commands]
        )

    # --- changing ---

    def change(self, names: Sequence[str], env: Mapping[str, str]) -> None:
        """Give new processes the next indexes, and replace the session's shared variables."""
        windows = dict(self.session.windows)
        following = max(windows.values(), default=-1) + 1
        for name in names:
            if name not in windows:
                windows[name] = following
                following += 1
        old = self.session.own_env
        self.session = replace(self.session, windows=windows, own_env=dict(env))
        self._set_variables(old)

    def _set_variables(self, old: Mapping[str, str]) -> None:
        commands = self.session.set_variables(old)
        if self.made and commands:
            self._tmux.run(commands)

    def close(self, process: str) -> None:
        """Close the window of a process that has exited."""
        pane = self._panes.pop(process, None)
        if pane is not None:
            self._tmux.run([f"kill-pane -t {pane}"], timeout=QUERY_TIMEOUT_SECONDS)

    # --- querying ---

    def query_panes(self) -> tuple[dict[str, Pane], Answer]:
        """Return a mapping from pane identifiers to the session's panes, and tmux's answer."""
        self._wake_server()
        answer = self._tmux.run([self.session.list_panes()], timeout=QUERY_TIMEOUT_SECONDS)
        return {} if answer.error else render.panes(answer.lines), answer

    def _wake_server(self) -> None:
        """Make tmux check for exited children. While tmux closes a window, it can miss a process's
        exit.

        The cause is libutempter, which handles SIGCHLD itself while a window is being closed. An
        additional signal does no harm.
        """
        if self._server is not None and is_alive(self._server):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._server.pid, signal.SIGCHLD)

    def unfreeze(self, pane: str) -> bool:
        """Type Ctrl-Q in a pane. Return False if tmux does not respond in time.

        After the user has typed Ctrl-S, a keeper cannot write its mark until Ctrl-Q is typed.
        """
        return not self._tmux.run(
            [f"send-keys -t {pane} C-q"], timeout=QUERY_TIMEOUT_SECONDS
        ).timed_out

    def sink(self, process: str) -> int | None:
        """Return the pid of the program that writes a process's log, or None if it is not running.

        The program is a child of the tmux server.
        """
        try:
            with open(self.session.sink(process)) as file:  # noqa: PTH123  (faster than Path)
                pid = int(file.read())
        except (OSError, ValueError):
            return None
        return pid if self._server is not None and _parent(pid) == self._server.pid else None

    def stop_sink(self, process: str) -> None:
        """Stop the program that writes a process's log.

        Otherwise, tmux would keep the program running as long as the window is open.
        """
        sink = self.sink(process)
        if sink is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(sink, signal.SIGTERM)

    # --- removing ---

    def forget(self, process: str) -> None:
        """Delete the record of a process's window, which no longer exists."""
        self._panes.pop(process, None)

    def remove(self) -> None:
        """Remove the session if it was created."""
        remove(self._tmux, self.session.run.name, self.session.run_id)


def remove(tmux: Tmux, session: str, run_id: str) -> Answer:
    """Remove a run's session, and the sessions of terminals that are attached to the run.

    A missing session is not an error.
    """
    answer = tmux.run_one(render.kill_command(session, run_id))
    for left in render.remaining_sessions(answer.lines, run_id):
        tmux.run_one(["kill-session", "-t", left])
    return answer


def process_of(keeper: int) -> int | None:
    """Return the pid of a keeper's process, or None if the process has exited or not started.

    If ``keeper`` is the pid of another process, return it. Only a keeper leads a session.
    """
    from symphony.supervised.processes.environment import read_environment

    try:
        if os.getsid(keeper) != keeper:
            return keeper
        with open(f"/proc/{keeper}/task/{keeper}/children") as file:  # noqa: PTH123
            pid = int(file.read().split()[0])
    except (OSError, IndexError):
        return None
    environment = read_environment(pid)
    if environment is None:
        return None
    # After the process has exited, the keeper can have other child processes. They have the
    # variables of the run, except for SYMPHONY_ROLE, and do not overwrite their environment.
    variables = environment.variables
    is_other_child = RUN_ID_VARIABLE in variables and "SYMPHONY_ROLE" not in variables
    return None if is_other_child else pid


def _has_run(pid: int, run_id: str) -> bool:
    """Return whether a process has the identifier of a run in its environment."""
    from symphony.supervised.processes.environment import read_environment

    environment = read_environment(pid)
    return environment is not None and environment.variables.get(RUN_ID_VARIABLE) == run_id


def _umask() -> int:
    value = os.umask(0o077)
    os.umask(value)
    return value


def _parent(pid: int) -> int | None:
    """Return the pid of a process's parent, as given in the stat file; see proc(5).

    Return None if the process does not exist or is a zombie.
    """
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:  # noqa: PTH123
            state, parent = file.read().rpartition(") ")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return None if state in ("Z", "X") else int(parent)


def _is_session_gone(answer: Answer) -> bool:
    return answer.no_server or "can't find session" in answer.error
