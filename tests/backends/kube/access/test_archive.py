"""Unpacking of unsafe archives: nothing is written outside the target."""

import io
import os
import tarfile

import pytest

from symphony.errors import BackendError, SpecError
from symphony.model.limits import MAX_DIRECTORY_LEVELS
from symphony_kube.access.tar_stream import IncomingArchive, OutgoingArchive
from tests.file_trees import nested_directories

TERABYTE = 1 << 40


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
        [("d/" * level, tarfile.DIRTYPE, "") for level in range(1, 1201)],
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


def _headers(*infos):
    return io.BytesIO(b"".join(info.tobuf(format=tarfile.GNU_FORMAT) for info in infos))


def _gnu_sparse_file():
    """Return a file of one terabyte in the format of ``tar --sparse``."""
    header = bytearray(_headers(tarfile.TarInfo("it")).getvalue())
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[257:265] = b"ustar  \0"
    # The real size of the file, as a binary number.
    header[483:495] = b"\x80" + TERABYTE.to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return io.BytesIO(bytes(header) + bytes(1024))


def _pax_sparse_file():
    """Return a file of one terabyte in the format of ``tar --sparse --format=pax``."""
    info = tarfile.TarInfo("it")
    info.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.size": str(TERABYTE),
        "GNU.sparse.map": f"{TERABYTE},0",
    }
    return io.BytesIO(info.tobuf(format=tarfile.PAX_FORMAT) + bytes(1024))


def _long_header():
    """Return a name of one terabyte for the next file."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, TERABYTE
    return _headers(info)


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (_gnu_sparse_file(), "cannot copy 'it': it is a sparse file"),
        (_pax_sparse_file(), "cannot copy 'it': it is a sparse file"),
        (_long_header(), "its header has more than 1048576 bytes"),
    ],
)
def test_short_stream_that_stands_for_a_terabyte_is_refused(tmp_path, stream, message):
    with (
        pytest.raises(SpecError, match=message),
        IncomingArchive(tmp_path / "target") as incoming,
    ):
        incoming.unpack(stream)
    assert os.listdir(tmp_path) == []


def test_nested_directories_have_a_limit(tmp_path):
    deepest = nested_directories(tmp_path / "source", MAX_DIRECTORY_LEVELS)
    with IncomingArchive(tmp_path / "target") as incoming:
        incoming.unpack(archive(*(("d/" * (n + 1), tarfile.DIRTYPE, "") for n in range(200))))
        incoming.commit()
    OutgoingArchive(str(tmp_path / "source"))
    (deepest / "d").mkdir()
    with pytest.raises(SpecError, match="directories are nested more than 200 levels deep"):
        OutgoingArchive(str(tmp_path / "source"))
