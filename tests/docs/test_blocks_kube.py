"""The pages that have commands for a Kubernetes: these and all files, each page in a namespace of its own.

Their other commands are left to test_blocks: these here run beside other tests, with which they would share ports.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.docs.runner_blocks import BadPage
from tests.docs.runner_pages import check_page, page_named, page_names
from tests.docs.runner_place import programs_here

if TYPE_CHECKING:
    from pathlib import Path

    from kubetest.plugin import Session

ONLY = frozenset({"kube", "docker"})
AT_ONCE = 3  # most of its time a page waits for Pods


def with_cluster() -> Iterator[str]:
    """The pages that have blocks for a cluster, or for what comes with it. A bad page is told by test_blocks."""
    for name in page_names():
        with suppress(BadPage):
            if page_named(name).needs & ONLY:
                yield name


@pytest.fixture(scope="module")
def checks(
    request: pytest.FixtureRequest, kube_session: Session, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    """The checks of the pages whose tests are wanted, by their names; all are under way."""
    functions = (item for item in request.session.items if isinstance(item, pytest.Function))
    tests = [function for function in functions if function.module is request.module]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        names = [str(test.callspec.params["name"]) for test in tests]
        yield {
            name: pool.submit(check, name, kube_session, tmp_path_factory.mktemp("page"))
            for name in names
        }
        pool.shutdown(cancel_futures=True)


def check(name: str, session: Session, folder: Path) -> None:
    """Run a page with a cluster. Fails as a test does."""
    from kubetest.plugin import a_namespace

    with a_namespace(session, folder) as kube_cluster:
        configured = folder / "configured.yml"
        configured.write_text(
            json.dumps({"namespace": kube_cluster.namespace, "image": kube_cluster.image})
        )
        env = {"KUBECONFIG": str(kube_cluster.kubeconfig), "SYMPHONY_CONFIG": str(configured)}
        have = programs_here() | {"kube"}
        if engine := session.cluster.engine:
            have |= {"docker"}
            env["DOCKER_HOST"] = engine.host
        check_page(name, folder, have, only=ONLY, **env)


@pytest.mark.parametrize("name", list(with_cluster()))
def test_what_the_page_shows_is_so(name: str, checks: dict[str, Future[None]]) -> None:
    checks[name].result()
