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
from playwright.sync_api import expect, sync_playwright

from tests.cli.conftest import FOREVER, Program, cleaned_up
from tests.web.browser import LOW_CONTRASTS, Viewer, chromium
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
        "cmd": f'trap "echo reloaded" HUP; {PROGRESS}',
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
    path = chromium()
    directory: Path = tmp_path_factory.mktemp("ui")
    with cleaned_up(Program(directory)) as program, serving(program) as server:
        # The reason of the failure contains the name of this program.
        broken = directory / HOSTILE_NAME
        broken.write_text("#!/missing\n")
        broken.chmod(0o700)
        later = {"command": [str(broken)], "starts_after": {"setup": "succeeded"}}
        program.launch("rl", {**PROCESSES, "setup": "true", "broken": later})
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
            yield World(program, server, browser)
            browser.close()


@pytest.fixture
def viewer(world: World) -> Iterator[Viewer]:
    opened = Viewer(world.browser, world.server, viewport={"width": 1400, "height": 900})
    yield opened
    opened.close()
    assert opened.problems == []
    assert all(url.startswith(opened.base.split("/", 3)[0]) for url in opened.requests)


def _box(page: Any, key: str) -> Any:
    return page.locator(f'.box[data-key="{key}"]')


def _confirm(page: Any, button: str, question: str, answer: str) -> None:
    """Use a control, and confirm its question."""
    page.get_by_role("group", name="Controls of the selection").get_by_role(
        "button", name=button
    ).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(question)
    dialog.get_by_role("button", name=answer).click()


def test_the_topology_shows_states_and_a_click_opens_everything_about_a_process(
    viewer: Viewer,
) -> None:
    page = viewer.open("/")
    page.get_by_role("link", name="rl").click()
    expect(_box(page, "replicas agent-0")).to_have_attribute(
        "aria-label", "process agent-0 … agent-2 (3): 3 running"
    )
    expect(_box(page, "service replay")).to_have_attribute(
        "aria-label", re.compile(r"^service replay:\d+, at 127\.0\.0\.1:\d+$")
    )
    expect(_box(page, "process broken")).to_have_class(re.compile("state-failed"))
    _box(page, "process learner").click()
    panel = page.get_by_role("complementary")
    expect(panel).to_contain_text("127.0.0.1:")
    expect(panel).to_contain_text("API_TOKEN")
    expect(panel).not_to_contain_text("hunter2")
    expect(panel).to_contain_text(HOSTILE)
    panel.get_by_role("tab", name="Logs").click()
    expect(panel.locator(".line-text")).to_have_text(["first line", re.compile(r"^step \d+$")])
    panel.get_by_role("tab", name="Events").click()
    expect(panel).to_contain_text("started")
    _box(page, "service board").click()
    expect(panel.get_by_role("link", name=re.compile(r"127\.0\.0\.1:\d+"))).to_be_visible()
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


def test_controls_ask_and_then_change_processes(viewer: Viewer, world: World) -> None:
    page = viewer.open(f"{RL}?select=process%20learner&panel=output")
    panel = page.get_by_role("complementary")
    expect(panel).to_contain_text("first line")
    panel.get_by_role("button", name="Signal…").click()
    page.get_by_role("dialog").get_by_role("button", name="Continue").click()
    page.get_by_role("dialog").get_by_role("button", name="Send HUP").click()
    expect(panel).to_contain_text("reloaded")
    _confirm(page, "Restart", "Restart learner of rl?", "Restart")
    expect(page.locator(".toast")).to_contain_text(["restarted learner"])
    _confirm(page, "Stop", "Stop learner of rl?", "Cancel")
    _confirm(page, "Stop", "Stop learner of rl?", "Stop")
    expect(_box(page, "process learner")).to_have_class(re.compile("state-stopped"))
    page.get_by_role("group", name="Controls of the selection").get_by_role(
        "button", name="Start", exact=True
    ).click()
    expect(_box(page, "process learner")).to_have_class(re.compile("state-running"))
    viewer.open(f"{RL}?select=process%20agent-1")
    expect(_box(page, "replicas agent-0")).to_have_class(re.compile("selected"))
    panel.get_by_role("button", name="Scale…").click()
    expect(page.get_by_label("Replicas of agent")).to_have_value("3")
    page.get_by_label("Replicas of agent").fill("4")
    page.get_by_role("dialog").get_by_role("button", name="Continue").click()
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(_box(page, "replicas agent-0")).to_contain_text("4 running")
    names = [process.name for process in world.program.cluster.describe_experiment("rl")]
    assert "agent-3" in names


def test_the_page_can_be_used_with_the_keyboard_alone(viewer: Viewer) -> None:
    page = viewer.open(RL)
    box = _box(page, "process replay")
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
    assert viewer.problems == []


def test_viewers_see_the_supervisor_die_a_deletion_and_a_new_launch(
    viewer: Viewer, world: World
) -> None:
    program = world.program
    other = Viewer(world.browser, world.server)
    program.launch("short", {"worker": FOREVER})
    pages = [each.open("/experiment/local/short") for each in (viewer, other)]
    for page in pages:
        expect(_box(page, "process worker")).to_have_class(re.compile("state-running"))
    record = program.state / "local" / "short" / "supervisor.json"
    killed = json.loads(record.read_text())["pid"]
    os.kill(killed, signal.SIGKILL)
    # The server notices it, and starts another supervisor, which continues its work.
    while json.loads(record.read_text())["pid"] == killed:
        viewer.page.wait_for_timeout(50)
    viewer.open("/experiment/local/short?select=process%20worker")
    _confirm(viewer.page, "Restart", "Restart worker of short?", "Restart")
    expect(viewer.page.locator(".toast")).to_contain_text("restarted worker")
    program.ok("delete", "-f", "short")
    for page in pages:
        expect(page.locator(".heading-facts")).to_contain_text("deleted")
        expect(page.locator(".banner")).to_contain_text("no experiment 'short'")
    program.launch("short", {"worker": "exit 4", "second": FOREVER})
    for page in pages:
        expect(_box(page, "process worker")).to_have_class(re.compile("state-failed"))
        expect(_box(page, "process second")).to_be_visible()
    other.close()
    assert other.problems == []


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
