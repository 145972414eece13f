"""Record the pictures of ``symphony top``: its screens in a tmux window, with a real experiment."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from docs.pictures import DARK, LIGHT, PICTURES, example_environment, terminal_picture

COLUMNS = 92
LINES = 16
TIMEOUT_SECONDS = 30.0
# The time in which the curves of the resource use get some samples.
SAMPLING_SECONDS = 8.0

_COUNT = 'i=0; while :; do i=$((i+1)); echo "step $i: loss 0.$((97 - i % 40))"; sleep 0.3; done'
EXPERIMENT = f"""\
name: rl
processes:
  learner:
    cmd: {_COUNT!r}
    binds: replay
    exposes: tensorboard
    env: {{LEARNING_RATE: 3e-4, API_KEY: abc}}
  actors:
    starts_after: {{learner: started}}
    processes:
      actor:
        cmd: while :; do echo "episode finished, return 21.5"; sleep 1; done
        replicas: 4
        connects: replay
  evaluator:
    cmd: echo "no checkpoint in out/"; exit 3
    starts_after: {{learner: started}}
  exporter:
    cmd: "true"
    starts_after: {{learner: succeeded}}
"""
# The names of the pictures, the keys that lead to a screen, and a text that it contains.
SCREENS: Sequence[tuple[str, Sequence[str], str]] = (
    ("top-processes", ("Down", "Down"), "Mi"),
    ("top-topology", ("2",), "binds replay"),
    ("top-logs", ("3",), "episode"),
)


def record() -> list[Path]:
    """Record all pictures and return their paths."""
    with tempfile.TemporaryDirectory(prefix="symphony-pictures-") as name:
        directory = Path(name)
        (directory / "rl.yml").write_text(EXPERIMENT, encoding="utf-8")
        environment = example_environment(directory)
        with _launched(directory, environment), _terminal(directory, environment) as tmux:
            _wait_for(tmux, "Mi")
            time.sleep(SAMPLING_SECONDS)
            screens = {}
            for screen, keys, text in SCREENS:
                _run(tmux, "send-keys", *keys)
                _wait_for(tmux, text)
                time.sleep(1.0)
                screens[screen] = (
                    _run(tmux, "capture-pane", "-p", "-e", "-N").rstrip("\n").split("\n")
                )
    paths = []
    for screen, lines in screens.items():
        for theme_name, theme in (("light", LIGHT), ("dark", DARK)):
            picture = terminal_picture(lines, theme, columns=COLUMNS, title="symphony top")
            path = PICTURES / f"{screen}-{theme_name}.svg"
            path.write_text(picture, encoding="utf-8")
            paths.append(path)
    return paths


@contextlib.contextmanager
def _launched(directory: Path, environment: dict[str, str]) -> Iterator[None]:
    _symphony(directory, environment, "launch", "rl.yml")
    try:
        yield
    finally:
        _symphony(directory, environment, "delete", "-f", "rl")


def _symphony(directory: Path, environment: dict[str, str], *words: str) -> None:
    subprocess.run(
        ["symphony", *words], cwd=directory, env=environment, check=True, capture_output=True
    )


@contextlib.contextmanager
def _terminal(directory: Path, environment: dict[str, str]) -> Iterator[list[str]]:
    """Start ``symphony top`` in a tmux server of its own, and yield the beginning of commands."""
    tmux = ["tmux", "-f", "/dev/null", "-S", str(directory / "tmux")]
    size = ["-x", str(COLUMNS), "-y", str(LINES)]
    del environment["COLUMNS"]
    subprocess.run(
        [*tmux, "new-session", "-d", *size, "symphony top rl"],
        env=environment,
        cwd=directory,
        check=True,
    )
    try:
        yield tmux
    finally:
        _run(tmux, "kill-server")


def _wait_for(tmux: Sequence[str], text: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while text not in _run(tmux, "capture-pane", "-p"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"top did not show {text!r}")
        time.sleep(0.1)


def _run(tmux: Sequence[str], *arguments: str) -> str:
    done = subprocess.run([*tmux, *arguments], capture_output=True, check=True)
    return done.stdout.decode()
