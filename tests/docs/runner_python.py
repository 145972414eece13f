"""The Python in which the blocks of a page run: started by `runner_children.Interpreter`, never imported.

One JSON object a line comes in: code, page, line. One JSON string a line goes out: what went wrong, or nothing.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import linecache
import os
import sys
import traceback
import types


def main() -> None:
    """Serve until there are no more orders."""
    orders, answers = map(int, sys.argv[1:])
    for inherited in (orders, answers):
        os.set_inheritable(inherited, False)
    # The blocks are a script of the page's folder.
    page = types.ModuleType("__main__")
    sys.modules["__main__"] = page
    sys.argv, sys.path[0] = ["page"], ""
    with open(orders, encoding="utf-8") as reader, open(answers, "w", encoding="utf-8") as writer:
        for line in reader:
            order = json.loads(line)
            writer.write(
                json.dumps(run(order["code"], order["page"], order["line"], vars(page))) + "\n"
            )
            writer.flush()


def run(code: str, page: str, line: int, names: dict[str, object]) -> str:
    """What went wrong in a block, with what it printed; or nothing."""
    if any(row.lstrip().startswith(">>>") for row in code.splitlines()):
        return examples(code, page, line, names)
    printed = io.StringIO()
    padded = "\n" * (line - 1) + code
    linecache.cache[page] = (len(padded), None, padded.splitlines(keepends=True), page)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            exec(compile(padded, page, "exec"), names)
    except SystemExit as exc:
        if exc.code not in (None, 0):
            return f"{printed.getvalue()}it exits with {exc.code}"
    except BaseException as exc:
        # The first frame is this function's.
        said = traceback.format_exception(
            type(exc), exc, exc.__traceback__ and exc.__traceback__.tb_next
        )
        return f"{printed.getvalue()}{''.join(said)}"
    return ""


def examples(code: str, page: str, line: int, names: dict[str, object]) -> str:
    """What differs from what a block with prompts shows; or nothing."""
    found = doctest.DocTestParser().get_doctest(code, names, page, page, line - 1)
    found.globs = names  # the parser made a copy
    said = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    runner.run(found, out=said.write, clear_globs=False)
    return said.getvalue()


if __name__ == "__main__":
    main()
