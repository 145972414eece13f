"""The requests of the page, apart from its stream: details, output, runs, controls and ports."""

from __future__ import annotations

import contextlib
import json
import platform
import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from symphony.archive.archive import Run, find_run
from symphony.archive.differences import find_differences, without_secrets
from symphony.cluster import Cluster, Tunnel
from symphony.cluster.hidden_output import details_without_secrets
from symphony.cluster.run_results import (
    comparable_values,
    displayed_result,
    displayed_results,
    find_run_status,
    hidden_values,
    open_run,
)
from symphony.errors import NotFound, SpecError, SymphonyError, Unreachable, Unsupported
from symphony.views.controls import Controls, UserAction
from symphony.views.visible_environment import shown_environment
from symphony.views.web import messages
from symphony.views.web.security import Access, BodyTooLarge
from symphony.views.web.stream import Stream, Viewing

# The number of runs that the page lists, the newest first.
MAX_RUNS = 200
STATIC_DIRECTORY = Path(__file__).parent / "static"
_DOWNLOAD = "download"
_MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_STATUS_CODES: tuple[tuple[type[SymphonyError], int], ...] = (
    (NotFound, 404),
    (SpecError, 400),
    (Unsupported, 400),
    (Unreachable, 503),
)

Handle = Callable[[Request], Awaitable[Any]]


def application(viewing: Viewing, access: Access, controls: Controls) -> Starlette:
    """Return the application that answers the permitted requests."""
    requests = Requests(viewing, access, controls)
    calls: dict[str, Handle] = {
        "session": requests.session,
        "process": requests.process,
        "services": requests.services,
        "usage": requests.usage,
        "runs": requests.runs,
        "run": requests.run,
        "compare": requests.compare,
        "log": requests.log,
    }
    routes = [Route(f"/api/{name}", _call(handle)) for name, handle in calls.items()]
    changes: dict[str, Handle] = {"control": requests.control, "visit": requests.visit}
    for name, handle in changes.items():
        routes.append(Route(f"/api/{name}", _call(handle), methods=["POST"]))
    routes.append(Route("/api/stream", Stream(viewing)))
    for path, content, media_type in _static_files():
        routes.append(Route(path, _static(content, media_type)))
    return Starlette(routes=routes)


