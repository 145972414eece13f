"""The runner of the documents' blocks: how it reads a page, what it runs, what it says where a page is wrong."""

from __future__ import annotations

import os
import re
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony import Cluster
from tests.docs.runner_blocks import BadPage, Block, Page, parse_page
from tests.docs.runner_children import ChildFailed, Shell
from tests.docs.runner_output import difference, fits
from tests.docs.runner_pages import PageFailed, run_page
from tests.docs.runner_place import Place, a_place

PAGE = """\
<!-- needs: zmq -->
# A page

```yaml title="sub/rl.yml" hl_lines="1"
name: rl
```

<!-- needs: kube,
tmux -->
<!-- not run: there is no such machine -->

```console
$ one --a \\
    b
  said

more
$ two  # twice, exits with 3

$ three
```

* In a list:

  ```python
  print(1)
  ```

!!! note
    Text.

    ```json
    {}
    ```

::: symphony.Cluster

    options: {}

<!-- excerpt: a/b.py -->
```python
x
```
"""


def test_a_page_is_read_with_its_lines() -> None:
    page = parse_page(PAGE, "a.md")
    rows = [
        (block.language, block.line, block.title, block.excerpt, block.not_run)
        for block in page.blocks
    ]
    assert rows == [
        ("yaml", 5, "sub/rl.yml", "", ""),
        ("console", 13, "", "", "there is no such machine"),
        ("python", 26, "", "", ""),
        ("json", 33, "", "", ""),
        ("python", 42, "", "a/b.py", ""),
    ]
    assert [sorted(block.needs) for block in page.blocks] == [
        ["zmq"],
        ["kube", "tmux", "zmq"],
        *[["zmq"]] * 3,
    ]
    assert page.needs == {"zmq"}, "those of blocks that run"
    assert page.blocks[2].text == "print(1)\n"
    lines = PAGE.splitlines()
    assert lines[25].strip() == "print(1)"
    assert lines[32].strip() == "{}"


def test_commands_have_continuations_exit_codes_and_output() -> None:
    one, two, three = parse_page(PAGE, "a.md").blocks[1].commands
    assert (one.line, one.text, one.exit_code, one.expected) == (
        13,
        "one --a \\\n    b",
        0,
        ("  said", "", "more"),
    )
    assert (two.line, two.exit_code, two.expected) == (18, 3, ())
    assert (three.line, three.text) == (20, "three")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("    indented\n", "a.md:1: an indented block"),
        ("\n```\nx\n```\n", "a.md:2: a fence without a language"),
        ("```sh\nls\n```\n", "a.md:1: nothing is done with 'sh'; use console"),
        ("```console\nls\n```\n", "a.md:1: a console block begins with a command"),
        ('```yaml title="../x.yml"\n```\n', "a.md:1: '../x.yml' leads out of the folder"),
        ('```yaml title="/x.yml"\n```\n', "a.md:1: '/x.yml' leads out of the folder"),
        (
            "# A\n\n<!-- needs: kuba -->\n\n```text\n```\n",
            "needs 'kuba', which nobody knows; use docker, kube,",
        ),
        ("# A\n\n<!-- not run: -->\n\n```text\n```\n", "a.md:3: 'not run:' says nothing"),
        (
            "# A\n\n<!-- not run: no time -->\n\nText.\n",
            "a.md:5: the comment above ('not run: ...') has no",
        ),
        (
            "# A\n\n<!-- not run: no time -->\n",
            "a.md: the comment at its end ('not run: ...') has no",
        ),
    ],
)
def test_a_page_that_does_not_keep_to_the_convention_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadPage, match=re.escape(said)):
        parse_page(text, "a.md")


@pytest.mark.parametrize(
    ("expected", "printed", "fit"),
    [
        (["one", "two"], "one  \ntwo\n\n", True),
        (["one"], "one\ntwo\n", False),
        (["one", "two"], "one\n", False),
        (["..."], "", True),
        (["one", "...", "four"], "one\ntwo\nthree\nfour\n", True),
        (["one", "...", "four"], "one\nfour\n", True),
        (["one", "..."], "two\none\n", False),
        (["at ... o'clock, ..."], "at 7 o'clock, yes\n", True),
        (["at ... o'clock"], "at\n7 o'clock\n", False),
        (["a.c (x)"], "abc (x)\n", False),
    ],
)
def test_dots_stand_for_any_text(expected: list[str], printed: str, fit: bool) -> None:
    assert fits(expected, printed) is fit


