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

    def __call__(self, *args: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, self.path, *map(str, args)],
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


# --- whose cluster it is ---


def other(script: Script, made: str) -> None:
    """Let the script make its cluster in another way."""
    text = script.path.read_text()
    before = 'return Cluster.new("local", preamble_cmds="export FROM=mine")'
    assert before in text
    script.path.write_text(text.replace(before, made))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("delete", "-f", "train", "-b", "tmux"),
            "-b tmux asks for the tmux backend, and the cluster of mine.py is",
        ),
        (
            ("train", "--size", "3", "--backend=K8s"),
            "-b K8s asks for the kube backend, and the cluster of mine.py is its own, on local",
        ),
        (
            ("ls", "--profile", "gke"),
            "--profile gke asks for the kube backend, and the cluster of mine.py is its own,",
        ),
        (("ls", "-b", "nowhere"), "no backend 'nowhere'"),
    ],
)
def test_a_backend_that_is_not_its_own_is_refused_and_nothing_done(
    script: Script, words: tuple[str, ...], said: str
) -> None:
    (script.program.folder / ".symphony.yml").write_text(
        "profiles: {gke: {backend: kube}, mine: {username: sarah}}\n"
    )
    assert script("train", "--size", "1").returncode == 0
    before = script.program.left()
    done = script(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"mine.py: error: {said}")
    assert script.program.left() == before != []
    assert script("__complete", "ps", *words[-2:], "").stdout.split() == []


@pytest.mark.parametrize(
    "words", [("-b", "local"), ("-b", "Subproc"), ("--profile", "mine"), ("--profile", "same")]
)
def test_what_asks_for_its_own_backend_is_fine(script: Script, words: tuple[str, ...]) -> None:
    profiles = "profiles: {mine: {username: sarah}, same: {backend: local}}\n"
    (script.program.folder / ".symphony.yml").write_text(profiles)
    assert script("ls", *words).returncode == 0


def test_options_that_its_cluster_is_made_without_are_refused(script: Script) -> None:
    other(script, 'return Cluster.new("kube")')
    done = script("train", "-b", "kube", "--namespace", "team-a", "--dry-run")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "mine.py: error: --namespace is an option of the kube backend, and the cluster of mine.py is made without it "
        "(its create_cluster() takes no backend_options); leave --namespace out\n"
    )


def test_its_check_looks_at_each_backend_as_that_is(script: Script) -> None:
    other(script, 'return Cluster.new("kube")')
    file = script.program.file("rl", {"learner": "true"})
    assert script("check", "--target", "local", "--offline", file).returncode == 0
    found = script("check", "--target", "kube", "--offline", file)
    assert (found.returncode, "no-image: kube" in found.stdout) == (1, True), found


@pytest.mark.parametrize(
    "made",
    [
        "return Cluster.new(self.backend_name, **self.backend_options)",
        "return Cluster.new(self.args.backend or 'local', **self.backend_options)",
        "return super().create_cluster()",
    ],
)
def test_one_that_goes_by_what_was_typed_takes_all(script: Script, made: str) -> None:
    other(script, made)
    assert script("train", "--size", "1").returncode == 0
    assert script("ps", "train").returncode == 0
    done = script(
        "render",
        "-b",
        "kube",
        "--namespace",
        "team-a",
        script.program.file("rl", {"a": a_container()}),
    )
    assert "namespace: team-a" in done.stdout


def a_container() -> dict[str, str]:
    return {"command": "true", "container_image": "x"}


def test_its_help_tells_of_backends_only_where_there_is_a_choice(script: Script) -> None:
    for words in ((), ("ls",), ("launch", "-b", "kube"), ("submit",), ("attach",)):
        shown = script(*words, "--help").stdout
        assert "usage: mine.py" in shown
        assert "-b" not in shown.replace("-batch", "").split()
        assert ("--backend" in shown, "options of the kube" in shown, "--namespace" in shown) == (
            False,
            False,
            False,
        )
        assert "For example:\n\n" not in shown
    assert "--backend" not in script("__complete", "ls", "--").stdout
    other(script, "return super().create_cluster()\n\n    goes_by_backend = True")
    shown = script("train", "-b", "kube", "--help").stdout
    assert "-b, --backend BACKEND" in shown
    assert "--namespace NAMESPACE" in shown
    assert "mine.py launch rl.yml -b tmux --dry-run" in script("launch", "--help").stdout


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
