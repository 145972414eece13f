import pytest

from machines import store


def make(directory):
    (directory / "sub").mkdir()
    (directory / "sub/file").write_text("content")
    (directory / "link").symlink_to("sub/file")


@pytest.fixture
def messages():
    return []


@pytest.fixture
def entry(tmp_path, messages):
    entry = tmp_path / "cache/entry"
    assert store.ensure(entry, make, report=messages.append)
    return entry


def test_complete_entry_is_not_created_again(entry, messages):
    assert not store.ensure(entry, pytest.fail, report=messages.append)
    assert messages == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda entry: (entry / "sub/file").unlink(), "sub/file is missing"),
        (lambda entry: (entry / "sub/file").write_text("Content"), "has changed"),
        (lambda entry: (entry / "sub/file").write_text(""), "has changed"),
        (lambda entry: (entry / "manifest.json").unlink(), "no manifest"),
        (lambda entry: (entry / "manifest.json").write_text('{"sub'), "no manifest"),
    ],
)
def test_damaged_entry_is_reported_and_created_again(entry, messages, damage, message):
    damage(entry)
    assert store.ensure(entry, make, report=messages.append)
    assert message in messages[0]
    assert store.damage(entry) is None


def test_changed_link_is_damage(entry):
    (entry / "link").unlink()
    (entry / "link").symlink_to("elsewhere")
    assert "link" in store.damage(entry)


def test_incomplete_entry_is_removed(tmp_path, messages):
    def fail(directory):
        (directory / "half").write_text("x")
        raise RuntimeError

    entry = tmp_path / "entry"
    with pytest.raises(RuntimeError):
        store.ensure(entry, fail, report=messages.append)
    assert not entry.exists()
    assert store.ensure(entry, make, report=messages.append)
    assert not (entry / "half").exists()
    assert "incomplete" in messages[0]


def test_key_depends_on_every_part():
    assert store.key("a", ("b",)) == store.key("a", ("b",))
    assert len({store.key("a", "b"), store.key("ab"), store.key("a", ("b",))}) == 3


def test_only_the_named_entries_are_kept(tmp_path):
    for name in ("old", "new", "new.part", "old.part"):
        (tmp_path / name).mkdir()
    store.keep_only(tmp_path, ["new"])
    assert {path.name for path in tmp_path.iterdir()} == {"new", "new.part"}
    store.keep_only(tmp_path / "missing", ["new"])
