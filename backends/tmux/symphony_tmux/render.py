r"""What tmux is told, as text. Pure.

tmux reads commands in a language of its own (tmux(1), "Parsing syntax"). Every word is written in double quotes
with each byte that could mean something as ``\ooo``, so that a word arrives as it is, whatever is in it.
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
# Options of symphony's own: a session has the id of its run, a window the name of its process.
RUN_OPTION, PROCESS_OPTION = "@symphony_run", "@symphony_process"
# A session for a terminal to which none was attached after so many seconds ends.
UNATTACHED = 10

# What describes a terminal or the shell that was in it: those of the launcher would be wrong in a window.
OF_A_TERMINAL = frozenset(
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
# What the server itself was given (see `symphony_tmux.client.clean_environment`), and its windows are not.
OF_THE_SERVER = ("HOME", "LANG", "TMUX_TMPDIR")
# What tmux, or the keeper, may set whatever it was told: env(1) sets it after them.
OVERRULED = OF_A_TERMINAL | {"SHELL"}
ENV = "/usr/bin/env"  # not by PATH, which is the process's own

_UNSAFE = re.compile(r"[^A-Za-z0-9 _./:=,@+-]")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a process inherits from its launcher beside its environment: umask and open files."""

    umask: int
    files: int


def quote(word: str) -> str:
    r"""A word of tmux's language.

    >>> print(quote('a "b"'))
    "a \042b\042"
    """
    # As latin-1 each character is one byte, and what leaves is ASCII.
    return (
        '"'
        + _UNSAFE.sub(lambda found: f"\\{ord(found[0]):03o}", os.fsencode(word).decode("latin-1"))
        + '"'
    )


