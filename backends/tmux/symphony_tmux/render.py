r"""Render commands for tmux, and parse its output. All functions are pure.

tmux has its own command language (tmux(1), "Parsing syntax"). Every word is written in double
quotes, and each byte that could have a special meaning is written as ``\ooo``, so that tmux reads
every word unchanged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shutil import which

from symphony.supervised.processes.identity import RUN_ID_VARIABLE
from symphony.supervised.processes.mark import mark_of
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony_tmux.gates import KEEPER, REPORTS
from symphony_tmux.keeper import RENAMED_PREFIX

HISTORY_LINES = 10_000
# tmux user options. A session's options contain its run's identifier and its run directory in
# hexadecimal digits. A window's option contains its process's name.
RUN_OPTION, DIRECTORY_OPTION = "@symphony_run", "@symphony_directory"
PROCESS_OPTION = "@symphony_process"
# A session for a terminal is removed if no terminal attaches to it within this number of seconds.
UNATTACHED_SECONDS = 10

# These variables describe a terminal or its shell. The launcher's values would be wrong in a
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
# The server has these variables (see `symphony_tmux.tmux_commands.clean_environment`), but its
# windows must not have them.
SERVER_VARIABLES = ("HOME", "LANG", "TMUX_TMPDIR")
# tmux or the keeper can override these variables. A window therefore receives the values in
# variables with other names, and the keeper renames these variables. The values could be secrets,
# so they must not be in a command line.
OVERRIDDEN_VARIABLES = TERMINAL_VARIABLES | {"SHELL"}

_UNSAFE = re.compile(r"[^A-Za-z0-9 _./:=,@+-]")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The settings that a process receives in addition to its environment.

    ``umask`` and ``files``, the limit on open files, are those of the launcher. ``run_id`` is the
    identifier of the run, whose mark the process receives; see
    `symphony.supervised.processes.mark`.
    """

    umask: int
    files: int
    run_id: str


def quote(word: str) -> str:
    r"""Quote a word for tmux's command language.

    >>> print(quote('a "b"'))
    "a \042b\042"
    """
    text = os.fsencode(word).decode("latin-1")  # In latin-1, each character is one byte.
    escaped = _UNSAFE.sub(lambda match: f"\\{ord(match[0]):03o}", text)
    return f'"{escaped}"'


