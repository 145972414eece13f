"""exec and port-forward by the official client, with every socket closed.

After the server has ended a stream, the library's close() leaves its socket open: use shutdown().
"""

from __future__ import annotations

import threading

from kubernetes import client
from kubernetes.stream import portforward, stream


def run_in_pod(
    api: client.ApiClient, namespace: str, pod: str, *command: str, stdin: str = ""
) -> tuple[str, int]:
    """Return what a command in a Pod's container prints, and its exit code."""
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
    code = session.returncode  # before read_all(), which throws away the channel that has it
    output = session.read_all()
    session.sock.shutdown()
    return output, code


def talk_to_pod(
    api: client.ApiClient, namespace: str, pod: str, *, port: int, text: bytes
) -> bytes:
    """Send some bytes to a Pod's port by port-forward, and return the first that come back."""
    core = client.CoreV1Api(api)
    forward = portforward(
        core.connect_get_namespaced_pod_portforward, pod, namespace, ports=str(port)
    )
    connection = forward.socket(port)
    connection.settimeout(20)
    connection.sendall(text)
    answer = connection.recv(100)
    connection.close()
    for thread in threading.enumerate():
        if thread.name.startswith("Kubernetes port forward"):
            thread.join(20)
    forward.websocket.shutdown()
    assert answer, forward.error(port)
    return answer
