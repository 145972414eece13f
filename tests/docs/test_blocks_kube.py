"""Run the blocks of pages that require a Kubernetes cluster, each page in its own namespace.

The other commands of these pages are run by test_blocks. Here they would compete for ports with
other tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.docs.page import PageError
from tests.docs.runner import ROOT, check_page, installed_programs, page_names, read_page

if TYPE_CHECKING:
    from pathlib import Path

    from kubetest.plugin import Session

ONLY = frozenset({"kube", "docker"})
NEEDS_COMMENT = r"<!--\s*needs\s*:"
PARALLEL_PAGES = 3  # a page spends most of its time waiting for Pods


def pages_with_cluster() -> Iterator[str]:
    """Yield the pages with blocks for a cluster. test_blocks reports invalid pages.

    Each process of the tests calls this, so a page without a comment about its needs is not parsed.
    """
    for name in page_names():
        if not re.search(NEEDS_COMMENT, (ROOT / name).read_text(encoding="utf-8")):
            continue
        with suppress(PageError):
            if read_page(name).needs & ONLY:
                yield name


@pytest.fixture(scope="module")
def checks(
    request: pytest.FixtureRequest, kube_session: Session, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    """Start the checks of all selected pages, and return them by the name of the page."""
    functions = (item for item in request.session.items if isinstance(item, pytest.Function))
    tests = [function for function in functions if function.module is request.module]
    with ThreadPoolExecutor(PARALLEL_PAGES) as pool:
        names = [str(test.callspec.params["name"]) for test in tests]
        yield {
            name: pool.submit(check, name, kube_session, tmp_path_factory.mktemp("page"))
            for name in names
        }
        pool.shutdown(cancel_futures=True)


def check(name: str, session: Session, directory: Path) -> None:
    """Run a page on a cluster."""
    from kubetest.plugin import temporary_namespace

    with temporary_namespace(session, directory) as kube_cluster:
        # The programs of a page can still be running at its end.
        kube_cluster.is_discarded.set()
        configured = directory / "configured.yml"
        configured.write_text(
            json.dumps({"namespace": kube_cluster.namespace, "image": kube_cluster.image})
        )
        env = {"KUBECONFIG": str(kube_cluster.kubeconfig), "SYMPHONY_CONFIG": str(configured)}
        available = installed_programs() | {"kube"}
        if engine := session.cluster.engine:
            available |= {"docker"}
            env["DOCKER_HOST"] = engine.host
        check_page(name, directory, available, only=ONLY, **env)


@pytest.mark.parametrize("name", list(pages_with_cluster()))
def test_blocks_of_page(name: str, checks: dict[str, Future[None]]) -> None:
    checks[name].result()