class Requests:
    """The functions that answer requests. Each returns what is sent as JSON, or a response."""

    def __init__(self, viewing: Viewing, access: Access, controls: Controls) -> None:
        self._viewing = viewing
        self._access = access
        self._controls = controls

    async def session(self, _: Request) -> dict[str, Any]:
        """Return what the page must know about the server."""
        controls = [messages.control(name, offered) for name, offered in self._controls.items()]
        return {
            "read_only": self._access.read_only,
            "host": platform.node(),
            "controls": controls,
        }

    async def process(self, request: Request) -> dict[str, Any]:
        """Return the settings of a process."""
        query = request.query_params
        backend, experiment, process = query["backend"], query["experiment"], query["process"]

        def read() -> dict[str, Any]:
            cluster = self._viewing.find_cluster(backend)
            found = cluster.explain_process(experiment, process)
            details = details_without_secrets(found, cluster.hidden_values(experiment))
            return messages.process_details(
                details, shown_environment(cluster, experiment, process)
            )

        return await self._viewing.threads.call(read)

    async def services(self, request: Request) -> dict[str, Any]:
        """Return the addresses of the services: inside the experiment, and outside of it."""
        query = request.query_params
        backend, experiment = query["backend"], query["experiment"]

        def read() -> dict[str, Any]:
            cluster = self._viewing.find_cluster(backend)
            status = cluster.describe_experiment(experiment)
            addresses: Mapping[str, str] = {}
            exposed: Mapping[str, str | None] = {}
            # The addresses are additional information.
            with contextlib.suppress(SymphonyError):
                if status.processes:
                    first = status.processes[0]
                    addresses = cluster.explain_process(experiment, first.name).addresses
            with contextlib.suppress(SymphonyError):
                exposed = cluster.exposed_services(experiment)
            return {"addresses": dict(addresses), "exposed": dict(exposed)}

        return await self._viewing.threads.call(read)

    async def usage(self, request: Request) -> dict[str, Any]:
        """Return the resource use of a process that a viewer observes, over time."""
        query = request.query_params
        channel = self._viewing.experiment_channel(query["backend"], query["experiment"])
        if channel is None:
            return {"samples": []}
        with channel.lock:
            history = channel.model.usage.get(query["process"])
            return {"samples": messages.usage_curve(history)}

    async def log(self, request: Request) -> Response:
        """Return the log of a process as text, of an experiment or of a run."""
        query = request.query_params
        process = query["process"]
        tail = int(query["tail"]) if query.get("tail", "").isdigit() else None

        def begin() -> tuple[str, Iterator[str]]:
            cluster, experiment = self._find_log(query)
            text = cluster.iter_log_text(experiment, process, tail=tail)
            pieces = cluster.hidden_values(experiment).in_pieces(text)
            # Errors are reported before the response begins.
            first = next(pieces, "")
            return first, pieces

        first, pieces = await self._viewing.threads.call(begin)

        async def body() -> Any:
            yield _encode(first)
            async for piece in self._viewing.threads.iterate(pieces):
                yield _encode(piece)

        headers = {}
        if _DOWNLOAD in query:
            # Names of processes contain only letters, digits and "-".
            safe = "".join(char for char in process if char.isalnum() or char in "-_")
            headers["Content-Disposition"] = f'attachment; filename="{safe}.log"'
        return StreamingResponse(body(), media_type="text/plain", headers=headers)

    def _find_log(self, query: Mapping[str, str]) -> tuple[Cluster, str]:
        """Return the cluster and the experiment whose log is wanted."""
        if "run" not in query:
            return self._viewing.find_cluster(query["backend"]), query["experiment"]
        cluster = self._viewing.find_cluster("")
        run = find_run(cluster.list_runs(), query["run"])
        return open_run(cluster, run), run.experiment

    # --- runs ---

    async def runs(self, _: Request) -> dict[str, Any]:
        """Return the newest runs."""

        def read() -> dict[str, Any]:
            cluster = self._viewing.find_cluster("")
            found = cluster.list_runs()
            problems: list[str] = []
            rows = displayed_results(
                cluster,
                found[:MAX_RUNS],
                on_unreachable=lambda backend, exc: problems.append(f"{backend}: {exc}"),
            )
            return {"runs": rows, "total": len(found), "problems": problems}

        return await self._viewing.threads.call(read)

    async def run(self, request: Request) -> dict[str, Any]:
        """Return the record of a run: its result, the statuses of its processes and its facts."""
        given = request.query_params["run"]

        def read() -> dict[str, Any]:
            cluster = self._viewing.find_cluster("")
            return _run_details(cluster, find_run(cluster.list_runs(), given))

        return await self._viewing.threads.call(read)

    async def compare(self, request: Request) -> dict[str, Any]:
        """Return the differences between two runs."""
        query = request.query_params
        names = query["first"], query["second"]

        def read() -> dict[str, Any]:
            cluster = self._viewing.find_cluster("")
            runs = [find_run(cluster.list_runs(), name) for name in names]
            first, second = (comparable_values(cluster, run) for run in runs)
            found = find_differences(first, second)
            found = without_secrets(found, hidden_values(runs))
            differences = []
            for path, values in found.items():
                differences.append([path, *map(messages.compared_value, values)])
            return {"runs": [run.name for run in runs], "differences": differences}

        return await self._viewing.threads.call(read)

    # --- controls ---

    async def control(self, request: Request) -> dict[str, Any]:
        """Carry out a control, or return the question that the page must ask first."""
        body = _read_object(await request.body())
        backend = body.get("backend")
        action = _parse_action(body)
        control = self._controls.get(action.action)
        if control is None:
            raise SpecError(f"there is no control {action.action!r}")
        question = control.question(action)
        if question is not None and body.get("confirmed") is not True:
            return {"question": question.text, "confirm": question.confirm}

        def perform() -> str:
            return control.perform(self._viewing.find_cluster(str(backend)), action)

        text = await self._viewing.threads.call(perform)
        channel = self._viewing.experiment_channel(str(backend), action.experiment)
        if channel is not None:
            channel.refresh()
        return {"text": text}

    async def visit(self, request: Request) -> dict[str, Any]:
        """Return the address of an exposed service, perhaps a forwarded port of this machine."""
        body = _read_object(await request.body())
        backend, experiment, service = (
            _read_text(body, name) for name in ("backend", "experiment", "service")
        )

        def visit() -> Tunnel:
            cluster = self._viewing.find_cluster(backend)
            return self._viewing.tunnels.visit(cluster, experiment, service)

        tunnel = await self._viewing.threads.call(visit)
        return {"address": tunnel.address, "forwarded": tunnel.forwarded}


