r"""Render commands for tmux, and parse its output. All functions are pure.

tmux has its own command language (tmux(1), "Parsing syntax"). Every word is written in double
quotes, and each byte that has a special meaning is written as ``\ooo``, so that any word arrives
unchanged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shutil import which

from symphony.host.processes.identity import RUN_ID_VARIABLE
from symphony.host.processes.spec import ProcessSpec
from symphony.host.run.directory import RunDirectory
from symphony_tmux.gates import KEEPER, REPORTS

HISTORY_LINES = 10_000
# Options of tmux that only symphony uses: a session contains the identifier of its run, and a
# window contains the name of its process.
RUN_OPTION, PROCESS_OPTION = "@symphony_run", "@symphony_process"
# An attached session to which no terminal connects within this number of seconds is removed.
UNATTACHED_SECONDS = 10

# These variables describe a terminal or its shell. The values from the launcher would be wrong in a
# window.
TERMINAL_VARIABLES = frozenset(
    {
        "TERM",
        "TERM_PROGRAM",
        "TERM_PROGRAM_VERSION",
        "TMUX",
        "TMUX_PANE",
        "COLUMNS",
        "LINES",
        "PWD",
        "OLDPWD",
        "_",
    }
)
# The server has these variables (see `symphony_tmux.client.clean_environment`), but its windows
# must not have them.
SERVER_VARIABLES = ("HOME", "LANG", "TMUX_TMPDIR")
# tmux or the keeper can override these variables. Therefore, env(1) sets them afterwards.
OVERRIDDEN_VARIABLES = TERMINAL_VARIABLES | {"SHELL"}
ENV = "/usr/bin/env"  # The path is absolute, because PATH has the value for the process.

_UNSAFE = re.compile(r"[^A-Za-z0-9 _./:=,@+-]")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The settings that a process inherits from its launcher in addition to its environment: the
    umask and the limit of open files.
    """

    umask: int
    files: int


def quote(word: str) -> str:
    r"""Return a word in tmux's command language.

    >>> print(quote('a "b"'))
    "a \042b\042"
    """
    text = os.fsencode(word).decode("latin-1")  # In latin-1, each character is one byte.
    escaped = _UNSAFE.sub(lambda match: f"\\{ord(match[0]):03o}", text)
    return f'"{escaped}"'


