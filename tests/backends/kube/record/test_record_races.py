"""The record and the description when several programs write them at the same time, and are killed
before and after each request to the API server.

Each history runs the code that publishes entries, and the code that changes the description, in
some programs, of which one makes a request at a time, in an order that follows from a seed. The API
server is simulated: it has two objects, and refuses a patch of an old version with 409. The time is
simulated, too. It passes while programs wait for the claim of another one.
"""

import copy
import random
import threading
from dataclasses import dataclass, field, replace

import pytest

from symphony.errors import BackendError
from symphony.plan.changes import Snapshot
from symphony.plan.policies import Policies
from symphony_kube.api import compare_and_swap as compare_and_swap_module
from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import HOLDER, Scope
from symphony_kube.api.resources import collection_path
from symphony_kube.lifecycle import description as description_module
from symphony_kube.lifecycle.description import Description, DescriptionStore, description_object
from symphony_kube.record.creation_problems import Problem
from symphony_kube.record.encoded_record import (
    record_in,
    record_of_change,
    record_of_ending,
    record_of_problems,
)
from symphony_kube.record.ending import StoppedProcesses
from symphony_kube.record.publish import publish
from symphony_kube.record.stored_record import record_in_secret, secret_path
from symphony_kube.render.roster import Unit

pytestmark = pytest.mark.one_python

COUNT = 150
SCOPE = Scope(experiment="e", namespace="e")
ROSTER = (Unit(name="worker", processes=("worker",)),)
LAUNCHED = record_of_change(1, ROSTER, Policies(), {}, ())
SECRET = secret_path(SCOPE)
DESCRIPTION = Description(
    snapshot=Snapshot(experiment="e", backend="kube", processes={}),
    record={},
    run_id="r",
    launched=1.0,
    options={"changes": []},
)
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
        secret = description_object(DESCRIPTION, SCOPE, LAUNCHED)
        secret["metadata"] |= {**metadata, "annotations": {}}
        pod = {"metadata": {**metadata, "annotations": LAUNCHED.annotations()}}
        self.objects = {SECRET: secret, POD: pod}
        self.conflicts = 0
        # The program that has claimed the description.
        self.claimant = None
        self.takeovers = 0

    def patch(self, path, body, program):
        found = self.objects[path]
        version = found["metadata"]["resourceVersion"]
        if body["metadata"].get("resourceVersion", version) != version:
            self.conflicts += 1
            raise ApiError("the object has been modified", status=409, reason="Conflict")
        self._note_claim(body["metadata"].get("annotations", {}), program)
        _merge(found, copy.deepcopy(body))
        found["metadata"]["resourceVersion"] = str(int(version) + 1)

    def _note_claim(self, annotations, program):
        if HOLDER not in annotations:
            return
        if annotations[HOLDER] is None:
            assert self.claimant is program, f"{program.name} has ended the claim of another"
            self.claimant = None
            return
        if self.claimant is not None:
            self.takeovers += 1
            self.claimant.is_overtaken = True
        self.claimant = program

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
    """A program that publishes ``entries``, one after the other, and then changes the description
    ``changes`` times.

    It is killed at the point number ``killed_at``, if this is not None. A patch has two points:
    before the server has received it, and after the server has done it. A program that has no
    ``right`` to Secrets publishes only the copy.
    """

    name: str
    entries: list
    killed_at: int | None = None
    right: bool = True
    changes: int = 0
    point: int = 0
    is_dead: bool = False
    is_overtaken: bool = False
    published: list = field(default_factory=list)
    tried: list = field(default_factory=list)
    changed: list = field(default_factory=list)
    error: BaseException | None = None


