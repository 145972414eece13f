"""Run the Python blocks of a page in one namespace. The script of a page starts this program.

Each line of standard input is the path of a JSON file with the keys ``code``, ``page`` and
``line``. The program writes the output of the block and a traceback to a file with the suffix
``.out``, and answers with the exit code of the block.
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
from pathlib import Path


def main() -> None:
    # Processes that the blocks start must not keep the pipes to the shell open.
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    page = types.ModuleType("__main__")
    sys.modules["__main__"] = page
    sys.argv, sys.path[0] = ["page"], ""
    for request in requests:
        path = Path(request.strip())
        block = json.loads(path.read_text(encoding="utf-8"))
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            exit_code = run(block["code"], block["page"], block["line"], vars(page))
        path.with_suffix(".out").write_text(output.getvalue(), encoding="utf-8")
        print(exit_code, file=answers, flush=True)


def run(code: str, page: str, line: int, names: dict[str, object]) -> int:
    if any(row.lstrip().startswith(">>>") for row in code.splitlines()):
        return run_doctest(code, page, line, names)
    # Empty lines before the code make the line numbers of tracebacks those of the page.
    source = "\n" * (line - 1) + code
    linecache.cache[page] = (len(source), None, source.splitlines(keepends=True), page)
    try:
        exec(compile(source, page, "exec"), names)
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException as exc:
        frames = exc.__traceback__
        traceback.print_exception(type(exc), exc, frames.tb_next if frames else None)
        return 1
    return 0


def run_doctest(code: str, page: str, line: int, names: dict[str, object]) -> int:
    test = doctest.DocTestParser().get_doctest(code, names, page, page, line - 1)
    test.globs = names  # the parser copies the names, but the blocks of a page share them
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    results = runner.run(test, out=sys.stdout.write, clear_globs=False)
    return int(results.failed > 0)


if __name__ == "__main__":
    main()
