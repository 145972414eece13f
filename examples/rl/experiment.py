"""A learner with its servers, agents alone or in groups, and evaluators, for every backend.

    symphony launch examples/rl/experiment.py --follow
    symphony launch examples/rl/experiment.py --follow -b kube --image rl:1

The file config.yml, or the file in RL_CONFIG, configures the experiment. ``launch.py`` in this
directory has options for common changes, and assigns processes to node pools. On this machine, the
programs run in this directory with the python3 on PATH, which needs symphony and pyzmq. In a
container, they run in the working directory of the image.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from configuration import COLLECTORS, NONAGENT, SERVERS, Configuration, load, prefixed

from symphony import Experiment, Process, ProcessGroup

NAME = "rl"
HERE = Path(__file__).parent

BINDS = {
    "learner": ["run", "news"],
    "replay": ["experience", "replay"],
    "ps": ["parameters", "versions"],
    "curriculum": ["starts"],
    "logger": ["log"],
    "recorder": ["metrics"],
    "page": ["screen"],
}
CONNECTS = {
    "learner": ["replay", "parameters", "log", "metrics"],
    "replay": ["run", "news", "log"],
    "ps": ["run", "news"],
    "curriculum": ["run", "news", "log"],
    "logger": ["run", "news"],
    "recorder": ["run", "news", "screen"],
    "page": ["run", "news"],
    "agent": [
        "run", "news", "replay", "experience", "parameters", "versions", "starts", "log",
        "metrics", "screen",
    ],
    "evaluator": ["run", "news", "parameters", "versions", "log", "metrics", "screen"],
}  # fmt: skip


class Dispatcher(Protocol):
    """An object with information about the nodes: `symphony.kube.GKEDispatcher` or
    `NodePoolDispatcher`.
    """

    def assign_to(self, process: Process, assign_to: str, **settings: object) -> object:
        """Assign a process to a node pool."""


def build(
    exp: Experiment,
    configuration: Configuration | None = None,
    dispatcher: Dispatcher | None = None,
) -> None:
    """Add all processes to ``exp``. If there is a ``dispatcher``, it places the processes that
    request placement.
    """
    if configuration is None:
        configuration = load(HERE / os.environ.get("RL_CONFIG", "config.yml"))
    exp.set_envs(settings(configuration))
    nonagent = exp.new_process_group(NONAGENT)
    place(nonagent, NONAGENT, configuration)
    keep_results(nonagent, configuration)
    members: list[tuple[str, str, ProcessGroup | None]] = [
        (name, name, nonagent) for name in SERVERS
    ]
    members += [
        (f"agent-{n}", "agent", owner) for n, owner in enumerate(agent_owners(exp, configuration))
    ]
    members += [(f"evaluator-{n}", "evaluator", None) for n in range(configuration.evaluators)]
    for name, role, group in members:
        process = new_process(exp, name, role, group, configuration)
        assign = configuration.role(role).assign
        if dispatcher is not None and assign:
            with prefixed(f"roles.{role}.assign: "):
                dispatcher.assign_to(process, **assign)
    page = exp.get_process("page")
    page.exposes({"page": configuration.page_port}).ready(http=("page", "/"))
    if configuration.build is not None:
        declare_image(exp, configuration)


def new_process(
    exp: Experiment, name: str, role: str, group: ProcessGroup | None, configuration: Configuration
) -> Process:
    """Return a new process for a role, in a group or alone."""
    needs = configuration.role(role)
    process = (group or exp).new_process(
        name,
        container_image=needs.image or configuration.image,
        command="python3",
        args=["-m", f"roles.{role}"],
    )
    process.binds(BINDS.get(role, [])).connects(CONNECTS[role])
    process.resource_request(**needs.request).resource_limit(**needs.limit).set_envs(needs.env)
    if group is None:
        place(process, role, configuration)
    return process


def agent_owners(exp: Experiment, configuration: Configuration) -> list[ProcessGroup | None]:
    """Return a list with the group of each agent, or None for an agent without a group. The last
    group is smaller if not all groups can be full.
    """
    size = configuration.group_size
    if size == 1:
        return [None] * configuration.agents
    owners: list[ProcessGroup | None] = []
    for first in range(0, configuration.agents, size):
        group = exp.new_process_group(f"agents-{first // size}")
        place(group, "agent", configuration)
        owners += [group] * min(size, configuration.agents - first)
    return owners


def place(owner: Process | ProcessGroup, pod: str, configuration: Configuration) -> None:
    """Set the nodes on which a Pod may run."""
    for key, value in configuration.pod(pod).node_selector.items():
        owner.node_selector(key, value)
    for toleration in configuration.pod(pod).tolerations:
        owner.add_toleration(**toleration)


def keep_results(nonagent: ProcessGroup, configuration: Configuration) -> None:
    """Mount the directory for results in the processes that write files."""
    results = configuration.results
    if results.folder is None:
        return
    nonagent.set_env("RL_RESULTS", results.folder)
    with prefixed("results: "):
        if results.nfs is not None:
            server, _, path = results.nfs.partition(":")
            nonagent.mount_nfs(server, path, results.folder)
        elif results.host_path is not None:
            nonagent.mount_host_path(results.host_path, results.folder, type="DirectoryOrCreate")


def settings(configuration: Configuration) -> dict[str, object]:
    """Return the environment of all programs; see `roles.options`."""
    run = configuration.run
    given = {
        "RL_WORKERS": configuration.agents + configuration.evaluators,
        # The learner counts the servers, so it is not included in their number.
        "RL_SERVERS": len(SERVERS) - len(COLLECTORS) - 1,
        "RL_COLLECTORS": len(COLLECTORS),
        "RL_UPDATES": run.updates,
        "RL_TARGET": run.target,
        "RL_FOREVER": "yes" if run.forever else None,
        "RL_PACE": run.pace,
        "RL_PATIENCE": run.patience,
        "RL_SEED": run.seed,
    }
    return {key: value for key, value in given.items() if value is not None}


def declare_image(exp: Experiment, configuration: Configuration) -> None:
    """Declare how the image is built, for ``--build``."""
    how, repository = configuration.build, configuration.image
    if how is None or repository is None:
        return
    base = [f"--build-arg=BASE={how.base}"] if how.base else []
    exp.build_image(
        repository,
        dockerfile=how.dockerfile,
        context_directories=[{"name": "roles", "path": "roles"}],
        build_options=[*base, *how.options],
    )
