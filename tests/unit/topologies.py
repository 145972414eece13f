"""Experiments for tests of topologies, and the golden drawings.

Run ``python -m tests.unit.topologies`` to write the golden files.
"""

from __future__ import annotations

from pathlib import Path

from symphony.drawing import draw
from symphony.drawing.text_tree import ASCII, text_tree
from symphony.model import Experiment
from symphony.plan.topology import folded, topology

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = (60, 80, 160)
SUFFIXES = {"mermaid": "mmd", "dot": "dot", "svg": "svg"}


def example_experiment(agents: int = 20) -> Experiment:
    """Return an experiment with most features, and a service that no process binds."""
    exp = Experiment("rl")
    servers = exp.new_process_group("nonagent")
    servers.new_process("learner").binds("params").connects(["replay", "log"]).exposes(
        {"tensorboard": 6006}
    )
    servers.new_process("replay").binds(["replay", "replay-stats"])
    servers.new_process("logger").binds("log")
    group = (
        exp.new_process_group("agents")
        .connects(["params", "replay", "log"])
        .starts_after("nonagent")
    )
    for number in range(agents):
        group.new_process(f"agent-{number}")
    for name in ("eval-0", "eval-1", "eval-with-a-much-longer-name-than-the-others"):
        exp.new_process(name).connects(["params", "log"]).starts_after("learner", "started")
    exp.new_process("db").binds({"db": 5432}, encrypted=True)
    exp.new_process("web").connects(["db", "ghost"]).exposes({"http": 80}).starts_after("db")
    exp.new_process("alone")
    return exp


def example_states(agents: int = 20) -> dict[str, str]:
    """Return a state for each process of the example."""
    many = {f"agent-{number}": "running" for number in range(agents - 2)}
    others = {
        "learner": "running",
        "replay": "unknown",
        "logger": "running",
        "db": "succeeded",
        "web": "stopped",
    }
    return {**others, **many, f"agent-{agents - 2}": "pending", f"agent-{agents - 1}": "failed"}


def ring(number: int) -> Experiment:
    """Return an experiment in which all processes form one cycle."""
    exp = Experiment("ring")
    for index in range(number):
        service, other = (f"the-service-of-peer-{it % number}" for it in (index, index + 1))
        peer = exp.new_process(f"one-of-the-peers-{index}").binds(service).connects(other)
        if index:
            peer.starts_after("one-of-the-peers-0")
    return exp


def client_servers(number: int) -> Experiment:
    """Return an experiment of different clients that connect to the same three servers."""
    exp = Experiment("crowd")
    for server in ("a", "b", "c"):
        exp.new_process(f"server-{server}").binds(f"service-{server}")
    for index in range(number - 3):
        letters = "".join(chr(ord("a") + int(digit)) for digit in str(index))
        exp.new_process(f"client-{letters}").connects(["service-a", "service-b", "service-c"])
    return exp


# Valid names that are keywords of Mermaid or DOT.
KEYWORDS = (
    *("end", "graph", "node", "edge", "digraph", "subgraph", "strict", "class", "click", "style"),
    *("default", "flowchart", "link-style", "direction", "lr", "o", "x", "href", "call", "true"),
    *("null", "title", "cluster", "p0", "s0", "g0"),
)


def keyword_names() -> Experiment:
    """Return an experiment in which every name is a keyword of Mermaid or DOT."""
    exp = Experiment("end")
    for name in KEYWORDS:
        exp.new_process(name).binds(name)
    group = exp.new_process_group("endif").connects(["end", "graph"]).starts_after("end")
    group.new_process("begin").connects("node").binds("begin")
    exp.new_process_group("empty")
    return exp


def golden_drawings() -> dict[str, str]:
    """Return every golden drawing by the name of its file."""
    whole = topology(example_experiment())
    short = folded(whole)
    found = {f"rl-{width}.txt": text_tree(short, example_states(), width=width) for width in WIDTHS}
    found["rl-ascii.txt"] = text_tree(short, example_states(), width=80, signs=ASCII)
    found["rl-plain.txt"] = text_tree(short)
    files = {name: "\n".join(lines) + "\n" for name, lines in found.items()}
    for form, suffix in SUFFIXES.items():
        files[f"rl.{suffix}"] = draw(short, form)
        files[f"rl-states.{suffix}"] = draw(short, form, example_states())
        files[f"rl-all.{suffix}"] = draw(whole, form)
        files[f"reserved.{suffix}"] = draw(folded(topology(keyword_names())), form)
    return files


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, content in golden_drawings().items():
        (GOLDEN / name).write_text(content, encoding="utf-8")
