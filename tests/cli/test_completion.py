"""Completion, as a shell requests it, and in bash, zsh and fish."""

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
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """One program for all tests: completion changes nothing."""
    made = Program(tmp_path_factory.mktemp("completing"))
    (made.directory / ".symphony.yml").write_text("profiles: {gke: {backend: local}, lab: {}}\n")
    learner = {"cmd": "true", "binds": "replay", "exposes": {"board": None}}
    made.run("rl", {"learner": learner, **CREW})
    (made.directory / "somewhere").mkdir()
    (made.directory / "some.yml").touch()
    yield made
    made.cluster.delete("rl")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["lau"], ["launch"]),
        (["de"], ["describe", "debug", "delete"]),
        (["-b", "lo"], ["local"]),
        (["ps", "--backend", "lo"], ["local"]),
        (["-b", "local", "ps", "r"], ["rl"]),
        (["ps", ""], ["rl", "learner", "crew/agent-1", "crew/bob", "crew"]),
        (["process", ""], ["rl", "learner", "crew/agent-1", "crew/bob", "crew"]),
        (["down", ""], ["rl"]),
        (["restart", "learner", "crew/a"], ["crew/agent-1"]),
        (["ps", "x"], []),
        (["logs", "rl", ""], ["learner", "crew/agent-1", "crew/bob", "crew"]),
        (["logs", "-f", "rl", "learner", "cr"], ["crew/agent-1", "crew/bob", "crew"]),
        (["logs", "rl", "age"], ["agent-1"]),
        (["logs", "rl", "crew/b"], ["crew/bob"]),
        (["logs", "rl", "missing"], []),
        (["logs", "--tail", "5", "rl", "l"], ["learner"]),
        (["logs", "rl", "-f", "lea"], ["learner"]),
        (["logs", "rl", "learner", "--tail", "5", "cr"], ["crew/agent-1", "crew/bob", "crew"]),
        (["events", "rl", "learner", "--since", "5m", "cr"], ["crew/agent-1", "crew/bob", "crew"]),
        (["logs", "-fb", "lo"], ["local"]),
        (["logs", "-fb", "local", "rl", "lea"], ["learner"]),
        (["logs", "-blocal", "rl", "lea"], ["learner"]),
        (["cp", "rl", "-1", "lea"], ["learner:", ":files"]),
        (["describe", "rl", "--dry-run", "lea"], ["learner"]),
        (["logs", "rl", "--save", ""], [":directories"]),
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
def test_completions(program: Program, words: list[str], found: list[str]) -> None:
    assert program.ok("__complete", *words).split() == found


def test_aliases_are_not_completed(program: Program) -> None:
    found = program.ok("__complete", "").split()
    assert "ps" in found
    assert "status" not in found


def test_backend_options_choose_the_cluster(program: Program) -> None:
    script = program.directory / "mine.py"
    script.write_text(SCRIPT_WITH_AN_OPTION)
    done = program("__complete", "ps", "--where", "here", "", script=script)
    assert (done.stdout, done.stderr) == ("here\n", "")


SCRIPT_WITH_AN_OPTION = """
from symphony.commandline import SymphonyParser
from symphony.hookspecs import Option

class Cluster:
    def __init__(self, name):
        self.name = name

    def list_experiments(self):
        return [self.name]

class Mine(SymphonyParser):
    def setup(self):
        options = self._backend
        options._options = (Option(name="where", flags=("--where",), help="where"),)
        options.load = lambda words, configured, for_help=False: True

    def create_cluster(self):
        return Cluster(self.backend_options["where"])

Mine().main()
"""


def test_unknown_shell(program: Program) -> None:
    assert "unknown SHELL 'bas'; did you mean 'bash'?" in program("completion", "bas").stderr


# --- in shells ---

# The typed line and the completed line, one for each thing that the shells do themselves: words
# with a slash or an equals sign, the space after a word, files and directories. The words
# themselves are tested above. Each has one completion, and no line is the beginning of
# a completed one, because the terminal is searched for them.
TYPED = {
    "symphony ps r": "symphony ps rl",
    "symphony logs -f rl crew/b": "symphony logs -f rl crew/bob",
    "symphony --backend=tm": "symphony --backend=tmux",
    "symphony cp rl le": "symphony cp rl learner:",
    "symphony launch some.": "symphony launch some.yml",
    "symphony logs rl --save some": "symphony logs rl --save somewhere/",
    "symphony exec rl learner -- ls some.": "symphony exec rl learner -- ls some.yml",
}
# The same for a script that is not in a directory of PATH.
TYPED_FOR_A_SCRIPT = {
    "./lab.py ps r": "./lab.py ps rl",
    "~/lab.py logs rl lear": "~/lab.py logs rl learner",
    r"our\ lab/lab.py describe rl age": r"our\ lab/lab.py describe rl agent-1",
    "'our lab'/lab.py visit rl bo": "'our lab'/lab.py visit rl board",
    "./a=b:c/lab.py cp rl le": "./a=b:c/lab.py cp rl learner:",
}
# Control-U deletes the typed line.
CLEAR_LINE = "\x15"
SCRIPT = "from symphony.commandline import SymphonyParser\nSymphonyParser().main()\n"


