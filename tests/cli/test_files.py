"""A Python file as FILE: its ``build(exp)``, its name, its folder, and what may be wrong with it."""

from __future__ import annotations

import textwrap

import pytest

from tests.cli.conftest import Program


def written(program: Program, text: str, name: str = "rl.py") -> str:
    """A file in a folder below the one that the program runs in; its path from there."""
    path = program.folder / "sub" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return f"sub/{name}"


BUILD = """
    def build(exp):
        exp.new_process("a", cmd="true")
"""


@pytest.mark.parametrize(
    ("file", "text", "options", "name"),
    [
        ("rl.py", BUILD, [], "rl"),
        ("My_Experiment2.py", BUILD, [], "my-experiment2"),
        ("rl.py", f"    NAME = 'named'\n{BUILD}", [], "named"),
        ("rl.py", f"    NAME = 'named'\n{BUILD}", ["--name", "given"], "given"),
        ("1.py", BUILD, [], "p1"),
    ],
)
def test_the_name(program: Program, file: str, text: str, options: list[str], name: str) -> None:
    assert program.json("render", written(program, text, file), *options)["experiment"] == name


def test_it_imports_from_its_folder_and_starts_there(program: Program) -> None:
    written(program, "COMMAND = 'pwd; cat note.txt'", "helper.py")
    written(program, "found me", "note.txt")
    file = written(
        program,
        """
        import helper

        def build(exp):
            import helper as again
            exp.new_process("a", cmd=again.COMMAND)
        """,
    )
    program.ok("launch", file)
    program.cluster.wait("rl", timeout=30)
    assert program.ok("logs", "rl") == f"{program.folder / 'sub'}\nfound me"


def test_the_supervisor_does_not_import_from_its_folder(program: Program) -> None:
    """Its folder may hold modules that are named as those of the standard library."""
    written(program, "raise RuntimeError('imported')", "signal.py")
    written(program, "raise RuntimeError('imported')", "json.py")
    program.ok("launch", written(program, BUILD))
    assert program("wait", "rl").returncode == 0


def test_what_it_prints_does_not_mix_with_the_answer(program: Program) -> None:
    file = written(
        program,
        """
        print("loading")

        def build(exp):
            print("building")
            exp.new_process("a", cmd="true")
        """,
    )
    done = program("render", file, "--json")
    assert done.stdout.startswith("{")
    assert done.stderr == "loading\nbuilding\n"


def test_dataclasses_and_main_guards_work(program: Program) -> None:
    file = written(
        program,
        """
        from __future__ import annotations
        from dataclasses import dataclass
        from typing import ClassVar

        @dataclass
        class Agent:
            kind: ClassVar[str] = "agent"
            number: int = 1

        def build(exp):
            exp.new_process(f"{Agent.kind}-{Agent().number}", cmd="true")

        if __name__ == "__main__":
            raise SystemExit("not meant")
        """,
    )
    assert program.json("render", file)["processes"][0]["name"] == "agent-1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "sub/rl.py: has no function build(exp); define one"),
        ("def biuld(exp): ...", "sub/rl.py: has no function build(exp); did you mean 'biuld'?"),
        ("build = 3", "has no function build(exp)"),
        (
            "def build(): ...",
            "sub/rl.py: build(exp) failed: TypeError: build() takes 0 positional arguments",
        ),
        (
            "def build(exp):\n    raise ValueError('no luck\\ntoday')",
            "sub/rl.py:2: build(exp) failed: ValueError: no luck ",
        ),
        ("def build(exp):\n    raise SystemExit", "sub/rl.py:2: build(exp) failed: SystemExit"),
        (
            "\n\nimport no_such_module",
            "sub/rl.py:3: failed to execute: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        (
            "async def build(exp):\n    exp.new_process('a', cmd='x')",
            "sub/rl.py: build(exp) is async, so its body did not run",
        ),
        (
            "def build(exp):\n    yield exp.new_process('a', cmd='x')",
            "sub/rl.py: build(exp) contains yield, so",
        ),
        (
            "async def build(exp):\n    yield exp",
            "sub/rl.py: build(exp) is async and contains yield",
        ),
        (
            "def build(exp):\n    async def later(): ...\n    return later()",
            "sub/rl.py: build(exp) is async",
        ),
        ("def build(exp:\n    pass", "sub/rl.py:1:10: invalid Python: '(' was never closed"),
        ("x = '\0'", "invalid Python: "),
        ("NAME = 3\ndef build(exp): ...", "NAME must be a string, not 3"),
        ("NAME = 'A_b'\ndef build(exp): ...", "'A_b' is not valid: use a-z, 0-9 and '-'"),
        ("def build(exp): ...", "experiment 'rl' has no processes"),
        (
            "def add(exp):\n    exp.new_process('a', cmd='x', comand='y')\n\ndef build(exp):\n    add(exp)",
            "sub/rl.py:2: ",
        ),
        (
            "def build(exp):\n    exp.new_process('a', cmd='x')\n    exp.new_process('a', cmd='x')",
            "sub/rl.py:3: ",
        ),
        ("def build(exp):\n    exp.new_process('a', cmd='x').binds({'s': True})", "sub/rl.py:2: "),
    ],
)
def test_what_it_may_have_wrong(program: Program, text: str, said: str) -> None:
    done = program("launch", written(program, text))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("symphony: error: ")
    assert said in done.stderr
    assert program.left() == []


def test_a_name_that_cannot_be_made(program: Program) -> None:
    done = program("launch", written(program, BUILD, "_.py"))
    assert done.returncode == 2
    assert "--name" in done.stderr


def test_debug_shows_where_the_file_failed(program: Program) -> None:
    done = program("--debug", "launch", written(program, "def build(exp):\n    return 1 / 0"))
    assert "ZeroDivisionError" in done.stderr
    assert "return 1 / 0" in done.stderr
