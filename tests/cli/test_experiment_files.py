"""Python files with ``build(exp)``: names, imports, output and errors."""

from __future__ import annotations

import textwrap

import pytest

from tests.cli.conftest import Program

BUILD = """
    def build(exp):
        exp.new_process("a", cmd="true")
"""


def write(program: Program, text: str, name: str = "rl.py") -> str:
    """Write a file into a subdirectory, and return its relative path."""
    path = program.directory / "sub" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return f"sub/{name}"


@pytest.mark.parametrize(
    ("file", "text", "options", "name"),
    [
        ("rl.py", BUILD, [], "rl"),
        ("My_Experiment2.py", BUILD, [], "my-experiment2"),
        ("1.py", BUILD, [], "p1"),
        ("rl.py", f"    NAME = 'named'\n{BUILD}", [], "named"),
        ("rl.py", f"    NAME = 'named'\n{BUILD}", ["--name", "given"], "given"),
        ("rl.yml", "processes: {a: {cmd: sleep 1}}", ["--name", "given"], "given"),
        ("rl.json", '{"processes": {"a": {"cmd": "sleep 1"}}}', ["--name", "given"], "given"),
    ],
)
def test_experiment_name(
    program: Program, file: str, text: str, options: list[str], name: str
) -> None:
    assert program.json("render", write(program, text, file), *options)["experiment"] == name


def test_file_without_a_name_and_without_the_option(program: Program) -> None:
    done = program("launch", write(program, "processes: {a: {cmd: sleep 1}}", "rl.yml"))
    assert done.returncode == 2
    assert "an experiment needs a name; for example name: my-experiment, or the option --name" in (
        done.stderr
    )


def test_name_that_cannot_be_derived(program: Program) -> None:
    done = program("launch", write(program, BUILD, "_.py"))
    assert done.returncode == 2
    assert "set NAME in the file, or pass --name" in done.stderr


def test_imports_and_start_dir_use_the_directory_of_the_file(program: Program) -> None:
    write(program, "COMMAND = 'pwd; cat note.txt'", "helper.py")
    write(program, "found me", "note.txt")
    file = write(
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
    assert program.ok("logs", "rl") == f"{program.directory / 'sub'}\nfound me"


def test_supervisor_does_not_import_from_the_directory_of_the_file(program: Program) -> None:
    """The directory may contain modules with the names of standard modules."""
    write(program, "raise RuntimeError('imported')", "signal.py")
    write(program, "raise RuntimeError('imported')", "json.py")
    program.ok("launch", write(program, BUILD))
    assert program("wait", "rl").returncode == 0


def test_output_of_the_file_goes_to_standard_error(program: Program) -> None:
    file = write(
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
    file = write(
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
            raise SystemExit("executed as a program")
        """,
    )
    assert program.json("render", file)["processes"][0]["name"] == "agent-1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", ": has no function build(exp); define one"),
        ("def biuld(exp): ...", ": has no function build(exp); did you mean 'biuld'?"),
        ("build = 3", ": has no function build(exp)"),
        ("def build(): ...", ": build(exp) failed: TypeError: build() takes 0 positional"),
        (
            "def build(exp):\n    raise ValueError('no luck\\ntoday')",
            ":2: build(exp) failed: ValueError: no luck ",
        ),
        ("def build(exp):\n    raise SystemExit", ":2: build(exp) failed: SystemExit"),
        ("\n\nimport no_such_module", ":3: failed to execute: ModuleNotFoundError: No module"),
        ("async def build(exp): ...", ": build(exp) is async, so its body did not run"),
        ("def build(exp):\n    yield exp", ": build(exp) contains yield, so its body did not run"),
        ("async def build(exp):\n    yield exp", ": build(exp) is async and contains yield"),
        (
            "def build(exp):\n    async def later(): ...\n    return later()",
            ": build(exp) is async",
        ),
        ("def build(exp:\n    pass", ":1:10: invalid Python: '(' was never closed"),
        ("x = '\0'", ": invalid Python: "),
        ("NAME = 3\ndef build(exp): ...", ": NAME must be a string, not 3"),
        ("NAME = 'A_b'\ndef build(exp): ...", "'A_b' is not valid"),
        ("def build(exp): ...", "experiment 'rl' has no processes"),
        (
            "def add(exp):\n    exp.new_process('a', comand='y')\n\ndef build(exp):\n    add(exp)",
            ":2: ",
        ),
    ],
)
def test_error_names_the_file_and_the_line(program: Program, text: str, message: str) -> None:
    done = program("launch", write(program, text))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("symphony: error: ")
    assert message in done.stderr
    if message.startswith(":"):
        assert f"sub/rl.py{message}" in done.stderr
    assert program.state_entries() == []


def test_debug_option_shows_the_traceback(program: Program) -> None:
    done = program("--debug", "launch", write(program, "def build(exp):\n    return 1 / 0"))
    assert "ZeroDivisionError" in done.stderr
    assert "return 1 / 0" in done.stderr