@dataclass(frozen=True, slots=True)
class Session:
    """The session of one experiment. ``windows`` maps each process to its index, in declaration
    order.
    """

    run: RunDirectory
    run_id: str
    windows: Mapping[str, int]
    own_env: Mapping[str, str]
    limits: Limits

    @property
    def target(self) -> str:
        """The tmux target that matches exactly the name of the session."""
        return f"={self.run.name}:"

    @property
    def gates(self) -> str:
        """The directory that contains the FIFOs between the supervisor and its windows."""
        return f"{self.run.path}/gates"

    def gate(self, process: str) -> str:
        """Return the path of the FIFO at which a process waits for its log, and at which its keeper
        waits for its release.
        """
        return f"{self.gates}/{process}"

    def sink(self, process: str) -> str:
        """Return the path of the file that contains the pid of the process that writes the log of
        an experiment's process.
        """
        return f"{self.gates}/{process}.pid"

    # --- commands ---

    def create(self, commands: Sequence[ProcessSpec], env: Mapping[str, str]) -> list[str]:
        """Return the commands that create the session with its first windows. ``env`` is the
        environment of all windows.

        Either all of the windows are created or none: on an error, tmux skips the rest of the line.
        The line starts with an option that tmux has supported since version 3.3, which also
        introduced ``pane_dead_signal``. Therefore, an older tmux stops at this option.
        """
        first, *others = commands
        index = self.windows[first.name]
        given = env.get("SHELL", "")
        shell = quote(given if os.access(given, os.X_OK) else "/bin/sh")
        shared = _shared(env)
        move = [f"move-window -s {self.target} -t {self.target}{index}"] if index else []
        return [
            # Without this option, the message log would show every command with its variables.
            "set-option -s message-limit 0",
            f"set-option -g history-limit {HISTORY_LINES}",
            'set-option -g update-environment ""',
            *(f"set-environment -gu {name}" for name in SERVER_VARIABLES),
            f"set-option -g base-index 0 ; set-option -g default-shell {shell}",
            " ; ".join(
                [
                    "show-options -gw remain-on-exit-format",
                    f"new-session -d -E -s {self.run.name} {self._window(first, env, shared)}",
                    *(self._unshare(key, shared) for key in first.env),
                    f"set-option -t {self.target} {RUN_OPTION} {self.run_id}",
                    *move,
                    self._keep(first, f"{self.target}{index}"),
                    f'display-message -p -t {self.target} "server #{{pid}} #{{socket_path}}"',
                    *(self.add(command, env) for command in others),
                ]
            ),
        ]

    def add(self, command: ProcessSpec, env: Mapping[str, str], *, anywhere: bool = False) -> str:
        """Return the command that adds the window of a process at its index, or at the end if
        ``anywhere`` is set.
        """
        index = self.windows[command.name]
        position = "" if anywhere else str(index)
        keep = "" if anywhere else f" ; {self._keep(command, f'{self.target}{index}')}"
        return f"new-window -d -t {self.target}{position} {self._window(command, env)}{keep}"

    def keep(self, command: ProcessSpec, window: Window) -> str:
        """Return the command that marks a window which was added at the end, and keeps the window
        open after its process has exited.
        """
        return self._keep(command, window.id)

    def _keep(self, command: ProcessSpec, window: str) -> str:
        options = {"remain-on-exit": "on", PROCESS_OPTION: command.name}
        return " ; ".join(
            f"set-option -w -t {window} {option} {value}" for option, value in options.items()
        )

    def respawn(self, command: ProcessSpec, env: Mapping[str, str], pane: str) -> str:
        """Return the command that starts a process again in its window."""
        report = f'display-message -p -t {pane} "{_window_format(self.windows[command.name])}"'
        environment, argv = self._environment(command, env), self._argv(command, env)
        return f"respawn-pane -k -t {pane} -c / {environment} -- {argv} ; {report}"

    def log(self, command: ProcessSpec, pane: str) -> str:
        """Return the command that writes the output of a window to the log of its process and then
        opens the gate of the process.
        """
        gate = _shell_word(self.gate(command.name))
        sink = _shell_word(self.sink(command.name))
        log = _shell_word(str(self.run.log(command.name)))
        return f"pipe-pane -t {pane} {quote(f'echo $$ >{sink}; echo >{gate}; exec cat >>{log}')}"

    def list_panes(self) -> str:
        """Return the command that lists the panes of the session in the format `PANE`."""
        return f'list-panes -s -t {self.target} -F "{PANE}"'

    def _unshare(self, key: str, shared: Mapping[str, str]) -> str:
        """Return the command that restores a session variable that the first process overrode,
        because all windows would inherit the overridden value.
        """
        if key in shared:
            return f"set-environment -t {self.target} -- {quote(key)} {quote(shared[key])}"
        return f"set-environment -t {self.target} -u -- {quote(key)}"

    def _window(
        self, command: ProcessSpec, env: Mapping[str, str], shared: Mapping[str, str] | None = None
    ) -> str:
        name = f"{command.group}:{command.name}" if command.group else command.name
        variables = [f"-e {quote(f'{key}={value}')}" for key, value in (shared or {}).items()]
        report = f'-P -F "{_window_format(self.windows[command.name])}"'
        words = [f"-n {quote(name)} -c / {report}", *variables, self._environment(command, env)]
        return f"{' '.join(words)} -- {self._argv(command, env)}"

    def _environment(self, command: ProcessSpec, env: Mapping[str, str]) -> str:
        """Return the variables of one window: the variables of its process, except for those that
        env(1) sets, and the mark of the run.
        """
        variables = {
            RUN_ID_VARIABLE: env[RUN_ID_VARIABLE],
            **{key: value for key, value in command.env.items() if key not in OVERRIDDEN_VARIABLES},
        }
        return " ".join(f"-e {quote(f'{key}={value}')}" for key, value in variables.items())

    def _argv(self, command: ProcessSpec, env: Mapping[str, str]) -> str:
        return " ".join(map(quote, self.argv(command, env)))

    def argv(self, command: ProcessSpec, env: Mapping[str, str]) -> list[str]:
        """Return the command of a window, which is its keeper followed by the command of the
        process.
        """
        chosen = {**self.own_env, **command.env}
        overrides = [f"{key}={chosen[key]}" for key in sorted(OVERRIDDEN_VARIABLES & chosen.keys())]
        return [
            self._shell(env, command),
            f"{self.gates}/{KEEPER}",
            f"{self.gates}/{REPORTS}",
            self.gate(command.name),
            f"{self.limits.umask:03o}",
            str(self.limits.files),
            command.cwd,
            *([ENV, *overrides] if overrides else []),
            *command.argv,
        ]

    def _shell(self, env: Mapping[str, str], command: ProcessSpec) -> str:
        """Return the shell for the keeper. It is bash if there are variables such as
        ``BASH_FUNC_ml%%``, which a POSIX shell drops.
        """
        needs_bash = any(_IDENTIFIER.fullmatch(name) is None for name in [*env, *command.env])
        return (which("bash") if needs_bash else None) or "/bin/sh"


