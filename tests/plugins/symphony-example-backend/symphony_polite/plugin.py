"""How symphony finds the backend ``polite``."""

from symphony.hookspecs import BackendInfo, hookimpl


@hookimpl
def symphony_backend() -> BackendInfo:
    """Describe the backend."""
    return BackendInfo(
        name="polite",
        summary="processes of this machine, with a low priority",
        load="symphony_polite.cluster:PoliteCluster",
        capabilities=frozenset(
            {"launch", "logs", "exec", "copy", "external-url", "topology", "restart", "gpu"}
        ),
    )
