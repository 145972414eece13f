"""How symphony finds the backend ``inline``. It imports nothing else: it is read whenever backends are listed."""

from symphony.hookspecs import BackendInfo, hookimpl


@hookimpl
def symphony_backend() -> BackendInfo:
    """Describe the backend."""
    return BackendInfo(
        name="inline",
        aliases=("foreground",),
        summary="one process after another, in the foreground",
        load="symphony_inline.cluster:InlineCluster",
        capabilities=frozenset({"launch", "logs"}),
    )