def kill_command(session: str, run_id: str) -> list[str]:
    """Return the command that removes a session only if it belongs to that run, because another run
    may have a session of the same name.

    The command then lists the remaining sessions: terminals that are attached to the run have their
    own sessions, which keep the windows of the run open. See `remaining_sessions`.
    """
    remove = [
        "if-shell",
        "-F",
        "-t",
        f"={session}:",
        _belongs_to_run(run_id),
        f"kill-session -t ={session}:",
    ]
    return [*remove, ";", "list-sessions", "-F", f"session #{{session_id}} #{{{RUN_OPTION}}}"]


def attach_command(
    session: str, run_id: str, *, name: str, window: str, env: Mapping[str, str]
) -> list[str]:
    """Return the command that creates, for a terminal, a session ``name`` with the same windows,
    and selects one of the windows.

    Each terminal therefore has its own current window. ``env`` is the environment of windows that
    the user opens in the new session. The command prints the identifier of the new session, or
    nothing if that run has no session.

    The session is removed when the terminal detaches, or if no terminal attaches. (The option
    ``destroy-unattached`` has the same effect, but in some versions it kills the server if two
    clients detach at the same time.)
    """
    variables = " ".join(f"-e {quote(f'{key}={value}')}" for key, value in _shared(env).items())
    own = f"={name}:"
    commands = [
        f'new-session -d -E -t ={session}: -s {name} -P -F "#{{session_id}}" {variables}',
        f"set-option -t {own} {RUN_OPTION} {run_id}",
        f'set-option -t {own} status-left "[{session}] "',
        f"select-window -t {own}{window}",
        f"run-shell -b -d {UNATTACHED_SECONDS} -C {{ {_kill_if_unattached(name)} }}",
        f"set-hook -t {own} client-detached {{ {_kill_if_unattached(name)} }}",
    ]
    return [f'if-shell -F -t ={session}: "{_belongs_to_run(run_id)}" {{ {" ; ".join(commands)} }}']


def _kill_if_unattached(name: str) -> str:
    """Return the command that removes a session without an attached terminal."""
    return (
        f'if-shell -F -t ={name}: "#{{==:#{{session_attached}},0}}" {{ kill-session -t ={name}: }}'
    )


def _belongs_to_run(run_id: str) -> str:
    """Return the condition that is true if a session belongs to that run."""
    return f"#{{==:#{{{RUN_OPTION}}},{run_id}}}"


def _shared(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a session gives to all of its windows."""
    return {
        key: value
        for key, value in env.items()
        if key not in TERMINAL_VARIABLES and key != RUN_ID_VARIABLE
    }


# --- output of tmux ---

PANE = "#{pane_id},#{pane_pid},#{pane_dead},#{pane_dead_status},#{pane_dead_signal}"


@dataclass(frozen=True, slots=True)
class Window:
    """A window as tmux reported it on creation: the index of its process, its pane, and the keeper
    in that pane.
    """

    index: int
    id: str
    pane: str
    pid: int


@dataclass(frozen=True, slots=True)
class Pane:
    """The state of a pane. ``pid`` is the pid of its keeper. ``code`` is the exit code of the
    keeper: 128 + n for signal n, and None if it is unknown.
    """

    pid: int
    dead: bool
    code: int | None


def _window_format(index: int) -> str:
    return f"window {index} #{{window_id}} #{{pane_id}} #{{pane_pid}}"


def windows(answer: Sequence[str]) -> dict[int, Window]:
    """Return a mapping from indexes to the created windows."""
    found = {}
    for line in answer:
        if line.startswith("window "):
            _, index, name, pane, pid = line.split()
            found[int(index)] = Window(int(index), name, pane, int(pid))
    return found


def remaining_sessions(answer: Sequence[str], run_id: str) -> list[str]:
    """Return the remaining sessions of a run from the output of `kill_command`."""
    found = (line.split() for line in answer if line.startswith("session "))
    return [words[1] for words in found if words[2:] == [run_id]]


def panes(answer: Sequence[str]) -> dict[str, Pane]:
    """Return a mapping from identifiers to the panes of a session."""
    found = {}
    for line in answer:
        pane, pid, dead, status, signal = line.split(",")
        code = None
        if status:
            code = int(status)
        elif signal:
            code = 128 + int(signal)
        found[pane] = Pane(int(pid), dead == "1", code)
    return found


def server(answer: Sequence[str]) -> tuple[int, str] | None:
    """Return the pid and the socket of the server that created the session."""
    for line in answer:
        if line.startswith("server "):
            _, pid, socket = line.split(" ", 2)
            return int(pid), socket
    return None


def _shell_word(path: str) -> str:
    """Return a path for a shell line that tmux expands first. The path must contain neither ``#``
    nor ``%``.
    """
    quoted = path.replace("'", "'\"'\"'")
    for mark, octal in (("#", "043"), ("%", "045")):
        quoted = quoted.replace(mark, f"'\"$(printf '\\{octal}')\"'")
    return f"'{quoted}'"
