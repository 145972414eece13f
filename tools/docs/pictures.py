"""Record the pictures on the home page: the topology of its example and a terminal session.

The example is the experiment on the home page, docs/index.md. Its files are written to a temporary
directory, and the commands run in a pseudo-terminal, so that the pictures show real output. Each
picture has a light and a dark version, because a page's theme can differ from the browser's theme.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
HOME_PAGE = ROOT / "docs" / "index.md"
PICTURES = ROOT / "docs" / "images"

SESSION = ("symphony launch hello.yml", "symphony ps hello", "symphony logs hello client-0")
# This command runs before the session's second command, so that the second command shows a finished
# experiment and all recordings are the same.
BEFORE_SECOND_COMMAND = ("symphony", "wait", "hello")
AFTER_SESSION = ("symphony", "delete", "-f", "hello")

COLUMNS = 72
# The key of an attribute that SVG does not have.
REVERSE = "reverse"
FONT_SIZE_PIXELS = 13.0
# The characters of a fixed-width font are about 0.6 times as wide as the font size.
CHARACTER_WIDTH_PIXELS = 0.602 * FONT_SIZE_PIXELS
LINE_HEIGHT_PIXELS = 19.0
MARGIN_PIXELS = 16.0

_SIZE_OF_TERMINAL = "stty cols {columns} rows 40; exec {command}"
_TITLED_BLOCK = re.compile(r'(?ms)^```\w+ title="([^"]+)"\n(.*?)^```$')
_DARK_RULES = re.compile(r"@media \(prefers-color-scheme:dark\)\{((?:[^{}]*\{[^{}]*\})*)\}")
_ESCAPE_SEQUENCE = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """The colors of a terminal. ``palette`` maps SGR codes to colors."""

    background: str
    border: str
    text: str
    prompt: str
    palette: dict[int, str]


LIGHT = Theme(
    background="#f6f8fa",
    border="#d0d7de",
    text="#1f2328",
    prompt="#57606a",
    palette={
        31: "#cf222e",
        32: "#116329",
        33: "#7d4e00",
        34: "#0550ae",
        35: "#8250df",
        36: "#1b7c83",
    },
)
DARK = Theme(
    background="#0d1117",
    border="#30363d",
    text="#e6edf3",
    prompt="#9da7b3",
    palette={
        31: "#ff7b72",
        32: "#7ee787",
        33: "#e3b341",
        34: "#79c0ff",
        35: "#d2a8ff",
        36: "#76e3ea",
    },
)


def record() -> list[Path]:
    """Record all pictures and return their paths."""
    with tempfile.TemporaryDirectory(prefix="symphony-pictures-") as name:
        directory = Path(name)
        write_example(directory)
        environment = example_environment(directory)
        topology = _record_topology(directory, environment)
        session = _record_session(directory, environment)
    pictures = {
        "topology-light.svg": without_dark_rules(topology),
        "topology-dark.svg": with_dark_rules_only(topology),
        "session-light.svg": terminal_picture(session, LIGHT),
        "session-dark.svg": terminal_picture(session, DARK),
    }
    PICTURES.mkdir(exist_ok=True)
    for file, text in pictures.items():
        (PICTURES / file).write_text(text, encoding="utf-8")
    return [PICTURES / file for file in pictures]


def write_example(directory: Path) -> None:
    """Write the example files from the home page to ``directory``."""
    for title, text in _TITLED_BLOCK.findall(HOME_PAGE.read_text(encoding="utf-8")):
        (directory / title).write_text(text, encoding="utf-8")


def example_environment(directory: Path) -> dict[str, str]:
    """Return the environment of the commands, which use only files in ``directory``."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("SYMPHONY_")}
    programs = str(Path(sys.executable).parent)
    return {
        **inherited,
        "PATH": os.pathsep.join([programs, inherited["PATH"]]),
        "SYMPHONY_STATE_DIR": str(directory / "state"),
        "XDG_CONFIG_HOME": str(directory / "config"),
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
    }


def _record_topology(directory: Path, environment: dict[str, str]) -> str:
    command = ["symphony", "graph", "hello.yml", "--no-states", "-o", "topology.svg"]
    subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True)
    return (directory / "topology.svg").read_text(encoding="utf-8")


def without_dark_rules(picture: str) -> str:
    """Return ``picture`` as an SVG that has light colors in every browser."""
    return _DARK_RULES.sub("", picture)


def with_dark_rules_only(picture: str) -> str:
    """Return ``picture`` as an SVG that has dark colors in every browser."""
    return _DARK_RULES.sub(r"\1", picture)


def _record_session(directory: Path, environment: dict[str, str]) -> list[str]:
    """Run the session and return the lines of the terminal, including the commands."""
    lines = []
    for number, command in enumerate(SESSION):
        if number == 1:
            subprocess.run(
                BEFORE_SECOND_COMMAND,
                cwd=directory,
                env=environment,
                check=True,
                capture_output=True,
            )
        lines.append(f"$ {command}")
        lines.extend(_run_in_terminal(command, directory, environment))
    subprocess.run(AFTER_SESSION, cwd=directory, env=environment, check=True, capture_output=True)
    return lines


