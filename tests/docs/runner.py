"""Run the blocks of a page in a temporary directory and compare their output.

The blocks become one bash script, so that commands share variables and the working directory.
The commands ``symphony`` run in forks of a server; see `tests.docs.command_server`.
Python blocks run in a coprocess of the script, so that they share their names. The output and the
exit code of each step are files, which are compared when the script has finished.
"""

from __future__ import annotations

import atexit
import difflib
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from symphony import Experiment
from symphony.errors import SymphonyError
from tests.docs.page import Block, Page, PageError, parse_page

ROOT = Path(__file__).parents[2]
PAGE_TIMEOUT_SECONDS = 100.0
DELETE_TIMEOUT_SECONDS = 60.0

_PYTHON_BLOCKS = Path(__file__).with_name("python_blocks.py")
_COMMAND_SERVER = Path(__file__).with_name("command_server.py")
_COMMAND_CLIENT = Path(__file__).with_name("command_client.py")
# Pages with a cluster are run in several threads, which share the server.
_SERVER_LOCK = threading.Lock()
_PYTHON_PROGRAM = '#!/bin/sh\nexec {python} "$@"\n'
_SYMPHONY_PROGRAM = '#!/bin/sh\nexec {python} -I -S {client} {server} {program} {process} "$@"\n'
_SYMPHONY_PROCESS = "#!{python}\nimport sys\nfrom symphony.__main__ import main\nsys.exit(main())\n"
# Variables of the user that would change the result of a page.
_REMOVED_VARIABLES = ("SYMPHONY_", "KUBE", "TMUX", "PYTHON", "XDG_", "LC_", "DOCKER_")
_REMOVED_VARIABLES += ("NO_COLOR", "FORCE_COLOR")

