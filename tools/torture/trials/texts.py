"""Trials of arguments and environments."""

from __future__ import annotations

import json
import os
import sys

from torture import checks
from torture.trial import trial
from torture.workspace import NAME, Workspace, is_success

# Characters that a shell, a terminal, tmux, YAML or JSON might alter.
SPECIAL = "'\"`$\\(){}[]<>|&;*?~!#%^=,.:@/+- \t\n\r\a\x1b\x7f\x01é日🎻\u2028\x85\ufeff"
PIECES = ("$HOME", "${HOME}", "$(echo no)", "%s", "#{pid}", "~", "--", "-x", "null", "1e3", "\\n")
MAX_TEXTS, MAX_PIECES = 30, 12

REPORT = """
import json, os, sys
with open(sys.argv[1], "wb") as file:
    texts = [os.fsencode(text).hex() for text in sys.argv[2:]]
    variables = {key: os.fsencode(value).hex() for key, value in os.environ.items()}
    file.write(json.dumps([texts, variables]).encode())
"""


@trial("special-texts")
def pass_special_texts(workspace: Workspace) -> None:
    """Random arguments and variables arrive byte for byte, from Python and from a file."""
    arguments = [_random_text(workspace) for _ in range(workspace.random.randint(0, MAX_TEXTS))]
    values = [_random_text(workspace) for _ in range(workspace.random.randint(0, MAX_TEXTS))]
    variables = {f"TEXT_{number}": value for number, value in enumerate(values)}
    report = workspace.directory / "report.json"
    suffix = workspace.random.choice((".yml", ".json", ""))

    def launch() -> int:
        cluster = workspace.cluster()
        experiment = cluster.new_experiment(NAME)
        command = [sys.executable, "-I", "-S", "-c", REPORT, str(report)]
        experiment.new_process("p-0", command=command, args=arguments, env=variables)
        if suffix:
            path = workspace.directory / f"experiment{suffix}"
            experiment.dump_file(path)
            experiment = type(experiment).load_file(path)
        cluster.launch(experiment)
        return 0

    launcher = workspace.start(launch, "launch")
    workspace.expect(launcher, "launch", is_permitted=is_success)
    workspace.run("wait", NAME, is_permitted=is_success)
    texts, environment = json.loads(report.read_text())
    workspace.refuse(checks.changed_texts(arguments, [_decode(text) for text in texts]))
    received = [_decode(environment[name]) for name in variables if name in environment]
    workspace.refuse(checks.changed_texts(values, received))


def _random_text(workspace: Workspace) -> str:
    size = workspace.random.randint(0, MAX_PIECES)
    pieces = [workspace.random.choice((*SPECIAL, *PIECES, "a", "B", "7")) for _ in range(size)]
    return "".join(pieces)


def _decode(text: str) -> str:
    """Return the text whose bytes are written as hexadecimal digits."""
    return os.fsdecode(bytes.fromhex(text))