def test_a_difference_marks_only_what_differs() -> None:
    marked = difference(["pid ...", "two", "three"], "pid 17\n2\nthree\n")
    assert marked.splitlines() == [" pid 17", "-two", "+2", " three"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with a_place(tmp_path) as place:
        yield place


def page_of(*blocks: str) -> Page:
    """A page of such fences: ``language text``, or ``language title="..." text`` with the text on further lines."""
    return parse_page("\n".join(f"```{block}\n```\n" for block in blocks), "a.md")


def test_shell_python_and_files_share_a_folder_and_keep_their_state(place: Place) -> None:
    run_page(
        page_of(
            'text title="sub/data.txt"\nold',
            'text title="sub/data.txt"\nnew',
            "console\n$ cd sub; export SAID=$(cat data.txt)",
            "python\nimport pathlib\ntext = pathlib.Path('sub/data.txt').read_text()",
            "python\npathlib.Path('out.txt').write_text(text * 2)",
            "console\n$ echo $SAID $COLUMNS; echo trouble >&2; cat ../out.txt\nnew 100\nnew\nnew\ntrouble",
            "console\n$ (exit 7)  # exits with 7\n$ symphony ls --json\n[]\n$ python3 -c 'import symphony'",
            "python\n>>> text\n'new...'\n>>> __name__\n'__main__'\n>>> late = text",
            "python\nassert late == text",
            "yaml\nprocesses: {a: {cmd: ls}}\nname: a",
            "json\n[1]",
            "toml\na = 1",
        ),
        place,
        (),
    )


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        (["console\n$ echo 1\n$ echo 2; echo 3\n2"], "a.md:3: $ echo 2; echo 3\n- expected, + got:\n 2\n+3"),
        (["console\n$ echo one; (exit 3)"], "a.md:2: $ echo one; (exit 3)\nexits with 3, expected 0; it printed:\none"),
        (["console\n$ true  # exits with 2"], "exits with 0, expected 2"),
        (["console\n$ exit 0"], "a.md:2: $ exit 0\nit ended the process"),
        (["console\n$ sleep 100"], "a.md:2: $ sleep 100\nnot done after 1 s; it printed:\n"),
        (["python\n", "python\nx = 1\n1 / 0"], 'File "a.md", line 7, in <module>\n    1 / 0'),
        (["python\nraise SystemExit(3)"], "a.md:2: it exits with 3"),
        (["python\nimport os\nos._exit(0)"], "a.md:2: it ended the process"),
        (["python\nwhile True: pass"], "a.md:2: not done after 1 s"),
        (["python\n>>> 1 + 1\n3"], "Expected:\n    3\nGot:\n    2"),
        (["yaml\na: [1"], "a.md:2: is no YAML"),
        (["yaml\nname: a\nprocesses: {b: {colour: red}}"], "a.md:2: is no experiment: "),
        (["json\n{"], "a.md:2: is no JSON"),
        (["toml\n="], "a.md:2: is no TOML"),
    ],
    ids=lambda value: value[-1].replace("\n", " ")[:30] if isinstance(value, list) else "",
)  # fmt: skip
def test_what_is_not_so_is_told(place: Place, blocks: list[str], said: str) -> None:
    with pytest.raises(PageFailed, match=re.escape(said)):
        run_page(page_of(*blocks), place, (), seconds=1 if "not done" in said else 60)


def test_what_takes_too_long_is_told_with_what_it_printed(place: Place) -> None:
    shell = Shell(place.folder, place.env, place.scratch)
    try:
        shell.run("true", 60)  # it is up: the time that this takes does not count
        with pytest.raises(ChildFailed, match="not done after 1 s; it printed:\nbegun"):
            shell.run("echo begun; sleep 100", 1)
    finally:
        shell.close()


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("LICENSE", "Apache-3.0", "this does not stand in LICENSE word for word"),
        ("no/such.py", "x", "an excerpt of no/such.py, which is not there"),
    ],
)
def test_an_excerpt_is_compared(place: Place, path: str, text: str, said: str) -> None:
    with pytest.raises(PageFailed, match=re.escape(said)):
        run_page(parse_page(f"<!-- excerpt: {path} -->\n```text\n{text}\n```\n", "a.md"), place, ())


def test_what_lacks_a_need_or_is_not_run_is_left_out(place: Place) -> None:
    text = "# A\n\n<!-- {} -->\n\n```console\n$ touch {}\n```\n"
    comments = {"needs: zmq": "there", "needs: kube, zmq": "lacks", "not run: for a reason": "told"}
    run_page(
        parse_page("".join(text.format(*row) for row in comments.items()), "a.md"), place, {"zmq"}
    )
    assert {path.name for path in place.folder.iterdir()} == {"examples", "there"}


def test_only_some_commands_can_be_run_with_all_files(place: Place) -> None:
    text = '```text title="a"\n```\n\n```console\n$ touch b\n```\n\n<!-- needs: kube -->\n\n```console\n$ touch c\n```\n'
    run_page(parse_page(text, "a.md"), place, {"kube"}, only={"kube"})
    assert {path.name for path in place.folder.iterdir()} == {"examples", "a", "c"}


def test_nothing_is_left_running(place: Place) -> None:
    """Neither what a page has put into the background, nor an experiment that it did not delete; even if it fails."""
    page = page_of(
        'yaml title="a.yml"\nname: a\nprocesses: {b: {cmd: "exec sleep 1000"}}',
        "console\n$ symphony launch a.yml\n$ sleep 1000 & echo $! >pid\n$ false",
    )
    with pytest.raises(PageFailed, match=r"\$ false"):
        run_page(page, place, ())
    assert (
        Cluster.new(
            "local", state_dir=Path(place.env["SYMPHONY_STATE_DIR"]) / "local"
        ).list_experiments()
        == []
    )
    assert is_over(int((place.folder / "pid").read_text()))


def is_over(pid: int) -> bool:
    """Whether a process has ended, or does within 10 s."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], 10)[0])
    finally:
        os.close(pidfd)


def test_blocks_of_other_languages_are_free() -> None:
    assert isinstance(parse_page("```mermaid\nx\n```\n", "a.md").blocks[0], Block)
