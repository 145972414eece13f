"""The scenario of ``symphony top`` in a real terminal, with each control, on every backend."""

from __future__ import annotations

from typing import ClassVar

from tests.cli.conftest import Program
from tests.cli.tmux_screen import TmuxScreen, tmux_screen


class TopScenario:
    """The scenario. A subclass has a class-scoped fixture ``cli`` that selects the backend."""

    backend: ClassVar[str]
    # What the terminal of a process shows first, and the keys with which a user leaves it.
    attached_text: ClassVar[str] = "attached to shell"
    detach_keys: ClassVar[tuple[str, ...]] = ("C-p", "C-q")

    def test_top_shows_and_controls_an_experiment(self, cli: Program) -> None:
        shell = "echo up; while read line; do echo got $line; done"
        worker = "trap 'echo signaled' USR1; echo here; while :; do sleep 0.2; done"
        settings = {"exposes": "web", "tty": True}
        cli.launch(
            "watched",
            {
                "shell": {"cmd": shell, **settings},
                "worker": {"cmd": worker, "replicas": 2, "termination_grace_period": 1},
            },
        )
        # In the directory of the launch, top would show only the experiment.
        elsewhere = cli.directory / "elsewhere"
        elsewhere.mkdir()
        with tmux_screen() as top:
            top.start(cli.argv("top"), env=cli.env, cwd=elsewhere)
            top.expect(" watched ")
            top.press("/")
            top.expect("contain:")
            top.enter("watched")
            top.expect("filter: watched")
            top.press("Enter")
            top.expect(f"watched on {self.backend}  running: 3 running")

            top.press("2")
            top.expect("exposes web:")
            top.press("4")
            top.expect("process shell started")
            top.press("1")
            top.expect("READY")
            # The cursor is at the process that was the first one before all were running.
            top.press("Home")
            top.expect("1/3")
            top.press("Down")
            top.expect("2/3")
            self._control_a_worker(top)
            self._use_the_shell(top)

            top.press("D")
            top.expect("Delete watched?")
            top.press("y")
            top.expect("deleted watched", "deleted: ")
            top.press("q")
            assert top.finish() == 0

    def _control_a_worker(self, top: TmuxScreen) -> None:
        top.press("k")
        top.expect("Signal for worker-0 of watched:")
        top.press("C-u")
        top.enter("USR1")
        top.expect("Send SIGUSR1 to worker-0 of watched?")
        top.press("y")
        top.expect("sent SIGUSR1 to worker-0 of watched")
        top.press("l")
        top.expect("signaled")
        top.press("1")
        top.expect("READY")
        for key, question, result in (
            ("r", "Restart worker-0 of watched?", "restarted worker-0 of watched"),
            ("s", "Stop worker-0 of watched?", "stopped worker-0 of watched"),
        ):
            top.press(key)
            top.expect(question)
            top.press("y")
            top.expect(result)
        # The cursor stays at the process, although its row moves.
        top.expect("2 running, 1 stopped")
        top.press("S")
        top.expect("started worker-0 of watched", "running: 3 running")
        top.press("c")
        top.expect("Replicas of watched:", "worker=")
        top.enter("1")
        top.expect("Change worker=1 of watched?")
        top.press("y")
        top.expect("remove worker-1", "running: 2 running")

    def _use_the_shell(self, top: TmuxScreen) -> None:
        top.press("Home")
        top.expect("1/2")
        top.press("Enter")
        top.expect("shell of watched", "command")
        top.press("a")
        top.expect(self.attached_text)
        top.enter("hello")
        top.expect("got hello")
        top.press(*self.detach_keys)
        top.expect("detached from shell", "shell of watched")
        top.press("Escape")
        top.expect("READY")
        top.press("o")
        top.expect("web: http://")