@dataclass(frozen=True, slots=True)
class Session:
    """An experiment's session.

    ``windows`` maps each process, in declaration order, to its window's index.
    """

    run: RunDirectory
    run_id: str
    windows: Mapping[str, int]
    own_env: Mapping[str, str]
    limits: Limits

    @property
    def target(self) -> str:
        """The tmux target that matches only the session with exactly the experiment's name."""
        return f"={self.run.name}:"

    @property
    def gates(self) -> str:
        """The directory that contains the FIFOs between the supervisor and its windows."""
        return f"{self.run.path}/gates"

    def gate(self, process: str) -> str:
        """Return the path of a process's gate, which is a FIFO.

        The process waits at its gate until logging has started. After the process has exited, its
        keeper waits at the gate until the supervisor releases the keeper.
        """
        return f"{self.gates}/{process}"

    def sink(self, process: str) -> str:
        """Return the path of the pid file for the program that writes a process's log."""
        return f"{self.gates}/{process}.pid"

    # --- commands ---

    def create(self, commands: Sequence[ProcessSpec], env: Mapping[str, str]) -> list[str]:
        """Return the commands that create the session with its first windows. ``env`` is the
        environment of all windows.

        After an error, tmux skips the rest of the line, so no window is created if the session
        cannot be created. The last line starts with an option that tmux 3.3 introduced together
        with ``pane_dead_signal``. An older tmux stops at this option.

        A session of an earlier run in the same run directory is removed first. It remains if the
        supervisor of that run was killed while it created the session.
        """
        first, *others = commands
        index = self.windows[first.name]
        given = env.get("SHELL", "")
        shell = quote(given if os.access(given, os.X_OK) else "/bin/sh")
        shared = _shared(env)
        directory = os.fsencode(self.run.path).hex()
        move = [f"move-window -s {self.target} -t {self.target}{index}"] if index else []
        return [
            # Without this option, the message log would show every command with its variables.
            "set-option -s message-limit 0",
            f"set-option -g history-limit {HISTORY_LINES}",
            'set-option -g update-environment ""',
            *(f"set-environment -gu {name}" for name in SERVER_VARIABLES),
            f'if-shell -F -t {self.target} "#{{==:#{{{DIRECTORY_OPTION}}},{directory}}}" '
            f'"kill-session -t {self.target}"',
            f"set-option -g base-index 0 ; set-option -g default-shell {shell}",
            " ; ".join(
                [
                    "show-options -gw remain-on-exit-format",
                    f"new-session -d -E -s {self.run.name} {self._window(first, env, shared)}",
                    *(self._unshare(key, shared) for key in self._own_variables(first)),
                    f"set-option -t {self.target} {RUN_OPTION} {self.run_id}",
                    f"set-option -t {self.target} {DIRECTORY_OPTION} {directory}",
                    *move,
                    self._name(first, f"{self.target}{index}"),
                    f'display-message -p -t {self.target} "server #{{pid}} #{{socket_path}}"',
                    *(self.add(command, env) for command in others),
                ]
            ),
        ]

    def add(self, command: ProcessSpec, env: Mapping[str, str], *, anywhere: bool = False) -> str:
        """Return the command that adds a process's window at the process's index.

        If ``anywhere`` is true, the window is added at the end of the session instead.
        """
        index = self.windows[command.name]
        position = "" if anywhere else str(index)
        name = "" if anywhere else f" ; {self._name(command, f'{self.target}{index}')}"
        return f"new-window -d -t {self.target}{position} {self._window(command, env)}{name}"

    def name(self, command: ProcessSpec, window: Window) -> str:
        """Return the command that stores the process's name in an option of its window.

        The command is for a window that `add` created with ``anywhere``.
        """
        return self._name(command, window.id)

    def _name(self, command: ProcessSpec, window: str) -> str:
        return f"set-option -w -t {window} {PROCESS_OPTION} {command.name}"

    def respawn(self, command: ProcessSpec, env: Mapping[str, str], pane: str) -> str:
        """Return the command that starts a process again in its window."""
        report = f'display-message -p -t {pane} "{_window_format(self.windows[command.name])}"'
        environment, argv = self._environment(command, env), self._argv(command, env)
        return f"respawn-pane -k -t {pane} -c / {environment} -- {argv} ; {report}"

    def log(self, command: ProcessSpec, pane: str) -> str:
        """Return the command that connects a window's output to a process's log.

        The command also keeps the window open after the process has exited, and then opens the
        process's gate. If the supervisor is killed before it sends this command, the window closes
        when its keeper exits. This is necessary if the experiment has been deleted in the meantime,
        because no program would remove the window.
        """
        gate = _shell_word(self.gate(command.name))
        sink = _shell_word(self.sink(command.name))
        log = _shell_word(str(self.run.log(command.name)))
        shell_line = f"echo $$ >{sink}; echo >{gate}; exec cat >>{log}"
        return f"{self.keep_window(pane)} ; pipe-pane -t {pane} {quote(shell_line)}"

    def keep_window(self, pane: str) -> str:
        """Return the command that keeps a window open after its keeper has exited."""
        return f"set-option -w -t {pane} remain-on-exit on"

    def find(self) -> list[str]:
        """Return the commands that describe an existing session and its panes; see `server` and
        `owned_panes`.
        """
        owner = f"#{{{RUN_OPTION}}},#{{{PROCESS_OPTION}}}"
        return [
            f'display-message -p -t {self.target} "server #{{pid}} #{{socket_path}}"',
            f'list-panes -s -t {self.target} -F "owned {owner},{PANE}"',
        ]

    def set_variables(self, old: Mapping[str, str]) -> list[str]:
        """Return the commands that replace the session's shared variables ``old``."""
        removed = [key for key in _shared(old) if key not in self.own_env]
        commands = [f"set-environment -t {self.target} -u -- {quote(key)}" for key in removed]
        for key, value in _shared(self.own_env).items():
            if old.get(key) != value:
                words = f"{quote(key)} {quote(value)}"
                commands.append(f"set-environment -t {self.target} -- {words}")
        return commands

    def list_panes(self) -> str:
        """Return the command that lists the session's panes in the format `PANE`."""
        return f'list-panes -s -t {self.target} -F "{PANE}"'

    def _unshare(self, key: str, shared: Mapping[str, str]) -> str:
        """Return the command that restores a session variable that the first process overrode.

        Otherwise, all windows would inherit the first process's value.
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
        """Return the options that set one window's variables.

        The variables are the run's identifier and the process's variables.
        """
        variables = {RUN_ID_VARIABLE: env[RUN_ID_VARIABLE], **self._own_variables(command)}
        return " ".join(f"-e {quote(f'{key}={value}')}" for key, value in variables.items())

    def _own_variables(self, command: ProcessSpec) -> dict[str, str]:
        """Return a process's variables. Those that the keeper renames have the prefix
        `RENAMED_PREFIX`.
        """
        own = {key: value for key, value in command.env.items() if key not in OVERRIDDEN_VARIABLES}
        chosen = {**self.own_env, **command.env}
        renamed = {f"{RENAMED_PREFIX}{key}": chosen[key] for key in self._renamed(command)}
        return {**own, **renamed}

    def _renamed(self, command: ProcessSpec) -> list[str]:
        """Return the final names of the variables that the keeper renames."""
        return sorted(OVERRIDDEN_VARIABLES & {*self.own_env, *command.env})

    def _argv(self, command: ProcessSpec, env: Mapping[str, str]) -> str:
        return " ".join(map(quote, self.argv(command, env)))

    def argv(self, command: ProcessSpec, env: Mapping[str, str]) -> list[str]:
        """Return a window's command: the keeper's command followed by the process's command."""
        return [
            self._shell(env, command),
            f"{self.gates}/{KEEPER}",
            f"{self.gates}/{REPORTS}",
            self.gate(command.name),
            f"{self.limits.umask:03o}",
            str(self.limits.files),
            str(mark_of(self.limits.run_id, command.name) or ""),
            command.cwd,
            *self._renamed(command),
            "--",
            *command.argv,
        ]

    def _shell(self, env: Mapping[str, str], command: ProcessSpec) -> str:
        """Return the path of the keeper's shell, which is usually ``/bin/sh``.

        A POSIX shell drops variables such as ``BASH_FUNC_ml%%``, whose names are not identifiers.
        If there are such variables, the shell is bash, provided that bash is installed.
        """
        needs_bash = any(_IDENTIFIER.fullmatch(name) is None for name in [*env, *command.env])
        return (which("bash") if needs_bash else None) or "/bin/sh"


