"""How often the progress of an end is read."""

import pytest

from symphony.commandline.output.exit_progress import pause_after


@pytest.mark.parametrize(("read", "pause"), [(0.01, 1.0), (0.2, 1.0), (8.0, 40.0)])
def test_status_that_takes_long_to_read_is_read_less_often(read, pause):
    assert pause_after(read) == pause
