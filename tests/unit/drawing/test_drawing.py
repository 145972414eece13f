"""Drawings of topologies: golden files, and properties of all drawings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import pydot
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.drawing import FORMATS, draw
from symphony.drawing.layout import Size, layout
from symphony.drawing.text_tree import ASCII, text_tree
from symphony.model import Experiment
from symphony.plan.topology import Topology, folded, topology
from tests.unit import strategies
from tests.unit.strategies import names
from tests.unit.topologies import (
    GOLDEN,
    KEYWORDS,
    client_servers,
    example_experiment,
    example_states,
    golden_drawings,
    keyword_names,
    ring,
)

SVG = "{http://www.w3.org/2000/svg}"


def experiments() -> st.SearchStrategy[Experiment]:
    return strategies.experiments().map(Experiment.load_dict)


# --- golden ---


DRAWINGS = golden_drawings()


@pytest.mark.parametrize("name", sorted(DRAWINGS))
def test_golden_drawings(name: str) -> None:
    golden = (GOLDEN / name).read_text(encoding="utf-8")
    assert DRAWINGS[name] == golden, "to accept the changes, run: python -m tests.unit.topologies"


def test_every_golden_file_is_compared() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(DRAWINGS)


@pytest.mark.one_python
def test_drawings_do_not_depend_on_the_hash_seed() -> None:
    program = "from tests.unit.topologies import golden_drawings; print(repr(golden_drawings()))"
    runs = (
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=GOLDEN.parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    )
    assert len(set(runs)) == 1


# --- text ---


@pytest.mark.parametrize("width", [24, 40, 60, 80, 160])
@pytest.mark.parametrize(
    "exp", [example_experiment(), ring(12), keyword_names()], ids=lambda exp: exp.name
)
def test_text_fits_the_terminal(exp: Experiment, width: int) -> None:
    lines = text_tree(folded(topology(exp)), example_states(), width=width)
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


@given(experiments(), st.sampled_from([60, 80, None]))
def test_text_contains_every_name(exp: Experiment, width: int | None) -> None:
    shown = "\n".join(text_tree(topology(exp), width=width))
    if width is None:
        assert all(process.name in shown for process in exp.list_all_processes())
        assert all(service.label in shown for service in topology(exp).services)
    else:
        assert max(map(len, shown.split("\n"))) <= width


def test_ascii_signs() -> None:
    lines = text_tree(
        folded(topology(example_experiment())), example_states(), width=60, signs=ASCII
    )
    assert all(line.isascii() for line in lines)


def test_only_states_are_painted() -> None:
    exp = Experiment("running")
    exp.new_process("failed")
    lines = text_tree(topology(exp), {"failed": "running"}, paint=lambda words: f"<{words}>")
    assert lines == ["running  <1 running>", "└─ failed  <running>"]


# --- Mermaid and DOT ---

QUOTED = r'"[^"\\\n]*(?:\\n[^"\\\n]*)*"'
MERMAID = re.compile(
    rf"""---|title:\ {QUOTED}|flowchart\ LR|end
    |subgraph\ g\d+\[{QUOTED}\]|[ps]\d+(\[{QUOTED}\]|\(\[{QUOTED}\]\))
    |[pg]\d+\ -->\ s\d+|s\d+\ ==>\ [pg]\d+|[pg]\d+\ -\.\ {QUOTED}\ \.->\ [pg]\d+
    |classDef\ [a-z]+\ [a-z#0-9,: -]+|class\ [ps0-9,]+\ [a-z]+""",
    re.VERBOSE,
)
ATTRIBUTES = rf"\[[a-z]+={QUOTED}(, [a-z]+={QUOTED})*\]"
ESCAPED_ATTRIBUTES = ATTRIBUTES.replace(" ", r"\ ")
DOT = re.compile(
    rf"""digraph\ {QUOTED}\ \{{|rankdir=LR|compound=true|(graph|node|edge)\ \[.*\]
    |label={QUOTED}|color={QUOTED}
    |subgraph\ "cluster\ [^"]*"\ \{{|\}}
    |{QUOTED}\ {ESCAPED_ATTRIBUTES}|{QUOTED}\ \[style=invis\]
    |{QUOTED}\ ->\ {QUOTED}(\ {ESCAPED_ATTRIBUTES})?""",
    re.VERBOSE,
)


