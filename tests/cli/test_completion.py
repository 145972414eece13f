"""Completion, as a shell asks for it, and by a real bash, zsh and fish."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import shells
from tests.cli.conftest import TIMEOUT, Program
from tests.cli.terminal import Terminal

CREW = {"crew": {"processes": {"agent-1": {"cmd": "true"}, "bob": {"cmd": "true"}}}}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Program]:
    """One for all: nothing here changes what there is."""
    made = Program(tmp_path_factory.mktemp("completing"), cache)
    (made.folder / ".symphony.yml").write_text("profiles: {gke: {backend: local}, lab: {}}\n")
    made.ended("rl", {"learner": {"cmd": "true", "binds": "replay", "exposes": {"board": None}}, **CREW})
    (made.folder / "somewhere").mkdir()
    (made.folder / "some.yml").touch()
    yield made
    made.cluster.delete("rl")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["lau"], ["launch"]),
        (["de"], ["describe", "delete", "delete-batch"]),
        (["-b", "lo"], ["local"]),
        (["ps", "--backend", "lo"], ["local"]),
        (["-b", "local", "ps", "r"], ["rl"]),
        (["ps", ""], ["rl"]),
        (["p", ""], ["rl"]),
        (["ps", "x"], []),
        (["logs", "rl", ""], ["learner", "crew/agent-1", "crew/bob"]),
        (["logs", "-f", "rl", "learner", "cr"], ["crew/agent-1", "crew/bob"]),
        (["logs", "rl", "age"], ["agent-1"]),
        (["logs", "rl", "crew/b"], ["crew/bob"]),
        (["logs", "rl", "nobody"], []),
        (["logs", "--tail", "5", "rl", "l"], ["learner"]),
        (["logs", "rl", "--save", ""], [":folders"]),
        (["exec", "rl", "crew/a"], ["crew/agent-1"]),
        (["exec", "rl", "learner", "--", "ls", ""], [":files"]),
        (["cp", "rl", "lea"], ["learner:", ":files"]),
        (["cp", "rl", "x", "crew/a"], ["crew/agent-1:", ":files"]),
        (["forward", "rl", ""], ["learner", "crew/agent-1", "crew/bob", "replay", "board"]),
        (["visit", "rl", "bo"], ["board"]),
        (["delete", "rl", ""], ["rl"]),
        (["launch", ""], [":files"]),
        (["graph", "r"], ["rl", ":files"]),
        (["graph", "-o", ""], [":files"]),
        (["launch", "f.yml", "--wait", ""], ["started", "ready"]),
        (["launch", "f.yml", "--wait=r"], ["--wait=ready"]),
        (["--backend=t"], ["--backend=tmux"]),
        (["ps", "--js"], ["--json"]),
        (["ps", "--dry"], []),
        (["check", "f.yml", "--target", "lo"], ["local"]),
        (["--profile", ""], ["gke", "lab"]),
        (["ps", "--profile", "g"], ["gke"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["nonsense", ""], []),
        (["logs", "nowhere", ""], []),
        (["cp", "nowhere", ""], [":files"]),
    ],
)
def test_what_may_come_next(program: Program, words: list[str], found: list[str]) -> None:
    done = program("__complete", *words)
    assert done.stderr == ""
    assert done.stdout.split() == found


def test_short_names_are_not_offered(program: Program) -> None:
    found = program.ok("__complete", "").split()
    assert ("lsp" in found, "ps" in found) == (False, True)


def test_options_of_the_backend_say_where_names_are(program: Program) -> None:
    """As another command line of that backend would find them."""
    script = program.folder / "mine.py"
    script.write_text(ELSEWHERE)
    done = subprocess.run(
        [sys.executable, script, "__complete", "ps", "--where", "here", ""],
        env=program.env, capture_output=True, text=True, timeout=TIMEOUT,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("here\n", "")


ELSEWHERE = """
from symphony.commandline import SymphonyParser
from symphony.hookspecs import Option

class Place:
    def list_experiments(self):
        return [self.where]

class Mine(SymphonyParser):
    def _take_options(self, words):
        self._options = (Option(name="where", flags=("--where",), help="where"),)

    def create_cluster(self):
        place = Place()
        place.where = self.backend_options["where"]
        return place

