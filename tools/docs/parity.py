"""Generate the page that compares the backends.

The page contains the capabilities that backends declare, the settings that they ignore, and the
contract tests that they run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs import examples, md
from symphony.cluster import Cluster
from symphony.cluster.plugins import find_backend, open_backend
from symphony.hookspecs import CAPABILITIES
from symphony.plan.ignored import ignored_settings

BACKENDS = ("local", "tmux", "kube", "slurm")
BASE = "BackendContract"

HEAD = """
Every experiment runs on all backends. This page lists the differences. It is generated from the
capabilities that the backends declare, from the settings that their dry runs list as ignored, and
from the contract tests that each backend inherits.
"""


def page(root: Path) -> str:
    """Return the page as Markdown. ``root`` is the project's directory."""
    return md.page(
        "# Comparison of backends",
        HEAD,
        "## Capabilities",
        "A backend raises `Unsupported` for a method whose capability it does not have.",
        md.table(("Capability", "Description", *BACKENDS), _capabilities()),
        "## Settings",
        "A backend validates and keeps settings that it does not support, and a dry run lists them "
        "as ignored. They are not an error.",
        md.table(("Setting", *BACKENDS), _settings()),
        "## Behavior",
        "Each row is a test of `symphony.testing.BackendContract`. The tests run real processes, a "
        "real tmux server, a real Slurm and a real Kubernetes cluster. On Kubernetes, they run in "
        "a shared namespace and in a namespace for each experiment.",
        *_behavior(root),
    )


# --- capabilities and settings ---


def _capabilities() -> Iterator[Sequence[str]]:
    for capability, description in CAPABILITIES.items():
        support = [
            "yes" if capability in find_backend(name).capabilities else "no" for name in BACKENDS
        ]
        yield [md.code(capability), md.text(description), *support]


def _settings() -> Iterator[Sequence[str]]:
    with examples.experiment() as experiment:
        ignored = {}
        for name in BACKENDS:
            manifest = open_backend(name, Cluster)().manifest(experiment)
            ignored[name] = {item.setting for item in manifest.ignored}
        for setting in settings_of(experiment):
            support = ["ignored" if setting in ignored[name] else "yes" for name in BACKENDS]
            yield [md.code(setting), *support]


def settings_of(experiment: Any) -> list[str]:
    """Return the names of all settings in an experiment, as dry runs list them."""
    from symphony.plan.resolution.addresses import AddressScheme
    from symphony.plan.resolve import resolve

    plan = resolve(experiment, AddressScheme(backend="none", host=lambda _: "", bind_host=""))
    names = [item.setting for item in ignored_settings(plan, frozenset())]
    if any(component.settings.env_file for component in experiment.list_components()):
        # In a plan, the variables in env files are part of env.
        names.insert(names.index("env") + 1, "env_file")
    return names


# --- behavior ---


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractTest:
    """A contract test.

    ``capability`` is the capability that the test requires, or None if it requires none.
    """

    name: str
    section: str
    description: str
    capability: str | None


def contract(root: Path) -> list[ContractTest]:
    """Return the contract tests in the order of their definitions."""
    path = root / "symphony" / "testing" / "contract.py"
    text = path.read_text(encoding="utf-8")
    base = next(
        item
        for item in ast.parse(text).body
        if isinstance(item, ast.ClassDef) and item.name == BASE
    )
    return [_contract_test(item, text.splitlines()) for item in base.body if _is_test(item)]


def _is_test(item: ast.stmt) -> bool:
    return isinstance(item, ast.FunctionDef) and item.name.startswith("test_")


def _contract_test(test: Any, lines: Sequence[str]) -> ContractTest:
    lines_above = (line.strip() for line in reversed(lines[: test.lineno - 1]))
    section = next(line for line in lines_above if line.startswith("# --- "))
    calls = (item for item in ast.walk(test) if isinstance(item, ast.Call))
    capabilities = [
        ast.literal_eval(call.args[0]) for call in calls if ast.unparse(call.func) == "self.can"
    ]
    description = ast.get_docstring(test) or _sentence(test.name)
    return ContractTest(
        name=test.name,
        section=section.strip("#- "),
        description=description.partition("\n")[0],
        capability=capabilities[0] if capabilities else None,
    )


