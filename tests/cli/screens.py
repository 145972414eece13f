"""The golden screens: the help of all commands and the tables of a fixed experiment.

``python -m tests.cli.screens`` writes the golden files again, and with ``help`` only those of the
help. Values that differ between runs (times, process IDs, ports, paths) are replaced by constants,
and the escape character by ``␛``.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from symphony.commandline import SymphonyParser
from symphony.config import SymphonyConfig
from symphony.status import ExperimentStatus
from symphony.testing.contract import until
from tests.cli.conftest import Program, cleaned_up

GOLDEN = Path(__file__).with_name("golden")
WIDTHS = (60, 80, 160)
VERBS = [*SymphonyParser(prog="symphony").verbs]
HELP = {
    "symphony": ["--help"],
    **{verb: [verb, "--help"] for verb in VERBS},
    "launch-on-kube": ["launch", "-b", "kube", "--help"],
}
SCREENS = {
    "ls": ["ls"],
    "ps": ["ps", "rl"],
    "ps-of-long-names": ["ps", "rl-of-long-names"],
    "describe": ["describe", "rl", "half-cheetah-1"],
    "describe-waiting": ["describe", "rl", "evaluator"],
    "backends": ["backends"],
    "config-show": ["config", "show", "--profile", "gke"],
    "check": ["check", "--offline", "--target", "all", "portable.yml"],
}

# --- the experiments ---

_SHELL = ["/bin/sh", "-c"]
_ON = "echo up; exec sleep 1000"
_LONG = "a-worker-with-a-name-that-is-much-longer-than-most"
_PORTABLE = """\
name: portable
processes:
  learner:
    command: [python, learner.py, --listen, localhost:6006]
    binds: replay
  agent:
    container_image: rl:1
    command: /home/me/agent.sh
    connects: replay
"""
_CONFIGURATION = """\
backend: local
profiles:
  gke:
    backend: kube
    context: gke_my-project_europe-west4-a_training
    namespace: team-a
    image: registry.example/my-project/images/rl:2026-11-21
