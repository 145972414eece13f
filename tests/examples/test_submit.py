"""Test the example of a job that resumes from a checkpoint after it was interrupted."""

import json
import runpy
import sys
from pathlib import Path

import pytest

TRAIN = Path(__file__).parents[2] / "examples" / "submit" / "train.py"


@pytest.fixture
def train():
    """Return the functions of the program."""
    return runpy.run_path(str(TRAIN))


@pytest.fixture
def checkpoint(tmp_path):
    return tmp_path / "save" / "train.json"


@pytest.fixture
def command(checkpoint):
    """Return a function that returns the arguments of a submission with many short epochs.

    The program saves only when it is stopped, because the interval is longer than the run.
    """

    def arguments(*options, epochs=1_000_000):
        run = [sys.executable, TRAIN, "--checkpoint", checkpoint, "--pause", "0.01"]
        run += ["--save-every", "1000000", "--epochs", epochs]
        return ["submit", "--name", "train", *options, "--", *run]

    return arguments


def read_until(program, text):
    """Follow the log until a line contains ``text``. Return the lines up to that line."""
    lines = []
    with program.popen("logs", "-f", "train", stdout=-1) as follower:
        for line in follower.stdout:
            lines.append(line)
            if text in line:
                break
        follower.terminate()
    return lines


def test_job_resumes_from_its_checkpoint(program, train, command, checkpoint):
    program.ok(*command())
    read_until(program, "epoch 3:")

    # With --force, the first job is stopped and saves, and the second resumes.
    assert program(*command()).returncode == 2
    program.ok(*command("--force"))
    first = read_until(program, "epoch ")[0]
    saved = int(first.removeprefix("resumed after epoch "))
    assert saved >= 3
    assert read_until(program, f"epoch {saved + 1}:")[1].startswith(f"epoch {saved + 1}:")

    # After a delete, the last job resumes and finishes.
    program.ok("delete", "-f", "train")
    last = json.loads(checkpoint.read_text())["epoch"] + 3
    done = program(*command("--follow", epochs=last))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"resumed after epoch {last - 3}\nepoch {last - 2}:")

    # The result equals that of a run without interruptions.
    state = train["load"](Path("nowhere"))
    for _ in range(last):
        state, _ = train["train"](state)
    assert train["load"](checkpoint) == state
    assert f"done: slope {state['slope']:.6f}" in done.stdout
    assert [path.name for path in checkpoint.parent.iterdir()] == ["train.json"]


def test_ctrl_c_stops_the_followed_job(program, command):
    """The last output of the job is shown, and its own exit code is in the status."""
    terminal = program.terminal(*command("--follow"))
    terminal.expect("epoch 3:")
    terminal.press("\x03")
    terminal.expect("interrupted: saved epoch ")
    assert terminal.finish() == 130
    (process,) = program.json("ps", "train")["processes"]
    assert (process["exit_code"], process["stopped"]) == (75, True)


def test_failed_save_keeps_the_previous_checkpoint(train, checkpoint):
    train["save"](checkpoint, {"epoch": 1, "slope": 0.0, "offset": 0.0})
    with pytest.raises(TypeError):
        train["save"](checkpoint, {"epoch": object()})
    assert train["load"](checkpoint)["epoch"] == 1
