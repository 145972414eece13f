"""Words of similar programs that people type, and what to type in symphony instead.

The words are commands and options of docker compose, kubectl, Slurm, process-compose and torchx,
and aliases of earlier versions. A word that means the same as a command of symphony is an alias of
that command instead.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_DELETE = "'{prog} delete NAME'"
_DESCRIBE = "'{prog} describe NAME PROCESS'"
_HISTORY = "'{prog} history'"
_LIST = "'{prog} ls'"
_REFRESH = "'{prog} ps NAME --watch'"
_SHELL = "'{prog} exec NAME PROCESS -- bash'"
_STATES = "'{prog} ps NAME'"
_STATES_HERE = _STATES + ", or '{prog} ps' in the directory of the experiment's file"
_SUBMIT = "'{prog} submit -- COMMAND'"

# Maps a command of another program to the commands to use instead. ``{prog}`` is the name of the
# program that the user has run.
COMMANDS: dict[str, str] = {
    "apply": "'{prog} up FILE'",
    "bash": _SHELL,
    "build": "'{prog} launch FILE --build'",
    "cancel": _DELETE,
    "create": "'{prog} launch FILE'",
    "d": _DELETE,
    "db": _DELETE,
    "e": _STATES_HERE,
    "get": "'{prog} ls', or '{prog} ps EXPERIMENT' for the processes of an experiment",
    "help": "'{prog} --help', or '{prog} COMMAND --help'",
    "kill": "'{prog} delete NAME', or '{prog} signal NAME PROCESS --signal KILL'",
    "l": "'{prog} logs NAME'",
    "login": "'{prog} attach NAME PROCESS'",
    "lse": _LIST,
    "lsp": _STATES,
    "p": _STATES,
    "port": "'{prog} visit NAME SERVICE'",
    "requeue": "'{prog} rerun RUN'",
    "rollout": "'{prog} up FILE', or '{prog} restart NAME PROCESS'",
    "run": "'{prog} launch FILE', or '{prog} submit -- COMMAND' for a single command",
    "runopts": "'{prog} backends'",
    "runs": _HISTORY,
    "sacct": _HISTORY,
    "salloc": _SUBMIT,
    "sattach": "'{prog} attach NAME PROCESS'",
    "sbatch": _SUBMIT,
    "scancel": _DELETE,
    "scontrol": _DESCRIBE,
    "se": _STATES_HERE,
    "sh": _SHELL,
    "shell": _SHELL,
    "squeue": _LIST,
    "srun": "'{prog} submit --follow -- COMMAND'",
    "stats": "'{prog} ps NAME --usage', or '{prog} top NAME'",
    "switch-experiment": _STATES_HERE,
    "tail": "'{prog} logs NAME -f'",
    "update": "'{prog} up FILE'",
    "use": _STATES_HERE,
    "version": "'{prog} --version'",
    "vi": "'{prog} visit NAME SERVICE'",
    "watch": _REFRESH,
    "x": "'{prog} exec NAME PROCESS -- COMMAND'",
}

# The numbers of the arguments that replace words in the commands.
_PLACEHOLDERS = {"NAME": 0, "FILE": 0, "RUN": 0, "PROCESS": 1, "SERVICE": 1}

_REMOVE_DETACH = "; the processes always run in the background: remove it"
_REMOVE_TERMINAL = "; a terminal is used if there is one: remove it"
_REMOVE_ALL = "; all of them are always listed: remove it"
_USE_HISTORY = "; use history, which also lists the runs of deleted experiments"
_USE_FILE = "; write the file without an option: {prog} FILE"
_USE_JSON = "; use --json"
_USE_NAME = "; use --name NAME"
_USE_PARAMETER = (
    "; use --set NAME=VALUE, with 'parameters: {{NAME: 1}}' and 'replicas: ${{NAME}}' in the file"
)
_USE_PROCESS = "; write the name of the process as an argument"
_USE_GRACE = "; set termination_grace_period in the experiment file"

_TERMINAL_OPTIONS = dict.fromkeys(
    ("-i", "-t", "-it", "-ti", "--interactive", "--stdin", "--tty"), _REMOVE_TERMINAL
)
_FILE_OPTIONS = dict.fromkeys(("-f", "--file", "--filename"), _USE_FILE)
_DETACH_OPTIONS = dict.fromkeys(("-d", "--detach", "--detached"), _REMOVE_DETACH)
_CONTAINER_OPTIONS = dict.fromkeys(("-c", "--container"), _USE_PROCESS)
_ALL_OPTIONS = ("-a", "--all")
_OUTPUT_OPTIONS = dict.fromkeys(("-o", "--output", "--format"), _USE_JSON)

# For each command, maps an option of a similar command in another program to the hint in the error
# message. ``{prog}`` is the program and the command, such as ``symphony launch``.
OPTIONS: dict[str, dict[str, str]] = {
    "attach": {**_TERMINAL_OPTIONS, **_CONTAINER_OPTIONS},
    "diff": _OUTPUT_OPTIONS,
    "down": {
        **dict.fromkeys(
            ("-y", "--yes", "--force", "--remove-orphans"), "; it is not needed: remove it"
        ),
        **dict.fromkeys(("-v", "--volumes"), "; symphony has no volumes to remove: remove it"),
        **dict.fromkeys(("-t", "--timeout"), _USE_GRACE),
    },
    "cp": {
        **dict.fromkeys(
            ("-a", "--archive", "-r", "-R", "--recursive"),
            "; directories are copied with their contents: remove it",
        ),
        **dict.fromkeys(("-c", "--container"), "; write PROCESS:PATH"),
    },
    "delete": {
        **dict.fromkeys(("-y", "--yes"), "; use --force"),
        "--ignore-not-found": "; use --force, which also does not ask for confirmation",
        **dict.fromkeys(("-t", "--timeout", "--grace-period"), _USE_GRACE),
    },
    "describe": _OUTPUT_OPTIONS,
    "exec": dict.fromkeys(
        ("-c", "--container"), "; write the command after --, and the process as an argument"
    ),
    "launch": {
        **_DETACH_OPTIONS,
        **dict.fromkeys(("--force-recreate", "--renew-anon-volumes"), "; use --force"),
        **dict.fromkeys(("-p", "--project-name"), _USE_NAME),
        **dict.fromkeys(("--replicas", "--scale", "--num-replicas"), _USE_PARAMETER),
        "--wait-timeout": "; use --wait ready --timeout TIME",
        **_OUTPUT_OPTIONS,
    },
    "logs": {
        "-p": "; use --previous",
        **_CONTAINER_OPTIONS,
        **dict.fromkeys(("--all-containers", "--all-pods"), "; all processes are shown: remove it"),
        **_OUTPUT_OPTIONS,
    },
    "ls": {**dict.fromkeys(_ALL_OPTIONS, _USE_HISTORY), **_OUTPUT_OPTIONS},
    "ps": {**dict.fromkeys(_ALL_OPTIONS, _REMOVE_ALL), **_OUTPUT_OPTIONS},
    "render": _OUTPUT_OPTIONS,
    "scale": {
        **dict.fromkeys(("--replicas", "--current-replicas"), "; write NAME=NUMBER"),
        **_FILE_OPTIONS,
    },
    "submit": {
        **_DETACH_OPTIONS,
        **_TERMINAL_OPTIONS,
        **dict.fromkeys(("-J", "--job-name"), _USE_NAME),
        **dict.fromkeys(("-D", "--chdir", "-w"), "; use --workdir DIRECTORY"),
        **dict.fromkeys(("-c", "--cpus", "--cpus-per-task"), "; use --cpu N"),
        **dict.fromkeys(("-m", "--mem"), "; use --memory SIZE"),
        **dict.fromkeys(("-G", "--gpus", "--gres"), "; use --gpu N"),
        **dict.fromkeys(("-v", "--volume"), "; use --mount HOST:TARGET"),
        **dict.fromkeys(("-e", "--export"), "; use --env KEY=VALUE"),
        "-t": "; use --time TIME for a time limit",
        "-W": "; use --wait",
        "--wrap": "; write the shell line after --, as in -- sh -c '...'",
        "-n": "; use --replicas N, or add -b kube for a namespace",
        **dict.fromkeys(("-a", "--array", "--ntasks"), "; use --replicas N"),
        **_OUTPUT_OPTIONS,
    },
    "up": {
        **_DETACH_OPTIONS,
        **dict.fromkeys(("--force-recreate", "--renew-anon-volumes"), "; use --force"),
        **dict.fromkeys(("-p", "--project-name"), _USE_NAME),
        **dict.fromkeys(("--scale", "--replicas", "--num-replicas"), "; use scale afterwards"),
        "--remove-orphans": "; processes that are not in the file are always removed: remove it",
        "--wait-timeout": "; use --wait ready --timeout TIME",
        **_OUTPUT_OPTIONS,
    },
}


def command_hint(word: str, prog: str, following: Sequence[str] = ()) -> str:
    """Return what to use instead of ``word``, or an empty string.

    ``word`` is a command of another program, or an experiment file. The arguments in ``following``,
    the words after it, are part of the result, so that it can be copied.
    """
    if word.endswith((".json", ".py", ".yaml", ".yml")):
        return f"use '{prog} launch {word}'"
    hint = COMMANDS.get(word)
    if hint is None:
        return ""
    arguments = [shlex.quote(other) for other in following if not other.startswith("-")]
    text = hint.format(prog=prog)
    if len(arguments) == 1:
        # Without a name, the experiment is the one of the working directory.
        text = text.replace("NAME PROCESS", arguments[0])
    for placeholder, index in _PLACEHOLDERS.items():
        if index < len(arguments):
            text = _with_word(text, placeholder, arguments[index])
    return f"use {text}"


def _with_word(text: str, placeholder: str, word: str) -> str:
    """Return a text with a word instead of each placeholder."""
    return re.sub(rf"\b{placeholder}\b", lambda _: word, text)


def option_hints(verb: str, prog: str) -> dict[str, str]:
    """Return a mapping from options of other programs to the hints for the command ``verb``.

    ``prog`` is the program and the command, such as ``symphony launch``.
    """
    return {option: hint.format(prog=prog) for option, hint in OPTIONS.get(verb, {}).items()}
