"""`SymphonyParser` in a script of a project's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import TIMEOUT, Program

SCRIPT = '''
import sys
from symphony import Cluster
from symphony.commandline import SymphonyParser


class Mine(SymphonyParser):
    """The experiments of our project."""

    def create_cluster(self):
        return Cluster.new("local", preamble_cmds="export FROM=mine")

    def setup(self):
        train = self.add_subparser("train", aliases=["t"])
        train.add_argument("--size", type=int, default=2)
        self.add_dry_run(train)
        shout = self.add_subparser("shout-it", remainder=True)
        self._add_experiment_name(shout)
        self.get_subparser("ls").add_argument("--greet", action="store_true")

    def action_train(self, args):
        """Train with some agents.

        For example:
          symphony train --size 3
        """
        exp = self.cluster.new_experiment("train")
        for number in range(args.size):
            exp.new_process(f"agent-{number}", cmd="echo $FROM")
        self.cluster.launch(exp, dry_run=args.dry_run)

    def action_shout_it(self, args):
        """Shout."""
        print(args.experiment, args.remainder, args.has_remainder)
        return 5


Mine().main()
'''


class Script:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.path = program.folder / "mine.py"
        self.path.write_text(SCRIPT)

    def __call__(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, self.path, *args],
            env=self.program.env,
            cwd=Path(self.program.folder),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )


@pytest.fixture
def script(program: Program) -> Script:
    return Script(program)


def test_its_commands_are_beside_those_of_symphony(script: Script) -> None:
    assert script("t", "--size", "1").returncode == 0
    assert script("wait", "train").stdout == "train succeeded: 1 succeeded\n"
    assert script("logs", "train").stdout == "mine\n"
    assert script("ls", "--greet").stdout.splitlines()[1].startswith("train")


def test_its_commands_take_the_options_of_the_backend(script: Script) -> None:
    shown = script("train", "-b", "kube", "--namespace", "team-a", "--help").stdout
    assert "--namespace NAMESPACE" in shown
    assert script("train", "-b", "kube", "--namespace", "team-a", "--dry-run").returncode == 0


def test_its_dry_run_starts_nothing(script: Script) -> None:
    assert "agent-1" in script("train", "--dry-run").stdout
    assert script.program.left() == []


def test_its_help_names_it(script: Script) -> None:
    shown = script("--help").stdout
    assert "usage: mine.py " in shown
    assert "The experiments of our project." in shown
    assert "Train with some agents." in shown
    assert "\n  mine.py train --size 3" in script("train", "--help").stdout
    assert "\n  mine.py ps rl" in script("ps", "--help").stdout


def test_an_action_says_how_it_ended(script: Script) -> None:
    done = script("shout-it", "rl", "--", "-a", "--", "b")
    assert (done.returncode, done.stdout) == (5, "rl ['-a', '--', 'b'] True\n")


def test_its_errors_are_those_of_symphony(script: Script) -> None:
    done = script("trian")
    assert (done.returncode, done.stderr) == (
        2,
        "mine.py: error: unknown command 'trian'; did you mean 'train'?; see mine.py --help\n",
    )