def any_drawing() -> st.SearchStrategy[Experiment]:
    return st.one_of(
        experiments(), st.just(keyword_names()), st.just(example_experiment()), st.just(ring(5))
    )


@given(any_drawing(), st.booleans())
def test_mermaid_and_dot_quote_every_name(exp: Experiment, short: bool) -> None:
    found = folded(topology(exp)) if short else topology(exp)
    how = {process.name: "failed" for process in exp.list_all_processes()}
    for form, grammar in (("mermaid", MERMAID), ("dot", DOT)):
        for line in draw(found, form, how).splitlines():
            assert grammar.fullmatch(line.strip()), (form, line)


def test_mermaid_declares_every_identifier_once() -> None:
    lines = draw(topology(keyword_names()), "mermaid").splitlines()
    declared = [
        match[1] for line in lines if (match := re.match(r" +(?:subgraph )?([pgs]\d+)[\[(]", line))
    ]
    used = {
        word
        for line in lines
        if ">" in line
        for word in re.findall(r"\b[pgs]\d+\b", re.sub(QUOTED, "", line))
    }
    assert len(set(declared)) == len(declared) == 2 * len(KEYWORDS) + 4
    assert used <= set(declared)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:pydot")
@pytest.mark.one_python
@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("*.dot")))
def test_dot_can_be_parsed(name: str) -> None:
    """Parse the drawing with pydot, and with Graphviz if it is installed."""
    (graph,) = pydot.graph_from_dot_data((GOLDEN / name).read_text(encoding="utf-8"))
    assert graph.get_edges()
    if shutil.which("dot") is not None:
        done = subprocess.run(
            ["dot", "-Tplain", str(GOLDEN / name)], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")


# --- SVG ---


def boxes(root: ElementTree.Element) -> list[tuple[str, float, float, float, float]]:
    """Return the class, left, top, right and bottom of every box except the background."""
    found = []
    for rectangle in root.iter(f"{SVG}rect"):
        x, y, width, height = (
            float(rectangle.attrib[key]) for key in ("x", "y", "width", "height")
        )
        if rectangle.attrib["class"] != "ground":
            found.append((rectangle.attrib["class"], x, y, x + width, y + height))
    return found


def apart(
    one: tuple[str, float, float, float, float], other: tuple[str, float, float, float, float]
) -> bool:
    _, left, top, right, bottom = one
    _, x, y, to_x, to_y = other
    return right <= x or to_x <= left or bottom <= y or to_y <= top


def inside(
    one: tuple[str, float, float, float, float], group: tuple[str, float, float, float, float]
) -> bool:
    _, left, top, right, bottom = one
    _, x, y, to_x, to_y = group
    return x <= left and y <= top and right <= to_x and bottom <= to_y


def check_svg(drawing: str) -> ElementTree.Element:
    """Check that nothing exceeds the picture, groups do not overlap and text is inside its box."""
    root = ElementTree.fromstring(drawing)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    every = boxes(root)
    assert all(min(x, y) >= 0 and to_x <= width and to_y <= height for _, x, y, to_x, to_y in every)
    groups = [box for box in every if box[0] == "group"]
    single = [box for box in every if box[0] != "group"]
    for one, other in combinations(groups, 2):
        assert apart(one, other)
    for box in single:
        assert all(apart(box, group) or inside(box, group) for group in groups), box
    for item in root.iter(f"{SVG}text"):
        size = {"title": 16, "small": 11}.get(item.attrib["class"], 13)
        x, y, extent = (
            float(item.attrib["x"]),
            float(item.attrib["y"]),
            len(item.text or "") * size * 0.602,
        )
        assert x + extent <= width
        if item.attrib["class"] == "name":
            assert any(
                left < x and x + extent < right and top < y < bottom
                for _, left, top, right, bottom in single
            )
    for path in root.iter(f"{SVG}path"):
        if "line" in path.attrib["class"].split():
            points = re.findall(r"(-?[\d.]+) (-?[\d.]+)", re.sub(r"H[\d.]+", "", path.attrib["d"]))
            assert all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in points)
    return root


