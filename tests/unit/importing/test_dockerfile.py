"""The entry point, the command and the ports in a Dockerfile."""

from __future__ import annotations

import textwrap

import pytest

from symphony.importing.dockerfile import Program, program


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("FROM a\nCMD [\"b\", \"c d\"]", "", Program(command=("b", "c d"))),
        ("FROM a\ncmd b $c", "", Program(command=("/bin/sh", "-c", "b $c"))),
        ("FROM a\nCMD [b, c]", "", Program(command=("/bin/sh", "-c", "[b, c]"))),
        ("FROM a", "", Program()),
        ("FROM a\nRUN b \\\n# CMD x\n  CMD y\nCMD [\"z\"]", "", Program(command=("z",))),
        ("FROM a\nRUN <<END\nCMD x\nEND\n", "", Program()),
        (
            "FROM a\nCMD [\"c\"]\nENTRYPOINT [\"e\"]",
            "",
            Program(entrypoint=("e",), command=("c",)),
        ),
        ("FROM a\nEXPOSE 80/TCP $X 53/udp\nEXPOSE 90", "", Program(ports=(80, 90))),
        (
            "FROM a\nSHELL [\"/bin/bash\", \"-c\"]\nCMD x",
            "",
            Program(command=("/bin/bash", "-c", "x"), shell=("/bin/bash", "-c")),
        ),
    ],
)  # fmt: skip
def test_a_file_with_one_stage(text: str, target: str, expected: Program) -> None:
    assert program(text, target) == expected


def test_a_stage_has_the_program_of_the_stage_below() -> None:
    text = textwrap.dedent(
        """
        FROM --platform=linux/amd64 python AS Builder
        CMD ["run"]
        FROM builder AS tools
        ENTRYPOINT ["tool"]
        FROM builder
        RUN make
        """
    )
    assert program(text) == Program(command=("run",))
    assert program(text, "builder") == program(text, "0") == Program(command=("run",))
    assert program(text, "tools") == Program(entrypoint=("tool",))
    assert program(text, "nowhere") == Program()
