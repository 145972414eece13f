"""Record the pictures of `symphony ui`: a real experiment in Chromium, light and dark.

The program `chromium-headless-shell` or `chromium` must be on the PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "images"
# The curves need some samples before they look like curves.
CURVE_SECONDS = 40
# The settings of the process are below the picture, because they contain paths of this machine.
WIDTH_PIXELS, HEIGHT_PIXELS = 1280, 680
TIMEOUT_SECONDS = 60

# Its load changes, and it prints a line from time to time.
_WORK = """
import math, os, random, sys, time
name, load = sys.argv[1], float(sys.argv[2])
step, memory = 0, []
print(f"{name} has started", flush=True)
while True:
    step += 1
    memory.append(bytearray(random.randrange(400_000)))
    busy = load * (0.55 + 0.45 * math.sin(step / 9))
    end = time.monotonic() + busy / 4
    while time.monotonic() < end:
        pass
    time.sleep(max(0.0, (1 - busy) / 4))
    if step % 4 == 0:
        print(f"step {step:5d}  loss {2.5 / (1 + step / 40):.3f}", flush=True)
"""


def _process(name: str, load: float, **settings: Any) -> dict[str, Any]:
    return {"command": ["python", "work.py", name, str(load)], **settings}


EXPERIMENT: dict[str, Any] = {
    "name": "rl",
    "env": {"SEED": 7, "WANDB_API_KEY": "0123456789"},
    "processes": {
        "replay": _process("replay", 0.1, binds="replay"),
        "learner": _process(
            "learner", 0.3, binds="weights", connects="replay", exposes={"tensorboard": None}
        ),
        "evaluator": {
            "cmd": "echo no checkpoint yet; exit 3",
            "connects": "weights",
            "restart_policy": {"policy": "OnFailure", "max_restarts": 9},
        },
        "agents": {
            "connects": ["replay", "weights"],
            "processes": {"agent": {**_process("agent", 0.02), "replicas": 12}},
        },
        "prepare": {"cmd": "echo the data is complete"},
    },
}


def record() -> list[Path]:
    """Record the pictures and return their paths."""
    with tempfile.TemporaryDirectory(prefix="symphony-pictures-") as name:
        directory = Path(name)
        file = directory / "rl.yml"
        file.write_text(json.dumps(EXPERIMENT))
        (directory / "work.py").write_text(_WORK)
        programs = str(Path(sys.executable).parent)
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([programs, os.environ["PATH"]]),
            "SYMPHONY_STATE_DIR": str(directory / "state"),
        }
        symphony = [sys.executable, "-m", "symphony"]
        launch = [*symphony, "launch", file.name]
        subprocess.run(launch, cwd=directory, env=environment, check=True)
        server = subprocess.Popen(
            [*symphony, "ui", "--no-open", "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            line = server.stdout.readline() if server.stdout else ""
            return list(_record(json.loads(line)["address"]))
        finally:
            server.terminate()
            server.wait(TIMEOUT_SECONDS)
            subprocess.run([*symphony, "delete", "-f", "rl"], env=environment, check=True)


def _record(address: str) -> list[Path]:
    from playwright.sync_api import ViewportSize, sync_playwright

    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        sys.exit("chromium was not found on the PATH; install it, for example with apt-get")
    recorded = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        size = ViewportSize(width=WIDTH_PIXELS, height=HEIGHT_PIXELS)
        pages = {}
        for scheme in ("light", "dark"):
            page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
            page.goto(address)
            page.goto(f"{page.url}#/experiment/local/rl?select=process%20learner")
            page.wait_for_selector(".settings dl")
            pages[scheme] = page
        time.sleep(CURVE_SECONDS)
        for scheme, page in pages.items():
            path = PICTURES / f"ui-{scheme}.png"
            page.screenshot(path=path)
            recorded.append(path)
        browser.close()
    return recorded
