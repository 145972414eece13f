"""The plug-in that registers the tmux backend."""

from symphony.hookspecs import CAPABILITIES, SNAPSHOT, STATE_DIR, BackendInfo

BACKEND = BackendInfo(
    name="tmux",
    summary="one tmux window per process, on a server of its own",
    load="symphony_tmux.cluster:TmuxCluster",
    capabilities=frozenset(CAPABILITIES),
    options=(SNAPSHOT, STATE_DIR),
    extra="tmux",
    experiments="symphony.supervised.record.directory:experiment_names",
)
