"""The scenario of the page of ``symphony ui`` in a real browser, with each control, on every
backend.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from playwright.sync_api import expect

from tests.cli.conftest import Program
from tests.web.browser import Viewer, confirm, find_box, running_browser
from tests.web.server import serving

NAME = "pressed"
SERVER = 'exec python3 -m http.server --bind "$SYMPH_WEB_BIND_HOST" "$SYMPH_WEB_PORT"'
WORKER = "trap 'echo signaled' USR1; echo here; while :; do sleep 0.2; done"
QUICK = {"termination_grace_period": 1}
PROCESSES: dict[str, Any] = {
    "site": {"cmd": SERVER, "exposes": "web", "ready": {"tcp": "web"}, **QUICK},
    "worker": {"cmd": WORKER, "replicas": 2, **QUICK},
}


class PageScenario:
    """The scenario. A subclass has a class-scoped fixture ``cli`` that selects the backend."""

    backend: ClassVar[str]

    def test_the_page_shows_and_controls_an_experiment(self, cli: Program) -> None:
        cli.launch(NAME, PROCESSES)
        with running_browser() as browser, serving(cli) as server:
            viewer = Viewer(browser, server, viewport={"width": 1400, "height": 900})
            user = _User(cli, viewer.page)
            user.open_the_experiment()
            user.open_the_site()
            user.signal_a_worker()
            user.restart_a_worker()
            user.stop_a_worker_and_start_the_experiment()
            user.scale_the_workers()
            user.stop_the_experiment_and_start_a_worker()
            user.restart_the_experiment()
            user.delete_the_experiment()
            user.read_the_recorded_log()
            viewer.close()


class _User:
    """A user who presses each control, and compares the page with the status of the backend."""

    def __init__(self, cli: Program, page: Any) -> None:
        self.cli = cli
        self.page = page
        self.panel = page.get_by_role("complementary")
        self.facts = page.locator(".facts")
        self.rows = page.locator(".rows-space .row")

    def open_the_experiment(self) -> None:
        self.page.get_by_role("link", name=NAME).click()
        expect(self.facts).to_contain_text("3/3 ready")
        expect(find_box(self.page, "process worker-0")).to_contain_text("running")

    def open_the_site(self) -> None:
        find_box(self.page, "service web").click()
        link = self.panel.get_by_role("link", name=re.compile(r":\d+$"))
        forward = self.panel.get_by_role("button", name="Forward a port")
        expect(link.or_(forward)).to_be_visible()
        # On Kubernetes, only a load balancer has an address that is known.
        if forward.is_visible():
            forward.click()
        with self.page.context.expect_page() as opened:
            link.click()
        expect(opened.value).to_have_title("Directory listing for /")
        opened.value.close()

    def signal_a_worker(self) -> None:
        self.page.get_by_role("tab", name="Processes").click()
        self._row("worker-0").click()
        expect(self.panel.get_by_role("heading", name="Addresses")).to_be_visible()
        self.panel.get_by_role("tab", name="Logs").click()
        self._expect_lines("here")
        self._press_in_panel("Signal…")
        self.page.get_by_label("Signal", exact=True).select_option("USR1")
        confirm(self.page, "Send a signal", "Continue")
        confirm(self.page, "Send USR1 to worker-0 of pressed?", "Send USR1")
        self._expect_lines("here", "signaled")

    def restart_a_worker(self) -> None:
        before = self._started("worker-0")
        self._press_in_panel("Restart")
        confirm(self.page, "Restart worker-0 of pressed?", "Restart")
        self._expect_lines("here", "signaled", "here")
        assert self._started("worker-0") > before

    def stop_a_worker_and_start_the_experiment(self) -> None:
        for answer in ("Cancel", "Stop"):
            self._press_in_panel("Stop")
            confirm(self.page, "Stop worker-0 of pressed?", answer)
        self._expect_states("running", "stopped", "running")
        self._press_in_heading("Start")
        self._expect_states("running", "running", "running")

    def scale_the_workers(self) -> None:
        for count in (1, 2):
            self._press_in_panel("Scale…")
            self.page.get_by_label("Replicas of worker").fill(str(count))
            confirm(self.page, "Change the number of replicas", "Continue")
            confirm(self.page, f"Change worker={count} of pressed?", "Change")
            self._expect_states("running", *["running"] * count)

    def stop_the_experiment_and_start_a_worker(self) -> None:
        self._press_in_heading("Stop")
        confirm(self.page, "Stop all processes of pressed?", "Stop")
        self._expect_states("stopped", "stopped", "stopped")
        self._press_in_panel("Start")
        self._expect_states("stopped", "running", "stopped")

    def restart_the_experiment(self) -> None:
        self._press_in_heading("Restart")
        confirm(self.page, "Restart all processes of pressed?", "Restart")
        restarted = "restarted site, worker-0, worker-1 of pressed"
        expect(self.page.locator(".toast", has_text=restarted)).to_have_count(1)
        self._expect_states("running", "running", "running")

    def delete_the_experiment(self) -> None:
        for answer in ("Cancel", "Delete"):
            self._press_in_heading("Delete")
            confirm(self.page, "Delete pressed?", answer)
        expect(self.page.locator(".banner")).to_contain_text("no experiment 'pressed'")
        assert NAME not in [status["name"] for status in self.cli.json("ls")]

    def read_the_recorded_log(self) -> None:
        self.page.get_by_role("link", name="Runs").click()
        self.page.get_by_role("link", name=re.compile(f"^{NAME}-")).first.click()
        row = self.page.get_by_role("row", name=re.compile("worker-0"))
        row.get_by_role("button", name="Show").click()
        expect(self.page.locator(".recorded-log")).to_contain_text("signaled")

    def _expect_states(self, site: str, *workers: str) -> None:
        """Wait until the page shows these states, and compare them with those of the backend."""
        states = {"site": site}
        states.update((f"worker-{number}", state) for number, state in enumerate(workers))
        expect(self.rows).to_have_count(len(states))
        for process, state in states.items():
            expect(self._row(process)).to_have_class(re.compile(f"state-{state}"))
        found = {process["name"]: process["state"] for process in self._processes()}
        assert found == states

    # --- the page ---

    def _row(self, process: str) -> Any:
        return self.page.locator(f'.row[data-process="{process}"]')

    def _expect_lines(self, *texts: str) -> None:
        expect(self.panel.locator(".line-row:not(.event) .line-text")).to_have_text(texts)

    def _press_in_panel(self, button: str) -> None:
        self._press("Controls of the selection", button)

    def _press_in_heading(self, button: str) -> None:
        self._press("Controls of the experiment", button)

    def _press(self, group: str, button: str) -> None:
        controls = self.page.get_by_role("group", name=group)
        controls.get_by_role("button", name=button, exact=True).click()

    # --- the backend ---

    def _processes(self) -> list[Any]:
        processes: list[Any] = self.cli.json("ps", NAME)["processes"]
        return processes

    def _started(self, name: str) -> float:
        times = {process["name"]: process["started"] for process in self._processes()}
        started: float = times[name]
        return started
