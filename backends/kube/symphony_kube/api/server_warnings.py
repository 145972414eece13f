"""The warnings in the responses of the API server, for example about deprecated fields."""

from __future__ import annotations

import re
import threading

# RFC 7234, section 5.5. Kubernetes sends the code 299.
_WARNING = re.compile(r'\b299 \S+ "(?P<text>(?:[^"\\]|\\.)*)"')
# A server can send a different text for each object.
MAX_WARNINGS = 20


class ServerWarnings:
    """The warnings of all responses. Several threads can share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: dict[str, None] = {}

    def note(self, header: str | None) -> None:
        """Add the warnings in the header of a response. A missing header is ignored."""
        if not header:
            return
        texts = [re.sub(r"\\(.)", r"\1", match["text"]) for match in _WARNING.finditer(header)]
        with self._lock:
            for text in texts:
                if len(self._texts) < MAX_WARNINGS:
                    self._texts[" ".join(text.split())] = None

    def take(self) -> tuple[str, ...]:
        """Return the warnings since the last call, each of them once."""
        with self._lock:
            texts = tuple(self._texts)
            self._texts.clear()
        return texts
