"""Settings and fixtures that all tests share."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "quick", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=1000)
settings.load_profile("quick")

# A shell starts background jobs with these signals ignored, and every program that a test starts
# would inherit that.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# The configuration of the user who runs the tests must not change their results.
_VARIABLES = "BACKEND CONFIG CONTEXT EXPERIMENT_FOLDER IMAGE KUBECONFIG NAMESPACE PROFILE USERNAME"
for variable in _VARIABLES.split():
    os.environ.pop(f"SYMPHONY_{variable}", None)
_EMPTY_CONFIGURATION = tempfile.TemporaryDirectory(prefix="symphony-test-")
os.environ["XDG_CONFIG_HOME"] = _EMPTY_CONFIGURATION.name

pytest.register_assert_rewrite("symphony.testing.contract")
pytest_plugins = ["kubetest.plugin", "tests.machine"]

# Tests with this marker never run at the same time.
NAMESPACES = "namespaces"

# Files without tests on a cluster that take longer than the others.
_LONG_FILES = ("tests/docs/test_blocks.py", "tests/unit/test_wrong_arguments.py")

# The file in which a process of pytest-xdist lists its tests with that marker, for the scheduler.
# The groups of pytest-xdist 3.8 have no effect with pytest 9.
os.environ.setdefault(
    "SYMPHONY_TEST_GROUP_FILE", str(Path(_EMPTY_CONFIGURATION.name) / "namespaces.txt")
)
_GROUP_FILE = Path(os.environ["SYMPHONY_TEST_GROUP_FILE"])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with which scripts/test runs the unit tests on another Python version."""
    parser.addoption(
        "--first-cases",
        action="store_true",
        help="run only the first case of each parametrized test",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude what the collection creates from garbage collection.

    Almost all of these objects exist until the end. Without this, each process traverses them
    again and again. Tests leave little garbage, so it is collected less often than by default.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests that take longest first, so that no process works alone at the end.

    With coverage, skip the tests that would examine the modules and files of coverage as well.
    """
    if config.getoption("--first-cases"):
        items[:], others = _first_cases(items)
        config.hook.pytest_deselected(items=others)
    if "SYMPHONY_TEST_COVERAGE" in os.environ:
        skip = pytest.mark.skip(reason="coverage changes the process that the test examines")
        for item in items:
            if item.get_closest_marker("without_coverage"):
                item.add_marker(skip)
    items.sort(key=_order)


def _first_cases(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the first case of each test, and the other cases."""
    first: dict[str, pytest.Item] = {}
    others = []
    for item in items:
        test = item.nodeid.partition("[")[0]
        if first.setdefault(test, item) is not item:
            others.append(item)
    return list(first.values()), others


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell the scheduler which tests must not run at the same time."""
    marked = [item.nodeid for item in session.items if item.get_closest_marker(NAMESPACES)]
    if "PYTEST_XDIST_WORKER" in os.environ:
        staged = _GROUP_FILE.with_suffix(f".{os.getpid()}")
        staged.write_text("\n".join(marked), encoding="utf-8")
        staged.replace(_GROUP_FILE)


def _order(item: pytest.Item) -> int:
    if item.get_closest_marker(NAMESPACES):
        return 0
    if "kube_session" in getattr(item, "fixturenames", ()) or item.nodeid.startswith(_LONG_FILES):
        return 1
    return 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file in one process, and all tests with the marker as well."""
    from xdist.scheduler import LoadScopeScheduling

    class FileScheduling(LoadScopeScheduling):
        def schedule(self) -> None:
            self.marked = set(_GROUP_FILE.read_text(encoding="utf-8").splitlines())
            super().schedule()

        def _split_scope(self, nodeid: str) -> str:
            return NAMESPACES if nodeid in self.marked else nodeid.partition("::")[0]

    if config.getvalue("dist") != "loadfile":
        return None
    # Otherwise the files with the most tests would run first, and these are fast unit tests.
    config.option.loadscopereorder = False
    return FileScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give the second run of a failed test a time limit of its own.

    pytest-timeout sets one timer for all runs of a test. If it has ended the first run, a second
    run that hangs would never end.
    """
    if getattr(item, "execution_count", 1) > 1:
        from pytest_timeout import _get_item_settings

        item.config.hook.pytest_timeout_set_timer(item=item, settings=_get_item_settings(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape captured output that is not valid Unicode: pytest-xdist cannot send it."""
    report = yield
    report.sections = [
        (title, text.encode("utf-8", "backslashreplace").decode("utf-8"))
        for title, text in report.sections
    ]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report each reason for skipping once, and the tests that passed only when they ran again."""
    reasons = Counter(_skip_reason(report) for report in terminalreporter.getreports("skipped"))
    if reasons:
        terminalreporter.section("skipped")
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count} x {reason}")
    failed = {report.nodeid for report in terminalreporter.getreports("failed")}
    first_runs = terminalreporter.getreports("rerun")
    flaky = [report for report in first_runs if report.nodeid not in failed]
    if flaky:
        terminalreporter.section("FLAKY: failed once, passed on the second run", sep="!", bold=True)
        for report in flaky:
            terminalreporter.line(report.longreprtext)
        for nodeid in sorted({report.nodeid for report in flaky}):
            terminalreporter.line(nodeid)


def _skip_reason(report: pytest.TestReport) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")
