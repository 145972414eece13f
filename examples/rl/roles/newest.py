"""The newest parameters, for agents and evaluators. The parameter server announces each new
version, and agents and evaluators then request the parameters.
"""

from __future__ import annotations

import time

from roles.member import repeated
from roles.policy import Values
from roles.ps import VERSION
from symphony.addons.zmq import ZmqClient, ZmqSub, ZmqTimeoutError

# If the last request is older than this many seconds, the parameters are requested even without an
# announcement, because announcements that were sent before the socket connected are lost.
ASK = 0.05


class Newest:
    """The most recently fetched parameters and their version.

    The constructor waits until parameters are available. This wait has no limit, because the start
    of the other processes can take long on a cluster, and because symphony stops this process if
    the learner exits.
    """

    def __init__(self, patience: float) -> None:
        self.version = -1
        self.values: Values = []
        self._asked = 0.0
        # Subscribe before the first request. Otherwise, a version that is announced after the
        # request and before the subscription would be missed.
        self._versions = ZmqSub(service="versions", topics=VERSION, serializer="json")
        self._server = ZmqClient(service="parameters", serializer="json", **repeated(patience))
        while not self._fetch_first():
            time.sleep(0.05)

    def _fetch_first(self) -> bool:
        try:
            return self.fetch()
        except ZmqTimeoutError:
            return False

    def fetch(self) -> bool:
        """Request the parameters, and return whether they have changed."""
        self._asked = time.monotonic()
        found = self._server.request({"what": "get", "but": self.version})
        if not found:
            return False
        self.version, self.values = found["version"], found["values"]
        return True

    def follow(self, timeout: float = 0.0) -> bool:
        """Fetch the parameters if a new version has been announced or is announced within
        ``timeout`` seconds, or if the last request was more than `ASK` seconds ago. Return whether
        the parameters have changed.
        """
        announced = self.version
        try:
            while True:
                announced = self._versions.recv(timeout=timeout)[1]
                timeout = 0.0
        except ZmqTimeoutError:
            wanted = announced != self.version or time.monotonic() - self._asked > ASK
            return wanted and self.fetch()
