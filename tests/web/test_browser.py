"""The page in a real browser. All tests of this module share one browser and one server."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import expect

from tests.cli.conftest import FOREVER, Program, cleaned_up
from tests.web.browser import LOW_CONTRASTS, Viewer, confirm, find_box, running_browser
from tests.web.server import Server, serving

HOSTILE = "<img src=x onerror='window.injected=1'></script><script>window.injected=1</script>"
HOSTILE_NAME = "<img src=x onerror='window.injected=1'>"
RL = "/experiment/local/rl"
# A line, and a progress bar.
PROGRESS = (
    'printf "first\\rfirst line\\n"; while :; do n=$((n+1)); printf "\\rstep $n"; sleep 0.2; done'
)
PROCESSES: dict[str, Any] = {
    "replay": {"cmd": FOREVER, "binds": ["replay"]},
    "learner": {
        "cmd": PROGRESS,
        "connects": ["replay"],
        "exposes": {"board": None},
        "env": {"API_TOKEN": "hunter2", "TEXT": HOSTILE},
    },
    "agent": {"replicas": 3, "cmd": FOREVER, "connects": ["replay"]},
    "hostile": {
        "cmd": f'printf "%s" "$TEXT"; printf "\\033[31m\\xff\\0\\n"; {FOREVER}',
        "env": {"TEXT": HOSTILE},
    },
}


class World(NamedTuple):
    program: Program
    server: Server
    browser: Any


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory: Path = tmp_path_factory.mktemp("ui")
    with cleaned_up(Program(directory)) as program, serving(program) as server:
        # The reason of the failure contains the name of this program.
        broken = directory / HOSTILE_NAME
        broken.write_text("#!/missing\n")
        broken.chmod(0o700)
        later = {"command": [str(broken)], "starts_after": {"setup": "succeeded"}}
        program.launch("rl", {**PROCESSES, "setup": "true", "broken": later})
        with running_browser() as browser:
            yield World(program, server, browser)


@pytest.fixture
def viewer(world: World) -> Iterator[Viewer]:
    opened = Viewer(world.browser, world.server, viewport={"width": 1400, "height": 900})
    yield opened
    opened.close()


def test_the_topology_shows_states_and_a_click_opens_everything_about_a_process(
    viewer: Viewer,
) -> None:
    page = viewer.open("/")
    page.get_by_role("link", name="rl").click()
    expect(find_box(page, "replicas agent-0")).to_have_attribute(
        "aria-label", "process agent-0 … agent-2 (3): 3 running"
    )
    expect(find_box(page, "service replay")).to_have_attribute(
        "aria-label", re.compile(r"^service replay:\d+, at 127\.0\.0\.1:\d+$")
    )
    expect(find_box(page, "process broken")).to_have_class(re.compile("state-failed"))
    find_box(page, "process learner").click()
    panel = page.get_by_role("complementary")
    expect(panel).to_contain_text("127.0.0.1:")
    expect(panel).to_contain_text("API_TOKEN")
    expect(panel).not_to_contain_text("hunter2")
    expect(panel).to_contain_text(HOSTILE)
    panel.get_by_role("tab", name="Logs").click()
    expect(panel.locator(".line-text")).to_have_text(["first line", re.compile(r"^step \d+$")])
    panel.get_by_role("tab", name="Events").click()
    expect(panel).to_contain_text("started")
    find_box(page, "service board").click()
    expect(panel.get_by_role("link", name=re.compile(r"127\.0\.0\.1:\d+"))).to_be_visible()
    viewer.open(f"{RL}?select=process%20agent-1")
    expect(find_box(page, "replicas agent-0")).to_have_class(re.compile("selected"))
    # The token is neither in the address bar nor readable by scripts.
    assert "token" not in page.url
    assert page.evaluate("document.cookie") == ""


def test_hostile_texts_stay_texts(viewer: Viewer) -> None:
    page = viewer.open(f"{RL}?tab=output&select=process%20hostile")
    expect(page.locator(".line-text").first).to_have_text(f"{HOSTILE}\\x1b[31m\ufffd\\x00")
    page = viewer.open(f"{RL}?tab=processes")
    expect(page.locator('.row[data-process="broken"]')).to_contain_text(HOSTILE_NAME)
    page = viewer.open(f"{RL}?tab=events")
    expect(page.locator(".events")).to_contain_text(HOSTILE_NAME)
    assert page.evaluate("window.injected") is None
    assert page.locator("main img").count() == 0


def test_the_page_can_be_used_with_the_keyboard_alone(viewer: Viewer) -> None:
    page = viewer.open(RL)
    box = find_box(page, "process replay")
    box.focus()
    page.keyboard.press("Enter")
    panel = page.get_by_role("complementary")
    expect(panel.get_by_role("heading", name="replay")).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(box).to_be_focused()
    page.get_by_role("tab", name="Topology").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Processes")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("learner")
    rows = page.locator(".rows-space .row")
    expect(rows).to_have_count(1)
    page.get_by_role("grid").focus()
    page.keyboard.press("Enter")
    expect(panel.get_by_role("heading", name="learner")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast_and_nothing_is_wider_than_a_small_screen(
    world: World, scheme: str
) -> None:
    viewer = Viewer(
        world.browser,
        world.server,
        viewport={"width": 360, "height": 740},
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    views = {
        "/": ".card",
        RL: ".box",
        f"{RL}?tab=processes": ".rows-space .row",
        f"{RL}?tab=output": ".line-row",
        f"{RL}?tab=events": ".event-row",
        f"{RL}?select=process%20learner": ".settings dl",
        "/runs": ".runs",
    }
    for path, content in views.items():
        page = viewer.open(path)
        page.wait_for_selector(content)
        assert page.evaluate(LOW_CONTRASTS) == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
    viewer.close()


def test_viewers_see_the_supervisor_die_a_deletion_and_a_new_launch(
    viewer: Viewer, world: World
) -> None:
    program = world.program
    other = Viewer(world.browser, world.server)
    program.launch("short", {"worker": FOREVER})
    pages = [each.open("/experiment/local/short") for each in (viewer, other)]
    for page in pages:
        expect(find_box(page, "process worker")).to_have_class(re.compile("state-running"))
    record = program.state / "local" / "short" / "supervisor.json"
    killed = json.loads(record.read_text())["pid"]
    os.kill(killed, signal.SIGKILL)
    # The server notices it, and starts another supervisor, which continues its work.
    while json.loads(record.read_text())["pid"] == killed:
        viewer.page.wait_for_timeout(50)
    viewer.open("/experiment/local/short?select=process%20worker")
    controls = viewer.page.get_by_role("group", name="Controls of the selection")
    controls.get_by_role("button", name="Restart").click()
    confirm(viewer.page, "Restart worker of short?", "Restart")
    expect(viewer.page.locator(".toast")).to_contain_text("restarted worker")
    program.ok("delete", "-f", "short")
    for page in pages:
        expect(page.locator(".heading-facts")).to_contain_text("deleted")
        expect(page.locator(".banner")).to_contain_text("no experiment 'short'")
    program.launch("short", {"worker": "exit 4", "second": FOREVER})
    for page in pages:
        expect(find_box(page, "process worker")).to_have_class(re.compile("state-failed"))
        expect(find_box(page, "process second")).to_be_visible()
    other.close()


def test_runs_can_be_compared_and_their_logs_read(viewer: Viewer, world: World) -> None:
    program = world.program
    for code in (1, 2):
        program.run("job", {"main": {"cmd": f"echo run {code}; exit {code}", "env": {"N": code}}})
        program.ok("delete", "-f", "job")
    page = viewer.open("/runs")
    boxes = page.get_by_role("checkbox", name=re.compile("Compare job-"))
    expect(boxes).to_have_count(2)
    for box in boxes.all():
        box.check()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("table")).to_contain_text("exit_code")
    expect(page.locator("table")).to_contain_text("echo run 2")
    page.get_by_role("link", name=re.compile("job-")).last.click()
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".recorded-log")).to_have_text("run 2\n")
