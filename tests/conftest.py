"""Profiles of hypothesis: ``quick`` unless ``--hypothesis-profile=thorough`` asks for more."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=1000)
settings.load_profile("quick")
