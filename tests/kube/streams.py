"""Commands in a Pod with the official client, with every socket closed.

After the server has ended a stream, close() of the library leaves its socket open: use shutdown().
"""

from __future__ import annotations

from kubernetes import client
from kubernetes.stream import stream


def run_in_pod(
    api: client.ApiClient, namespace: str, pod: str, *command: str, stdin: str = ""
) -> tuple[str, int]:
    """Return the output of a command in the container of a Pod, and its exit code."""
    session = stream(
        client.CoreV1Api(api).connect_get_namespaced_pod_exec,
        pod,
        namespace,
        command=list(command),
        stdin=bool(stdin),
        stdout=True,
        stderr=True,
        _preload_content=False,
    )
    if stdin:
        session.write_stdin(stdin)
    session.run_forever(timeout=30)
    code = session.returncode  # read_all() discards the channel that has it
    output = session.read_all()
    session.sock.shutdown()
    return output, code
