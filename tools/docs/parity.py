"""The page of what each backend does, from what backends claim, what they ignore, and the tests that they pass."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs import examples, md
from symphony.cluster.plugins import find_backend, open_backend
from symphony.hookspecs import CAPABILITIES
from symphony.plan.ignored import ignored_settings

BACKENDS = ("local", "tmux", "kube")
BASE = "BackendContract"

HEAD = """
One experiment runs on every backend. What differs is here. This page is written from the backends themselves: from what
they claim, from the settings that their dry runs list as ignored, and from the tests of the contract that each of them
inherits, so that it says no more than is tested.
"""


def page(root: Path) -> str:
    """The page as Markdown; ``root`` is the folder of the project."""
    return md.page(
        "# What each backend does",
        HEAD,
        "## Capabilities",
        "A call for what a backend does not claim raises `Unsupported`.",
        md.table(("a backend that ...", "", *BACKENDS), _capabilities()),
        "## Settings",
        "A setting that a backend cannot honour is checked, kept, and listed by the dry run as ignored. It is never an "
        "error and never lost.",
        md.table(("setting", *BACKENDS), _settings()),
        "## Behaviour",
        "Each line is a test of `symphony.testing.BackendContract`, run against the real thing: processes, a tmux "
        "server, a Kubernetes (there in a namespace shared with others, and in namespaces of their own).",
        *_behaviour(root),
    )


# --- what is claimed, and what is ignored ---


def _capabilities() -> Iterator[Sequence[str]]:
    claimed = {name: find_backend(name).capabilities for name in BACKENDS}
    for capability, about in CAPABILITIES.items():
        yield [
            about,
            md.code(capability),
            *("yes" if capability in claimed[name] else "no" for name in BACKENDS),
        ]


def _settings() -> Iterator[Sequence[str]]:
    with examples.experiment() as experiment:
        clusters = {
            name: open_backend(name)() for name in BACKENDS
        }  # as nobody has configured them
        ignored = {
            name: {item.setting for item in cluster.manifest(experiment).ignored}
            for name, cluster in clusters.items()
        }
        for setting in settings_of(experiment):
            yield [
                md.code(setting),
                *("ignored" if setting in ignored[name] else "yes" for name in BACKENDS),
            ]


def settings_of(experiment: Any) -> list[str]:
    """All settings of an experiment, by the names that dry runs have for them."""
    from symphony.plan.addresses import AddressScheme
    from symphony.plan.resolve import resolve

    plan = resolve(experiment, AddressScheme(backend="none", host=lambda _: "", bind_host=""))
    return [item.setting for item in ignored_settings(plan, frozenset())]


# --- what is tested ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A test of the contract: its section, what it says, and the capability that it needs, if any."""

    test: str
    section: str
    says: str
    needs: str | None


def contract(root: Path) -> list[Promise]:
    """The tests of the contract in their order."""
    path = root / "symphony" / "testing" / "contract.py"
    text = path.read_text(encoding="utf-8")
    base = next(
        item
        for item in ast.parse(text).body
        if isinstance(item, ast.ClassDef) and item.name == BASE
    )
    return [_promise(item, text.splitlines()) for item in base.body if _is_test(item)]


def _is_test(item: ast.stmt) -> bool:
    return isinstance(item, ast.FunctionDef) and item.name.startswith("test_")


def _promise(test: Any, lines: Sequence[str]) -> Promise:
    above = (line.strip() for line in reversed(lines[: test.lineno - 1]))
    section = next(line for line in above if line.startswith("# --- "))
    calls = (item for item in ast.walk(test) if isinstance(item, ast.Call))
    needs = [call.args[0].value for call in calls if ast.unparse(call.func) == "self.can"]  # type: ignore[attr-defined]
    return Promise(
        test=test.name,
        section=section.strip("#- "),
        says=(ast.get_docstring(test) or _sentence(test.name)).partition("\n")[0],
        needs=needs[0] if needs else None,
    )


def _sentence(name: str) -> str:
    words = name.removeprefix("test_").replace("_", " ")
    return f"{words[0].upper()}{words[1:]}."


def exceptions(root: Path, backend: str) -> dict[str, str]:
    """By test of the contract, what a backend's own tests say against it: overridden, left out, marked.

    The key ``"*"`` is for what holds of all of them.
    """
    found: dict[str, str] = {}
    paths = sorted((root / "tests" / "backends" / backend).glob("test_contract*.py"))
    bound = False
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for item in _contracts(tree):
            bound = True
            found.update(_said_against(item))
        found.update(("*", mark) for mark in _marks(_module_marks(tree)))
    return found if bound else {"*": "not tested"}


def _contracts(tree: ast.Module) -> list[ast.ClassDef]:
    """The classes that inherit the contract, at first hand or through one another."""
    known = {BASE}
    result = []
    for item in tree.body:
        if isinstance(item, ast.ClassDef) and known & {
            ast.unparse(base).rpartition(".")[2] for base in item.bases
        }:
            known.add(item.name)
            result.append(item)
    return result


def _module_marks(tree: ast.Module) -> list[ast.expr]:
    return [
        item.value
        for item in tree.body
        if isinstance(item, ast.Assign)
        and any(ast.unparse(target) == "pytestmark" for target in item.targets)
    ]


def _said_against(case: ast.ClassDef) -> Iterator[tuple[str, str]]:
    yield from (("*", mark) for mark in _marks(case.decorator_list))
    for item in case.body:
        if isinstance(item, ast.FunctionDef) and item.name.startswith("test_"):
            marks = list(_marks(item.decorator_list))
            yield item.name, marks[0] if marks else "in its own way"
        elif isinstance(item, ast.Assign):
            for target in map(ast.unparse, item.targets):
                if target.startswith("test_"):
                    yield target, "no"
                elif target == "pytestmark":
                    yield from (("*", mark) for mark in _marks([item.value]))


def _marks(given: Sequence[ast.expr]) -> Iterator[str]:
    """What marks of pytest say that keep a test from counting."""
    for mark in given:
        text = ast.unparse(mark)
        if any(f"mark.{word}" in text for word in ("skip", "skipif", "xfail")):
            reasons = [
                item.value
                for item in ast.walk(mark)
                if isinstance(item, ast.keyword) and item.arg == "reason"
            ]
            reason = f": {ast.literal_eval(reasons[0])}" if reasons else ""
            yield ("not yet" if "mark.xfail" in text else "skipped") + reason


def _behaviour(root: Path) -> Iterator[str]:
    promises = contract(root)
    against = {name: exceptions(root, name) for name in BACKENDS}
    for section in dict.fromkeys(promise.section for promise in promises):
        yield f"### {section[0].upper()}{section[1:]}"
        rows = [
            [md.text(promise.says), *(cell(promise, name, against[name]) for name in BACKENDS)]
            for promise in promises
            if promise.section == section
        ]
        yield md.table(("", *BACKENDS), rows)


def cell(promise: Promise, backend: str, against: Mapping[str, str]) -> str:
    """What is said of a promise and a backend."""
    if promise.needs is not None and promise.needs not in find_backend(backend).capabilities:
        return "no"
    return against.get(promise.test, against.get("*", "yes"))
