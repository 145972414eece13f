from __future__ import annotations

import re

import pytest

from symphony import Experiment
from symphony.plan.topology import topology
from symphony.watching.environment import HIDDEN, shown_value
from symphony.watching.web.messages import (
    compared_value,
    topology_picture,
)
from symphony.watching.web.routes import STATIC_DIRECTORY


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("SEED", "3", "3"),
        ("WANDB_API_KEY", "abc", HIDDEN),
        ("HF_TOKEN", "abc", HIDDEN),
        ("db_password", "abc", HIDDEN),
        ("AWS_SECRET_ACCESS_KEY", "abc", HIDDEN),
        ("DATABASE_URL", "postgres://me:pw@db/main", f"postgres://{HIDDEN}@db/main"),
        ("PROXY", "http://proxy:3128", "http://proxy:3128"),
        ("PGPASSWORD", "abc", HIDDEN),
        ("MAX_TOKENS", "4096", "4096"),
    ],
)
def test_values_that_can_be_secrets_are_not_sent(name: str, value: str, shown: str) -> None:
    assert shown_value(name, value) == shown


def test_differences_between_runs_do_not_show_secrets() -> None:
    path = "definition.processes.learner.env.API_KEY"
    assert compared_value(path, "abc") == HIDDEN
    assert compared_value("definition.env.SEED", "3") == "3"
    assert compared_value("exit_code", 1) == "1"
    assert compared_value("exit_code", None) is None


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