@pytest.fixture(scope="module")
def bin_directory(program: Program) -> Path:
    """A directory for PATH that contains ``symphony``."""
    directory = program.directory / "bin"
    directory.mkdir()
    code = f"{PATIENT}; from symphony.__main__ import main; raise SystemExit(main())"
    command = shlex.join([sys.executable, "-c", code])
    (directory / "symphony").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    (directory / "symphony").chmod(0o755)
    return directory


@pytest.fixture(scope="module")
def lab(program: Program) -> None:
    """A script in directories whose names need quotes."""
    text = f"#!{sys.executable}\n{PATIENT}\n{SCRIPT}"
    for directory in (".", "home", "our lab", "a=b:c"):
        path = program.directory / directory / "lab.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


def environment(program: Program, bin_directory: Path, shell: shells.Shell) -> dict[str, str]:
    home = program.directory / "home"
    home.mkdir(exist_ok=True)
    return {
        **program.env,
        "PATH": f"{bin_directory}:{program.env['PATH']}",
        "HOME": str(home),
        "ZDOTDIR": str(home),
        "LC_ALL": "C.UTF-8",
        **shell.env(),
    }


@pytest.mark.parametrize("name", ["bash", "zsh"])
@pytest.mark.usefixtures("lab")
def test_the_tab_key(program: Program, bin_directory: Path, name: str) -> None:
    shell = shells.find(name)
    env = environment(program, bin_directory, shell)
    home = Path(env["HOME"])
    start = (
        "PS1='what? '\n"
        f'eval "$(symphony completion {name})"\n'
        f'eval "$(./lab.py completion {name})"\n'
    )
    (home / ".zshenv").write_text(shell.modules())
    (home / ".zshrc").write_text(start)
    (home / ".bashrc").write_text(start)
    options = {"bash": ["--rcfile", str(home / ".bashrc"), "-i"], "zsh": ["-d", "-i"]}[name]
    terminal = Terminal([str(shell.program), *options], env=env, cwd=program.directory, width=120)
    try:
        terminal.expect("what? ")
        for typed, completed in {**TYPED, **TYPED_FOR_A_SCRIPT}.items():
            terminal.press(f"{CLEAR_LINE}{typed}\t.")
            terminal.expect(completed)
            # zsh draws the space after a word in several ways, so it is not checked there.
            if name == "bash":
                space = "" if completed.endswith((":", "/")) else " "
                terminal.expect(f"{completed}{space}.")
    finally:
        terminal.close()


@pytest.mark.usefixtures("lab")
def test_fish(program: Program, bin_directory: Path) -> None:
    shell = shells.find("fish")
    typed = {**TYPED, **TYPED_FOR_A_SCRIPT}
    lines = ["symphony completion fish | source", "./lab.py completion fish | source"]
    for line in typed:
        quoted = line.replace("\\", "\\\\")
        lines.append(f'complete -C "{quoted}"; echo =')
    done = subprocess.run(
        [shell.program, "--no-config", "-c", "\n".join(lines)],
        env=environment(program, bin_directory, shell),
        cwd=program.directory,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.stderr == ""
    found = [part.split() for part in done.stdout.split("=\n")[:-1]]
    assert found == [[completed.rpartition(" ")[2]] for completed in typed.values()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_has_the_name_of_the_program(program: Program, shell: str) -> None:
    script = program.directory / "lab-7.py"
    script.write_text(SCRIPT)
    shown = program("completion", shell, script=script).stdout
    assert "program=lab-7.py" in shown or "set program lab-7.py" in shown
    assert "_lab_7_py" in shown


def test_the_name_of_the_program_is_quoted(program: Program) -> None:
    script = program.directory / "our $(touch bad) lab.py"
    script.write_text(SCRIPT)
    shown = program("completion", "bash", script=script).stdout
    done = subprocess.run(
        ["bash", "-c", f"{shown}complete -p"],
        cwd=program.directory,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "complete -F _our___touch_bad__lab_py 'our $(touch bad) lab.py'" in done.stdout
    assert not (program.directory / "bad").exists()
