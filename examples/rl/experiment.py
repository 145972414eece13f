"""A learner with its servers, agents that run alone or in groups, and evaluators. The experiment
works on every backend.

    symphony launch examples/rl/experiment.py --follow
    symphony launch examples/rl/experiment.py --follow -b kube --image rl:1

The file config.yml, or the file that RL_CONFIG names, configures the experiment. ``launch.py`` in
this directory has options for common changes, and can assign processes to node pools. On this
machine, the programs run in this directory with the python3 on PATH, for which symphony and pyzmq
must be installed. In a container, they run in the image's working directory.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from configuration import (
    CODE_FOLDER,
    SERVER_GROUP,
    SERVERS,
    Configuration,
    load,
    prefixed,
)

from symphony import Experiment, Process, ProcessGroup

NAME = "rl"
HERE = Path(__file__).parent

BINDS = {
    "learner": ["scores"],
    "replay": ["experience", "replay"],
    "ps": ["parameters", "versions"],
    "curriculum": ["starts"],
    "logger": ["log"],
    "recorder": ["metrics"],
    "page": ["screen"],
}
CONNECTS = {
    "learner": ["replay", "parameters", "log", "metrics"],
    "replay": ["log"],
    "ps": [],
    "curriculum": ["log"],
    "logger": [],
    "recorder": ["screen"],
    "page": [],
    "agent": [
        "replay", "experience", "parameters", "versions", "starts", "log", "metrics", "screen",
    ],
    "evaluator": ["scores", "parameters", "versions", "log", "metrics", "screen"],
}  # fmt: skip


class Dispatcher(Protocol):
    """An object that assigns processes to node pools: `symphony.kube.GKEDispatcher` or
    `NodePoolDispatcher`.
    """

    def assign_to(self, process: Process, assign_to: str, **settings: object) -> object:
        """Assign ``process`` to a node pool."""


def build(
    exp: Experiment,
    configuration: Configuration | None = None,
    dispatcher: Dispatcher | None = None,
) -> None:
    """Add all processes to ``exp``. If ``dispatcher`` is given, it places the processes whose role
    has ``assign`` settings.
    """
    if configuration is None:
        configuration = load(HERE / os.environ.get("RL_CONFIG", "config.yml"))
    exp.set_envs(settings(configuration))
    exp.ends_with = ["learner"]
    servers = exp.new_process_group(SERVER_GROUP)
    place(servers, SERVER_GROUP, configuration)
    members: list[tuple[str, str, ProcessGroup | None]] = [("learner", "learner", None)]
    members += [(name, name, servers) for name in SERVERS]
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
    for owner in (exp.get_process("learner"), servers):
        keep_results(owner, configuration)
    for member in exp.list_members():
        mount_code(member, configuration)
    page = exp.get_process("page")
    page.exposes({"page": configuration.page_port}).ready(http=("page", "/"))
    if configuration.build is not None:
        declare_image(exp, configuration)


def new_process(
    exp: Experiment, name: str, role: str, group: ProcessGroup | None, configuration: Configuration
) -> Process:
    """Add a process for ``role`` to ``group``, or to ``exp`` if ``group`` is None. Return the
    process.
    """
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
    """Create the groups of agents, and return a list with the group of each agent. If the agents
    run alone, every entry is None. The last group is smaller if the number of agents is not a
    multiple of the group size.
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
    """Set the node selector and the tolerations for ``owner``'s Pod. ``pod`` is the kind of the
    Pod.
    """
    for key, value in configuration.pod(pod).node_selector.items():
        owner.node_selector(key, value)
    for toleration in configuration.pod(pod).tolerations:
        owner.add_toleration(**toleration)


def mount_code(owner: Process | ProcessGroup, configuration: Configuration) -> None:
    """Mount the code for ``owner``'s Pod, if the configuration specifies any, and use it."""
    code = configuration.code
    if code is None:
        return
    owner.start_dir = CODE_FOLDER
    with prefixed("code: "):
        if code.nfs is not None:
            server, _, path = code.nfs.partition(":")
            owner.mount_nfs(server, path, CODE_FOLDER)
        elif code.host_path is not None:
            owner.mount_host_path(code.host_path, CODE_FOLDER)


def keep_results(owner: Process | ProcessGroup, configuration: Configuration) -> None:
    """Set the results directory for the learner or the servers, and mount the storage for this
    directory if the configuration specifies any.
    """
    results = configuration.results
    if results.folder is None:
        return
    owner.set_env("RL_RESULTS", results.folder)
    with prefixed("results: "):
        if results.nfs is not None:
            server, _, path = results.nfs.partition(":")
            owner.mount_nfs(server, path, results.folder)
        elif results.host_path is not None:
            owner.mount_host_path(results.host_path, results.folder, type="DirectoryOrCreate")


def settings(configuration: Configuration) -> dict[str, object]:
    """Return the environment variables for all programs; see `roles.options`."""
    run = configuration.run
    given = {
        "RL_EVALUATORS": configuration.evaluators,
        "RL_UPDATES": run.updates,
        "RL_TARGET": run.target,
        "RL_FOREVER": "yes" if run.forever else None,
        "RL_PACE": run.pace,
        "RL_PATIENCE": run.patience,
        "RL_SEED": run.seed,
    }
    return {key: value for key, value in given.items() if value is not None}


def declare_image(exp: Experiment, configuration: Configuration) -> None:
    """Declare how ``--build`` builds the image."""
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
