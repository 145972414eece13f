"""The plug-in that registers the local backend."""

from symphony.hookspecs import CAPABILITIES, SNAPSHOT, STATE_DIR, BackendInfo

BACKEND = BackendInfo(
    name="local",
    aliases=("subproc", "subprocess"),
    summary="processes of this machine, under a detached supervisor",
    load="symphony_local.cluster:LocalCluster",
    capabilities=frozenset(CAPABILITIES),
    options=(SNAPSHOT, STATE_DIR),
    experiments="symphony.supervised.record.directory:experiment_names",
)
