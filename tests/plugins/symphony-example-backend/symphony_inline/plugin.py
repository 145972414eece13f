"""The plug-in of the backend ``inline``.

It imports no other libraries, because it is imported whenever backends are listed.
"""

from symphony.hookspecs import BackendInfo, hookimpl


@hookimpl
def symphony_backend() -> BackendInfo:
    """Return the description of the backend."""
    return BackendInfo(
        name="inline",
        aliases=("foreground",),
        summary="one process after another, in the foreground",
        load="symphony_inline.cluster:InlineCluster",
        capabilities=frozenset({"launch", "logs"}),
    )