# Each step writes its exit code after its output. The first unexpected exit code ends the script.
_START_PYTHON = "coproc BLOCKS {{ exec {program}; }} 2>/dev/null\n"
_RUN_COMMAND = '. "{step}.sh" >"{step}.out" 2>"{step}.err"; code=$?\n'
_RUN_PYTHON = 'echo "{step}.json" >&"${{BLOCKS[1]}}"; read -r code <&"${{BLOCKS[0]}}" || exit\n'
_WRITE_FILE = 'mkdir -p "$(dirname {path})" && cp "{step}.file" {path}; code=$?\n'
_CHECK = 'echo "$code" >"{step}.code"; [ "$code" = {exit_code} ] || exit\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The directories and the environment in which a page runs."""

    directory: Path
    steps: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command, a Python block or a file of a page."""

    line: int
    title: str
    exit_code: int = 0
    output: tuple[str, ...] = ()


def page_names() -> list[str]:
    """Return the paths of all pages relative to the project."""
    paths = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


@cache
def read_page(name: str) -> Page:
    """Return a page of the project. Raises `PageError` for invalid markup."""
    return parse_page((ROOT / name).read_text(encoding="utf-8"), name)


@cache
def installed_programs() -> frozenset[str]:
    """Return the needs of pages that this machine meets, except for a cluster."""
    found = {"tmux": shutil.which("tmux") and find_spec("libtmux"), "zmq": find_spec("zmq")}
    return frozenset(name for name, value in found.items() if value)


def check_page(
    name: str,
    directory: Path,
    available: Collection[str],
    *,
    only: Collection[str] = (),
    **environment: str,
) -> None:
    """Run a page in a sandbox below ``directory``, and fail the test if one of its blocks fails."""
    try:
        page = read_page(name)
        if page.blocks:
            with create_sandbox(directory, **environment) as sandbox:
                run_page(page, sandbox, available, only=only)
    except PageError as exc:
        raise pytest.fail.Exception(str(exc), pytrace=False) from None


def run_page(
    page: Page,
    sandbox: Sandbox,
    available: Collection[str],
    *,
    only: Collection[str] = (),
    timeout: float = PAGE_TIMEOUT_SECONDS,
) -> None:
    """Run the blocks of a page whose needs are available. Raises `PageError` for the first failure.

    With ``only``, commands are skipped unless they need one of these.
    """
    blocks = [block for block in page.blocks if not block.not_run]
    blocks = [block for block in blocks if block.needs <= set(available)]
    if only:
        blocks = [block for block in blocks if not block.commands or block.needs & set(only)]
    for block in blocks:
        problem = _validate(block, sandbox)
        if problem:
            raise PageError(f"{page.name}:{block.line}: {problem}")
    script, steps = _write_script(page, blocks, sandbox)
    try:
        _run_script(script, sandbox, timeout)
    finally:
        delete_experiments(sandbox)
    for number, step in enumerate(steps):
        _check_step(page, step, sandbox.steps / str(number))


# --- blocks that are only validated ---


def _validate(block: Block, sandbox: Sandbox) -> str:
    """Return the problem of a block that is not run, or an empty text."""
    if block.excerpt:
        return _validate_excerpt(block)
    if block.title:
        return ""
    try:
        if block.language == "yaml":
            _validate_yaml(block.text, sandbox)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            _validate_toml(block.text)
    except (ValueError, yaml.YAMLError, SymphonyError) as exc:
        return f"invalid {block.language}: {exc}"
    return ""


def _validate_excerpt(block: Block) -> str:
    file = ROOT / block.excerpt
    if not file.is_file():
        return f"the file {block.excerpt} does not exist"
    if block.text not in file.read_text(encoding="utf-8"):
        return f"the block is not a part of {block.excerpt}"
    return ""


def _validate_yaml(text: str, sandbox: Sandbox) -> None:
    content = yaml.safe_load(text)
    if isinstance(content, dict) and "processes" in content:
        file = sandbox.steps / "experiment.yml"
        file.write_text(text, encoding="utf-8")
        Experiment.load_file(file)


def _validate_toml(text: str) -> None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    tomllib.loads(text)


# --- the script ---


def _write_script(page: Page, blocks: Sequence[Block], sandbox: Sandbox) -> tuple[Path, list[Step]]:
    program = shlex.join([sys.executable, str(_PYTHON_BLOCKS)])
    uses_python = any(_is_python_step(block) for block in blocks)
    lines = [_START_PYTHON.format(program=program)] if uses_python else []
    steps: list[Step] = []

    def add(run: str, suffix: str, content: str, step: Step, path: str = "") -> None:
        file = sandbox.steps / str(len(steps))
        file.with_suffix(suffix).write_text(content, encoding="utf-8")
        lines.append(run.format(step=file, path=shlex.quote(path)))
        lines.append(_CHECK.format(step=file, exit_code=step.exit_code))
        steps.append(step)

    for block in blocks:
        if block.excerpt:
            continue
        if block.title:
            step = Step(line=block.line, title=f"file {block.title}")
            add(_WRITE_FILE, ".file", block.text, step, path=str(sandbox.directory / block.title))
        elif _is_python_step(block):
            request = {"code": block.text, "page": page.name, "line": block.line}
            step = Step(line=block.line, title="Python block")
            add(_RUN_PYTHON, ".json", json.dumps(request), step)
        for command in block.commands:
            step = Step(
                line=command.line,
                title=f"$ {command.text}",
                exit_code=command.exit_code,
                output=command.output,
            )
            add(_RUN_COMMAND, ".sh", f"{command.text}\n", step)
    script = sandbox.steps / "page.sh"
    script.write_text("".join(lines), encoding="utf-8")
    return script, steps


def _is_python_step(block: Block) -> bool:
    return block.language == "python" and not block.excerpt and not block.title


def _run_script(script: Path, sandbox: Sandbox, timeout: float) -> None:
    """Run the script, and then kill the processes that it has left in its process group."""
    process = subprocess.Popen(
        ["bash", "--noprofile", "--norc", str(script)],
        cwd=sandbox.directory,
        env=dict(sandbox.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        # Do not reap the process yet, so that the id of its group cannot be reused.
        _wait_without_reaping(process.pid, timeout)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_without_reaping(pid: int, timeout: float) -> None:
    pidfd = os.pidfd_open(pid)
    try:
        select.select([pidfd], [], [], timeout)
    finally:
        os.close(pidfd)


def _check_step(page: Page, step: Step, file: Path) -> None:
    location = f"{page.name}:{step.line}: {step.title}"
    suffixes = (".out", ".err")
    outputs = [file.with_suffix(suffix) for suffix in suffixes]
    texts = [path.read_text("utf-8", errors="replace") for path in outputs if path.exists()]
    printed = "".join(texts)
    code = file.with_suffix(".code")
    if not code.exists():
        raise PageError(f"{location}\ndid not finish; it printed:\n{printed}")
    exit_code = int(code.read_text())
    if exit_code != step.exit_code:
        raise PageError(
            f"{location}\nexits with {exit_code}, expected {step.exit_code}; it printed:\n{printed}"
        )
    found = matches(step.output, printed) or matches(step.output, without_progress(printed))
    if step.output and not found:
        raise PageError(f"{location}\n- expected, + actual:\n{difference(step.output, printed)}")


# --- output ---


def matches(expected: Sequence[str], printed: str) -> bool:
    """Return whether an output matches expected lines.

    ``...`` matches any text in a line. On a line of its own, it matches any number of lines.
    """
    pattern = "".join(map(_pattern, expected))
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(printed))) is not None


def without_progress(printed: str) -> str:
    """Return an output without the lines that report which processes have not exited or not started
    yet.

    These lines appear only if the machine is busy.
    """
    slow_exit = r".*: waiting for .* to exit( \(.*\))?"
    slow_volume = "FailedMount: failed to sync .* cache: timed out waiting for the condition"
    slow_image = "pulling image .*"
    slow_start = rf".*: pending: (ContainerCreating|being scheduled|{slow_image}|{slow_volume})"
    return re.sub(rf"(?m)^({slow_exit}|{slow_start})\n", "", printed)


def difference(expected: Sequence[str], printed: str) -> str:
    """Return a diff of the expected and the actual output."""
    actual = _lines(printed)
    # Replace patterns by the lines that they match, so that the diff contains only differences.
    shown = [
        next((line for line in actual if line_matches(line, pattern)), pattern)
        for pattern in expected
    ]
    return "\n".join(list(difflib.unified_diff(shown, actual, lineterm=""))[3:])


def line_matches(line: str, pattern: str) -> bool:
    return pattern != "..." and matches([pattern], line)


def _lines(printed: str) -> list[str]:
    return [line.rstrip() for line in printed.rstrip().splitlines()]


def _pattern(line: str) -> str:
    if line.strip() == "...":
        return r"(?:[^\n]*\n)*?"
    return r"[^\n]*".join(map(re.escape, line.split("..."))) + r"\n"


# --- the sandbox ---


@contextmanager
def create_sandbox(directory: Path, **environment: str) -> Iterator[Sandbox]:
    """Create the directories and the environment of a page, with a copy of the examples."""
    names = ("page", "bin", "home", "steps", "lib")
    page, programs, home, steps, library = (directory / name for name in names)
    for path in (page, programs, home, steps, library):
        path.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "examples", page / "examples", ignore=ignored)
    _write_programs(programs, library / "symphony")
    with _tmux_sockets() as sockets:
        yield Sandbox(
            directory=page,
            steps=steps,
            environment={
                **_inherited_variables(),
                "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
                "HOME": str(home),
                "SYMPHONY_STATE_DIR": str(directory / "state"),
                "XDG_CONFIG_HOME": str(home / ".config"),
                "TMUX_TMPDIR": str(sockets),
                "TERM": "xterm",
                "COLUMNS": "100",
                "LC_ALL": "C.UTF-8",
                **environment,
            },
        )


def _write_programs(directory: Path, process: Path) -> None:
    """Write the programs that a page calls, and to ``process`` one that runs ``symphony`` in a
    process of its own.
    """
    with _SERVER_LOCK:
        server = _command_server()
    values = {
        "python": shlex.quote(sys.executable),
        "client": shlex.quote(str(_COMMAND_CLIENT)),
        "server": shlex.quote(str(server)),
        "program": shlex.quote(str(directory / "symphony")),
        "process": shlex.quote(str(process)),
    }
    process.write_text(_SYMPHONY_PROCESS.format(python=sys.executable))
    process.chmod(0o755)
    python = {"python": _PYTHON_PROGRAM, "python3": _PYTHON_PROGRAM}
    for name, text in {**python, "symphony": _SYMPHONY_PROGRAM}.items():
        (directory / name).write_text(text.format(**values))
        (directory / name).chmod(0o755)


def _inherited_variables() -> dict[str, str]:
    return {
        key: value for key, value in os.environ.items() if not key.startswith(_REMOVED_VARIABLES)
    }


@cache
def _command_server() -> Path:
    """Start the server of commands for this process, and return its socket."""
    directory = tempfile.TemporaryDirectory(prefix="sy-", dir="/tmp")
    path = Path(directory.name) / "commands"
    server = subprocess.Popen(
        [sys.executable, str(_COMMAND_SERVER), str(path)],
        cwd="/",
        env={**_inherited_variables(), "LC_ALL": "C.UTF-8"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )

    def end() -> None:
        server.communicate()
        directory.cleanup()

    atexit.register(end)
    assert server.stdout is not None
    assert server.stdout.readline(), "the server of commands does not start"
    return path


@contextmanager
def _tmux_sockets() -> Iterator[Path]:
    """Create a directory for tmux sockets, and stop the tmux servers in it afterwards."""
    # The path of a socket has at most 107 bytes, so a directory of pytest would be too long.
    directory = Path(tempfile.mkdtemp(prefix="sy-", dir="/tmp"))
    try:
        yield directory
    finally:
        for socket in directory.glob("tmux-*/*"):
            command = ["tmux", "-S", str(socket), "kill-server"]
            subprocess.run(command, check=False, capture_output=True)
        # A tmux server that exits also removes its socket.
        shutil.rmtree(directory, ignore_errors=True)


def delete_experiments(sandbox: Sandbox) -> None:
    """Delete the experiments that a page has left on this machine."""
    for backend in ("local", "tmux"):
        state = Path(sandbox.environment["SYMPHONY_STATE_DIR"]) / backend
        if state.is_dir() and any(not path.name.startswith(".") for path in state.iterdir()):
            subprocess.run(
                ["symphony", "delete-batch", "--all", "--force", "-b", backend],
                cwd=sandbox.steps,
                env={**sandbox.environment, "SYMPHONY_CONFIG": ""},
                check=True,
                capture_output=True,
                timeout=DELETE_TIMEOUT_SECONDS,
            )