@given(any_drawing(), st.booleans())
def test_svg_boxes_do_not_overlap(exp: Experiment, short: bool) -> None:
    found = folded(topology(exp)) if short else topology(exp)
    root = check_svg(
        draw(found, "svg", {process.name: "running" for process in exp.list_all_processes()})
    )
    shown = {item.text for item in root.iter(f"{SVG}text")}
    assert {node.label() for node in found.nodes} <= shown
    assert {service.label for service in found.services} <= shown


@pytest.mark.parametrize("number", [3, 30, 120])
@pytest.mark.parametrize("made", [client_servers, ring])
def test_svg_of_many_processes_is_not_too_wide(made: type, number: int) -> None:
    root = check_svg(draw(folded(topology(made(number))), "svg"))
    assert float(root.attrib["width"]) < 1800
    names_shown = [item.text for item in root.iter(f"{SVG}text") if item.attrib["class"] == "name"]
    assert len(names_shown) >= number


def test_svg_boxes_of_processes_do_not_overlap() -> None:
    root = ElementTree.fromstring(draw(folded(topology(example_experiment())), "svg"))
    shown = [box for box in boxes(root) if box[0] != "group"]
    # A box that stands for several processes has a second rectangle behind it.
    overlapping = [(one, other) for one, other in combinations(shown, 2) if not apart(one, other)]
    assert len(overlapping) == 1


def test_svg_has_clients_on_the_left_and_owners_on_the_right() -> None:
    exp = Experiment("rl")
    exp.new_process("server").binds("middle")
    exp.new_process("client").connects("middle")
    root = ElementTree.fromstring(draw(topology(exp), "svg"))
    at = {item.text: float(item.attrib["x"]) for item in root.iter(f"{SVG}text")}
    assert at["client"] < at["middle"] < at["server"]


def test_svg_has_an_accessible_name_and_dark_colours() -> None:
    drawing = draw(topology(example_experiment()), "svg")
    assert "prefers-color-scheme:dark" in drawing
    root = ElementTree.fromstring(drawing)
    assert root.attrib["role"] == "img"
    assert root.find(f"{SVG}title") is not None


def test_an_empty_experiment_can_be_golden_drawings() -> None:
    for form in FORMATS:
        assert draw(Topology(experiment="empty"), form)
    check_svg(draw(Topology(experiment="empty"), "svg"))


def test_layout_of_a_cycle() -> None:
    sizes = {key: Size(10, 10) for key in "abc"}
    found = layout(sizes, [("a", "b"), ("b", "c"), ("c", "a")], dict.fromkeys("abc", 0))
    assert [found.rects[key].x for key in "abc"] == sorted(found.rects[key].x for key in "abc")
    assert len(found.passages["c", "a"] or ()) == 1


@given(st.lists(st.tuples(names, names), max_size=30))
def test_layout_parts_of_a_layer_do_not_overlap(edges: list[tuple[str, str]]) -> None:
    sizes = {end: Size(20, 10 + len(end)) for edge in edges for end in edge}
    places = list(layout(sizes, edges, dict.fromkeys(sizes, 0)).rects.values())
    for one, other in combinations(places, 2):
        assert one.x != other.x or abs(one.middle - other.middle) >= (one.height + other.height) / 2