@dataclass(frozen=True, slots=True)
class Session:
    """The session of one experiment. ``windows`` has the place of each process, in declaration order."""

    run: RunDirectory
    run_id: str
    windows: Mapping[str, int]
    own_env: Mapping[str, str]
    limits: Limits

    @property
    def target(self) -> str:
        """The session, exactly, as a target."""
        return f"={self.run.name}:"

    @property
    def gates(self) -> str:
        """The folder of what stands between a supervisor and its windows."""
        return f"{self.run.path}/gates"

    def gate(self, process: str) -> str:
        """The FIFO at which a process waits for its log, and its keeper for what reads it."""
        return f"{self.gates}/{process}"

    def sink(self, process: str) -> str:
        """The file that holds the id of what writes the log of a process."""
        return f"{self.gates}/{process}.pid"

    # --- commands ---

    def create(self, commands: Sequence[ProcessSpec], env: Mapping[str, str]) -> list[str]:
        """Make the session with its first windows. ``env`` is what all of its windows get.

        It is all or nothing: one line, of which tmux leaves the rest where something fails. First it is asked for
        an option that tmux has since 3.3, as it has ``pane_dead_signal``: there an older one stops.
        """
        first, *others = commands
        index = self.windows[first.name]
        given = env.get("SHELL", "")
        shell = quote(given if os.access(given, os.X_OK) else "/bin/sh")
        shared = _shared(env)
        move = [f"move-window -s {self.target} -t {self.target}{index}"] if index else []
        return [
            "set-option -s message-limit 0",  # the messages would show every command with its variables
            f"set-option -g history-limit {HISTORY_LINES}",
            'set-option -g update-environment ""',
            *(f"set-environment -gu {name}" for name in OF_THE_SERVER),
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
        """Add the window of a process, at its place or, where somebody has that, at the end."""
        index = self.windows[command.name]
        place = "" if anywhere else str(index)
        keep = "" if anywhere else f" ; {self._keep(command, f'{self.target}{index}')}"
        return f"new-window -d -t {self.target}{place} {self._window(command, env)}{keep}"

    def keep(self, command: ProcessSpec, window: Window) -> str:
        """Mark a window that was added anywhere, and let it stay when its process has ended."""
        return self._keep(command, window.id)

    def _keep(self, command: ProcessSpec, window: str) -> str:
        options = {"remain-on-exit": "on", PROCESS_OPTION: command.name}
        return " ; ".join(
            f"set-option -w -t {window} {option} {value}" for option, value in options.items()
        )

    def respawn(self, command: ProcessSpec, env: Mapping[str, str], pane: str) -> str:
        """Start a process again in the window that it had."""
        told = f'display-message -p -t {pane} "{_told(self.windows[command.name])}"'
        return f"respawn-pane -k -t {pane} -c / {self._environment(command, env)} -- {self._argv(command, env)} ; {told}"

    def log(self, command: ProcessSpec, pane: str) -> str:
        """Write what a window shows to the log of its process, then open its gate."""
        places = self.gate(command.name), self.sink(command.name), str(self.run.log(command.name))
        gate, sink, log = map(_shell_word, places)
        return f"pipe-pane -t {pane} {quote(f'echo $$ >{sink}; echo >{gate}; exec cat >>{log}')}"

    def look(self) -> str:
        """Tell how the panes of the session are, each as `PANE` says."""
        return f'list-panes -s -t {self.target} -F "{PANE}"'

    def _unshare(self, key: str, shared: Mapping[str, str]) -> str:
        """Take a variable of the first process back out of the session's, which all its windows would get."""
        if key in shared:
            return f"set-environment -t {self.target} -- {quote(key)} {quote(shared[key])}"
        return f"set-environment -t {self.target} -u -- {quote(key)}"

    def _window(
        self, command: ProcessSpec, env: Mapping[str, str], shared: Mapping[str, str] | None = None
    ) -> str:
        name = f"{command.group}:{command.name}" if command.group else command.name
        variables = [f"-e {quote(f'{key}={value}')}" for key, value in (shared or {}).items()]
        told = f'-P -F "{_told(self.windows[command.name])}"'
        words = [f"-n {quote(name)} -c / {told}", *variables, self._environment(command, env)]
        return f"{' '.join(words)} -- {self._argv(command, env)}"

    def _environment(self, command: ProcessSpec, env: Mapping[str, str]) -> str:
        """The variables of one window: its own, but for those that env(1) sets, and the mark."""
        variables = {
            RUN_ID_VARIABLE: env[RUN_ID_VARIABLE],
            **{key: value for key, value in command.env.items() if key not in OVERRULED},
        }
        return " ".join(f"-e {quote(f'{key}={value}')}" for key, value in variables.items())

    def _argv(self, command: ProcessSpec, env: Mapping[str, str]) -> str:
        return " ".join(map(quote, self.argv(command, env)))

    def argv(self, command: ProcessSpec, env: Mapping[str, str]) -> list[str]:
        """The command of a window: its keeper, and what that runs."""
        chosen = {**self.own_env, **command.env}
        overruled = [f"{key}={chosen[key]}" for key in sorted(OVERRULED & chosen.keys())]
        return [
            self._shell(env, command),
            f"{self.gates}/{KEEPER}",
            f"{self.gates}/{REPORTS}",
            self.gate(command.name),
            f"{self.limits.umask:03o}",
            str(self.limits.files),
            command.cwd,
            *([ENV, *overruled] if overruled else []),
            *command.argv,
        ]

    def _shell(self, env: Mapping[str, str], command: ProcessSpec) -> str:
        """The shell that is the keeper: bash for names like ``BASH_FUNC_ml%%``, which a POSIX shell drops."""
        odd = any(_IDENTIFIER.fullmatch(name) is None for name in [*env, *command.env])
        return (which("bash") if odd else None) or "/bin/sh"


def kill_words(session: str, run_id: str) -> list[str]:
    """The command that removes a session if it is the one of that run, and nobody else's of the same name.

    It then tells which sessions are left: terminals that are attached to the run have sessions of their own, which
    keep the windows. See `of_run`.
    """
    remove = [
        "if-shell",
        "-F",
        "-t",
        f"={session}:",
        _is_of(run_id),
        f"kill-session -t ={session}:",
    ]
    return [*remove, ";", "list-sessions", "-F", f"session #{{session_id}} #{{{RUN_OPTION}}}"]


def attached(
    session: str, run_id: str, *, name: str, window: str, env: Mapping[str, str]
) -> list[str]:
    """Make, for a terminal, a session ``name`` of the same windows, which shows one of them.

    So each terminal has a current window of its own. ``env`` is for windows that are opened in it by hand. It tells
    its id, or nothing where there is no such session of that run.

    It ends when the terminal is detached, or where none comes. (tmux has ``destroy-unattached`` for that, which in some
    versions ends the server instead when two clients go at once.)
    """
    variables = " ".join(f"-e {quote(f'{key}={value}')}" for key, value in _shared(env).items())
    own = f"={name}:"
    commands = [
        f'new-session -d -E -t ={session}: -s {name} -P -F "#{{session_id}}" {variables}',
        f"set-option -t {own} {RUN_OPTION} {run_id}",
        f'set-option -t {own} status-left "[{session}] "',
        f"select-window -t {own}{window}",
        f"run-shell -b -d {UNATTACHED} -C {{ {_unused(name)} }}",
        f"set-hook -t {own} client-detached {{ {_unused(name)} }}",
    ]
    return [f'if-shell -F -t ={session}: "{_is_of(run_id)}" {{ {" ; ".join(commands)} }}']


def _unused(name: str) -> str:
    """Remove a session to which no terminal is attached."""
    return (
        f'if-shell -F -t ={name}: "#{{==:#{{session_attached}},0}}" {{ kill-session -t ={name}: }}'
    )


def _is_of(run_id: str) -> str:
    """The condition that a session is one of that run."""
    return f"#{{==:#{{{RUN_OPTION}}},{run_id}}}"


def _shared(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that a session gives to all of its windows."""
    return {
        key: value
        for key, value in env.items()
        if key not in OF_A_TERMINAL and key != RUN_ID_VARIABLE
    }


# --- what tmux answers ---

PANE = "#{pane_id},#{pane_pid},#{pane_dead},#{pane_dead_status},#{pane_dead_signal}"


@dataclass(frozen=True, slots=True)
class Window:
    """A window as tmux told it when it was made: the place of its process, its pane, and that pane's keeper."""

    index: int
    id: str
    pane: str
    pid: int


@dataclass(frozen=True, slots=True)
class Pane:
    """A pane as it is. ``pid`` is its keeper's, ``code`` how that ended: 128 + n for signal n, None if untold."""

    pid: int
    dead: bool
    code: int | None


def _told(index: int) -> str:
    return f"window {index} #{{window_id}} #{{pane_id}} #{{pane_pid}}"


def windows(answer: Sequence[str]) -> dict[int, Window]:
    """The windows that were made, by place."""
    found = (line.split() for line in answer if line.startswith("window "))
    return {
        int(place): Window(int(place), name, pane, int(pid)) for _, place, name, pane, pid in found
    }


def of_run(answer: Sequence[str], run_id: str) -> list[str]:
    """The ids of the sessions of a run that are left, as `kill_words` tells them."""
    found = (line.split() for line in answer if line.startswith("session "))
    return [words[1] for words in found if words[2:] == [run_id]]


def panes(answer: Sequence[str]) -> dict[str, Pane]:
    """The panes of a session, by id."""
    found = {}
    for line in answer:
        pane, pid, dead, status, signal = line.split(",")
        code = int(status) if status else 128 + int(signal) if signal else None
        found[pane] = Pane(int(pid), dead == "1", code)
    return found


def server(answer: Sequence[str]) -> tuple[int, str] | None:
    """The id and the socket of the server that made the session."""
    for line in answer:
        if line.startswith("server "):
            _, pid, socket = line.split(" ", 2)
            return int(pid), socket
    return None


def _shell_word(path: str) -> str:
    """A path in a shell line that tmux expands first: neither ``#`` nor ``%`` may stand in it."""
    quoted = path.replace("'", "'\"'\"'")
    for mark, octal in (("#", "043"), ("%", "045")):
        quoted = quoted.replace(mark, f"'\"$(printf '\\{octal}')\"'")
    return f"'{quoted}'"
