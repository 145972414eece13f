"""Pods, Jobs and Services for the tests of the test cluster, as plain data."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def container(image: str, code: str, **settings: Any) -> Object:
    """Return a container that runs Python code."""
    return {"name": "main", "image": image, "command": ["python3", "-c", code], **settings}


def pod(name: str, *containers: Object, **spec: Any) -> Object:
    """Return a Pod that is not restarted and has no grace period."""
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
    """Return a Service for the Pod of the same name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": port}]},
    }


def job(name: str, *containers: Object, **spec: Any) -> Object:
    """Return a Job whose Pod is not restarted."""
    template = {"spec": {"containers": list(containers), "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": template, **spec},
    }


FOREVER = "import signal; signal.pause()"
