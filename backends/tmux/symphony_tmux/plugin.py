"""The plug-in that registers the tmux backend."""

from symphony.hookspecs import BackendInfo, hookimpl


@hookimpl
def symphony_backend() -> BackendInfo:
    """Return the description of the tmux backend."""
    return BackendInfo(
        name="tmux",
        summary="one tmux window per process, on a server of its own",
        load="symphony_tmux.cluster:TmuxCluster",
        capabilities=frozenset(
            {
                "launch",
                "stop",
                "control",
                "up",
                "logs",
                "runs",
                "exec",
                "login",
                "copy",
                "forward",
                "external-url",
                "topology",
                "restart",
                "policies",
                "gpu",
                "ranks",
            }
        ),
        extra="tmux",
        experiments="symphony.host.run.directory:experiment_names",
    )
