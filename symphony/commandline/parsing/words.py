"""Words of similar programs that people type, and what to type in symphony instead.

The words are commands and options of docker compose, kubectl, Slurm, process-compose and torchx,
and aliases of earlier versions. A word that means the same as a command of symphony is an alias of
that command instead.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Sequence

_DELETE = "'{prog} delete NAME'"
_DESCRIBE = "'{prog} describe NAME PROCESS'"
_HISTORY = "'{prog} history'"
_LIST = "'{prog} ls'"
_REFRESH = "'{prog} ps NAME --watch'"
_RESTART = "'{prog} restart NAME PROCESS'"
_SHELL = "'{prog} exec NAME PROCESS -- bash'"
_STATES = "'{prog} ps NAME'"
_STATES_HERE = _STATES + ", or '{prog} ps' in the directory of the experiment's file"
_SUBMIT = "'{prog} submit -- COMMAND'"
_USAGE = "'{prog} ps NAME --usage', or '{prog} top NAME'"

# Maps a command of another program, or a command and its first argument, to the commands to use
# instead. ``{prog}`` is the name of the program that the user has run.
COMMANDS: dict[str, str] = {
    "apply": "'{prog} up FILE'",
    "bash": _SHELL,
    "build": "'{prog} launch FILE --build'",
    "cancel": _DELETE,
    "create": "'{prog} launch FILE'",
    "d": _DELETE,
    "db": _DELETE,
    "deploy": "'{prog} up FILE'",
    "dry-run": "'{prog} launch FILE --dry-run'",
    "e": _STATES_HERE,
    "get": "'{prog} ls', or '{prog} ps EXPERIMENT' for the processes of an experiment",
    "help": "'{prog} --help', or '{prog} COMMAND --help'",
    "kill": "'{prog} delete NAME', or '{prog} signal NAME PROCESS --signal KILL'",
    "l": "'{prog} logs NAME'",
    "lint": "'{prog} check FILE'",
    "login": "'{prog} attach NAME PROCESS'",
    "lse": _LIST,
    "lsp": _STATES,
    "p": _STATES,
    "pause": "'{prog} signal NAME PROCESS --signal STOP'",
    "plan": "'{prog} diff FILE'",
    "port": "'{prog} visit NAME SERVICE'",
    "port-forward": "'{prog} forward NAME PROCESS PORT:LOCAL'",
    "requeue": "'{prog} rerun RUN'",
    "rollout": "'{prog} up', or '{prog} restart NAME PROCESS'",
    "rollout restart": _RESTART,
    "rollout status": "'{prog} ps NAME PROCESS'",
    "run": "'{prog} launch FILE', or '{prog} submit -- COMMAND' for a single command",
    "runopts": "'{prog} backends'",
    "runs": _HISTORY,
    "sacct": _HISTORY,
    "salloc": _SUBMIT,
    "sattach": "'{prog} attach NAME PROCESS'",
    "sbatch": _SUBMIT,
    "scancel": _DELETE,
    "scontrol": _DESCRIBE,
    "scontrol requeue": "'{prog} rerun RUN'",
    "scontrol show": _DESCRIBE,
    "se": _STATES_HERE,
    "sh": _SHELL,
    "shell": _SHELL,
    "seff": _USAGE,
    "squeue": _LIST,
    "srun": "'{prog} submit --follow -- COMMAND'",
    "sstat": _USAGE,
    "stats": _USAGE,
    "switch-experiment": _STATES_HERE,
    "tail": "'{prog} logs NAME -f'",
    "unpause": "'{prog} signal NAME PROCESS --signal CONT'",
    "update": "'{prog} up FILE'",
    "use": _STATES_HERE,
    "version": "'{prog} --version'",
    "vi": "'{prog} visit NAME SERVICE'",
    "watch": _REFRESH,
    "x": "'{prog} exec NAME PROCESS -- COMMAND'",
}

# The numbers of the arguments that replace words in the commands.
_PLACEHOLDERS = {"NAME": 0, "FILE": 0, "RUN": 0, "PROCESS": 1, "SERVICE": 1}

# Kinds of kubectl and Slurm, which precede a name as in ``pod/web`` or ``pod web``.
_KINDS = frozenset(
    (
        *("deploy", "deployment", "deployments", "job", "jobs", "po", "pod", "pods"),
        *("service", "services", "statefulset", "sts", "svc"),
    )
)

# The options of ``kill`` that name a signal.
_SIGNAL_OPTIONS = ("-s", "--signal")

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
_GRACE_OPTION = {"-t": _USE_GRACE}
_DETACH_OPTIONS = dict.fromkeys(("-d", "--detach", "--detached"), _REMOVE_DETACH)
_CONTAINER_OPTIONS = dict.fromkeys(("-c", "--container"), _USE_PROCESS)
_ALL_OPTIONS = ("-a", "--all")
_OUTPUT_OPTIONS = dict.fromkeys(("-o", "--output", "--format"), _USE_JSON)

# Stands for every option that neither exists nor resembles one that does.
ANY_OPTION = ""

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
    "config": dict.fromkeys(
        ("--services", "-q", "--quiet"),
        "; config shows the settings of symphony: use render or check for an experiment file",
    ),
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
    "exec": {
        **dict.fromkeys(
            ("-c", "--container"), "; write the command after --, and the process as an argument"
        ),
        **dict.fromkeys(("-T", "--no-TTY", "--no-tty"), _REMOVE_TERMINAL),
        **dict.fromkeys(("-e", "--env"), "; write -- env KEY=VALUE before the command"),
        **dict.fromkeys(
            ("-w", "--workdir"), "; the command runs in the directory of the process: remove it"
        ),
        **dict.fromkeys(
            ("-u", "--user"), "; the command runs as the user of the process: remove it"
        ),
        ANY_OPTION: "; write the command after --, as in {prog} PROCESS -- CMD",
    },
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
        **dict.fromkeys(
            ("--no-color", "--no-log-prefix"),
            "; only terminals get colors, and "
            "only the logs of several processes get prefixes: remove it",
        ),
        **dict.fromkeys(("-l", "--selector"), "; write the name of the process, or a pattern"),
        **_CONTAINER_OPTIONS,
        **dict.fromkeys(("--all-containers", "--all-pods"), "; all processes are shown: remove it"),
        **_OUTPUT_OPTIONS,
    },
    "ls": {**dict.fromkeys(_ALL_OPTIONS, _USE_HISTORY), **_OUTPUT_OPTIONS},
    "ps": {
        **dict.fromkeys(_ALL_OPTIONS, _REMOVE_ALL),
        **dict.fromkeys(("-q", "--quiet"), _USE_JSON),
        "--services": "; all processes are listed: remove it",
        **_OUTPUT_OPTIONS,
    },
    "render": _OUTPUT_OPTIONS,
    "restart": _GRACE_OPTION,
    "scale": {
        **dict.fromkeys(("--replicas", "--current-replicas"), "; write NAME=NUMBER"),
        **_FILE_OPTIONS,
    },
    "start": dict.fromkeys(
        ("-f", "--procfile"), "; start continues a stopped process: use import for a Procfile"
    ),
    "stop": _GRACE_OPTION,
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
    words = list(following)
    if words and f"{word} {words[0]}" in COMMANDS:
        word = f"{word} {words.pop(0)}"
    hint = COMMANDS.get(word)
    if hint is None:
        return ""
    if word == "kill":
        signal, words = _split_signal(words)
        if signal is not None:
            hint = f"'{{prog}} signal NAME PROCESS --signal {shlex.quote(signal)}'"
    names = _without_kinds([other for other in words if not other.startswith("-")])
    if word == "port":
        # docker names the port in the container.
        names = [name for name in names if not name.isdecimal()]
    if word == "port-forward":
        hint, names = _with_ports(hint, names)
    return f"use {_with_names(hint.format(prog=prog), names)}"


def line_hint(verb: str, before: Sequence[str], following: Sequence[str], prog: str) -> str:
    """Return the error message for a line as users of similar commands type it, with the line to
    type instead, or an empty string.

    ``before`` and ``following`` are the words before and after the command ``verb``.

    >>> line_hint("signal", [], ["rl", "web", "HUP"], "symphony")
    "signal needs the option --signal; use 'symphony signal rl web --signal HUP'"
    >>> line_hint("top", [], ["-b", "-n", "1", "rl"], "symphony")
    "top needs a terminal; for a table that is written once, use 'symphony ps rl --usage'"
    """
    if verb == "signal":
        signal, others = _find_signal(following)
        if signal is not None:
            line = shlex.join([prog, *before, verb, *others, "--signal", signal])
            return f"signal needs the option --signal; use '{line}'"
    if verb == "top" and _is_batch(following):
        names = [word for word in following if word[:1].isalpha()]
        line = shlex.join([prog, *before, "ps", *names, "--usage"])
        return f"top needs a terminal; for a table that is written once, use '{line}'"
    return ""


def _find_signal(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the signal that is written without ``--signal``, if there is one, and the others.

    >>> _find_signal(["HUP", "web"])
    ('HUP', ['web'])
    >>> _find_signal(["-9", "web"])
    ('9', ['web'])
    >>> _find_signal(["web", "-s", "HUP"])
    (None, ['web', '-s', 'HUP'])
    """
    if any(word.startswith(_SIGNAL_OPTIONS) for word in words):
        return None, list(words)
    signal, others = _split_signal(words)
    if signal is not None:
        return signal, others
    for index, word in enumerate(words):
        # The names of experiments and processes contain no capital letters.
        is_last_name = index > 0 and index == len(words) - 1
        if (word.isdecimal() or word.isupper() or is_last_name) and _is_signal(word):
            return word, [*words[:index], *words[index + 1 :]]
    return None, list(words)