def kill_command(session: str, run_id: str) -> list[str]:
    """Return the command that removes a session only if it belongs to the run ``run_id``.

    Another run may have a session with the same name. The command also lists the remaining
    sessions, whether or not it has removed one. Each terminal that is attached to the run has its
    own session, which keeps the run's windows open. See `remaining_sessions`.
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
    """Return the command that creates the session ``name`` for a terminal and selects ``window``.

    The new session has the same windows as ``session``.

    Because each terminal has its own session, it also has its own current window. ``env`` is the
    environment of windows that the user opens in the new session. The command prints the identifier
    of the new session, or nothing if the run has no session.

    The session is removed when the terminal detaches, or if no terminal attaches within
    `UNATTACHED_SECONDS`. (The option ``destroy-unattached`` has a similar effect, but in some
    versions of tmux, it kills the server if two clients detach at the same time.)
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
    """Return the command that removes a session if no terminal is attached to it."""
    return (
        f'if-shell -F -t ={name}: "#{{==:#{{session_attached}},0}}" {{ kill-session -t ={name}: }}'
    )


def _belongs_to_run(run_id: str) -> str:
    """Return the tmux condition that is true if a session belongs to the run ``run_id``."""
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
    """The state of a pane. ``pid`` is the pid of its keeper. ``code`` is the keeper's exit code,
    128 + n if signal n killed the keeper, or None if neither is known.
    """

    pid: int
    dead: bool
    code: int | None


def _window_format(index: int) -> str:
    return f"window {index} #{{window_id}} #{{pane_id}} #{{pane_pid}}"


def windows(answer: Sequence[str]) -> dict[int, Window]:
    """Return a mapping from window indexes to the windows that tmux created."""
    found = {}
    for line in answer:
        if line.startswith("window "):
            _, index, name, pane, pid = line.split()
            found[int(index)] = Window(int(index), name, pane, int(pid))
    return found


def remaining_sessions(answer: Sequence[str], run_id: str) -> list[str]:
    """Return the identifiers of a run's remaining sessions from the output of `kill_command`."""
    found = (line.split() for line in answer if line.startswith("session "))
    return [words[1] for words in found if words[2:] == [run_id]]


def panes(answer: Sequence[str]) -> dict[str, Pane]:
    """Return a mapping from pane identifiers to a session's panes."""
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


@dataclass(frozen=True, slots=True)
class OwnedPane:
    """A pane with its identifier and the process to which its window belongs, or ``""``."""

    process: str
    id: str
    pane: Pane


def owned_panes(answer: Sequence[str], run_id: str) -> list[OwnedPane]:
    """Return the panes of a run from the output of `Session.find`, in the order of creation."""
    found = []
    for line in answer:
        if line.startswith(f"owned {run_id},"):
            _, process, rest = line.split(",", 2)
            found += [OwnedPane(process, id, pane) for id, pane in panes([rest]).items()]
    return sorted(found, key=lambda owned: int(owned.id.removeprefix("%")))


def server(answer: Sequence[str]) -> tuple[int, str] | None:
    """Return the server's pid and socket path, or None if no session was created."""
    for line in answer:
        if line.startswith("server "):
            _, pid, socket = line.split(" ", 2)
            return int(pid), socket
    return None


def _shell_word(path: str) -> str:
    """Quote a path for a shell command that tmux expands before the shell reads it.

    The result contains neither ``#`` nor ``%``.
    """
    quoted = path.replace("'", "'\"'\"'")
    for mark, octal in (("#", "043"), ("%", "045")):
        quoted = quoted.replace(mark, f"'\"$(printf '\\{octal}')\"'")
    return f"'{quoted}'"
