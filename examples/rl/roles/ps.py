"""The parameter server: has the newest parameters, and announces them."""

from __future__ import annotations

from typing import Any

from roles.member import Member
from symphony.addons.zmq import ZmqPub, ZmqServer

VERSION = "version"


class Store:
    """The newest parameters. Until the learner has given some their version is None."""

    def __init__(self, versions: ZmqPub) -> None:
        self._newest: dict[str, Any] = {"version": None, "values": None}
        self._versions = versions

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Take parameters of the learner's, or give the newest."""
        if message["what"] == "put":
            self._newest = {"version": message["version"], "values": message["values"]}
            self._versions.send(VERSION, message["version"])
            return {}
        return self._newest


def main() -> None:
    with (
        ZmqServer(service="parameters", serializer="json") as server,
        ZmqPub(service="versions", serializer="json") as versions,
    ):
        server.start_loop(Store(versions).answer)  # from here on the publisher belongs to that thread
        with Member("server") as member:
            member.wait_closing()


if __name__ == "__main__":
    main()
