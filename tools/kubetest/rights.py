"""The rights that requests require, and the refusal of a user who lacks them."""

from __future__ import annotations

import re

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)/namespaces/[^/]+"
    r"/(?P<resource>[a-z]+)(?P<name>/[^/?]+)?(?:/(?P<part>[a-z]+))?(?:\?(?P<query>.*))?"
)
_VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}


def required_right(method: str, path: str) -> tuple[str, str] | None:
    """Return the resource and the verb of a request, such as ``("pods/log", "get")``.

    The resource has its API group, as in ``jobs.batch``. Return None if the request is not for
    objects in a namespace.
    """
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    resource = with_group(found["resource"], found["group"] or "")
    if found["part"]:
        resource += f"/{found['part']}"
    verb = _VERBS.get(method, "get")
    if verb == "get" and not found["name"]:
        verb = "watch" if "watch=" in (found["query"] or "") else "list"
    return resource, verb


def with_group(resource: str, group: str) -> str:
    """Return a resource with its API group, such as ``pods.metrics.k8s.io``."""
    return f"{resource}.{group}" if group else resource


def refusal(method: str, path: str) -> str:
    """Return the message with which the API server refuses a request for lack of a right."""
    resource, verb = required_right(method, path) or (path, method.lower())
    return f'{resource} is forbidden: User "someone" cannot {verb} resource "{resource}"'