"""


def _process(line: str, **keys: object) -> dict[str, object]:
    return {"command": [*_SHELL, line], **keys}


def stage(program: Program) -> None:
    """Launch the experiments, and wait until their states are those of the golden files."""
    (program.directory / ".symphony.yml").write_text(_CONFIGURATION)
    program.ok("config", "trust")
    (program.directory / "portable.yml").write_text(_PORTABLE)
    # The names are so long that the column with process IDs, whose width varies, is never shown
    # next to a column that is cut.
    simulators = {
        "half-cheetah-0": _process(_ON, connects="replay"),
        "half-cheetah-1": _process("seq 12; exit 3", connects="replay", container_image="rl:1"),
    }
    program.launch(
        "rl",
        {
            "learner": _process(_ON, binds="replay", exposes="tensorboard", container_image="rl:1"),
            "environments": {"processes": simulators},
            "evaluator": _process("true", starts_after={"learner": "succeeded"}),
        },
    )
    workers = {f"{_LONG}-{number}": _process(_ON) for number in range(2)}
    program.launch(
        "rl-of-long-names",
        {
            "coach": _process(_ON),
            "workers": {"processes": workers},
            "last": _process("true", starts_after={"coach": "succeeded"}),
        },
    )
    program.run("sweep", {"one": _process("true"), "two": _process("true")})
    until(program.cluster, "rl", _has_states("running", "running", "failed", "pending"))
    until(
        program.cluster,
        "rl-of-long-names",
        _has_states("running", "running", "running", "pending"),
    )
    # Stopping waits until the supervisor has exited, which writes events too.
    program.cluster.stop("sweep")  # type: ignore[attr-defined]
    _postpone_events(program)


def _postpone_events(program: Program) -> None:
    """Move all events into the future, so that every age is 0 and takes the same width."""
    for events in (program.state / "local").glob("*/events.jsonl"):
        later = re.sub(
            r'"at":([\d.]+)', lambda found: f'"at":{float(found[1]) + 86400}', events.read_text()
        )
        events.write_text(later)


def _has_states(*states: str) -> Callable[[ExperimentStatus], bool]:
    return lambda status: [str(process.state) for process in status] == list(states)


@contextlib.contextmanager
def short_directory() -> Iterator[Path]:
    """A directory whose path has the same length on every machine, because tables show it."""
    directory = tempfile.mkdtemp(prefix="symphony-", dir="/tmp")
    try:
        yield Path(directory)
    finally:
        shutil.rmtree(directory)


# --- the screens ---


def screen(program: Program, words: list[str]) -> str:
    """Return the output on terminals of three widths and in a pipe, as in a golden file."""
    shown = {}
    for width in WIDTHS:
        terminal = program.terminal(*words, width=width)
        terminal.finish()
        shown[f"{width} columns"] = terminal.shown.replace("\r\n", "\n").replace("\x1b", "␛")
    shown["a pipe"] = program(*words).stdout
    return _join({title: _with_constants(text) for title, text in shown.items()})


def help_screen(words: list[str]) -> str:
    """Return the help at three widths, as in a golden file."""
    return _join({f"{width} columns": _help(words, width) for width in WIDTHS})


def _help(words: list[str], width: int) -> str:
    shown = io.StringIO()
    with mock.patch.dict(os.environ, COLUMNS=str(width)), contextlib.redirect_stdout(shown):
        SymphonyParser(prog="symphony").run(words)
    SymphonyConfig().reset()
    return shown.getvalue()


def parts(golden: str) -> dict[str, str]:
    """Return the texts in a golden file by their titles, such as ``60 columns``."""
    found: dict[str, str] = {}
    for part in golden.removeprefix("---- ").split("\n---- "):
        titles, text = part.split(" ----\n", 1)
        for title in titles.split(", "):
            found[title] = text.removesuffix("\n") + "\n"
    return found


def _join(shown: dict[str, str]) -> str:
    """Return the text of a golden file. Equal texts are written once, with all their titles."""
    titles: dict[str, list[str]] = {}
    for title, text in shown.items():
        titles.setdefault(text, []).append(title)
    return "".join(f"---- {', '.join(found)} ----\n{text}" for text, found in titles.items())


def _with_constants(text: str) -> str:
    text = re.sub(
        r"/tmp/symphony-(\w+)", lambda found: f"/tmp/symphony-{'_' * len(found[1])}", text
    )
    text = re.sub(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\S+ ago\)", "2026-11-21 12:00:00 (0s ago)", text
    )
    text = re.sub(r"^  \d\S* ago +", "  0s ago  ", text, flags=re.MULTILINE)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:7000", text)
    text = re.sub(r"(pid +|process )\d+", r"\g<1>12345", text)
    return "\n".join(_with_constant_columns(text.split("\n")))


def _with_constant_columns(lines: list[str]) -> Iterator[str]:
    """Yield the lines of tables with the same age and the same process ID in all rows."""
    header = ""
    for line in lines:
        if line.startswith("NAME "):
            header = line
        elif not line:
            header = ""
        # Escape sequences for colours precede these columns.
        escapes = len(line) - len(re.sub("␛[^m]*m", "", line))
        for title, constant in (("PID", "12345"), ("AGE", " 0s")):
            start, end = _column(header, title)
            if end == 0:
                continue
            start, end = start + escapes, end + escapes
            word = line[start:end].strip()
            shown = word if word in (title, "-") else constant
            line = f"{line[:start]}  {shown:>{len(constant)}}{line[end:]}"
        yield line


def _column(header: str, title: str) -> tuple[int, int]:
    """Return the start and the end of a right-aligned column, with the gap before it.

    The result is (0, 0) if there is no such column.
    """
    end = header.find(f" {title}")
    if end < 0:
        return 0, 0
    return len(header[:end].rstrip()), end + 1 + len(title)


def write_help() -> None:
    """Write the golden files of the help."""
    (GOLDEN / "help").mkdir(parents=True, exist_ok=True)
    for name, words in HELP.items():
        (GOLDEN / "help" / f"{name}.txt").write_text(help_screen(words), encoding="utf-8")


def write_screens() -> None:
    """Write the golden files of the tables."""
    with (
        short_directory() as directory,
        cleaned_up(Program(directory)) as program,
    ):
        stage(program)
        for name, words in SCREENS.items():
            (GOLDEN / f"{name}.txt").write_text(screen(program, words), encoding="utf-8")


if __name__ == "__main__":
    write_help()
    if sys.argv[1:] != ["help"]:
        write_screens()
