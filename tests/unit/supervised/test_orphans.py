"""Orphans, in a program of its own, because it adopts them for the rest of its life."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import subprocess
from symphony.supervised.processes import own_children
from symphony.supervised.supervisor import orphans
from symphony.supervised.supervisor.event_loop import EventLoop

def fail(exc):
    raise exc

loop = EventLoop(fail)
own = subprocess.Popen(["sh", "-c", "exit 7"])
orphans.OrphanReaper(loop, lambda: {own.pid}).start()
started = subprocess.run(
    ["sh", "-c", "for i in 1 2 3; do sleep 0.3 & echo $!; done"], capture_output=True, text=True
)
adopted = set(map(int, started.stdout.split()))
assert adopted <= set(own_children.child_pids()), "the orphans are children of this process"

def check():
    if adopted.isdisjoint(own_children.child_pids()):
        loop.stop()
    else:
        loop.after(0.05, check)

check()
loop.run()
print(own.wait())
"""


def test_exits_of_orphans_are_collected_and_those_of_other_children_are_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("7\n", "")