def _run_in_terminal(command: str, directory: Path, environment: dict[str, str]) -> list[str]:
    """Run a command in a pseudo-terminal and return its output lines, including their escape
    sequences.
    """
    controller, terminal = pty.openpty()
    shell = ["sh", "-c", _SIZE_OF_TERMINAL.format(columns=COLUMNS, command=command)]
    process = subprocess.Popen(
        shell, cwd=directory, env=environment, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    output = b"".join(_read_until_closed(controller))
    os.close(controller)
    if process.wait() != 0:
        raise subprocess.CalledProcessError(process.returncode, command, output)
    lines = output.decode().removesuffix("\n").split("\n")
    return [_last_version(line.rstrip("\r")) for line in lines]


def _last_version(line: str) -> str:
    """Return the text after the last carriage return. This text overwrites a progress message."""
    return line.rpartition("\r")[2]


def _read_until_closed(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # Linux reports EIO when the last process has closed the terminal.
            return
        if not data:
            return
        yield data


def terminal_picture(
    lines: list[str], theme: Theme, *, columns: int = COLUMNS, title: str = "A terminal session"
) -> str:
    """Return an SVG that shows lines of terminal output."""
    width = round(2 * MARGIN_PIXELS + columns * CHARACTER_WIDTH_PIXELS)
    height = round(2 * MARGIN_PIXELS + len(lines) * LINE_HEIGHT_PIXELS)
    rows: list[str] = []
    for number, line in enumerate(lines):
        y = MARGIN_PIXELS + (number + 0.75) * LINE_HEIGHT_PIXELS
        rows.extend(_backgrounds(line, MARGIN_PIXELS + number * LINE_HEIGHT_PIXELS, theme))
        rows.append(f'<text x="{MARGIN_PIXELS:g}" y="{y:g}">{_row(line, theme)}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="title" '
            'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, '
            "'DejaVu Sans Mono', 'Liberation Mono', monospace\" "
            f'font-size="{FONT_SIZE_PIXELS:g}" fill="{theme.text}">',
            f'<title id="title">{escape(title)}</title>',
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" '
            f'fill="{theme.background}" stroke="{theme.border}"/>',
            *rows,
            "</svg>\n",
        ]
    )


def _row(line: str, theme: Theme) -> str:
    if line.startswith("$ "):
        prompt = _span("$ ", {"fill": theme.prompt})
        return prompt + _span(line[2:], {"font-weight": "bold"})
    return "".join(_spans(line, theme))


def _spans(line: str, theme: Theme) -> Iterator[str]:
    """Convert a line with SGR escape sequences to SVG elements.

    Other escape sequences are dropped.
    """
    for text, attributes in _runs(line, theme):
        if REVERSE in attributes:
            # The text is drawn above its background.
            attributes = {"fill": theme.background, "font-weight": "bold"}
        yield _span(text, attributes)


def _backgrounds(line: str, top: float, theme: Theme) -> Iterator[str]:
    """Return a rectangle for each reversed part of a line."""
    column = 0
    for text, attributes in _runs(line, theme):
        if REVERSE in attributes and text:
            left = MARGIN_PIXELS + column * CHARACTER_WIDTH_PIXELS
            width = len(text) * CHARACTER_WIDTH_PIXELS
            yield (
                f'<rect x="{left:g}" y="{top:g}" width="{width:g}" '
                f'height="{LINE_HEIGHT_PIXELS:g}" fill="{attributes.get("fill", theme.text)}"/>'
            )
        column += len(text)


def _runs(line: str, theme: Theme) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the parts of a line with their attributes."""
    attributes: dict[str, str] = {}
    position = 0
    for found in _ESCAPE_SEQUENCE.finditer(line):
        yield line[position : found.start()], attributes
        position = found.end()
        if found[2] == "m":
            attributes = _attributes(found[1], attributes, theme)
    yield line[position:], attributes


def _attributes(codes: str, before: dict[str, str], theme: Theme) -> dict[str, str]:
    attributes = dict(before)
    for code in (int(text or 0) for text in codes.split(";")):
        if code == 0:
            attributes = {}
        elif code == 1:
            attributes["font-weight"] = "bold"
        elif code == 7:
            attributes[REVERSE] = "true"
        elif code in (2, 90):
            attributes["fill"] = theme.prompt
        elif code in theme.palette:
            attributes["fill"] = theme.palette[code]
        elif code == 39:
            attributes.pop("fill", None)
    return attributes


def _span(text: str, attributes: dict[str, str]) -> str:
    # Browsers collapse ordinary spaces, and do not agree on the attributes that prevent collapsing.
    text = escape(text).replace(" ", "\N{NO-BREAK SPACE}")
    if not text or not attributes:
        return text
    given = "".join(f' {key}="{value}"' for key, value in attributes.items())
    return f"<tspan{given}>{text}</tspan>"
