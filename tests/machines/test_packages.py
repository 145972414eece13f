from pathlib import Path

import pytest

from machines import packages
from machines.console import RequirementError

DEB822 = """\
Types: deb
# a comment: with a colon
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib

Types: deb-src
URIs: http://sources.example/debian
Suites: bookworm
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
"""
ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb http://a.example/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] http://b.example/debian-security bookworm-security main
deb-src http://c.example/debian bookworm main
deb http://d.example/apt other stable
deb http://e.example/debian bookworm contrib
"""


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Replace the apt sources of the machine. Return a function that writes one of the files."""
    (tmp_path / "sources.list.d").mkdir()
    monkeypatch.setattr(packages, "APT_SOURCES", tmp_path)
    return lambda name, text: Path(tmp_path, name).write_text(text)


def test_mirrors_from_both_source_formats(sources):
    sources("sources.list", ONE_LINE)
    sources("sources.list.d/debian.sources", DEB822)
    sources("sources.list.d/ignored.save", "deb http://e.example/debian bookworm main")
    assert packages.machine_mirrors() == [
        ("http://a.example/debian", "bookworm"),
        ("http://b.example/debian-security", "bookworm-security"),
        ("http://mirror.example/debian", "bookworm"),
        ("http://mirror.example/debian", "bookworm-updates"),
    ]
    assert packages.main_mirror() == "http://a.example/debian"


def test_machine_without_a_mirror_is_rejected(sources):
    sources("sources.list", "deb http://a.example/debian trixie main\n")
    with pytest.raises(RequirementError, match="no Debian mirror for bookworm main"):
        packages.machine_mirrors()


def test_sources_list_is_signed_by_the_debian_keyring():
    text = packages.sources_list([("http://a.example/debian", "bookworm")])
    assert text.splitlines() == [
        f"deb [signed-by={packages.KEYRING}] http://a.example/debian bookworm main",
        f"deb-src [signed-by={packages.KEYRING}] http://a.example/debian bookworm main",
    ]
