"""The check of the structure of the product, which `scripts/check` runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from house import (
    ROOT,
    Product,
    find_backend_methods,
    find_circles,
    find_class_names,
    find_large_classes,
    find_module_names,
)

pytestmark = pytest.mark.one_python


def product(sources):
    modules = {name: ast.parse(source) for name, source in sources.items()}
    return Product(modules, {name: Path(f"{name.replace('.', '/')}.py") for name in sources})


def test_modules_that_import_one_another_are_a_circle():
    sources = {
        "p.a": "from p import b",
        "p.b": "def f():\n    from p.c import x",
        "p.c": "import p.a",
        "p.d": "import p.a",
    }
    assert find_circles(product(sources)) == ["p.a <-> p.b <-> p.c"]


def test_imports_for_annotations_make_no_circle():
    sources = {
        "p.a": "import p.b",
        "p.b": "if TYPE_CHECKING:\n    import p.a\nelse:\n    import p.c",
    }
    assert find_circles(product({**sources, "p.c": ""})) == []
    assert find_circles(product({**sources, "p.c": "import p.b"})) == ["p.b <-> p.c"]


def test_names_are_used_at_most_twice():
    sources = {"a.x": "class K: pass", "b.x": "class K: pass\nclass _P: pass", "c.y": ""}
    assert find_module_names(product(sources)) == []
    assert find_class_names(product(sources)) == []
    sources["c.x"] = "class K: pass"
    assert find_module_names(product(sources)) == ["x: a.x, b.x, c.x"]
    assert find_class_names(product(sources)) == ["K: a.x, b.x, c.x"]


def test_a_module_with_the_name_of_its_package_counts_as_the_package():
    sources = dict.fromkeys(["a.x.__init__", "a.x.x", "b.x"], "")
    assert find_module_names(product(sources)) == []


def test_large_classes_are_found():
    methods = [f"    def m{number}(self): pass" for number in range(26)]
    assert find_large_classes(product({"a": "\n".join(["class K:", *methods])})) == ["a.K: 26"]
    assert find_large_classes(product({"a": "\n".join(["class K:", *methods[1:]])})) == []


def test_the_public_methods_of_a_backend_are_counted():
    access = "class Access:\n  def exec(self): pass\n  def _find(self): pass"
    reading = "class Place:\n  def p(self): pass\nclass Inspection:\n  def runs(self): pass"
    package = "symphony.cluster.backend"
    sources = {f"{package}.access": access, f"{package}.inspection": reading}
    sources["symphony.other"] = "class Backend:\n  def stop(self): pass"
    sources[package] = "class Backend:\n  def launch(self): pass"
    assert find_backend_methods(product(sources)) == ["Inspection.runs", "Backend.launch"]


def test_ways_through_the_code_that_the_documentation_draws_exist_and_enter_no_module_twice():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("## Three ways through the code")[2].partition("\n## ")[0]
    ways = [re.findall(r"(?m)^\S+\.py", block) for block in section.split("```text")[1:]]
    assert [len(way) > 10 for way in ways] == [True, True, True]
    for way in ways:
        assert [module for module in way if not (ROOT / module).is_file()] == []
        assert sorted(way) == sorted(set(way))
