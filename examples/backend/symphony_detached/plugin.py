"""The plug-in. It is imported whenever backends are listed, so it imports nothing else."""

from symphony.hookspecs import STATE_DIR, BackendInfo

CAPABILITIES = ("launch", "stop", "logs", "external-url", "topology", "restart", "policies")

BACKEND = BackendInfo(
    name="detached",
    summary="processes in sessions of their own",
    load="symphony_detached.cluster:DetachedCluster",
    capabilities=frozenset(CAPABILITIES),
    options=(STATE_DIR,),
)
