"""The check of the objects of an experiment that replaces a running one."""

from __future__ import annotations

from typing import Any

import pytest

from symphony.errors import AlreadyExists, LaunchFailed
from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.lifecycle import launch
from symphony_kube.lifecycle.server_check import check_replacement, check_with_server
from tests.backends.kube.specimens import SPECIMENS

QUOTA = 'pods "p" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1'
FORBIDDEN = 'pods is forbidden: User "u" cannot create resource "pods" in API group ""'


class Server:
    """An API server that refuses Pods with ``status`` and ``detail``, and records all calls."""

    connections = 2

    def __init__(self, status: int, detail: str) -> None:
        self.error = ApiError(detail, status=status, detail=detail)
        self.calls: list[tuple[str, str, Any]] = []

    def call(self, method: str, path: str, *, query: Any, body: Any) -> Any:
        self.calls.append((method, path, query))
        if path.endswith("/pods"):
            raise self.error
        return body


@pytest.mark.parametrize(
    ("status", "detail", "is_refused"),
    [
        (403, QUOTA, False),
        (422, 'Service "s" is invalid: spec.ports[0].nodePort: provided port is already', False),
        (400, 'admission webhook "w" does not support dry run', False),
        (422, 'Pod "p" is invalid: spec.dnsPolicy: Unsupported value: "x"', True),
        (403, FORBIDDEN, True),
        (400, 'admission webhook "w" denied the request: no label "team"', True),
        (500, "internal error", True),
    ],
    ids=["quota", "port", "no dry run", "invalid", "forbidden", "webhook", "trouble"],
)
def test_refusals_that_the_running_experiment_can_cause_are_ignored(
    status: int, detail: str, is_refused: bool
) -> None:
    server = Server(status, detail)
    manifest = SPECIMENS["group"].manifest()
    if is_refused:
        with pytest.raises(LaunchFailed):
            check_replacement(server, manifest)  # type: ignore[arg-type]
    else:
        check_replacement(server, manifest)  # type: ignore[arg-type]
        with pytest.raises(LaunchFailed):
            check_with_server(server, manifest)  # type: ignore[arg-type]
    assert all(method == "POST" and query["dryRun"] == "All" for method, _, query in server.calls)
    namespaced = [path for _, path, _ in server.calls if "/namespaces/" in path]
    assert any(f"/namespaces/{manifest.scope.namespace}/" in path for path in namespaced)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("running", [None, False, True])
def test_running_experiment_is_deleted_only_after_the_check(
    monkeypatch: pytest.MonkeyPatch, shared: bool, running: bool | None
) -> None:
    place = "shared" if shared else "own"
    previous = None if running is None else launch._Previous(runs=["r"], is_running=running)
    monkeypatch.setattr(launch, f"_find_in_{place}_namespace", lambda *_, **__: previous)
    steps: list[str] = []

    def delete(experiment: KubeExperiment, **options: object) -> None:
        assert experiment.scope.run == "r"
        steps.append("delete")

    monkeypatch.setattr(launch.delete, "delete", delete)
    scope = SPECIMENS["shared" if shared else "group"].manifest().scope
    assert scope.shared is shared

    def check(error: Exception | None = None) -> None:
        steps.append("check")
        if error is not None:
            raise error

    def remove(**options: Any) -> None:
        launch.remove_previous(
            KubeExperiment(
                None,  # type: ignore[arg-type]
                scope,
            ),
            jobs_only=False,
            **options,
        )

    remove(force=True, check=check)
    assert steps == {None: [], False: ["delete"], True: ["check", "delete"]}[running]
    if running:
        steps.clear()
        with pytest.raises(LaunchFailed):
            remove(force=True, check=lambda: check(LaunchFailed("refused")))
        with pytest.raises(AlreadyExists):
            remove(force=False, check=check)
        assert steps == ["check"]