def _is_signal(word: str) -> bool:
    from symphony.errors import SpecError
    from symphony.support.signal_names import find_signal

    try:
        find_signal(word)
    except SpecError:
        return False
    return True


def _is_batch(words: Sequence[str]) -> bool:
    """Return whether the options are those with which the program ``top`` writes a table.

    The option ``-b`` of symphony is followed by the name of a backend, with ``kube`` by a namespace
    with ``-n``.

    >>> _is_batch(["-bn1"]), _is_batch(["-n", "1"]), _is_batch(["-b", "-n", "1"])
    (True, True, True)
    >>> _is_batch(["-b", "tmux"]), _is_batch(["-b", "kube", "-n", "1"]), _is_batch(["rl"])
    (False, False, False)
    >>> _is_batch(["-n", "team-a", "rl"])
    False
    """
    if any(re.fullmatch(r"-bn\d*", word) for word in words):
        return True
    if "-b" in words:
        backend = words[words.index("-b") + 1 :][:1]
        return not backend or backend[0].startswith("-")
    if any(re.fullmatch(r"-[dn]\d+|--batch|--no-stream|--once", word) for word in words):
        return True
    following = itertools.pairwise(words)
    return any(word in ("-d", "-n") and value.isdecimal() for word, value in following)


def _with_names(text: str, names: Sequence[str]) -> str:
    """Return a text with the given names instead of the placeholders."""
    arguments = [shlex.quote(name) for name in names]
    if len(arguments) == 1:
        # Without a name, the experiment is the one of the working directory.
        text = text.replace("NAME PROCESS", arguments[0]).replace("NAME SERVICE", arguments[0])
    for placeholder, index in _PLACEHOLDERS.items():
        if index < len(arguments):
            text = _with_word(text, placeholder, arguments[index])
    return text


