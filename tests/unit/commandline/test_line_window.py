"""The part of a text that a view of `top` shows, without a terminal."""

import pytest
from rich.text import Text

from symphony.commandline.top.line_window import LineWindow
from symphony.commandline.top.lines import LogLines
from symphony.log_blocks import LogBlock
from symphony.views.output_tail import MAX_LINES


class Numbers:
    """The lines ``0`` to ``end - 1``, of which only those from ``first`` on remain."""

    def __init__(self, *, first=0, end=0, texts=None):
        self.first, self.end = first, end
        self.texts = texts or {}
        self.is_held = False

    def hold(self):
        self.is_held = True

    def release(self):
        self.is_held = False

    def format(self, start, stop):
        numbers = range(max(start, self.first), min(stop, self.end))
        return [(number, Text(self.texts.get(number, str(number)))) for number in numbers]

    def find(self, pattern, start, stop):
        return [number for number, text in self.format(start, stop) if pattern in text.plain]


def window(lines, width=10, height=3):
    made = LineWindow(lines)
    made.width, made.height = width, height
    return made


def shown(of):
    return [row.text.plain for row in of.rows()]


def test_a_window_follows_the_end_until_it_is_moved_up():
    lines = Numbers(end=2)
    view = window(lines)
    assert shown(view) == ["0", "1"]
    lines.end = 9
    assert shown(view) == ["6", "7", "8"]
    view.scroll(-2)
    lines.end = 20
    assert (shown(view), lines.is_held) == (["4", "5", "6"], True)
    view.scroll(13)
    assert (view.following, lines.is_held) == (True, False)
    lines.end = 21
    assert shown(view) == ["18", "19", "20"]


def test_a_window_cannot_be_moved_beyond_the_text():
    lines = Numbers(first=3, end=8)
    view = window(lines)
    view.scroll(-100)
    assert shown(view) == ["3", "4", "5"]
    lines.first = 4
    assert shown(view) == ["4", "5", "6"]
    view.scroll(100)
    assert shown(view) == ["5", "6", "7"]
    view.to_start()
    assert shown(view) == ["4", "5", "6"]


def test_long_lines_are_wrapped_at_the_width_of_the_terminal():
    # The Japanese characters take two columns each.
    lines = Numbers(end=3, texts={0: "abcdefghij" * 2 + "k", 1: "日本" * 3, 2: ""})
    view = window(lines, height=10)
    view.set_wrap(True)
    assert shown(view) == ["abcdefghij", "abcdefghij", "k", "日本日本日", "本", ""]
    assert [row.ends_line for row in view.rows()] == [False, False, True, False, True, True]
    view.height = 2
    view.scroll(-3)
    assert shown(view) == ["abcdefghij", "k"]
    view.scroll(1)
    assert shown(view) == ["k", "日本日本日"]
    view.set_wrap(False)
    assert shown(view)[0].startswith("abcdefghijabc")


def test_a_search_goes_to_earlier_and_later_lines():
    lines = Numbers(end=100)
    view = window(lines)
    assert view.search("5")
    assert (view.match, "95" in shown(view), view.following) == (95, True, False)
    assert view.search_next(backwards=True)
    assert (view.match, "85" in shown(view)) == (85, True)
    assert view.search_next(backwards=False)
    assert (view.match, "95" in shown(view)) == (95, True)
    assert not view.search_next(backwards=False)
    assert not view.search("x")


def log(text, *processes):
    lines = LogLines(processes or ("p",), lambda: None)
    lines.receive(LogBlock("p", text))
    return lines


def plain(lines):
    return [text.plain for _, text in lines.format(lines.first, lines.end)]


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("a\x1b[2Jb\x1b]0;title\x07", r"a\x1b[2Jb\x1b]0;title\x07"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("<b>[bold]html[/]</b>", "<b>[bold]html[/]</b>"),
        ("\udcff\x00\u202e", r"\udcff\x00\u202e"),
        (" 10%\r 20%\r", " 20%"),
        ("a\tb", "a       b"),
    ],
)
def test_control_characters_of_output_are_shown_as_text(written, seen):
    assert plain(log(f"{written}\n")) == [seen]


@pytest.mark.one_python
def test_lines_that_are_held_remain_while_many_are_added():
    lines = log("first\nsecond\n", "p", "longer")
    lines.hold()
    lines.receive(LogBlock("p", "new\n" * (MAX_LINES + 5)))
    assert plain(lines) == ["p      | first", "p      | second"]
    assert (lines.find("SEC", 0, lines.end), lines.find("sec", 0, lines.end)) == ([], [1])
    lines.release()
    assert (lines.first, lines.end) == (7, MAX_LINES + 7)
    assert plain(lines)[0] == "p      | new"


def test_a_progress_bar_is_shown_while_it_is_written():
    lines = log("first\n\r 1%\r 2%")
    assert plain(lines) == ["first", " 2%"]
    for number in range(20_000):
        lines.receive(LogBlock("p", f"\r{number} steps"))
    assert plain(lines) == ["first", "19999 steps"]
    lines.hold()
    lines.receive(LogBlock("p", "\n"))
    lines.receive(None)
    assert (plain(lines), lines.end) == (["first", "19999 steps"], 2)
