"""Unpacking of unsafe archives: nothing is written outside the target."""

import io
import os
import tarfile

import pytest

from symphony.errors import BackendError, SpecError
from symphony_kube.access.archive import IncomingArchive


def archive(*members):
    """Return a tar stream of a directory with members (name, type, link or content)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, content in [("./", tarfile.DIRTYPE, ""), *members]:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o755
            if kind == tarfile.REGTYPE:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content.encode()))
            else:
                info.linkname = content
                tar.addfile(info)
    out.seek(0)
    return out


FILE, LINK, HARD = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", FILE, "x")],
        [("/evil", FILE, "x")],
        [("./a/../../evil", FILE, "x")],
        [("./out", LINK, ".."), ("./out/evil", FILE, "x")],
        [("./evil", LINK, "/etc/passwd"), ("./evil", FILE, "x")],
        [("./hard", HARD, "../../secret")],
        [("./hard", HARD, "/etc/passwd")],
        [("./link", LINK, "../secret"), ("./hard", HARD, "./link")],
        [("./no-directory/file", FILE, "x")],
        [("./device", tarfile.CHRTYPE, "")],
        [("./pipe", tarfile.FIFOTYPE, "")],
        [("./a", FILE, "x"), ("./a/b", FILE, "x")],
    ],
)
def test_unsafe_member_is_refused(tmp_path, members):
    (tmp_path / "secret").write_text("secret")
    with (
        pytest.raises(SpecError, match="cannot copy"),
        IncomingArchive(tmp_path / "target") as incoming,
    ):
        incoming.unpack(archive(*members))
    assert os.listdir(tmp_path) == ["secret"]


def test_links_are_kept(tmp_path):
    with IncomingArchive(tmp_path / "target") as incoming:
        incoming.unpack(archive(("./a", FILE, "x"), ("./b", HARD, "./a"), ("./c", LINK, "/etc")))
        incoming.commit()
    assert (tmp_path / "target" / "b").read_text() == "x"
    assert os.readlink(tmp_path / "target" / "c") == "/etc"
    assert os.listdir(tmp_path) == ["target"]


def test_incomplete_archive_is_not_kept(tmp_path):
    whole = archive(("./a", FILE, "x" * 100_000)).getvalue()
    with (
        pytest.raises(BackendError, match="archive is damaged"),
        IncomingArchive(tmp_path / "target") as incoming,
    ):
        incoming.unpack(io.BytesIO(whole[:50_000]))
    assert os.listdir(tmp_path) == []
