"""A project's own command line: a script with a subclass of `SymphonyParser`."""

from __future__ import annotations

import subprocess

import pytest

from tests.cli.conftest import Program

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
        train.add_argument("--follow", action="store_true")
        train.add_argument("--exit", type=int, default=0)
        self.add_dry_run(train)
        shout = self.add_subparser("shout-it", aliases=["s"])
        self._add_experiment_name(shout)
        self.get_subparser("ls").add_argument("--greet", action="store_true")

    def action_train(self, args):
        """Train with some agents.

        For example:
          symphony train --size 3
        """
        exp = self.cluster.new_experiment("train")
        for number in range(args.size):
            exp.new_process(f"agent-{number}", cmd=f"echo $FROM; exit {args.exit}")
        return self.launch(exp, dry_run=args.dry_run, follow=args.follow)

    def action_shout_it(self, args):
        """Shout."""
        print(args.experiment, args.remainder, args.has_remainder)
        return 5


Mine().main()
'''


class Script:
    """A script ``mine.py`` in the working directory of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.path = program.directory / "mine.py"
        self.path.write_text(SCRIPT)

    def __call__(self, *args: object) -> subprocess.CompletedProcess[str]:
        return self.program(*args, script=self.path)

    def replace_cluster(self, statement: str) -> None:
        """Replace the body of `create_cluster`."""
        text = self.path.read_text()
        before = 'return Cluster.new("local", preamble_cmds="export FROM=mine")'
        assert before in text
        self.path.write_text(text.replace(before, statement))


@pytest.fixture
def script(program: Program) -> Script:
    return Script(program)


def test_own_commands_and_inherited_commands(script: Script) -> None:
    assert script("t", "--size", "1").returncode == 0
    assert script("wait", "train").stdout == "train succeeded: 1 succeeded\n"
    assert script("logs", "train").stdout == "mine\n"
    assert script("ls", "--greet").stdout.splitlines()[1].startswith("train")


def test_the_script_runs_in_a_process_of_its_own(script: Script) -> None:
    done = script.program.process("t", "--size", "1", "--dry-run", script=script.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "agent-0" in done.stdout


def test_own_dry_run(script: Script) -> None:
    assert "agent-1" in script("train", "--dry-run").stdout
    assert script.program.state_entries() == []


def test_an_own_command_shows_the_output_and_returns_the_exit_code_of_the_experiment(
    script: Script,
) -> None:
    done = script("t", "--size", "1", "--exit", "7", "--follow")
    assert done.returncode == 7
    assert "mine" in done.stdout
    assert "agent-0" in script("t", "--follow", "--dry-run").stdout


def test_help_has_the_name_and_the_docstring_of_the_script(script: Script) -> None:
    shown = script("--help").stdout
    assert "usage: mine.py " in shown
    assert "The experiments of our project." in shown
    assert "Train with some agents." in shown
    assert "\n  mine.py train --size 3" in script("train", "--help").stdout
    assert "\n  mine.py ps rl" in script("ps", "--help").stdout


def test_exit_code_and_remainder_of_an_action(script: Script) -> None:
    done = script("s", "rl", "--", "-a", "--", "b")
    assert (done.returncode, done.stdout) == (5, "rl ['-a', '--', 'b'] True\n")
    assert script("ls", "--", "b").returncode == 2


def test_errors_have_the_name_of_the_script(script: Script) -> None:
    done = script("trian")
    assert (done.returncode, done.stderr) == (
        2,
        "mine.py: error: unknown command 'trian'; did you mean 'train'?; see mine.py --help\n",
    )


# --- the cluster of the script ---


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ("delete", "-f", "train", "-b", "tmux"),
            "-b tmux requests the tmux backend, but mine.py uses its own cluster on local",
        ),
        (
            ("train", "--size", "3", "--backend=K8s"),
            "-b K8s requests the kube backend, but mine.py uses its own cluster on local",
        ),
        (
            ("ls", "--profile", "gke"),
            "--profile gke requests the kube backend, but mine.py uses its own cluster",
        ),
        (("ls", "-b", "nowhere"), "no backend 'nowhere'"),
    ],
)
def test_another_backend_is_refused(script: Script, words: tuple[str, ...], error: str) -> None:
    (script.program.directory / ".symphony.yml").write_text(
        "profiles: {gke: {backend: kube}, mine: {username: sarah}}\n"
    )
    assert script("train", "--size", "1").returncode == 0
    before = script.program.state_entries()
    done = script(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"mine.py: error: {error}")
    assert script.program.state_entries() == before != []
    assert script("__complete", "ps", *words[-2:], "").stdout.split() == []


@pytest.mark.parametrize(
    "words", [("-b", "local"), ("-b", "Subproc"), ("--profile", "mine"), ("--profile", "same")]
)
def test_the_same_backend_is_accepted(script: Script, words: tuple[str, ...]) -> None:
    profiles = "profiles: {mine: {username: sarah}, same: {backend: local}}\n"
    (script.program.directory / ".symphony.yml").write_text(profiles)
    assert script("ls", *words).returncode == 0


def test_ignored_backend_options_are_refused(script: Script) -> None:
    script.replace_cluster('return Cluster.new("kube")')
    done = script("train", "-b", "kube", "--namespace", "team-a", "--dry-run")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "mine.py: error: --namespace is an option of the kube backend, but mine.py creates its "
        "cluster without it (its create_cluster() does not use backend_options); "
        "remove --namespace\n"
    )


def test_check_uses_the_defaults_of_each_backend(script: Script) -> None:
    script.replace_cluster('return Cluster.new("kube")')
    file = script.program.file("rl", {"learner": "true"})
    assert script("check", "--target", "local", "--offline", file).returncode == 0
    found = script("check", "--target", "kube", "--offline", file)
    assert found.returncode == 1
    assert "no-image: kube" in found.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "return Cluster.new(self.backend_name, **self.backend_options)",
        "return Cluster.new(self.args.backend or 'local', **self.backend_options)",
        "return super().create_cluster()",
    ],
)
def test_a_cluster_that_uses_backend_options_accepts_them(script: Script, statement: str) -> None:
    script.replace_cluster(statement)
    assert script("train", "--size", "1").returncode == 0
    assert script("ps", "train").returncode == 0
    file = script.program.file("rl", {"a": {"command": "true", "container_image": "x"}})
    done = script("render", "-b", "kube", "--namespace", "team-a", file)
    assert "namespace: team-a" in done.stdout


def test_help_describes_backends_only_if_there_is_a_choice(script: Script) -> None:
    for words in ((), ("ls",), ("launch", "-b", "kube"), ("submit",), ("attach",)):
        shown = script(*words, "--help").stdout
        assert "usage: mine.py" in shown
        assert "-b" not in shown.replace("-batch", "").split()
        for hidden in ("--backend", "options for the kube", "--namespace", "For example:\n\n"):
            assert hidden not in shown
    assert "--backend" not in script("__complete", "ls", "--").stdout
    script.replace_cluster("return super().create_cluster()\n\n    goes_by_backend = True")
    shown = script("train", "-b", "kube", "--help").stdout
    assert "-b, --backend BACKEND" in shown
    assert "--namespace NAMESPACE" in shown
    assert "mine.py launch rl.yml -b tmux --dry-run" in script("launch", "--help").stdout
