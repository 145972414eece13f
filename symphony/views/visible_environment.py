"""The environment of a process, without the values of secrets."""

from __future__ import annotations

from symphony.cluster import Cluster
from symphony.errors import SymphonyError
from symphony.support.hidden_values import shown_value


def shown_environment(cluster: Cluster, experiment: str, process: str) -> dict[str, str]:
    """Return the variables that the description of a running process sets.

    The values of secrets, and of variables whose names suggest a secret, are hidden, also as parts
    of other values. Variables that symphony adds, such as addresses, are not included. The result
    is empty if the description is not known.
    """
    try:
        described = cluster.described_experiment(experiment)
        member = described.get_process(process)
    except SymphonyError:
        return {}
    variables = dict(described.env)
    secrets: dict[str, str] = {}
    owners = [member] if member.group is None else [member.group, member]
    for owner in owners:
        variables.update(owner.settings.env)
        secrets.update(owner.settings.env_secrets)
    hidden = cluster.hidden_values(experiment)
    shown = {name: hidden.in_text(shown_value(name, value)) for name, value in variables.items()}
    shown.update({name: f"(secret {secret})" for name, secret in secrets.items()})
    return shown
