"""Completion, as a shell asks for it, and by a real bash, zsh and fish."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import shells
from tests.cli.conftest import PATIENT, TIMEOUT, Program
from tests.cli.terminal import Terminal

CREW = {"crew": {"processes": {"agent-1": {"cmd": "true"}, "bob": {"cmd": "true"}}}}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Program]:
    """One for all: nothing here changes what there is."""
    made = Program(tmp_path_factory.mktemp("completing"), cache)
    made.complete_slowly()
    (made.folder / ".symphony.yml").write_text("profiles: {gke: {backend: local}, lab: {}}\n")
    made.ended(
        "rl", {"learner": {"cmd": "true", "binds": "replay", "exposes": {"board": None}}, **CREW}
    )
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
        (["logs", "rl", "-f", "lea"], ["learner"]),
        (["logs", "rl", "learner", "--tail", "5", "cr"], ["crew/agent-1", "crew/bob"]),
        (["logs", "-fb", "lo"], ["local"]),
        (["logs", "-fb", "local", "rl", "lea"], ["learner"]),
        (["logs", "-blocal", "rl", "lea"], ["learner"]),
        (["cp", "rl", "-1", "lea"], ["learner:", ":files"]),
        (["describe", "rl", "--dry-run", "lea"], ["learner"]),
        (["logs", "rl", "--save", ""], [":folders"]),
        (["exec", "rl", "crew/a"], ["crew/agent-1"]),
        (["exec", "rl", "learner", "--", "ls", ""], [":files"]),
        (["cp", "rl", "lea"], ["learner:", ":files"]),
        (["cp", "rl", "x", "crew/a"], ["crew/agent-1:", ":files"]),
        (["forward", "rl", ""], ["learner", "crew/agent-1", "crew/bob", "replay", "board"]),
        (["visit", "rl", ""], ["board"]),
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


ELSEWHERE = f"""
{PATIENT}
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

# The same of a script of one's own that is not on the PATH.
OWN = {
    "./lab.py ps r": "./lab.py ps rl",
    "~/lab.py logs rl lear": "~/lab.py logs rl learner",
    r"our\ lab/lab.py describe rl age": r"our\ lab/lab.py describe rl agent-1",
    "'our lab'/lab.py visit rl bo": "'our lab'/lab.py visit rl board",
    "./a=b:c/lab.py cp rl le": "./a=b:c/lab.py cp rl learner:",
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


@pytest.fixture(scope="module")
def lab(program: Program) -> None:
    """A script of one's own, in folders of all kinds of names."""
    text = f"#!{sys.executable}\n{PATIENT}\nfrom symphony.commandline import SymphonyParser\nSymphonyParser().main()\n"
    for folder in (".", "home", "our lab", "a=b:c"):
        path = program.folder / folder / "lab.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


def environment(program: Program, bin: Path, shell: shells.Shell) -> dict[str, str]:
    home = program.folder / "home"
    home.mkdir(exist_ok=True)
    mine = {
        "PATH": f"{bin}:{program.env['PATH']}",
        "HOME": str(home),
        "ZDOTDIR": str(home),
        "LC_ALL": "C.UTF-8",
    }
    return {**program.env, **mine, **shell.env()}


@pytest.mark.parametrize("name", ["bash", "zsh"])
@pytest.mark.usefixtures("lab")
def test_keys_are_completed(program: Program, bin: Path, name: str) -> None:
    """What is typed into an interactive shell, with a press of the tabulator."""
    shell = shells.find(name)
    env = environment(program, bin, shell)
    home = Path(env["HOME"])
    start = f'PS1=\'what? \'\neval "$(symphony completion {name})"\neval "$(./lab.py completion {name})"\n'
    (home / ".zshenv").write_text(shell.modules())
    (home / ".zshrc").write_text(start)
    (home / ".bashrc").write_text(start)
    words = {"bash": ["--rcfile", str(home / ".bashrc"), "-i"], "zsh": ["-d", "-i"]}[name]
    terminal = Terminal([str(shell.program), *words], env=env, cwd=program.folder, width=120)
    try:
        terminal.expect("what? ")
        for typed, completed in {**TYPED, **OWN}.items():
            terminal.press(f"{CLEAR}{typed}\t.")
            terminal.expect(completed)
            if name == "bash":  # zsh draws the space after a word anew, in ways of its own
                terminal.expect(
                    f"{completed}." if completed.endswith((":", "/")) else f"{completed} ."
                )
    finally:
        terminal.close()


@pytest.mark.usefixtures("lab")
def test_fish_completes(program: Program, bin: Path) -> None:
    shell = shells.find("fish")
    every = {**TYPED, **OWN}
    asked = ["symphony completion fish | source", "./lab.py completion fish | source"]
    asked += [
        f'complete -C "{quoted}"; echo ='
        for quoted in (typed.replace("\\", "\\\\") for typed in every)
    ]
    done = subprocess.run(
        [shell.program, "--no-config", "-c", "\n".join(asked)],
        env=environment(program, bin, shell), cwd=program.folder, capture_output=True, text=True, timeout=TIMEOUT,
    )  # fmt: skip
    assert done.stderr == ""
    found = [part.split() for part in done.stdout.split("=\n")[:-1]]
    assert found == [[completed.rpartition(" ")[2]] for completed in every.values()]


def test_a_script_of_ones_own_completes_by_its_name(program: Program) -> None:
    """The names of the script's functions follow from its own."""
    (program.folder / "lab-7.py").write_text(
        "from symphony.commandline import SymphonyParser\nSymphonyParser().main()"
    )
    for shell in ("bash", "zsh", "fish"):
        shown = subprocess.run(
            [sys.executable, program.folder / "lab-7.py", "completion", shell],
            env=program.env, capture_output=True, text=True, timeout=TIMEOUT, check=True,
        ).stdout  # fmt: skip
        assert "program=lab-7.py" in shown or "set program lab-7.py" in shown
        assert "_lab_7_py" in shown


def test_a_script_with_a_name_that_needs_quotes_completes(program: Program) -> None:
    """Whatever is in its name is not run by the shell that reads it."""
    path = program.folder / "our $(touch bad) lab.py"
    path.write_text("from symphony.commandline import SymphonyParser\nSymphonyParser().main()")
    argv = [sys.executable, path, "completion", "bash"]
    shown = subprocess.run(
        argv, env=program.env, capture_output=True, text=True, timeout=TIMEOUT, check=True
    ).stdout
    done = subprocess.run(
        ["bash", "-c", f"{shown}complete -p"], cwd=program.folder, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "complete -F _our___touch_bad__lab_py 'our $(touch bad) lab.py'" in done.stdout
    assert not (program.folder / "bad").exists()


def test_an_unknown_shell(program: Program) -> None:
    assert "unknown SHELL 'bas'; did you mean 'bash'?" in program("completion", "bas").stderr
