"""What all tests share: the profiles of hypothesis, plain signals, and the fixtures for a Kubernetes.

``quick`` is the profile unless ``--hypothesis-profile=thorough`` asks for more.
"""

from __future__ import annotations

import os
import signal
import tempfile

from hypothesis import HealthCheck, settings

settings.register_profile(
    "quick", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=1000)
settings.load_profile("quick")

# A shell that starts a job in the background lets it ignore these, and so would all programs that tests start.
for number, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

# Whoever runs the tests may have a configuration.
_VARIABLES = "BACKEND CONFIG CONTEXT EXPERIMENT_FOLDER IMAGE KUBECONFIG NAMESPACE PROFILE USERNAME"
for variable in _VARIABLES.split():
    os.environ.pop(f"SYMPHONY_{variable}", None)
_NO_CONFIGURATION = tempfile.TemporaryDirectory(prefix="symphony-test-")
os.environ["XDG_CONFIG_HOME"] = _NO_CONFIGURATION.name

pytest_plugins = ["kubetest.plugin", "tests.machine"]