class History:
    """Programs that make requests in turn. ``story`` says what has happened."""

    def __init__(self, programs, choose):
        self.server = Server()
        self.programs = programs
        self.story = []
        self.now = 0.0
        self.running = None
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
            name = self._choose(sorted(self._alive))
            self.running = next(each for each in self.programs if each.name == name)
            self._turns[name].release()
            self._waits.acquire()
            if before:
                assert self.server.stored.ending == before, self.story
        for thread in threads:
            thread.join()

    def _run(self, program):
        try:
            self.reach(program, "begins")
            for entries in program.entries:
                publish(KubeExperiment(Api(self, program), SCOPE), ROSTER, {}, entries)
                program.published.append(entries)
            for number in range(program.changes):
                self._change(program, f"{program.name}.{number}")
        except Killed:
            self.story.append(f"{program.name} is killed")
        except BaseException as exc:
            program.error = exc
        finally:
            self._alive.discard(program.name)
            self._waits.release()

    def _change(self, program, change):
        """Add a change to the description, as `up` does."""
        store = DescriptionStore(KubeExperiment(Api(self, program), SCOPE))
        program.is_overtaken = False
        try:
            with store.claimed() as found:
                program.tried.append(change)
                options = {"changes": [*found.options["changes"], change]}
                store.write(replace(found, options=options, revision=found.revision + 1))
                program.changed.append(change)
        except BackendError as exc:
            self.story.append(f"{program.name} is refused: {exc}")
            # The claim of a program ends only when it does nothing for a long time.
            assert program.is_overtaken, self.story

    # --- the time ---

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.reach(self.running, "waits")
        self.now += seconds

    def reach(self, program, what):
        """Wait for the next turn at a point at which the program can be killed."""
        if program.is_dead:
            # The clean-up of a killed program does not run.
            raise Killed
        self._waits.release()
        self._turns[program.name].acquire()
        self.story.append(f"{program.name} {what}")
        program.point += 1
        if program.point - 1 == program.killed_at:
            program.is_dead = True
            raise Killed


class Reader:
    """The connection of a program that reads at the end."""

    def __init__(self, server):
        self._server = server

    def find(self, path):
        return self._server.objects[path]


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
        self._history.server.patch(path, body, self._program)
        answer = copy.deepcopy(self._history.server.objects[path])
        self._history.reach(self._program, f"has patched {path}")
        return answer

    def _check_right(self, path):
        if path == SECRET and not self._program.right:
            raise ApiError("secrets is forbidden", status=403, reason="Forbidden")


def draw_changes(seed):
    """Return a history: a supervisor, and two or three commands that change the description."""
    chosen = random.Random(seed)
    entries = [problems(f"problem {number}") for number in range(chosen.randrange(4))]
    programs = [Program("supervisor", entries)]
    for number in range(2 + chosen.randrange(2)):
        programs.append(Program(f"command-{number}", [], changes=1 + chosen.randrange(2)))
    for program in programs:
        if chosen.random() < 0.3:
            program.killed_at = chosen.randrange(12)
    return History(programs, chosen.choice)


def check_changes(history):
    """Check that each change of the description was made to the result of the one before."""
    for program in history.programs:
        assert program.error is None, (program.error, history.story)
    stored = DescriptionStore(KubeExperiment(Reader(history.server), SCOPE)).read()
    found = stored.options["changes"]
    assert stored.revision == len(found) == len(set(found)), history.story
    for program in history.programs:
        own = [change for change in found if change.startswith(f"{program.name}.")]
        # A program that was killed, or lost its claim, can have made its last change.
        assert own in (program.changed, program.tried), history.story
        assert program.is_dead or own == program.changed, history.story
    if not any(program.is_dead for program in history.programs):
        assert history.server.claimant is None, history.story


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


@pytest.mark.parametrize("first", [0, pytest.param(None, id="new")])
def test_no_change_of_the_description_is_lost(first, monkeypatch):
    # A few pauses are longer than a claim without renewal lasts.
    monkeypatch.setattr(description_module, "_PAUSE_SECONDS", 5.0)
    first = random.randrange(1 << 40) if first is None else first
    print(f"seed {first}")
    conflicts = takeovers = 0
    for seed in range(first, first + COUNT):
        history = draw_changes(seed)
        monkeypatch.setattr(description_module, "time", history)
        history.run()
        check_changes(history)
        conflicts += history.server.conflicts
        takeovers += history.server.takeovers
    assert conflicts > 20
    assert takeovers > 20
