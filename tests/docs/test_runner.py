"""Test how pages are parsed and run, and how failures are reported."""

from __future__ import annotations

import os
import re
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony import Cluster
from tests.docs.page import Page, PageError, parse_page
from tests.docs.runner import (
    Sandbox,
    create_sandbox,
    difference,
    matches,
    run_page,
    without_progress,
)

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
  output

more
$ two  # twice, exits with 3

$ three
```

* In a list:

  ```python
  print(1)
  ```

::: symphony.Cluster

    options: {}

<!-- excerpt: a/b.py -->
```python
x
```
"""


def test_blocks_have_lines_titles_and_needs() -> None:
    page = parse_page(PAGE, "a.md")
    blocks = [(block.language, block.line, block.title, block.excerpt) for block in page.blocks]
    assert blocks == [
        ("yaml", 5, "sub/rl.yml", ""),
        ("console", 13, "", ""),
        ("python", 26, "", ""),
        ("python", 35, "", "a/b.py"),
    ]
    needs = [sorted(block.needs) for block in page.blocks]
    assert needs == [["zmq"], ["kube", "tmux", "zmq"], ["zmq"], ["zmq"]]
    assert page.needs == {"zmq"}, "blocks that are not run have no needs"
    assert page.blocks[1].not_run == "there is no such machine"
    assert page.blocks[2].text == "print(1)\n"


def test_commands_have_continuations_exit_codes_and_output() -> None:
    one, two, three = parse_page(PAGE, "a.md").blocks[1].commands
    assert (one.line, one.text, one.exit_code) == (13, "one --a \\\n    b", 0)
    assert one.output == ("  output", "", "more")
    assert (two.line, two.exit_code, two.output) == (18, 3, ())
    assert (three.line, three.text) == (20, "three")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("    indented\n", "a.md:1: an indented block"),
        ("\n```\nx\n```\n", "a.md:2: a fence without a language"),
        ("```sh\nls\n```\n", "a.md:1: a block in 'sh' is not run"),
        ("```console\nls\n```\n", "a.md:1: a console block must begin with a command"),
        ('```yaml title="../x.yml"\n```\n', "a.md:1: '../x.yml' is outside the directory"),
        ('```yaml title="/x.yml"\n```\n', "a.md:1: '/x.yml' is outside the directory"),
        ("# A\n\n<!-- needs: kuba -->\n\n```text\n```\n", "unknown need 'kuba'; use docker, kube,"),
        ("# A\n\n<!-- not run: -->\n\n```text\n```\n", "a.md:3: the comment 'not run:' has no"),
        ("# A\n\n<!-- not run: no time -->\n\nText.\n", "a.md:5: no fenced block follows"),
        ("# A\n\n<!-- not run: no time -->\n", "a.md: no fenced block follows"),
    ],
)
def test_invalid_markup_is_an_error(text: str, message: str) -> None:
    with pytest.raises(PageError, match=re.escape(message)):
        parse_page(text, "a.md")


@pytest.mark.parametrize(
    ("expected", "printed", "is_match"),
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
def test_dots_match_any_text(expected: list[str], printed: str, is_match: bool) -> None:
    assert matches(expected, printed) is is_match


def test_reports_of_processes_that_are_still_running_are_removed() -> None:
    reports = (
        "deleting a: waiting for b to exit (kill in 29 s)\nstopping a: waiting for b to exit\n"
    )
    assert without_progress(f"launched\n{reports}deleted a\n") == "launched\ndeleted a\n"
    pending = "main: pending: ContainerCreating\nmain: pending: pulling image a/b:1\n"
    assert without_progress(f"launched\n{pending}a ended\n") == "launched\na ended\n"


def test_difference_marks_only_lines_that_differ() -> None:
    marked = difference(["pid ...", "two", "three"], "pid 17\n2\nthree\n")
    assert marked.splitlines() == [" pid 17", "-two", "+2", " three"]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with create_sandbox(tmp_path) as sandbox:
        yield sandbox


def page_of(*blocks: str) -> Page:
    """Return a page of fences. Each block is a language and text on further lines."""
    return parse_page("\n".join(f"```{block}\n```\n" for block in blocks), "a.md")


def test_blocks_share_files_variables_and_names(sandbox: Sandbox) -> None:
    write = "python\npathlib.Path('out.txt').write_text(text * 2)"
    output = "console\n$ echo $WORD $COLUMNS; echo error >&2; cat ../out.txt\n"
    run_page(
        page_of(
            'text title="sub/data.txt"\nold',
            'text title="sub/data.txt"\nnew',
            "console\n$ cd sub; export WORD=$(cat data.txt)",
            "python\nimport pathlib\ntext = pathlib.Path('sub/data.txt').read_text()",
            write,
            f"{output}new 100\nnew\nnew\nerror",
            "console\n$ (exit 7)  # exits with 7\n$ symphony ls --json\n[]",
            "python\n>>> text\n'new...'\n>>> __name__\n'__main__'\n>>> late = text",
            "python\nassert late == text",
            "yaml\nprocesses: {a: {cmd: ls}}\nname: a",
            "json\n[1]",
            "toml\na = 1",
        ),
        sandbox,
        (),
    )


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (
            ["console\n$ echo 1\n$ echo 2; echo 3\n2"],
            "a.md:3: $ echo 2; echo 3\n- expected, + actual:\n 2\n+3",
        ),
        (
            ["console\n$ echo one; (exit 3)"],
            "a.md:2: $ echo one; (exit 3)\nexits with 3, expected 0; it printed:\none",
        ),
        (["console\n$ true  # exits with 2"], "exits with 0, expected 2"),
        (["console\n$ exit 0"], "a.md:2: $ exit 0\ndid not finish"),
        (["python\n", "python\nx = 1\n1 / 0"], 'File "a.md", line 7, in <module>\n    1 / 0'),
        (["python\nraise SystemExit(3)"], "a.md:2: Python block\nexits with 3"),
        (["python\nimport os\nos._exit(0)"], "a.md:2: Python block\ndid not finish"),
        (["python\n>>> 1 + 1\n3"], "Expected:\n    3\nGot:\n    2"),
        (["yaml\na: [1"], "a.md:2: invalid yaml"),
        (["yaml\nname: a\nprocesses: {b: {colour: red}}"], "a.md:2: invalid yaml: "),
        (["json\n{"], "a.md:2: invalid json"),
        (["toml\n="], "a.md:2: invalid toml"),
    ],
)
def test_failures_are_reported(sandbox: Sandbox, blocks: list[str], message: str) -> None:
    with pytest.raises(PageError, match=re.escape(message)):
        run_page(page_of(*blocks), sandbox, ())


def test_timeout_is_reported_with_the_output(sandbox: Sandbox) -> None:
    message = "a.md:2: $ echo begun; sleep 100\ndid not finish; it printed:\nbegun"
    with pytest.raises(PageError, match=re.escape(message)):
        run_page(page_of("console\n$ echo begun; sleep 100"), sandbox, (), timeout=2)


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("LICENSE", "Apache-3.0", "the block is not a part of LICENSE"),
        ("no/such.py", "x", "the file no/such.py does not exist"),
    ],
)
def test_excerpts_are_compared(sandbox: Sandbox, path: str, text: str, message: str) -> None:
    page = parse_page(f"<!-- excerpt: {path} -->\n```text\n{text}\n```\n", "a.md")
    with pytest.raises(PageError, match=re.escape(message)):
        run_page(page, sandbox, ())


BLOCK = "# A\n\n<!-- {} -->\n\n```console\n$ touch {}\n```\n"


def test_blocks_with_missing_needs_are_skipped(sandbox: Sandbox) -> None:
    comments = {"needs: zmq": "met", "needs: kube, zmq": "missing", "not run: a reason": "never"}
    text = "".join(BLOCK.format(*row) for row in comments.items())
    run_page(parse_page(text, "a.md"), sandbox, {"zmq"})
    assert {path.name for path in sandbox.directory.iterdir()} == {"examples", "met"}


def test_commands_can_be_restricted_to_a_need(sandbox: Sandbox) -> None:
    text = '```text title="a"\n```\n\n```console\n$ touch b\n```\n' + BLOCK.format(
        "needs: kube", "c"
    )
    run_page(parse_page(text, "a.md"), sandbox, {"kube"}, only={"kube"})
    assert {path.name for path in sandbox.directory.iterdir()} == {"examples", "a", "c"}


def test_processes_and_experiments_are_removed_after_a_failure(sandbox: Sandbox) -> None:
    page = page_of(
        'yaml title="a.yml"\nname: a\nprocesses: {b: {cmd: "exec sleep 1000"}}',
        "console\n$ symphony launch a.yml\n$ sleep 1000 & echo $! >pid\n$ false",
    )
    with pytest.raises(PageError, match=r"\$ false"):
        run_page(page, sandbox, ())
    state = Path(sandbox.environment["SYMPHONY_STATE_DIR"]) / "local"
    assert Cluster.new("local", state_dir=state).list_experiments() == []
    assert has_exited(int((sandbox.directory / "pid").read_text()))


def has_exited(pid: int) -> bool:
    """Return whether a process exits within 10 seconds."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], 10)[0])
    finally:
        os.close(pidfd)