Mine().main()
"""


# --- in real shells ---

# What is typed, and what it becomes: each has one completion. None begins as another one ends up.
TYPED = {
    "symphony ps r": "symphony ps rl",
    "symphony logs rl lear": "symphony logs rl learner",
    "symphony describe rl age": "symphony describe rl agent-1",
    "symphony logs -f rl crew/b": "symphony logs -f rl crew/bob",
    "symphony -b tm": "symphony -b tmux",
    "symphony --backend=tm": "symphony --backend=tmux",
    "symphony --profile g": "symphony --profile gke",
    "symphony visit rl bo": "symphony visit rl board",
    "symphony cp rl le": "symphony cp rl learner:",
    "symphony launch some.": "symphony launch some.yml",
    "symphony logs rl --save some": "symphony logs rl --save somewhere/",
    "symphony exec rl learner -- ls some.": "symphony exec rl learner -- ls some.yml",
}


CLEAR = "\x15"  # Control-U takes the line back


@pytest.fixture(scope="module")
def bin(program: Program) -> Path:
    """A folder with ``symphony``, to be on a shell's PATH."""
    folder = program.folder / "bin"
    folder.mkdir()
    (folder / "symphony").write_text(f'#!/bin/sh\nexec {shlex.join(program.argv())} "$@"\n')
    (folder / "symphony").chmod(0o755)
    return folder


def environment(program: Program, bin: Path, shell: shells.Shell) -> dict[str, str]:
    home = program.folder / "home"
    home.mkdir(exist_ok=True)
    mine = {"PATH": f"{bin}:{program.env['PATH']}", "HOME": str(home), "ZDOTDIR": str(home), "LC_ALL": "C.UTF-8"}
    return {**program.env, **mine, **shell.env()}


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_keys_are_completed(program: Program, bin: Path, name: str) -> None:
    """What is typed into an interactive shell, with a press of the tabulator."""
    shell = shells.find(name)
    env = environment(program, bin, shell)
    home = Path(env["HOME"])
    start = f"PS1='what? '\neval \"$(symphony completion {name})\"\n"
    (home / ".zshenv").write_text(shell.modules())
    (home / ".zshrc").write_text(start)
    (home / ".bashrc").write_text(start)
    words = {"bash": ["--rcfile", str(home / ".bashrc"), "-i"], "zsh": ["-d", "-i"]}[name]
    terminal = Terminal([str(shell.program), *words], env=env, cwd=program.folder, width=120)
    try:
        terminal.expect("what? ")
        for typed, completed in TYPED.items():
            terminal.press(f"{CLEAR}{typed}\t.")
            terminal.expect(completed)
            if name == "bash":  # zsh draws the space after a word anew, in ways of its own
                terminal.expect(f"{completed}." if completed.endswith((":", "/")) else f"{completed} .")
    finally:
        terminal.close()


def test_fish_completes(program: Program, bin: Path) -> None:
    shell = shells.find("fish")
    asked = ["symphony completion fish | source", *(f"complete -C '{typed}'; echo =" for typed in TYPED)]
    done = subprocess.run(
        [shell.program, "--no-config", "-c", "\n".join(asked)],
        env=environment(program, bin, shell), cwd=program.folder, capture_output=True, text=True, timeout=TIMEOUT,
    )  # fmt: skip
    assert done.stderr == ""
    found = [part.split() for part in done.stdout.split("=\n")[:-1]]
    assert found == [[completed.rpartition(" ")[2]] for completed in TYPED.values()]


def test_a_script_of_ones_own_completes_by_its_name(program: Program) -> None:
    """The names of the script's functions follow from its own."""
    (program.folder / "lab-7.py").write_text("from symphony.commandline import SymphonyParser\nSymphonyParser().main()")
    for shell in ("bash", "zsh", "fish"):
        shown = subprocess.run(
            [sys.executable, program.folder / "lab-7.py", "completion", shell],
            env=program.env, capture_output=True, text=True, timeout=TIMEOUT, check=True,
        ).stdout  # fmt: skip
        assert "lab-7.py __complete" in shown
        assert "_lab_7_py" in shown


def test_an_unknown_shell(program: Program) -> None:
    assert "unknown SHELL 'bas'; did you mean 'bash'?" in program("completion", "bas").stderr
