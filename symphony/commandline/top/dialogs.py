"""Questions to the user, which are shown above the other screens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from symphony.commandline.top.texts import one_line
from symphony.errors import SymphonyError

# The styles of all dialogs, which the application includes in its own.
CSS = """
Confirmation, Prompt, Choice, Help { align: center middle; background: transparent; }
#dialog {
    width: 76; max-width: 100%; height: auto; max-height: 100%;
    border: solid ansi_default; padding: 0 1; background: ansi_default;
}
TopApp.-ascii #dialog { border: ascii ansi_default; }
#dialog Horizontal { height: auto; margin-top: 1; }
#dialog Button { margin-right: 2; }
#dialog #hint, #dialog #error { margin-top: 1; }
#dialog #error { color: ansi_red; text-style: bold; }
#dialog OptionList { height: auto; max-height: 16; border: none; padding: 0; }
#dialog VerticalScroll { height: auto; max-height: 20; }
"""


class Confirmation(ModalScreen[bool]):
    """A question that the user answers with yes or no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape", "answer(False)", "no"),
        Binding("left,right,up,down", "app.focus_next", show=False),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Yield the question and the answers. The safe answer has the focus."""
        with Vertical(id="dialog"):
            yield Static(one_line(self._question), markup=False)
            with Horizontal():
                yield Button("yes (y)", id="yes", compact=True)
                yield Button("no (n)", id="no", compact=True)

    def on_mount(self) -> None:
        """Focus the safe answer."""
        self.query_one("#no").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer with a button."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        """Answer with a key."""
        self.dismiss(answer)


class Field(Input):
    """A field for text.

    Textual carries out the bindings of keys after the characters that were typed in the meantime,
    which would delete the wrong characters on a slow connection.
    """

    def key_backspace(self, event: Key) -> None:
        """Delete the character before the cursor."""
        event.stop()
        self.action_delete_left()

    def key_ctrl_u(self, event: Key) -> None:
        """Delete the text before the cursor."""
        event.stop()
        self.action_delete_left_all()


class Prompt(ModalScreen[str | None]):
    """A line of text that the user enters. The result is None if the user cancels.

    ``check`` raises a `SymphonyError` if the text is invalid; the dialog then stays open.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "cancel")]

    def __init__(
        self,
        title: str,
        *,
        text: str = "",
        hint: str = "",
        check: Callable[[str], object] | None = None,
    ) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._hint = hint
        self._check = check

    def compose(self) -> ComposeResult:
        """Yield the title, the field and the hint."""
        with Vertical(id="dialog"):
            yield Static(one_line(self._title), markup=False)
            yield Field(self._text, compact=True, select_on_focus=False)
            yield Static("", id="error", markup=False)
            yield Static(one_line(self._hint), id="hint", markup=False)

    def on_mount(self) -> None:
        """Hide the place of the error."""
        self.query_one("#error").display = False

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return the text if it is valid."""
        try:
            if self._check is not None:
                self._check(event.value)
        except SymphonyError as exc:
            error = self.query_one("#error", Static)
            error.update(one_line(str(exc)))
            error.display = True
            return
        self.dismiss(event.value)

    def action_cancel(self) -> None:
        """Return without a text."""
        self.dismiss(None)


class Choice(ModalScreen[str | None]):
    """One of several values that the user chooses. The result is None if the user cancels."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "cancel")]

    def __init__(self, title: str, values: Sequence[str]) -> None:
        super().__init__()
        self._title = title
        self._values = values

    def compose(self) -> ComposeResult:
        """Yield the title and the values."""
        with Vertical(id="dialog"):
            yield Static(one_line(self._title), markup=False)
            options = [Option(one_line(value), id=str(n)) for n, value in enumerate(self._values)]
            yield OptionList(*options, markup=False, compact=True)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the value."""
        self.dismiss(self._values[event.option_index])

    def action_cancel(self) -> None:
        """Return without a value."""
        self.dismiss(None)


class Help(ModalScreen[None]):
    """The keys and their meanings."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "close", "close"),
    ]

    def __init__(self, keys: Iterable[tuple[str, str]]) -> None:
        super().__init__()
        self._keys = list(keys)

    def compose(self) -> ComposeResult:
        """Yield one line for each key."""
        size = max(len(key) for key, _ in self._keys)
        lines = [f"{key.ljust(size)}  {meaning}" for key, meaning in self._keys]
        with Vertical(id="dialog"), VerticalScroll():
            yield Static("\n".join(lines), markup=False)

    def action_close(self) -> None:
        """Close the help."""
        self.dismiss(None)
