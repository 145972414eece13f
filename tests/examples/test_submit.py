"""The job that can be interrupted: ended in mid-run and submitted again, it resumes, and nothing is lost."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Program, cache, program

TRAIN = Path(__file__).parents[2] / "examples" / "submit" / "train.py"


@pytest.fixture
def train():
    """The program's functions."""
    return runpy.run_path(str(TRAIN))


@pytest.fixture
def checkpoint(tmp_path):
    return tmp_path / "save" / "train.json"


@pytest.fixture
def command(checkpoint):
    """The words of a submission: many short epochs, which are only saved when the program is told to end."""

    def words(*options, epochs=1_000_000):
        run = [
            sys.executable,
            TRAIN,
            "--checkpoint",
            checkpoint,
            "--pause",
            "0.01",
            "--save-every",
            "1000000",
        ]
        return ["submit", "--name", "train", *options, "--", *run, "--epochs", epochs]

    return words


def until(program, text, *words):
    """Read on until a line with that text has come; the lines so far."""
    lines = []
    with program.popen("logs", "-f", "train", stdout=-1) as follower:
        for line in follower.stdout:
            lines.append(line)
            if text in line:
                break
        follower.terminate()
    return lines


def test_it_resumes_where_it_was(program, train, command, checkpoint):
    program.ok(*command())
    until(program, "epoch 3:")

    # Submitted again while it runs: the first is told to end, saves, and the second goes on.
    assert program(*command()).returncode == 2
    program.ok(*command("--force"))
    first = until(program, "epoch ")[0]
    saved = int(first.removeprefix("resumed after epoch "))
    assert saved >= 3
    assert until(program, f"epoch {saved + 1}:")[1].startswith(f"epoch {saved + 1}:")

    # Deleted, and submitted again: the last run ends by itself.
    program.ok("delete", "-f", "train")
    end = json.loads(checkpoint.read_text())["epoch"] + 3
    done = program(*command("--follow", epochs=end))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"resumed after epoch {end - 3}\nepoch {end - 2}:")

    # Epoch for epoch the same as without any of this.
    state = train["load"](Path("nowhere"))
    for _ in range(end):
        state, _ = train["train"](state)
    assert train["load"](checkpoint) == state
    assert f"done: slope {state['slope']:.6f}" in done.stdout
    assert [path.name for path in checkpoint.parent.iterdir()] == ["train.json"]


def test_it_says_how_it_ended(program, command):
    """Ctrl-C under --follow: its last words are shown, and its own exit code is kept."""
    terminal = program.terminal(*command("--follow"))
    terminal.expect("epoch 3:")
    terminal.press("\x03")
    terminal.expect("told to end: saved epoch ")
    assert terminal.finish() == 130
    (process,) = program.json("ps", "train")["processes"]
    assert (process["exit_code"], process["stopped"]) == (75, True)


def test_a_save_that_is_cut_short_leaves_the_one_before(train, checkpoint):
    train["save"](checkpoint, {"epoch": 1, "slope": 0.0, "offset": 0.0})
    with pytest.raises(TypeError):
        train["save"](checkpoint, {"epoch": object()})
    assert train["load"](checkpoint)["epoch"] == 1
