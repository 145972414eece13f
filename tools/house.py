"""Measure whether a reader finds the way through the product: ``python tools/house.py``.

The program prints each figure beside its goal. It fails if a figure exceeds its limit, which
`FIGURES` contains: lower the limit when the figure falls. ``--list`` also prints what counts.
"""

from __future__ import annotations

import ast
import gc
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "symphony",
    "backends/kube/symphony_kube",
    "backends/local/symphony_local",
    "backends/slurm/symphony_slurm",
    "backends/tmux/symphony_tmux",
)
# Each backend has modules of these names: its entry point, its cluster and its own steps.
COMMON_NAMES = {
    "plugin",
    "cluster",
    "backend",
    "render",
    "status",
    "errors",
    "__init__",
    "__main__",
}
CLUSTER = "Cluster"
# `Backend`, and the class from which it derives. The methods of its objects `recorded_runs` and
# `access`, which are optional, do not count.
BACKEND_PACKAGE = "symphony.cluster.backend"
BACKEND_CLASSES = {"Inspection", "Backend"}
MAX_USES = 2
MAX_MODULES = 20
MAX_METHODS = 25
# The size of these classes does not count. Users call one object for an experiment or a cluster, so
# the methods of their API belong together, and each test of the contract is a method.
WIDE_CLASSES = frozenset(
    {
        "symphony.cluster.cluster.Cluster",
        "symphony.model.experiment.component.Component",
        "symphony.model.experiment.experiment.Experiment",
        "symphony.testing.contract.BackendContract",
    }
)
MAX_WIDTH = 100
# The fields of a statement that contain other statements.
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass(frozen=True)
class Product:
    """The source code: the parsed modules by their names, and the paths of their files."""

    modules: Mapping[str, ast.Module]
    paths: Mapping[str, Path]


@dataclass(frozen=True)
class Figure:
    """A number that is at most ``goal`` in the end, and today at most ``limit``.

    ``find`` returns one text for each thing that counts. More than ``limit`` of them is an error.
    """

    text: str
    find: Callable[[Product], list[str]]
    goal: int
    limit: int


