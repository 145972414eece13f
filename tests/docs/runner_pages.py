"""Runs a page of the documents in a folder of its own, with real processes, and leaves nothing of it running."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
import yaml

from symphony import Experiment
from symphony.errors import SymphonyError
from tests.docs.runner_blocks import BadPage, Block, Command, Page, parse_page
from tests.docs.runner_children import ChildFailed, Interpreter, Shell
from tests.docs.runner_output import difference, fits
from tests.docs.runner_place import ROOT, Place, a_place, delete_what_is_left

SECONDS = 60.0


class PageFailed(Exception):
    """What a page says is not so: page, line, what was run, what was expected and what came."""


def page_names() -> list[str]:
    """The paths of all pages below the project's root."""
    found = [
        ROOT / "README.md",
        *sorted(ROOT.glob("docs/**/*.md")),
        *sorted(ROOT.glob("examples/*/README.md")),
    ]
    return [path.relative_to(ROOT).as_posix() for path in found]


@cache
def page_named(name: str) -> Page:
    """A page of the project. Raises BadPage."""
    return parse_page((ROOT / name).read_text(encoding="utf-8"), name)


def check_page(
    name: str, folder: Path, have: Collection[str], *, only: Collection[str] = (), **env: str
) -> None:
    """The whole test of a page: run it in a fresh place below ``folder``, and fail in plain words where it is wrong."""
    try:
        page = page_named(name)
        if page.blocks:
            with a_place(folder, **env) as place:
                run_page(page, place, have, only=only)
    except (BadPage, PageFailed) as exc:
        raise pytest.fail.Exception(str(exc), pytrace=False) from None


def run_page(
    page: Page,
    place: Place,
    have: Collection[str],
    *,
    only: Collection[str] = (),
    seconds: float = SECONDS,
) -> None:
    """Run the blocks of ``page`` that need no more than there is, in order; each command may take so many seconds.

    Where ``only`` is given, commands are left out that need nothing of it. Raises PageFailed at the first that is not
    true.
    """
    blocks = [block for block in page.blocks if not block.not_run and block.needs <= set(have)]
    if only:
        blocks = [block for block in blocks if not block.commands or block.needs & set(only)]
    with ExitStack() as stack:
        stack.callback(delete_what_is_left, place)
        runner = _Runner(page, place, stack, seconds)
        for block in blocks:
            runner.run(block)


@dataclass
class _Runner:
    page: Page
    place: Place
    stack: ExitStack
    seconds: float
    _shell: Shell | None = None
    _interpreter: Interpreter | None = None
    _actions: dict[str, Callable[[Block], None]] = field(init=False)

    def __post_init__(self) -> None:
        self._actions = {
            "console": self._console,
            "python": self._python,
            "yaml": self._yaml,
            "json": self._json,
            "toml": self._toml,
        }

    def run(self, block: Block) -> None:
        """Do what a block is for."""
        if block.excerpt:
            self._excerpt(block)
        elif block.title:
            file = self.place.folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.language in self._actions:
            self._actions[block.language](block)

    def _excerpt(self, block: Block) -> None:
        file = ROOT / block.excerpt
        if not file.is_file():
            raise self._failed(block.line, f"an excerpt of {block.excerpt}, which is not there")
        if block.text not in file.read_text(encoding="utf-8"):
            raise self._failed(block.line, f"this does not stand in {block.excerpt} word for word")

    def _console(self, block: Block) -> None:
        if self._shell is None:
            self._shell = Shell(self.place.folder, self.place.env, self.place.scratch)
            self.stack.callback(self._shell.close)
        for command in block.commands:
            self._command(self._shell, command)

    def _command(self, shell: Shell, command: Command) -> None:
        try:
            done = shell.run(command.text, self.seconds)
        except ChildFailed as exc:
            raise self._failed(command.line, f"$ {command.text}\n{exc}") from None
        if done.exit_code != command.exit_code:
            raise self._failed(
                command.line,
                f"$ {command.text}\nexits with {done.exit_code}, expected {command.exit_code}; "
                f"it printed:\n{done.printed}",
            )
        if command.expected and not fits(command.expected, done.printed):
            raise self._failed(
                command.line,
                f"$ {command.text}\n- expected, + got:\n{difference(command.expected, done.printed)}",
            )

    def _python(self, block: Block) -> None:
        if self._interpreter is None:
            self._interpreter = Interpreter(self.place.folder, self.place.env)
            self.stack.callback(self._interpreter.close)
        try:
            wrong = self._interpreter.run(block.text, self.page.name, block.line, self.seconds)
        except ChildFailed as exc:
            wrong = str(exc)
        if wrong:
            raise self._failed(block.line, wrong)

    def _yaml(self, block: Block) -> None:
        try:
            content = yaml.safe_load(block.text)
        except yaml.YAMLError as exc:
            raise self._failed(block.line, f"is no YAML: {exc}") from exc
        if isinstance(content, dict) and "processes" in content:
            file = self.place.scratch / "block.yml"
            file.write_text(block.text, encoding="utf-8")
            try:
                Experiment.load_file(file)
            except SymphonyError as exc:
                raise self._failed(block.line, f"is no experiment: {exc}") from exc

    def _json(self, block: Block) -> None:
        try:
            json.loads(block.text)
        except ValueError as exc:
            raise self._failed(block.line, f"is no JSON: {exc}") from exc

    def _toml(self, block: Block) -> None:
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        try:
            tomllib.loads(block.text)
        except tomllib.TOMLDecodeError as exc:
            raise self._failed(block.line, f"is no TOML: {exc}") from exc

    def _failed(self, line: int, what: str) -> PageFailed:
        return PageFailed(f"{self.page.name}:{line}: {what}")
