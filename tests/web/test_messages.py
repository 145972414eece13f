from __future__ import annotations

import re

from symphony import Experiment
from symphony.plan.topology import topology
from symphony.views.web.messages import (
    topology_picture,
)
from symphony.views.web.routes import STATIC_DIRECTORY


def test_the_picture_names_what_a_click_selects() -> None:
    experiment = Experiment("rl")
    experiment.new_process("server", cmd="true").binds("replay")
    group = experiment.new_process_group("agents")
    for number in range(4):
        group.new_process(f"agent-{number}", cmd="true").connects("replay")
    picture = topology_picture(topology(experiment))
    processes = {box["key"]: box["processes"] for box in picture["boxes"]}
    agents = [f"agent-{number}" for number in range(4)]
    assert processes == {
        "service replay": [],
        "process server": ["server"],
        "group agents": agents,
        "replicas agent-0": agents,
    }
    ends = {(line["from"], line["to"]) for line in picture["lines"]}
    assert ends == {("replicas agent-0", "service replay"), ("service replay", "process server")}
    (service,) = picture["services"]
    assert (service["owners"], service["clients"]) == (["server"], ["agent-0"])


def test_the_page_loads_all_scripts_at_once() -> None:
    """Otherwise, the browser would find each script only in the one that imports it."""
    page = (STATIC_DIRECTORY / "index.html").read_text()
    scripts = {path.name for path in STATIC_DIRECTORY.glob("*.js")}
    assert set(re.findall(r'(?:href|src)="([a-z]+\.js)"', page)) == scripts
