"""A program that makes its cluster itself: what was typed must fit it, or a delete would hit another than was said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import UsageError

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.commandline.parsing.dispatch import CommandLine


def refuse_another(line: CommandLine, cluster: Cluster) -> None:
    """Raise `UsageError` where the backend that was asked for is another than that of ``cluster``."""
    typed, wanted = _asked_for(line)
    backend = getattr(cluster, "backend", None)
    if backend is not None and wanted not in (None, backend):
        raise UsageError(
            f"{typed} asks for the {wanted} backend, and the cluster of {line.prog} is its own, on {backend}; "
            f"leave {typed} out"
        )


def refuse_options(line: CommandLine) -> None:
    """Raise `UsageError` where options of a backend were typed, which nobody has asked for."""
    typed = line.given_flags
    if typed:
        backend = line.backend_info.name if line.backend_info else "chosen"
        raise UsageError(
            f"{typed[0]} is an option of the {backend} backend, and the cluster of {line.prog} is made without it "
            f"(its create_cluster() takes no backend_options); leave {typed[0]} out"
        )


def _asked_for(line: CommandLine) -> tuple[str, str | None]:
    """What was typed, and the name of the backend that it asks for; None where it asks for none."""
    from symphony.cluster.plugins import find_backend
    from symphony.config import SymphonyConfig

    if line.args.backend:
        return f"-b {line.args.backend}", find_backend(line.args.backend).name
    config, profile = SymphonyConfig(), line.args.profile
    if profile and config.profile_of("backend") == profile:
        return f"--profile {profile}", find_backend(config.backend).name
    return "", None
