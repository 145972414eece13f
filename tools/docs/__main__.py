"""Write the documentation's generated files.

``python -m docs`` writes the generated pages. ``python -m docs --check`` reports pages that are out
of date. ``python -m docs pictures`` records the pictures of the home page and of `symphony top`,
and ``python -m docs ui-pictures`` those of `symphony ui`, which need Chromium.
"""

import sys

from docs import pages, pictures, top_pictures, ui_pictures

arguments = sys.argv[1:]
if arguments == ["--check"]:
    outdated = pages.outdated()
    if outdated:
        names = ", ".join(map(str, outdated))
        sys.exit(f"out of date: {names}; write them again with scripts/docs pages")
elif arguments == ["ui-pictures"]:
    for path in ui_pictures.record():
        print(f"wrote {path.relative_to(pages.ROOT)}")
elif arguments == ["pictures"]:
    for path in [*pictures.record(), *top_pictures.record()]:
        print(f"wrote {path.relative_to(pages.ROOT)}")
elif arguments:
    sys.exit("usage: python -m docs [--check | pictures | ui-pictures]")
else:
    for path in pages.write():
        print(f"wrote {path}")
