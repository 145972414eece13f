"""Run the tool: `python3 -m simulate`."""

import sys

from simulate import compiled

if __name__ == "__main__":
    if compiled.OPTION in sys.argv[1:]:
        # The other modules import those that are compiled.
        try:
            compiled.use()
        except compiled.Unavailable as exc:
            print(f"simulate: plain Python is used, because {exc}", file=sys.stderr)
    from simulate.cli import main

    sys.exit(main(sys.argv[1:]))
