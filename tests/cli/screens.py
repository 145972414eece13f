"""The screens that the golden files hold: help, and the tables of a fixed experiment, at three widths.

    python -m tests.cli.screens

writes the golden files again. What differs from run to run (times, process ids, ports, paths) stands in them by a
constant, and the escape character as ``␛``.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from symphony.commandline import SymphonyParser
from symphony.config import SymphonyConfig
from symphony.status import ExperimentStatus
from symphony.testing.contract import until
from tests.cli.conftest import Program, running

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
    "check": ["check", "--offline", "portable.yml"],
}

# --- the experiments that are shown ---

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
    """Launch what is shown, and wait until it is as the golden files have it."""
    (program.folder / ".symphony.yml").write_text(_CONFIGURATION)
    (program.folder / "portable.yml").write_text(_PORTABLE)
    # Names so long that no process id is shown beside a text that is cut: how long those are differs.
    simulators = {
        "half-cheetah-0": _process(_ON, connects="replay"),
        "half-cheetah-1": _process("seq 12; exit 3", connects="replay", container_image="rl:1"),
    }
    program.launched(
        "rl",
        {
            "learner": _process(_ON, binds="replay", exposes="tensorboard", container_image="rl:1"),
            "environments": {"processes": simulators},
            "evaluator": _process("true", starts_after={"learner": "succeeded"}),
        },
    )
    workers = {f"{_LONG}-{number}": _process(_ON) for number in range(2)}
    long = {"coach": _process(_ON), "workers": {"processes": workers}}
    program.launched(
        "rl-of-long-names", {**long, "last": _process("true", starts_after={"coach": "succeeded"})}
    )
    program.ended("sweep", {"one": _process("true"), "two": _process("true")})
    until(program.cluster, "rl", _is("running", "running", "failed", "pending"))
    until(program.cluster, "rl-of-long-names", _is("running", "running", "running", "pending"))
    program.cluster.stop("sweep")  # type: ignore[attr-defined]  # until its supervisor has ended, that writes too
    _stay_young(program)


def _stay_young(program: Program) -> None:
    """Let all have happened in time to come: an age that needs more room takes it from other columns."""
    for events in (program.state / "local").glob("*/events.jsonl"):
        later = re.sub(
            r'"at":([\d.]+)', lambda found: f'"at":{float(found[1]) + 86400}', events.read_text()
        )
        events.write_text(later)


def _is(*states: str) -> Callable[[ExperimentStatus], bool]:
    return lambda status: [str(process.state) for process in status] == list(states)


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path is as long on every machine: it shows in tables."""
    folder = tempfile.mkdtemp(prefix="symphony-", dir="/tmp")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder)


# --- what is shown ---


def screen(program: Program, words: list[str]) -> str:
    """What the program shows on terminals of three widths, and in a pipe."""
    shown = {}
    for width in WIDTHS:
        terminal = program.terminal(*words, width=width)
        terminal.finish()
        shown[f"{width} columns"] = terminal.shown.replace("\r\n", "\n").replace("\x1b", "␛")
    shown["a pipe"] = program(*words).stdout
    return _joined({title: _constant(text) for title, text in shown.items()})


def help_screen(words: list[str]) -> str:
    """The help at three widths: that of the parser which the program is, without starting it."""
    return _joined({f"{width} columns": _help(words, width) for width in WIDTHS})


def _help(words: list[str], width: int) -> str:
    shown = io.StringIO()
    with mock.patch.dict(os.environ, COLUMNS=str(width)), contextlib.redirect_stdout(shown):
        SymphonyParser(prog="symphony").run(words)
    SymphonyConfig().reset()
    return shown.getvalue()


def parts(golden: str) -> dict[str, str]:
    """What a golden file has, by width."""
    found = [part.split(" ----\n", 1) for part in golden.removeprefix("---- ").split("\n---- ")]
    return {
        title: f"{text.removesuffix(chr(10))}\n"
        for titles, text in found
        for title in titles.split(", ")
    }


def _joined(shown: dict[str, str]) -> str:
    """The text of a golden file: what is the same at several widths stands there once."""
    titles: dict[str, list[str]] = {}
    for title, text in shown.items():
        titles.setdefault(text, []).append(title)
    return "".join(f"---- {', '.join(found)} ----\n{text}" for text, found in titles.items())


def _constant(text: str) -> str:
    text = re.sub(
        r"/tmp/symphony-(\w+)", lambda found: f"/tmp/symphony-{'_' * len(found[1])}", text
    )
    text = re.sub(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\S+ ago\)", "2026-11-21 12:00:00 (0s ago)", text
    )
    text = re.sub(r"^  \d\S* ago +", "  0s ago  ", text, flags=re.MULTILINE)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:7000", text)
    text = re.sub(r"(pid +|process )\d+", r"\g<1>12345", text)
    return "\n".join(_constant_rows(text.split("\n")))


def _constant_rows(lines: list[str]) -> Iterator[str]:
    """A table with one age and one process id, as wide as if those were all."""
    header = ""
    for line in lines:
        header = line if line.startswith("NAME ") else header if line else ""
        colours = len(line) - len(re.sub("␛[^m]*m", "", line))  # they stand before these columns
        for title, told in (("PID", "12345"), ("AGE", f"{'0s':>3}")):
            start, end = (place + colours for place in _column(header, title))
            if end > colours:
                word = line[start:end].strip()
                line = f"{line[:start]}  {word if word in (title, '-') else told:>{len(told)}}{line[end:]}"
        yield line


def _column(header: str, title: str) -> tuple[int, int]:
    """Where a column that is aligned to the right begins, with the gap before it, and ends; (0, 0) for none."""
    end = header.find(f" {title}")
    return (len(header[:end].rstrip()), end + 1 + len(title)) if end >= 0 else (0, 0)


def main() -> None:
    """Write the golden files again."""
    (GOLDEN / "help").mkdir(parents=True, exist_ok=True)
    for name, words in HELP.items():
        (GOLDEN / "help" / f"{name}.txt").write_text(help_screen(words), encoding="utf-8")
    with short_folder() as folder, running(Program(folder, folder / "cache")) as program:
        stage(program)
        for name, words in SCREENS.items():
            (GOLDEN / f"{name}.txt").write_text(screen(program, words), encoding="utf-8")


if __name__ == "__main__":
    main()
