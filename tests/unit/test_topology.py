"""Who is joined with whom, and drawings of it: golden ones, and what must hold in all."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pydot
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from symphony.drawing import FORMATS, draw
from symphony.drawing.layout import Size, layout
from symphony.drawing.text import ASCII, text
from symphony.host import describe as joined
from symphony.host.render import HostManifest, render
from symphony.model import Experiment
from symphony.plan.addresses import AddressScheme
from symphony.plan.resolve import resolve
from symphony.plan.topology import (
    Link,
    Node,
    Service,
    Topology,
    folded,
    of_status,
    tallied,
    topology,
)
from symphony.status import ExperimentStatus, ProcessStatus
from tests.unit import strategies
from tests.unit.strategies import names
from tests.unit.topologies import GOLDEN, RESERVED, crowd, drawn, research, reserved, ring, states

SVG = "{http://www.w3.org/2000/svg}"


def experiments() -> st.SearchStrategy[Experiment]:
    return strategies.experiments().map(Experiment.load_dict)


# --- the topology ---


def test_services_have_owners_ports_and_clients() -> None:
    found = topology(research())
    services = {service.name: service for service in found.services}
    assert services["db"] == Service(
        name="db", owners=("db",), port=5432, bound=True, encrypted=True
    )
    assert services["tensorboard"] == Service(
        name="tensorboard", owners=("learner",), port=6006, exposed=True
    )
    assert services["ghost"] == Service(name="ghost")
    assert found.clients("replay") == ("learner", "agents")
    assert [service.label for service in found.services if service.owners == ("replay",)] == [
        "replay",
        "replay-stats",
    ]


def test_what_a_group_connects_to_is_linked_with_the_group_alone() -> None:
    exp = Experiment("rl")
    exp.new_process("server").binds(["a", "b"])
    group = exp.new_process_group("clients").connects("a")
    group.new_process("one").connects(["a", "b"])
    links = {(link.source, link.target) for link in topology(exp).links}
    assert links == {("clients", "a"), ("one", "b")}


def test_the_start_order_is_linked_by_condition_and_what_is_not_there_is_left_out() -> None:
    exp = Experiment("rl")
    exp.new_process("a").starts_after("b", "succeeded").starts_after("nobody")
    exp.new_process("b")
    assert topology(exp).links == (
        Link(kind="starts-after", source="a", target="b", condition="succeeded"),
    )


def test_a_service_of_two_owners_shows_both() -> None:
    exp = Experiment("rl")
    exp.new_process("a").binds("x")
    exp.new_process("b").binds({"x": 7}).exposes("x")
    assert topology(exp).services == (
        Service(name="x", owners=("a", "b"), port=7, bound=True, exposed=True),
    )


def test_of_what_runs_there_are_processes_and_groups() -> None:
    status = ExperimentStatus(
        name="rl",
        backend="local",
        processes=(
            ProcessStatus(name="a"),
            ProcessStatus(name="b", group="g"),
            ProcessStatus(name="c", group="g"),
        ),
    )
    found = of_status(status)
    assert (found.members, found.groups) == (("a", "g"), ("g",))
    assert found.inside("g") == (
        Node(processes=("b",), group="g"),
        Node(processes=("c",), group="g"),
    )
    assert (found.services, found.links) == ((), ())


def of_two_groups(
    *,
    connects: dict[str, list[str]] | None = None,
    starts_after: dict[str, dict[str, str]] | None = None,
) -> Topology:
    processes = [
        ProcessStatus(name=name, group=group)
        for name, group in (("a", None), ("b", "g"), ("c", "g"))
    ]
    status = ExperimentStatus(
        name="rl", backend="local", processes=(*processes, ProcessStatus(name="d", group="h"))
    )
    services = [
        Service(name="x", owners=("a",), port=7),
        Service(name="y", owners=("g",), port=8, exposed=True),
    ]
    return of_status(
        status, services=services, connects=connects or {}, starts_after=starts_after or {}
    )


@pytest.mark.parametrize(
    ("connects", "linked"),
    [
        ({"a": ["x"], "b": ["x", "y"], "c": ["y"]}, [("a", "x"), ("g", "y"), ("b", "x")]),
        ({"b": ["x"], "d": ["x"]}, [("b", "x"), ("h", "x")]),
        ({"gone": ["x"]}, []),
    ],
)
def test_what_all_members_connect_to_is_said_of_the_group(
    connects: dict[str, list[str]], linked: list[tuple[str, str]]
) -> None:
    assert [(link.source, link.target) for link in of_two_groups(connects=connects).links] == linked


@pytest.mark.parametrize(
    ("waits", "linked"),
    [
        ({"b": "ready", "c": "ready"}, [("g", "ready")]),
        ({"b": "ready", "c": "started"}, [("b", "ready"), ("c", "started")]),
        ({"b": "ready"}, [("b", "ready")]),
        ({"a": "ready", "d": "succeeded"}, [("a", "ready"), ("h", "succeeded")]),
    ],
)
def test_a_group_that_is_waited_for_as_a_whole_is_linked_as_such(
    waits: dict[str, str], linked: list[tuple[str, str]]
) -> None:
    found = of_two_groups(starts_after={"a": waits})
    assert [(link.target, link.condition) for link in found.links] == linked


def test_of_what_runs_an_exposed_service_is_bound_where_somebody_connects() -> None:
    assert [service.bound for service in of_two_groups().services] == [True, False]
    assert [service.bound for service in of_two_groups(connects={"a": ["y"]}).services] == [
        True,
        True,
    ]
    assert of_two_groups(connects={"a": ["z"]}).services[2] == Service(name="z")


def described(exp: Experiment, ports: Mapping[str, int | None]) -> Topology:
    """What an experiment describes, as far as it can be told from what runs."""
    found = topology(exp)
    used = {link.target for link in found.links if link.kind == "connects"}
    services = (
        replace(one, port=ports[one.name], bound=not one.exposed or one.name in used)
        for one in found.services
    )
    return replace(found, services=tuple(services))


def encrypted() -> Experiment:
    exp = Experiment("rl")
    exp.new_process("a", command="a").binds("x", encrypted=True).exposes("y")
    exp.new_process("b", command="b").connects("x")
    return exp


@given(experiments())
@example(encrypted())
def test_what_is_launched_on_one_machine_is_joined_as_described(exp: Experiment) -> None:
    manifest = json.loads(json.dumps(rendered(exp).to_dict()))
    status = ExperimentStatus(
        name=exp.name,
        backend="local",
        processes=tuple(
            ProcessStatus(name=item["name"], group=item["group"]) for item in manifest["processes"]
        ),
    )
    found = joined.topology(manifest, status)
    before = described(exp, {service.name: service.port for service in found.services})
    alone = {
        group: found.inside(group)[0].key for group in found.groups if len(found.inside(group)) == 1
    }
    assert same(found, alone) == same(before, alone)


def same(found: Topology, alone: Mapping[str, str]) -> object:
    """A topology without what makes no difference: a group of one is as its member, a wait for all is for each."""
    owners = {
        service.name: replace(
            service, owners=tuple(alone.get(owner, owner) for owner in service.owners)
        )
        for service in found.services
    }
    inside = {group: [node.key for node in found.inside(group)] for group in found.groups}
    ends = {
        (link.kind, source, target, link.condition)
        for link in found.links
        for source in inside.get(link.source, [link.source])
        for target in (
            inside.get(link.target, [link.target]) if link.kind == "starts-after" else [link.target]
        )
    }
    return replace(found, services=(), links=()), owners, ends


def rendered(exp: Experiment) -> HostManifest:
    plan = resolve(
        exp, AddressScheme(backend="local", host=lambda _: "127.0.0.1", bind_host="127.0.0.1")
    )
    return render(
        plan, run_id="0", directory=Path("/state"), working_directory=Path("/here"), shell="/bin/sh"
    )


@given(experiments())
def test_every_process_is_drawn_once(exp: Experiment) -> None:
    every = [process.name for process in exp.list_all_processes()]
    for found in (topology(exp), folded(topology(exp)), folded(topology(exp), least=2)):
        assert sorted(name for node in found.nodes for name in node.processes) == sorted(every)
        ends = {node.key for node in found.nodes} | set(found.groups)
        services = {service.name for service in found.services}
        assert {link.source for link in found.links} <= ends
        assert all(
            link.target in (services if link.kind == "connects" else ends) for link in found.links
        )
        assert {owner for service in found.services for owner in service.owners} <= ends
        assert set(found.members) <= ends


# --- folding ---


def labels(exp: Experiment) -> list[str]:
    return [node.label() for node in folded(topology(exp)).nodes]


def test_processes_that_are_alike_are_one() -> None:
    assert labels(research(100))[3] == "agent-0 … agent-99 (100)"
    assert Node(processes=("a-1", "a-2")).label("...") == "a-1 ... a-2 (2)"


def test_two_are_not_many() -> None:
    exp = Experiment("rl")
    for name in ("a-1", "a-2"):
        exp.new_process(name)
    assert labels(exp) == ["a-1", "a-2"]


def test_one_that_is_joined_otherwise_stands_alone() -> None:
    exp = Experiment("rl")
    exp.new_process("server").binds(["a", "b", "own"])
    for number in range(9):
        exp.new_process(f"c-{number}").connects("a")
    exp.get_process("c-3").connects("b")
    exp.get_process("c-4").starts_after("server")
    exp.get_process("server").starts_after("c-5", "started")
    exp.get_process("c-6").binds("mine")
    assert labels(exp) == ["server", "c-0 … c-8 (5)", "c-3", "c-4", "c-5", "c-6"]


def test_names_must_differ_in_their_number_alone() -> None:
    exp = Experiment("rl")
    for name in ("anna", "bob", "carl", "d1", "e1", "f1"):
        exp.new_process(name)
    assert len(labels(exp)) == 6


def test_a_service_called_as_one_of_many_keeps_its_links() -> None:
    exp = Experiment("rl")
    exp.new_process("server").binds("c-2")
    for number in range(3):
        exp.new_process(f"c-{number}").connects("c-2")
    found = folded(topology(exp))
    assert found.links == (Link(kind="connects", source="c-0", target="c-2"),)


def test_states_are_counted() -> None:
    assert tallied({"running": 2, "failed": 1}, many=True) == "2 running, 1 failed"
    assert tallied({"running": 1}, many=False) == "running"


# --- golden ---


DRAWN = drawn()


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_a_drawing_is_as_it_was(name: str) -> None:
    golden = (GOLDEN / name).read_text(encoding="utf-8")
    assert DRAWN[name] == golden, "if it is to be so: python -m tests.unit.topologies"


def test_every_golden_file_is_drawn() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(DRAWN)


def test_a_drawing_is_the_same_in_every_run() -> None:
    program = "from tests.unit.topologies import drawn; print(repr(drawn()))"
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
@pytest.mark.parametrize("exp", [research(), ring(12), reserved()], ids=lambda exp: exp.name)
def test_text_fits_the_terminal(exp: Experiment, width: int) -> None:
    lines = text(folded(topology(exp)), states(), width=width)
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


@given(experiments(), st.sampled_from([60, 80, None]))
def test_nothing_is_lost_in_text(exp: Experiment, width: int | None) -> None:
    shown = "\n".join(text(topology(exp), width=width))
    if width is None:
        assert all(process.name in shown for process in exp.list_all_processes())
        assert all(service.label in shown for service in topology(exp).services)
    else:
        assert max(map(len, shown.split("\n"))) <= width


def test_ascii_is_ascii() -> None:
    lines = text(folded(topology(research())), states(), width=60, signs=ASCII)
    assert all(line.isascii() for line in lines)


def test_only_states_are_painted() -> None:
    exp = Experiment("running")
    exp.new_process("failed")
    lines = text(topology(exp), {"failed": "running"}, paint=lambda words: f"<{words}>")
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
DOT = re.compile(
    rf"""digraph\ {QUOTED}\ \{{|rankdir=LR|compound=true|(graph|node|edge)\ \[.*\]|label={QUOTED}|color={QUOTED}
    |subgraph\ "cluster\ [^"]*"\ \{{|\}}|{QUOTED}\ {ATTRIBUTES.replace(" ", chr(92) + " ")}|{QUOTED}\ \[style=invis\]
    |{QUOTED}\ ->\ {QUOTED}(\ {ATTRIBUTES.replace(" ", chr(92) + " ")})?""",
    re.VERBOSE,
)


def any_drawing() -> st.SearchStrategy[Experiment]:
    return st.one_of(experiments(), st.just(reserved()), st.just(research()), st.just(ring(5)))


@given(any_drawing(), st.booleans())
def test_mermaid_and_dot_say_names_in_quotes_alone(exp: Experiment, short: bool) -> None:
    found = folded(topology(exp)) if short else topology(exp)
    how = {process.name: "failed" for process in exp.list_all_processes()}
    for form, grammar in (("mermaid", MERMAID), ("dot", DOT)):
        for line in draw(found, form, how).splitlines():
            assert grammar.fullmatch(line.strip()), (form, line)


def test_every_identifier_of_mermaid_is_declared_once() -> None:
    lines = draw(topology(reserved()), "mermaid").splitlines()
    declared = [
        match[1] for line in lines if (match := re.match(r" +(?:subgraph )?([pgs]\d+)[\[(]", line))
    ]
    used = {
        word
        for line in lines
        if ">" in line
        for word in re.findall(r"\b[pgs]\d+\b", re.sub(QUOTED, "", line))
    }
    assert len(set(declared)) == len(declared) == 2 * len(RESERVED) + 4
    assert used <= set(declared)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:pydot")
@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("*.dot")))
def test_a_parser_of_dot_takes_it(name: str) -> None:
    """One that is not ours; and graphviz itself, where it is installed."""
    (graph,) = pydot.graph_from_dot_data((GOLDEN / name).read_text(encoding="utf-8"))
    assert graph.get_edges()
    if shutil.which("dot") is not None:
        done = subprocess.run(
            ["dot", "-Tplain", str(GOLDEN / name)], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")


# --- SVG ---


def boxes(root: ElementTree.Element) -> list[tuple[str, float, float, float, float]]:
    """The class, left, top, right and bottom of every box, but for the ground."""
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
    """Well-formed, all within the picture, no box upon another, and text within its box."""
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
def test_svg_holds_together(exp: Experiment, short: bool) -> None:
    found = folded(topology(exp)) if short else topology(exp)
    root = check_svg(
        draw(found, "svg", {process.name: "running" for process in exp.list_all_processes()})
    )
    shown = {item.text for item in root.iter(f"{SVG}text")}
    assert {node.label() for node in found.nodes} <= shown
    assert {service.label for service in found.services} <= shown


@pytest.mark.parametrize("number", [3, 30, 120])
@pytest.mark.parametrize("made", [crowd, ring])
def test_svg_stays_readable_however_many_there_are(made: type, number: int) -> None:
    root = check_svg(draw(folded(topology(made(number))), "svg"))
    assert float(root.attrib["width"]) < 1800
    names_shown = [item.text for item in root.iter(f"{SVG}text") if item.attrib["class"] == "name"]
    assert len(names_shown) >= number


def test_boxes_of_processes_lie_on_no_other_box() -> None:
    root = ElementTree.fromstring(draw(folded(topology(research())), "svg"))
    shown = [box for box in boxes(root) if box[0] != "group"]
    # One that stands for many has another box behind it, a little aside.
    upon = [(one, other) for one, other in combinations(shown, 2) if not apart(one, other)]
    assert len(upon) == 1


def test_who_connects_stands_left_of_the_service_and_who_binds_right_of_it() -> None:
    exp = Experiment("rl")
    exp.new_process("server").binds("middle")
    exp.new_process("client").connects("middle")
    root = ElementTree.fromstring(draw(topology(exp), "svg"))
    at = {item.text: float(item.attrib["x"]) for item in root.iter(f"{SVG}text")}
    assert at["client"] < at["middle"] < at["server"]


def test_svg_has_an_accessible_name_and_colours_for_the_dark() -> None:
    drawing = draw(topology(research()), "svg")
    assert "prefers-color-scheme:dark" in drawing
    root = ElementTree.fromstring(drawing)
    assert root.attrib["role"] == "img"
    assert root.find(f"{SVG}title") is not None


def test_nothing_at_all_can_be_drawn() -> None:
    for form in FORMATS:
        assert draw(Topology(experiment="empty"), form)
    check_svg(draw(Topology(experiment="empty"), "svg"))


def test_a_cycle_is_placed_in_layers() -> None:
    sizes = {key: Size(10, 10) for key in "abc"}
    found = layout(sizes, [("a", "b"), ("b", "c"), ("c", "a")], dict.fromkeys("abc", 0))
    assert [found.rects[key].x for key in "abc"] == sorted(found.rects[key].x for key in "abc")
    assert len(found.passages["c", "a"] or ()) == 1


@given(st.lists(st.tuples(names, names), max_size=30))
def test_no_two_parts_of_a_layer_overlap(edges: list[tuple[str, str]]) -> None:
    sizes = {end: Size(20, 10 + len(end)) for edge in edges for end in edge}
    places = list(layout(sizes, edges, dict.fromkeys(sizes, 0)).rects.values())
    for one, other in combinations(places, 2):
        assert one.x != other.x or abs(one.middle - other.middle) >= (one.height + other.height) / 2
