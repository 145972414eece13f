"""`symphony top` and `symphony ui` with an experiment in a Slurm job."""

import pytest

from tests.cli.scenarios import program_for_backend
from tests.cli.top_scenario import TopScenario
from tests.web.scenario import PageScenario

from .conftest import shared_directory


class TestViews(TopScenario, PageScenario):
    backend = "slurm"

    @pytest.fixture
    def cli(self, tmp_path):
        state = str(shared_directory() / "state")
        yield from program_for_backend(tmp_path, SYMPHONY_BACKEND="slurm", SYMPHONY_STATE_DIR=state)
