"""Write the generated pages: `python -m docs`, or tell which are out of date: `python -m docs --check`."""

import sys

from docs.pages import outdated, write

if sys.argv[1:] == ["--check"]:
    stale = outdated()
    if stale:
        sys.exit(f"out of date: {', '.join(map(str, stale))}; write them again: scripts/docs pages")
else:
    for path in write():
        print(f"wrote {path}")