def _sentence(name: str) -> str:
    words = name.removeprefix("test_").replace("_", " ")
    return f"{words[0].upper()}{words[1:]}."


def exceptions(root: Path, backend: str) -> dict[str, str]:
    """Return the names of the contract tests that a backend does not run unchanged, with reasons.

    A backend's test class can override, remove or mark tests. The keys are test names. The key
    ``"*"`` applies to all tests.
    """
    reasons: dict[str, str] = {}
    inherits_contract = False
    for path in sorted((root / "tests" / "backends" / backend).glob("test_contract*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for item in _contract_classes(tree):
            inherits_contract = True
            reasons.update(_changed_tests(item))
        reasons.update(("*", reason) for reason in _skip_reasons(_module_marks(tree)))
    return reasons if inherits_contract else {"*": "not tested"}


def _contract_classes(tree: ast.Module) -> list[ast.ClassDef]:
    """Return the classes that inherit from the contract class, directly or indirectly."""
    names = {BASE}
    classes = []
    for item in tree.body:
        if not isinstance(item, ast.ClassDef):
            continue
        bases = {ast.unparse(base).rpartition(".")[2] for base in item.bases}
        if names & bases:
            names.add(item.name)
            classes.append(item)
    return classes


def _module_marks(tree: ast.Module) -> list[ast.expr]:
    return [
        item.value
        for item in tree.body
        if isinstance(item, ast.Assign) and "pytestmark" in map(ast.unparse, item.targets)
    ]


def _changed_tests(case: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the name of each test that a class overrides, removes or marks, with the reason."""
    for reason in _skip_reasons(case.decorator_list):
        yield "*", reason
    for item in case.body:
        if isinstance(item, ast.FunctionDef) and item.name.startswith("test_"):
            reasons = list(_skip_reasons(item.decorator_list))
            yield item.name, reasons[0] if reasons else "differs"
        elif isinstance(item, ast.Assign):
            yield from _assigned_tests(item)


def _assigned_tests(item: ast.Assign) -> Iterator[tuple[str, str]]:
    for target in map(ast.unparse, item.targets):
        if target.startswith("test_"):
            yield target, "no"
        elif target == "pytestmark":
            for reason in _skip_reasons([item.value]):
                yield "*", reason


def _skip_reasons(expressions: Sequence[ast.expr]) -> Iterator[str]:
    """Yield the reason for each mark that skips a test or expects it to fail."""
    for expression in expressions:
        text = ast.unparse(expression)
        if not any(f"mark.{name}" in text for name in ("skip", "skipif", "xfail")):
            continue
        reasons = [
            ast.literal_eval(item.value)
            for item in ast.walk(expression)
            if isinstance(item, ast.keyword) and item.arg == "reason"
        ]
        kind = "not yet" if "mark.xfail" in text else "skipped"
        yield f"{kind}: {reasons[0]}" if reasons else kind


def _behavior(root: Path) -> Iterator[str]:
    tests = contract(root)
    reasons = {name: exceptions(root, name) for name in BACKENDS}
    for section in dict.fromkeys(test.section for test in tests):
        yield f"### {section[0].upper()}{section[1:]}"
        rows = []
        for test in tests:
            if test.section == section:
                cells = [cell(test, name, reasons[name]) for name in BACKENDS]
                rows.append([md.text(test.description), *cells])
        yield md.table(("Behavior", *BACKENDS), rows)


def cell(test: ContractTest, backend: str, reasons: Mapping[str, str]) -> str:
    """Return the table cell for a test and a backend."""
    if test.capability is not None and test.capability not in find_backend(backend).capabilities:
        return "no"
    return reasons.get(test.name, reasons.get("*", "yes"))
