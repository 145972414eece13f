"""The plug-in of the backend ``polite``."""

from symphony.hookspecs import BackendInfo

BACKEND = BackendInfo(
    name="polite",
    summary="local processes with a low priority",
    load="symphony_polite.cluster:PoliteCluster",
    capabilities=frozenset(
        {"launch", "logs", "exec", "copy", "external-url", "topology", "restart", "gpu"}
    ),
)