def _run_details(cluster: Cluster, run: Run) -> dict[str, Any]:
    """Return the record of a run. The processes are missing if their statuses are not known."""
    record = run.load_record()
    status = find_run_status(cluster, run)
    facts = {
        "command": shlex.join(record.get("command") or []),
        "directory": record.get("working_directory"),
        "host": record.get("host"),
        "user": record.get("user"),
        "symphony": record.get("symphony"),
        "python": record.get("python"),
        "record": str(run.path),
    }
    return {
        "result": displayed_result(run, status),
        "facts": {name: str(value) for name, value in facts.items() if value},
        "processes": [messages.process_row(process) for process in status or ()],
    }


def _read_object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise SpecError("the body of the request must be a JSON object")
    return value


def _read_text(body: Mapping[str, Any], name: str) -> str:
    value = body[name]
    if not isinstance(value, str):
        raise SpecError(f"{name} must be text")
    return value


def _parse_action(body: Mapping[str, Any]) -> UserAction:
    """Return the action that the page has sent. Raises SpecError if it is damaged."""
    processes = body.get("processes")
    is_selection = isinstance(processes, list) and all(isinstance(name, str) for name in processes)
    if processes is not None and not is_selection:
        raise SpecError("processes must be a list of names")
    return UserAction(
        action=_read_text(body, "action"),
        experiment=_read_text(body, "experiment"),
        processes=None if processes is None else tuple(processes),
        value=_read_text({"value": "", **body}, "value"),
    )


# --- responses ---


def _call(handle: Handle) -> Callable[[Request], Awaitable[Response]]:
    """Return a function that answers a request with JSON. Errors become ``{"error": text}``."""

    async def answer(request: Request) -> Response:
        try:
            result = await handle(request)
        except SymphonyError as exc:
            codes = [code for kind, code in _STATUS_CODES if isinstance(exc, kind)]
            return _json({"error": str(exc)}, codes[0] if codes else 500)
        except TimeoutError as exc:
            return _json({"error": str(exc)}, 504)
        except KeyError as exc:
            return _json({"error": f"the request has no value {exc}"}, 400)
        except BodyTooLarge:
            return _json({"error": "the request is too large"}, 413)
        return result if isinstance(result, Response) else _json(result)

    return answer


def _json(value: object, status_code: int = 200) -> Response:
    # Texts of processes can contain halves of surrogate pairs, which only ASCII can express.
    return Response(json.dumps(value), status_code=status_code, media_type="application/json")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _static(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response(content, media_type=media_type)

    return answer


def _static_files() -> Iterator[tuple[str, bytes, str]]:
    """Yield the path, the content and the type of each file of the page."""
    for file in sorted(STATIC_DIRECTORY.iterdir()):
        path = "/" if file.name == "index.html" else f"/{file.name}"
        yield path, file.read_bytes(), _MEDIA_TYPES[file.suffix]
