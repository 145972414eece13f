import pytest

from devcluster import store


def make(folder):
    (folder / "sub").mkdir()
    (folder / "sub/file").write_text("content")
    (folder / "link").symlink_to("sub/file")


@pytest.fixture
def said():
    return []


@pytest.fixture
def entry(tmp_path, said):
    entry = tmp_path / "cache/entry"
    assert store.ensure(entry, make, say=said.append)
    return entry


def test_a_whole_entry_is_not_made_again(entry, said):
    assert not store.ensure(entry, pytest.fail, say=said.append)
    assert said == []


@pytest.mark.parametrize(
    ("harm", "what"),
    [
        (lambda entry: (entry / "sub/file").unlink(), "sub/file is missing"),
        (lambda entry: (entry / "sub/file").write_text("Content"), "is not as it was made"),
        (lambda entry: (entry / "sub/file").write_text(""), "is not as it was made"),
        (lambda entry: (entry / "manifest.json").unlink(), "no manifest"),
        (lambda entry: (entry / "manifest.json").write_text('{"sub'), "no manifest"),
    ],
)
def test_a_damaged_entry_is_noticed_told_and_made_again(entry, said, harm, what):
    harm(entry)
    assert store.ensure(entry, make, say=said.append)
    assert what in said[0]
    assert store.damage(entry) is None


def test_a_changed_link_is_noticed(entry):
    (entry / "link").unlink()
    (entry / "link").symlink_to("elsewhere")
    assert "link" in store.damage(entry)


def test_what_was_left_half_made_is_thrown_away(tmp_path, said):
    def fail(folder):
        (folder / "half").write_text("x")
        raise RuntimeError

    entry = tmp_path / "entry"
    with pytest.raises(RuntimeError):
        store.ensure(entry, fail, say=said.append)
    assert not entry.exists()
    assert store.ensure(entry, make, say=said.append)
    assert not (entry / "half").exists()
    assert "half-made" in said[0]


def test_a_key_changes_with_every_part():
    assert store.key("a", ("b",)) == store.key("a", ("b",))
    assert len({store.key("a", "b"), store.key("ab"), store.key("a", ("b",))}) == 3


def test_prune_keeps_only_the_one(tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    store.prune(tmp_path, keep=tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