def _with_ports(hint: str, names: Sequence[str]) -> tuple[str, list[str]]:
    """Return the hint for ``port-forward`` with the ports, and the names before the ports.

    >>> _with_ports("forward NAME PROCESS PORT:LOCAL", ["web", "8080:80"])
    ('forward NAME PROCESS 80:8080', ['web'])
    """
    *others, last = names or [""]
    local, colon, port = last.partition(":")
    if not local.isdecimal() or (colon and not port.isdecimal()):
        return hint, list(names)
    # The order of kubectl is LOCAL:PORT.
    return hint.replace("PORT:LOCAL", f"{port}:{local}" if colon else local), others


def _split_signal(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the signal in the arguments of ``kill``, if there is one, and the other arguments.

    >>> _split_signal(["-s", "HUP", "web"])
    ('HUP', ['web'])
    >>> _split_signal(["-9", "web"])
    ('9', ['web'])
    """
    signal = None
    others = []
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.partition("=")
        if name in _SIGNAL_OPTIONS:
            signal = value if equals else next(remaining, None)
        elif word.startswith("-") and (word[1:].isdecimal() or word[1:].isupper()):
            signal = word[1:]
        else:
            others.append(word)
    return signal, others


def _without_kinds(names: Sequence[str]) -> list[str]:
    """Return names without the kinds of kubectl and Slurm.

    >>> _without_kinds(["deployment/web"])
    ['web']
    >>> _without_kinds(["job", "12"])
    ['12']
    """
    if len(names) > 1 and names[0] in _KINDS:
        names = names[1:]
    return [_without_kind(name) for name in names]


def _without_kind(name: str) -> str:
    kind, slash, rest = name.partition("/")
    return rest if slash and kind in _KINDS else name


def _with_word(text: str, placeholder: str, word: str) -> str:
    """Return a text with a word instead of each placeholder."""
    return re.sub(rf"\b{placeholder}\b", lambda _: word, text)


def option_hints(verb: str, prog: str) -> dict[str, str]:
    """Return a mapping from options of other programs to the hints for the command ``verb``.

    ``prog`` is the program and the command, such as ``symphony launch``.
    """
    return {option: hint.format(prog=prog) for option, hint in OPTIONS.get(verb, {}).items()}
