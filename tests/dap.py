"""A client of the Debug Adapter Protocol, as VS Code is one."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

TIMEOUT_SECONDS = 30


class DebugClient:
    """A connection to debugpy. ``mappings`` are the pathMappings of a configuration."""

    def __init__(self, connect: dict[str, Any], mappings: list[dict[str, str]]) -> None:
        address = (connect["host"], connect["port"])
        self._socket = socket.create_connection(address, timeout=TIMEOUT_SECONDS)
        self._file = self._socket.makefile("rb")
        self._sequence = 0
        self._mappings = mappings

    def stop_at(self, path: str, line: int) -> int:
        """Start the program, wait until it stops at a line, and return the frame."""
        self.request("initialize", adapterID="debugpy", pathFormat="path")
        self._send("attach", pathMappings=self._mappings)
        self._receive(lambda message: message.get("event") == "initialized")
        lines = [{"line": line}]
        self.request("setBreakpoints", source={"path": path}, breakpoints=lines)
        self._send("configurationDone")
        stopped = self._receive(lambda message: message.get("event") == "stopped")["body"]
        frames = self.request("stackTrace", threadId=stopped["threadId"])["stackFrames"]
        assert (frames[0]["source"]["path"], frames[0]["line"]) == (path, line)
        frame: int = frames[0]["id"]
        return frame

    def evaluate(self, expression: str, frame: int) -> str:
        result: str = self.request("evaluate", expression=expression, frameId=frame)["result"]
        return result

    def disconnect(self) -> None:
        self.request("disconnect", terminateDebuggee=False)
        self._file.close()
        self._socket.close()

    def request(self, command: str, **arguments: Any) -> Any:
        """Send a request, and return the body of the response."""
        number = self._send(command, **arguments)
        response = self._receive(lambda message: message.get("request_seq") == number)
        assert response["success"], response
        return response.get("body")

    def _send(self, command: str, **arguments: Any) -> int:
        self._sequence += 1
        message = {"seq": self._sequence, "type": "request", "command": command}
        data = json.dumps({**message, "arguments": arguments}).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        return self._sequence

    def _receive(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            length = 0
            while (line := self._file.readline()) != b"\r\n":
                assert line, "debugpy has closed the connection"
                length = int(line.partition(b":")[2])
            message: dict[str, Any] = json.loads(self._file.read(length))
            if is_wanted(message):
                return message
