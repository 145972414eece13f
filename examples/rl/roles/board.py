"""The contents of the page: the curves and the last path through the maze, as data and as HTML with
SVG images.
"""

from __future__ import annotations

import threading
from html import escape
from typing import Any

from roles import maze

WIDTH, HEIGHT, SIDE = 640, 240, 24
MAIN = "evaluation/return"
COLOURS = {MAIN: "#c0392b", "agents/return": "#95a5a6"}

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>rl</title>
<style>
body {{ font: 15px sans-serif; margin: 2em }}
td, th {{ padding: 0 1em 0 0; text-align: right }}
</style>
<div id="live">{live}</div>
<script>
new EventSource("events").onmessage = async () => {{
  document.getElementById("live").innerHTML = await (await fetch("live")).text();
}};
</script></html>
"""


class Board:
    """The contents of the page, collected from messages that the recorder, the agents and the
    evaluators send. Any thread can read the contents and wait for changes.
    """

    def __init__(self) -> None:
        self._curves: dict[str, dict[int, float]] = {}
        self._path: list[int] = []
        self._player = ""
        self._changes = 0
        self._changed = threading.Condition()

    def take(self, message: dict[str, Any]) -> None:
        """Store ``message``, which contains a point on a curve or an episode's path."""
        with self._changed:
            if "path" in message:
                self._path, self._player = message["path"], message["name"]
            else:
                self._curves.setdefault(message["series"], {})[message["step"]] = message["value"]
            self._changes += 1
            self._changed.notify_all()

    def wait(self, seen: int, timeout: float) -> int:
        """Wait until there have been more than ``seen`` changes, but for at most ``timeout``
        seconds. Return the number of changes.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._changes > seen, timeout)
            return self._changes

    def data(self) -> dict[str, Any]:
        """Return the contents as JSON-compatible data: the number of changes, each curve as a list
        of (step, value) pairs, the path as a list of cells, and the name of the process that sent
        the path.
        """
        with self._changed:
            return {
                "changes": self._changes,
                "curves": {
                    name: sorted(curve.items()) for name, curve in sorted(self._curves.items())
                },
                "path": [maze.CELLS[state] for state in self._path],
                "player": self._player,
            }


def live(data: dict[str, Any]) -> str:
    """Return the HTML for the part of the page that changes."""
    curves: dict[str, list[tuple[int, float]]] = data["curves"]
    path: list[tuple[int, int]] = data["path"]
    last = curves.get(MAIN, [])
    title = (
        f"mean return {last[-1][1]:.1f} at version {last[-1][0]}"
        if last
        else "nothing was measured yet"
    )
    return "\n".join(
        [
            f"<h1>{escape(title)}</h1>",
            chart({name: curve for name, curve in curves.items() if name in COLOURS}),
            f"<p>{escape(data['player'])}: {max(len(path) - 1, 0)} steps</p>",
            picture(path),
            table(curves),
        ]
    )


def page(data: dict[str, Any]) -> str:
    """Return the HTML for the whole page."""
    return PAGE.format(live=live(data))


def chart(curves: dict[str, list[tuple[int, float]]]) -> str:
    """Return an SVG chart of the curves. Its vertical axis ranges from -LIMIT to 0."""
    end = max((curve[-1][0] for curve in curves.values()), default=0) or 1
    lines = []
    for name, curve in curves.items():
        points = " ".join(
            f"{step / end * WIDTH:.1f},{-value / maze.LIMIT * HEIGHT:.1f}" for step, value in curve
        )
        lines.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}">'
            f"<title>{escape(name)}</title></polyline>"
        )
    return _svg(WIDTH, HEIGHT, lines)


def picture(path: list[tuple[int, int]]) -> str:
    """Return an SVG image of the maze and a path through it."""
    walls = [
        f'<rect x="{x * SIDE}" y="{y * SIDE}" width="{SIDE}" height="{SIDE}" fill="#34495e"/>'
        for y, row in enumerate(maze.ROWS)
        for x, mark in enumerate(row)
        if mark == "#"
    ]
    goal_y, goal_x = maze.CELLS[maze.GOAL]
    goal = (
        f'<circle cx="{(goal_x + 0.5) * SIDE}" cy="{(goal_y + 0.5) * SIDE}" r="{SIDE / 3}"'
        ' fill="#27ae60"/>'
    )
    points = " ".join(f"{(x + 0.5) * SIDE},{(y + 0.5) * SIDE}" for y, x in path)
    line = f'<polyline points="{points}" fill="none" stroke="#c0392b" stroke-width="3"/>'
    return _svg(len(maze.ROWS[0]) * SIDE, len(maze.ROWS) * SIDE, [*walls, goal, line])


def table(curves: dict[str, list[tuple[int, float]]]) -> str:
    """Return an HTML table that shows the first, highest and last value and the number of points
    for each curve.
    """
    rows = [
        f"<tr><td>{escape(name)}</td><td>{curve[0][1]:.2f}</td>"
        f"<td>{max(value for _, value in curve):.2f}</td>"
        f"<td>{curve[-1][1]:.2f}</td><td>{len(curve)}</td></tr>"
        for name, curve in curves.items()
    ]
    head = "<tr><th></th><th>first</th><th>highest</th><th>last</th><th>points</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _svg(width: int, height: int, shapes: list[str]) -> str:
    frame = f'<svg width="{width}" height="{height}" style="border: 1px solid #bdc3c7">'
    return f"{frame}{''.join(shapes)}</svg>"
