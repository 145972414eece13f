"""The parameter server, which stores the newest parameters and announces their version."""

from __future__ import annotations

from typing import Any

from roles import checks
from symphony.addons.zmq import ZmqPub, ZmqServer

VERSION = "version"


class Store:
    """A store for the newest parameters that the learner has sent."""

    def __init__(self, versions: ZmqPub) -> None:
        self._newest: dict[str, Any] = {}
        self._versions = versions

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Store parameters from the learner and announce their version, or return the newest
        parameters to a client. The result is empty for the learner, and for a client that already
        has these parameters.
        """
        if checks.parameters(message)["what"] == "put":
            self._newest = {"version": message["version"], "values": message["values"]}
            self._versions.send(VERSION, message["version"])
            return {}
        return {} if self._newest.get("version") == message["but"] else self._newest


def main() -> None:
    with (
        ZmqServer(service="parameters", serializer="json") as server,
        ZmqPub(service="versions", serializer="json") as versions,
    ):
        server.start_loop(Store(versions).answer, blocking=True)


if __name__ == "__main__":
    main()
