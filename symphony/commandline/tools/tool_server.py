"""The server of ``symphony mcp``: the Model Context Protocol on standard input and output."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from symphony.cluster.backend.scope import Scope
from symphony.commandline.exit_codes import OK, TIMED_OUT, UsageError
from symphony.commandline.parsing.arguments import parse_seconds
from symphony.commandline.parsing.command import Table
from symphony.commandline.tools import answers, calls
from symphony.commandline.tools.descriptions import DEFAULT_TAIL, Tool, refusal
from symphony.errors import SymphonyError
from symphony.support.data_classes import dataclass
from symphony.support.install_hints import DISTRIBUTION

# How much earlier than the limit of a call a command with a timeout ends by itself.
_MARGIN_SECONDS = 5.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LONGEST_MESSAGE = 16 * 1024 * 1024  # bytes
# How many lines of each failed process `ps` shows.
_FAILED_TAIL = 10

_INSTRUCTIONS = """\
symphony launches experiments of several processes and watches them. Check a file with check, start
it with launch and wait=ready, which reports processes that fail, and read ps, logs and events.
Launched experiments go on when this server ends. An option in a message, such as --force, is the
argument force. A call that needs more time says so; call it again. {scope}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a call: its time in seconds, and the bytes of its answer."""

    seconds: float
    size: int


class ToolServer:
    """Offers tools to one client.

    ``options`` are the words that each command line needs to find the experiments of the backend
    that the user has selected.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        table: Table,
        scope: Scope,
        limits: Limits,
        options: Sequence[str],
    ) -> None:
        self._tools = {
            name: tool for name, tool in tools.items() if not (scope.read_only and tool.changes)
        }
        self._all = tools
        self._table = table
        self._limits = limits
        self._program = [*calls.scoped_program(scope), *options]
        self._server = Server(
            "symphony",
            version=importlib.metadata.version(DISTRIBUTION),
            instructions=_INSTRUCTIONS.format(scope=describe_scope(scope)).replace("\n", " "),
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    def run(self) -> bool:
        """Serve until standard input ends or a signal arrives. Return whether it was a signal.

        Commands that are running are interrupted.
        """
        return anyio.run(self._serve)

    async def _serve(self) -> bool:
        numbers = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        options = self._server.create_initialization_options()
        with anyio.open_signal_receiver(*numbers) as signals:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_at_signal, signals, tasks.cancel_scope)
                async with _messages() as stdin, stdio_server(stdin=stdin) as (reader, writer):
                    await self._server.run(reader, writer, options)
                tasks.cancel_scope.cancel()
                return False
        return True

    async def _list(self, _context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=tool.schema,
                    annotations=types.ToolAnnotations(
                        read_only_hint=not tool.changes,
                        destructive_hint=tool.changes,
                        open_world_hint=False,
                    ),
                )
                for tool in self._tools.values()
            ]
        )

    async def _call(
        self, context: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            text, is_error = await self._answer(context, params.name, params.arguments or {})
        except SymphonyError as exc:
            text, is_error = str(exc), True
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], is_error=is_error
        )

    async def _answer(
        self, context: Any, name: str, arguments: Mapping[str, Any]
    ) -> tuple[str, bool]:
        tool = self._tools.get(name)
        if tool is None and name in self._all:
            return f"this server is read-only (--read-only), and {name} can change something", True
        if tool is None:
            return refusal(name, self._table, self._tools), True
        tool.check(arguments)
        limited = self._limited(tool, arguments)
        words = tool.words(limited)
        started = time.time()
        finished = await self._run(context, tool, words)
        is_unfinished = _is_unfinished(finished, limited.get("timeout"))
        text = answers.answer(tool, words, finished, started, is_unfinished=is_unfinished)
        if name == "ps" and finished.exit_code == OK:
            text = await self._with_failures(context, arguments, text)
        is_error = finished.was_stopped or finished.exit_code != OK
        return text, is_error and not is_unfinished

    def _limited(self, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call with the limits of the server."""
        limited = {name: value for name, value in arguments.items() if value is not None}
        if "tail" in tool.actions and limited.keys().isdisjoint(("tail", "since")):
            limited["tail"] = DEFAULT_TAIL
        # A timeout of launch limits its wait, and is refused without one.
        waits = "timeout" in tool.actions and ("wait" not in tool.actions or limited.get("wait"))
        if waits:
            longest = max(1.0, self._limits.seconds - _MARGIN_SECONDS)
            limited["timeout"] = min(longest, _seconds(limited.get("timeout"), longest))
        return limited

    async def _run(self, context: Any, tool: Tool, words: Sequence[str]) -> calls.Finished:
        async def report(seconds: float, line: str) -> None:
            await context.session.report_progress(
                seconds, message=line or f"{tool.name} is running"
            )

        return await calls.run(
            [*self._program, *words],
            limit=self._limits.size,
            keeps_end="tail" in tool.actions,
            seconds=self._limits.seconds,
            report=report,
        )

    async def _with_failures(self, context: Any, arguments: Mapping[str, Any], text: str) -> str:
        """Return the answer of ``ps`` with the last lines of the processes that have failed."""
        ordered = answers.failed_first(text)
        first_rows = ordered.splitlines()[1:2]
        if not any(map(answers.is_failed, first_rows)):
            return text
        shared = {"experiment", "processes", "run", "backend"}
        wanted = {name: value for name, value in arguments.items() if name in shared}
        logs = self._all["logs"]
        words = logs.words({**wanted, "failed": True, "tail": _FAILED_TAIL})
        finished = await self._run(context, logs, words)
        last = finished.output.text.strip("\n")
        if not last:
            return ordered
        return f"{ordered}\nthe last lines of the processes that have failed:\n{last}"


async def _cancel_at_signal(signals: AsyncIterator[int], scope: anyio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


@contextlib.asynccontextmanager
async def _messages() -> AsyncIterator[Any]:
    """Return a context with the lines of standard input, or None if it is a regular file.

    The library reads them in a thread, which cannot be interrupted, so that the server would not
    react to signals.
    """
    lines = asyncio.StreamReader(limit=_LONGEST_MESSAGE)
    loop = asyncio.get_running_loop()
    with os.fdopen(os.dup(0), "rb", buffering=0) as stdin:
        try:
            transport, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(lines), stdin
            )
        except ValueError:
            yield None
            return
        try:
            yield _decoded(lines)
        finally:
            # A terminal is shared with the shell.
            os.set_blocking(0, True)
            transport.close()


async def _decoded(lines: asyncio.StreamReader) -> AsyncIterator[str]:
    while line := await lines.readline():
        yield line.decode(errors="replace")


def _seconds(timeout: object, default: float) -> float:
    """Return a timeout in seconds. Raises `UsageError` if it is invalid."""
    try:
        return default if timeout is None else parse_seconds(str(timeout))
    except argparse.ArgumentTypeError as exc:
        raise UsageError(f"timeout: {exc}") from None


def _is_unfinished(finished: calls.Finished, timeout: float | None) -> bool:
    """Return whether a command only needs more time.

    An experiment that has exceeded its deadline has the exit code of a timeout too.
    """
    is_timeout = finished.exit_code == TIMED_OUT and not finished.was_stopped
    return is_timeout and timeout is not None and finished.seconds >= timeout


def describe_scope(scope: Scope) -> str:
    """Return the limits of a scope as a sentence, or ``""`` if there are none."""
    limits = []
    if scope.patterns:
        limits.append(f"whose names match {' or '.join(scope.patterns)}")
    if scope.origin is not None:
        limits.append(f"that were launched from {scope.origin}")
    text = f"Only experiments {' and '.join(limits)} are in scope. " if limits else ""
    return text + ("Nothing can be changed." if scope.read_only else "")
