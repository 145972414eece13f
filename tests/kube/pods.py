"""Pods, Jobs and Services for the tests of the cluster, as plain data."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def container(image: str, code: str, **settings: Any) -> Object:
    """A container that runs Python code."""
    return {"name": "main", "image": image, "command": ["python3", "-c", code], **settings}


def pod(name: str, *containers: Object, **spec: Any) -> Object:
    """A Pod that is not restarted and ends at once when it is told to."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "containers": list(containers),
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            **spec,
        },
    }


def service(name: str, port: int) -> Object:
    """A Service before the Pod of the same name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": port}]},
    }


def job(name: str, *containers: Object, **spec: Any) -> Object:
    """A Job whose Pod is not restarted."""
    template = {"spec": {"containers": list(containers), "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": template, **spec},
    }


FOREVER = "import signal; signal.pause()"
ECHO = """
import socketserver
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.readline().upper())
socketserver.TCPServer(("0.0.0.0", 7000), Handler).serve_forever()
"""


def echo(name: str, image: str) -> Object:
    """A Pod that answers on port 7000 with what it hears in capitals; ready when it listens."""
    probe = {"tcpSocket": {"port": 7000}, "periodSeconds": 1}
    return pod(name, container(image, ECHO, readinessProbe=probe))
