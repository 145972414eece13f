"""What all tests share: the profiles of hypothesis, plain signals, and the fixtures for a Kubernetes.

``quick`` is the profile unless ``--hypothesis-profile=thorough`` asks for more.
"""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=1000)
settings.load_profile("quick")

# A shell that starts a job in the background lets it ignore these, and so would all programs that tests start.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

pytest_plugins = ["kubetest.plugin"]
