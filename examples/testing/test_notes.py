"""Tests of the web service with a real Redis."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

EXPERIMENT = Path(__file__).with_name("experiment.yml")


@pytest.fixture
def service(running):
    """The web service and its Redis, which run during a test."""
    return running(EXPERIMENT)


def notes(service) -> list[str]:
    """Return the notes that the service has stored."""
    with urllib.request.urlopen(service.url("web", "/notes")) as response:
        return json.load(response)


def test_a_note_is_stored(service) -> None:
    urllib.request.urlopen(service.url("web", "/notes"), data=b"buy milk")
    assert notes(service) == ["buy milk"]


def test_notes_are_kept_when_the_web_service_restarts(service) -> None:
    urllib.request.urlopen(service.url("web", "/notes"), data=b"call home")
    service.cluster.restart_processes(service.name, ["web"])
    service.cluster.wait(service.name, until="ready", timeout=60)
    assert notes(service) == ["call home"]
