"""The plug-in that registers the tmux backend."""

from symphony.hookspecs import SNAPSHOT, STATE_DIR, BackendInfo

BACKEND = BackendInfo(
    name="tmux",
    summary="one tmux window per process, on a server of its own",
    load="symphony_tmux.cluster:TmuxCluster",
    capabilities=frozenset(
        {
            "launch",
            "stop",
            "control",
            "up",
            "code",
            "logs",
            "runs",
            "exec",
            "login",
            "copy",
            "forward",
            "debug",
            "external-url",
            "usage",
            "topology",
            "restart",
            "policies",
            "gpu",
            "ranks",
        }
    ),
    options=(SNAPSHOT, STATE_DIR),
    extra="tmux",
    experiments="symphony.supervised.record.directory:experiment_names",
)
