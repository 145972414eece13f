"""The page of `symphony ui` while its server cannot reach the cluster."""

import re

import pytest
from playwright.sync_api import expect

from tests.cli.scenarios import program_for_backend
from tests.web.browser import Viewer, confirm, find_box, running_browser
from tests.web.server import serving

COUNTER = "while :; do echo line $((i += 1)); sleep 0.2; done"


@pytest.fixture
def cli(kube_cluster, tmp_path):
    """A program that waits only three seconds for a server that does not answer."""
    settings = tmp_path / "config.yml"
    settings.write_text("options: {kube: {patience: 3}}")
    yield from program_for_backend(
        tmp_path,
        SYMPHONY_BACKEND="kube",
        SYMPHONY_CONFIG=str(settings),
        SYMPHONY_KUBECONFIG=str(kube_cluster.kubeconfig),
        SYMPHONY_NAMESPACE=kube_cluster.namespace,
        SYMPHONY_IMAGE=kube_cluster.image,
    )


def test_the_page_explains_an_outage_and_continues_after_it(cli, kube_faults):
    counter = {"cmd": COUNTER, "termination_grace_period": 0}
    cli.launch("cut", {"counter": counter, "other": counter})
    # Only the requests of the page pass through the proxy.
    proxied = ["--kubeconfig", kube_faults.kubeconfig]
    with running_browser() as browser, serving(cli, "cut", *proxied) as server:
        viewer = Viewer(browser, server, viewport={"width": 1400, "height": 900})
        page = viewer.open("/experiment/kube/cut?select=process%20counter&panel=output")
        banner, toast = page.locator(".banner"), page.locator(".toast")
        control = page.get_by_role("group", name="Controls of the selection").get_by_role
        lines = page.locator(".line-row:not(.event) .line-text")
        expect(lines.last).to_have_text(re.compile(r"^line \d"))

        kube_faults.interrupt(silent=False)
        expect(banner).to_contain_text("the API server http")
        control("button", name="Stop").click()
        confirm(page, "Stop counter of cut?", "Stop")
        expect(toast).to_contain_text(": Connection reset by peer")
        expect(find_box(page, "process counter")).to_have_class(re.compile("state-running"))
        assert all("503" in problem for problem in viewer.problems)
        viewer.problems.clear()
        toast.get_by_role("button", name="Close").click()
        last = int(lines.last.text_content().split()[1])
        # On a busy cluster, the command reports what it waits for.
        assert cli("stop", "cut", "other").returncode == 0

        kube_faults.restore()
        expect(banner).to_be_hidden()
        expect(find_box(page, "process other")).to_have_class(re.compile("state-stopped"))
        expect(lines.last).not_to_have_text(f"line {last}")
        numbers = [int(text.split()[1]) for text in lines.all_text_contents()]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        control("button", name="Stop").click()
        confirm(page, "Stop counter of cut?", "Stop")
        expect(find_box(page, "process counter")).to_have_class(re.compile("state-stopped"))
        viewer.close()