def read_product() -> Product:
    """Read and parse the source code."""
    modules = {}
    paths = {}
    # All syntax trees are kept, so that the garbage collector would visit them again and again.
    gc.disable()
    for package in PACKAGES:
        directory = ROOT / package
        for path in sorted(directory.rglob("*.py")):
            parts = path.relative_to(directory.parent).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            modules[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
            paths[name] = path
    gc.enable()
    return Product(modules, paths)


# --- circles of imports ---


def find_circles(product: Product) -> list[str]:
    """Return the groups of modules that import one another when they run.

    Imports inside functions count, and imports for annotations do not.
    """
    imports = {
        name: _imported_modules(tree, product.modules) - {name}
        for name, tree in product.modules.items()
    }
    return [" <-> ".join(sorted(circle)) for circle in _components(imports)]


def _imported_modules(tree: ast.AST, known: Mapping[str, object]) -> set[str]:
    found: set[str] = set()
    for node in _executed_statements(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                if submodule in known:
                    found.add(submodule)
                elif node.module in known:
                    found.add(node.module)
    return found


def _executed_statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements in a node without those that only type checkers read."""
    is_for_type_checkers = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    for name in BLOCKS:
        if name == "body" and is_for_type_checkers:
            continue
        for child in getattr(node, name, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from _executed_statements(child)


def _components(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node."""
    reached = {node: _reachable(node, edges) for node in edges}
    found = []
    seen: set[str] = set()
    for node in sorted(edges):
        if node in seen or node not in reached[node]:
            continue
        component = [other for other in sorted(reached[node]) if node in reached[other]]
        seen.update(component)
        found.append(component)
    return found


def _reachable(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    """Return the nodes at the end of a path of at least one edge."""
    found: set[str] = set()
    waiting = [*edges[start]]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(edges[node])
    return found


# --- names and sizes ---


def find_module_names(product: Product) -> list[str]:
    """Return the names that more than two modules share, apart from those of every backend."""
    uses = defaultdict(list)
    for module, path in product.paths.items():
        last = path.parent.name if path.stem == "__init__" else path.stem
        is_main_module = path.stem == path.parent.name  # counts as its package
        if last not in COMMON_NAMES and not is_main_module:
            uses[last].append(module)
    return _used_too_often(uses)


def find_class_names(product: Product) -> list[str]:
    """Return the names that more than two classes share, apart from private ones."""
    uses = defaultdict(list)
    for module, node in _classes(product):
        if not node.name.startswith("_"):
            uses[node.name].append(module)
    return _used_too_often(uses)


def _used_too_often(uses: Mapping[str, list[str]]) -> list[str]:
    return [
        f"{name}: {', '.join(places)}"
        for name, places in sorted(uses.items())
        if len(places) > MAX_USES
    ]


def find_large_directories(product: Product) -> list[str]:
    """Return the directories with more than 20 modules."""
    counts: dict[Path, int] = defaultdict(int)
    for path in product.paths.values():
        if path.stem != "__init__":
            counts[path.parent] += 1
    return [
        f"{directory.relative_to(ROOT)}: {count}"
        for directory, count in sorted(counts.items())
        if count > MAX_MODULES
    ]


def find_large_classes(product: Product) -> list[str]:
    """Return the classes with more than 25 methods, apart from `WIDE_CLASSES`."""
    found = []
    for module, node in _classes(product):
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        count = sum(isinstance(statement, functions) for statement in node.body)
        name = f"{module}.{node.name}"
        if count > MAX_METHODS and name not in WIDE_CLASSES:
            found.append(f"{name}: {count}")
    return found


def find_dense_comprehensions(product: Product) -> list[str]:
    """Return the places of comprehensions that contain another one, or that choose between values.

    A loop is easier to read. Two ``for`` in one comprehension are accepted.
    """
    kinds = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    found = []
    for module, tree in product.modules.items():
        path = product.paths[module].relative_to(ROOT)
        for node in ast.walk(tree):
            if not isinstance(node, kinds):
                continue
            inner = [item for item in ast.walk(node) if item is not node]
            values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            chosen = [item for value in values for item in ast.walk(value)]
            is_nested = any(isinstance(item, kinds) for item in inner)
            if is_nested or any(isinstance(item, ast.IfExp) for item in chosen):
                found.append(f"{path}:{node.lineno}")
    return found


def find_overrides(product: Product) -> list[str]:
    """Return the methods of `Cluster` that the clusters of backends override.

    `__init__` adds the options of a backend, and `implementation` returns its `Backend`.
    """
    classes = [node for _, node in _classes(product)]
    bases = {node.name: [ast.unparse(base) for base in node.bases] for node in classes}
    methods = {node.name: _method_names(node) for node in classes}
    own = methods[CLUSTER].difference({"__init__", "implementation"})
    found = []
    for name in sorted(bases):
        if name != CLUSTER and _is_derived(name, CLUSTER, bases):
            found += [f"{name}.{method}" for method in sorted(methods[name] & own)]
    return found


def find_backend_methods(product: Product) -> list[str]:
    """Return the public methods and properties of `Backend`."""
    found = []
    for module, node in _classes(product):
        if module.startswith(BACKEND_PACKAGE) and node.name in BACKEND_CLASSES:
            names = _method_names(node)
            found += [f"{node.name}.{name}" for name in sorted(names) if not name.startswith("_")]
    return found


def _method_names(node: ast.ClassDef) -> set[str]:
    functions = [item for item in node.body if isinstance(item, ast.FunctionDef)]
    return {function.name for function in functions}


def _is_derived(name: str, ancestor: str, bases: Mapping[str, list[str]]) -> bool:
    if name == ancestor:
        return True
    return any(_is_derived(base, ancestor, bases) for base in bases.get(name, ()))


def _classes(product: Product) -> Iterator[tuple[str, ast.ClassDef]]:
    for module, tree in product.modules.items():
        for node in _statements(tree):
            if isinstance(node, ast.ClassDef):
                yield module, node


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements in a module or statement, also those in other statements."""
    for name in BLOCKS:
        for child in getattr(node, name, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from _statements(child)


def find_long_lines(product: Product) -> list[str]:
    """Return the places of lines of more than 100 characters."""
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in product.paths.values()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > MAX_WIDTH
    ]


FIGURES = (
    Figure("import circles", find_circles, 0, 0),
    Figure("module names used more than twice", find_module_names, 0, 0),
    Figure("class names used more than twice", find_class_names, 0, 0),
    Figure("directories above 20 modules", find_large_directories, 0, 0),
    Figure(
        "classes above 25 methods, apart from the user's API and the contract",
        find_large_classes,
        0,
        0,
    ),
    Figure("methods of Cluster that backends override", find_overrides, 0, 0),
    Figure("comprehensions that nest or choose", find_dense_comprehensions, 0, 0),
    Figure("methods of Backend", find_backend_methods, 20, 20),
    Figure("lines above 100 characters", find_long_lines, 50, 50),
)


def main(arguments: Sequence[str]) -> int:
    """Print the figures, and return the exit code."""
    product = read_product()
    failed = False
    for figure in FIGURES:
        found = figure.find(product)
        is_broken = len(found) > figure.limit
        failed = failed or is_broken
        note = f"; it was {figure.limit} or less before" if is_broken else ""
        print(f"{figure.text}: {len(found)} (goal {figure.goal}){note}")
        if is_broken or "--list" in arguments:
            for text in found:
                print(f"    {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
