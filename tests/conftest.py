"""What all tests share: the profiles of hypothesis, plain signals, and the fixtures for a Kubernetes.

``quick`` is the profile unless ``--hypothesis-profile=thorough`` asks for more.
"""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=1000)
settings.load_profile("quick")

# A shell that starts a job in the background lets it ignore Ctrl-C, and so would all programs that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["kubetest.plugin"]
