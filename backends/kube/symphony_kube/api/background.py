"""Call a function in another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Background(Generic[Result]):
    """A call of a function in another thread, which does not prevent the exit of the program."""

    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        self._results: list[Result] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="background")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._function())
        except Exception as exc:
            self._error = exc

    def result(self) -> Result:
        """Wait until the function has returned, and return its result or raise its error."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results[0]
