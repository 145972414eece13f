"""The record when several programs write it at the same time, and are killed before and after each
request to the API server.

Each history runs the code that publishes entries in some programs, of which one makes a request at
a time, in an order that follows from a seed. The API server is simulated: it has two objects, and
refuses a patch of an old version with 409.
"""

import copy
import random
import threading
from dataclasses import dataclass, field

import pytest

from symphony.plan.policies import Policies
from symphony_kube.api import compare_and_swap as compare_and_swap_module
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.api.resources import collection_path
from symphony_kube.record.creation_problems import Problem
from symphony_kube.record.encoded_record import (
    record_in,
    record_of_change,
    record_of_ending,
    record_of_problems,
)
from symphony_kube.record.ending import StoppedProcesses
from symphony_kube.record.publish import publish
from symphony_kube.record.stored_record import fields_with, record_in_secret, secret_path
from symphony_kube.render.roster import Unit

pytestmark = pytest.mark.one_python

COUNT = 150
SCOPE = Scope(experiment="e", namespace="e")
ROSTER = (Unit(name="worker", processes=("worker",)),)
LAUNCHED = record_of_change(1, ROSTER, Policies(), {}, ())
SECRET = secret_path(SCOPE)
POD = f"{collection_path('Pod', SCOPE.namespace)}/{SCOPE.object_name('worker')}"


class Killed(BaseException):
    """The program was killed. Nothing of the product catches it."""


def ending(reason):
    stopped = StoppedProcesses(
        processes=("worker",), reason=reason, code="stopped", time=1.0, failed=False
    )
    return record_of_ending(stopped)


def problems(text):
    return record_of_problems({"worker": Problem(text=text, time=1.0)})


class Server:
    """The API server: it has the Secret with the record, and the Pod with the copy."""

    def __init__(self):
        metadata = {"labels": SCOPE.labels, "resourceVersion": "1"}
        secret = copy.deepcopy(fields_with(LAUNCHED))
        secret["metadata"] = {**metadata, "annotations": {}}
        pod = {"metadata": {**metadata, "annotations": LAUNCHED.annotations()}}
        self.objects = {SECRET: secret, POD: pod}
        self.conflicts = 0

    def patch(self, path, body):
        found = self.objects[path]
        version = found["metadata"]["resourceVersion"]
        if body["metadata"].get("resourceVersion", version) != version:
            self.conflicts += 1
            raise ApiError("the object has been modified", status=409, reason="Conflict")
        _merge(found, copy.deepcopy(body))
        found["metadata"]["resourceVersion"] = str(int(version) + 1)

    @property
    def stored(self):
        return record_in_secret(self.objects[SECRET])

    @property
    def copied(self):
        return record_in(self.objects[POD]["metadata"]["annotations"])


def _merge(target, patch):
    """Apply a JSON merge patch."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


@dataclass
class Program:
    """A program that publishes ``entries``, one after the other.

    It is killed at the point number ``killed_at``, if this is not None. A patch has two points:
    before the server has received it, and after the server has done it. A program that has no
    ``right`` to Secrets publishes only the copy.
    """

    name: str
    entries: list
    killed_at: int | None = None
    right: bool = True
    point: int = 0
    published: list = field(default_factory=list)
    error: BaseException | None = None


class History:
    """Programs that make requests in turn. ``story`` says what has happened."""

    def __init__(self, programs, choose):
        self.server = Server()
        self.programs = programs
        self.story = []
        self._choose = choose
        self._turns = {program.name: threading.Semaphore(0) for program in programs}
        self._waits = threading.Semaphore(0)
        self._alive = {program.name for program in programs}

    def run(self):
        threads = [threading.Thread(target=self._run, args=(each,)) for each in self.programs]
        for thread in threads:
            thread.start()
            self._waits.acquire()
        while self._alive:
            before = self.server.stored.ending
            self._turns[self._choose(sorted(self._alive))].release()
            self._waits.acquire()
            if before:
                assert self.server.stored.ending == before, self.story
        for thread in threads:
            thread.join()

    def _run(self, program):
        try:
            self.reach(program, "begins")
            for entries in program.entries:
                publish(Api(self, program), SCOPE, ROSTER, {}, entries)
                program.published.append(entries)
        except Killed:
            self.story.append(f"{program.name} is killed")
        except BaseException as exc:
            program.error = exc
        finally:
            self._alive.discard(program.name)
            self._waits.release()

    def reach(self, program, what):
        """Wait for the next turn at a point at which the program can be killed."""
        self._waits.release()
        self._turns[program.name].acquire()
        self.story.append(f"{program.name} {what}")
        program.point += 1
        if program.point - 1 == program.killed_at:
            raise Killed


class Api:
    """The connection of one program."""

    def __init__(self, history, program):
        self._history = history
        self._program = program

    def find(self, path):
        self._check_right(path)
        self._history.reach(self._program, f"reads {path}")
        return copy.deepcopy(self._history.server.objects[path])

    def call(self, method, path, *, body, content_type, accept=None):
        assert method == "PATCH"
        self._check_right(path)
        self._history.reach(self._program, f"patches {path}")
        self._history.server.patch(path, body)
        self._history.reach(self._program, f"has patched {path}")
        return copy.deepcopy(self._history.server.objects[path])

    def _check_right(self, path):
        if path == SECRET and not self._program.right:
            raise ApiError("secrets is forbidden", status=403, reason="Forbidden")


def draw(seed):
    """Return a history: a supervisor, and one to three commands that stop the experiment."""
    chosen = random.Random(seed)
    entries = [problems(f"problem {number}") for number in range(chosen.randrange(3))]
    if chosen.random() < 0.6:
        entries.append(ending("deadline"))
    programs = [Program("supervisor", entries)]
    for number in range(1, 2 + chosen.randrange(3)):
        name = f"command-{number}"
        programs.append(Program(name, [ending(name)], right=chosen.random() < 0.8))
    for program in programs:
        if chosen.random() < 0.3:
            program.killed_at = chosen.randrange(10)
    return History(programs, chosen.choice)


def check(history):
    """Check what must hold when all programs have ended."""
    stored, copied = history.server.stored, history.server.copied
    for program in history.programs:
        assert program.error is None, (program.error, history.story)
    for record in (stored, copied):
        assert (record.roster, record.policies) == (LAUNCHED.roster, LAUNCHED.policies)
    published = [each for program in history.programs for each in program.published]
    if any(each.ending for each in published):
        assert copied.ending, history.story
    if any(
        each.ending for program in history.programs if program.right for each in program.published
    ):
        # The first decision is the valid one, for all readers.
        assert stored.ending, history.story
        assert copied.ending == stored.ending, history.story
    latest = [each.problems for each in history.programs[0].published if each.problems]
    if latest and history.programs[0].killed_at is None:
        assert stored.problems == copied.problems == latest[-1], history.story


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch):
    """The order of the requests does not depend on the pauses after conflicts."""
    monkeypatch.setattr(compare_and_swap_module, "_LONGEST_PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize("first", [0, pytest.param(None, id="new")])
def test_no_entry_is_lost_and_all_copies_have_the_same_end(first):
    first = random.randrange(1 << 40) if first is None else first
    print(f"seed {first}")
    conflicts = 0
    for seed in range(first, first + COUNT):
        history = draw(seed)
        history.run()
        check(history)
        conflicts += history.server.conflicts
    assert conflicts > 20
