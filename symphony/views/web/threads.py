"""Calling functions that block, such as the methods of clusters, from the event loop.

The threads are daemons, so a call that takes long does not delay the exit of the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

Result = TypeVar("Result")

# A viewer has few calls at a time. Further calls wait.
MAX_THREADS = 32
_END = object()


class Threads:
    """The threads of one event loop. At most `MAX_THREADS` calls run at the same time."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MAX_THREADS)

    async def call(self, function: Callable[[], Result]) -> Result:
        """Return the result of a function that runs in a thread, or raise its error."""
        loop = asyncio.get_running_loop()
        async with self._free:
            future: asyncio.Future[Result] = loop.create_future()

            def finish(result: Result | None, error: Exception | None) -> None:
                # The viewer can be gone.
                if future.done():
                    return
                if error is None:
                    future.set_result(result)  # type: ignore[arg-type]
                else:
                    future.set_exception(error)

            def run() -> None:
                result: Result | None = None
                error: Exception | None = None
                try:
                    result = function()
                except Exception as exc:
                    error = exc
                # The loop is closed if the program exits.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(finish, result, error)

            threading.Thread(target=run, daemon=True, name="call of the page").start()
            return await future

    async def iterate(self, items: Iterator[str]) -> AsyncIterator[str]:
        """Yield the items of an iterator, each of which is computed in a thread."""
        try:
            while (item := await self.call(lambda: next(items, _END))) is not _END:
                yield str(item)
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                # The generator can still be running in a thread.
                with contextlib.suppress(ValueError):
                    close()
