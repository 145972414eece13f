from __future__ import annotations

import pytest

from symphony import Experiment
from symphony.plan.topology import topology
from symphony.watching.web.messages import (
    HIDDEN,
    compared_value,
    process_environment,
    shown_value,
    topology_picture,
)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("SEED", "3", "3"),
        ("WANDB_API_KEY", "abc", None),
        ("HF_TOKEN", "abc", None),
        ("db_password", "abc", None),
        ("AWS_SECRET_ACCESS_KEY", "abc", None),
        ("DATABASE_URL", "postgres://me:pw@db/main", f"postgres://{HIDDEN}@db/main"),
        ("PROXY", "http://proxy:3128", "http://proxy:3128"),
        # A reference to a secret, and not its value.
        ("KEY_FILE", {"secret": "key"}, None),
    ],
)
def test_values_that_can_be_secrets_are_not_sent(
    name: str, value: object, shown: str | None
) -> None:
    assert shown_value(name, value) == shown


def test_differences_between_runs_do_not_show_secrets() -> None:
    path = "definition.processes.learner.env.API_KEY"
    assert compared_value(path, "abc") == HIDDEN
    assert compared_value("definition.env.SEED", "3") == "3"
    assert compared_value("exit_code", 1) == "1"
    assert compared_value("exit_code", None) is None


def test_the_variables_of_a_process_come_before_those_of_its_group() -> None:
    experiment = Experiment("rl", env={"A": "experiment", "B": "experiment", "C": "experiment"})
    group = experiment.new_process_group("agents")
    group.set_envs({"B": "group", "C": "group"})
    group.new_process("agent", cmd="true", env={"C": "process"})
    experiment.new_process("alone", cmd="true")
    definition = experiment.dump_dict()
    expected = {"A": "experiment", "B": "group", "C": "process"}
    assert process_environment(definition, "agent") == expected
    assert set(process_environment(definition, "alone").values()) == {"experiment"}


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
