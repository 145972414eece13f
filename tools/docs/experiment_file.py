"""The page of all keys of an experiment's file, from its JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from docs import examples, md
from symphony.model import schema, settings
from symphony.model.value_types import PARAMETER_REFERENCE

Schema = Mapping[str, Any]

_REFERENCE = PARAMETER_REFERENCE  # the pattern of text that has a parameter in it, which may stand for any value

# How the schema's kinds of values are called, and what may be said of them once.
KINDS = {
    "name": "name",
    "text": "text",
    "filled": "text",
    "strings": "text or list",
    "line": "shell line",
    "lines": "shell line or list",
    "absolute": "absolute path",
    "port": "port",
    "count": "whole number",
    "copies": "whole number",
    "quantity": "amount",
    "env": "{variable: text}",
    "labels": "{key: value}",
    "services": "services",
    "files": "files",
    "member": "process or group",
    "process": "process",
    "group": "group",
}
WORDS = {
    "name": "1 to 63 of a-z, 0-9 and `-`, a letter first and no `-` last",
    "text": "text; a number or a boolean is taken as it is written",
    "shell line": "text that a shell reads; a list is joined by `&&`",
    "amount": "a number, or text with a unit: `2`, `0.5`, `500m`, `4Gi`",
    "port": "1 to 65535",
    "services": "a name, a list of names, or `{name: port}`, where `null` lets symphony choose the port",
    "files": "a path, a list of paths, or `{name: path}`; relative ones begin in the folder of the file",
}

HEAD = """
An experiment is a file in YAML or JSON; this page has every key of it. It is written from the JSON Schema that the
loader is tested against. The same settings are methods of [`Process`](api/experiment.md) in Python.

A key that is not known is an error with its line and the near miss. `null` is as if the key were not there. Any value
may have [parameters](../howto/parameters.md), `${name}`, where the file declares some.
"""

EDITORS = """
## In an editor

The schema comes with the package. This prints where it is:

```console
$ symphony config schema
...experiment.schema.json
```

Editors with the YAML language server (VS Code with its YAML extension, Neovim, Emacs and others) read it from the first
line of the file, and then complete keys, explain them, and mark what is wrong:

```text
# yaml-language-server: $schema=/path/to/experiment.schema.json
```

A JSON file says the same in a key of its own, `"$schema": "/path/to/experiment.schema.json"`, which symphony passes
over.
"""

SETTINGS = """
Of a process or a group. The last column is what a setting of a group is about: it reaches every member, those added
later too, or it belongs to the Pod that they share, and then a member cannot have it; or to the group alone. Which
backend honours which is in [what each backend does](parity.md).
"""


class Undescribed(Exception):
    """A key of the schema says nothing of itself."""


def page(built: Schema | None = None) -> str:
    """The page as Markdown. Raises `Undescribed` for a key of the schema ``built`` that has no description."""
    keys = Keys(schema.build() if built is None else built)
    process, group = keys.of("process"), keys.of("group")
    return md.page(
        "# The experiment file",
        HEAD,
        md.fence("yaml", examples.WHOLE),
        EDITORS,
        "## The experiment",
        keys.table(keys.root, links={"images": "an-image", "processes": "a-process"}),
        "## An image",
        "What stands under `images`, by the repository that it is pushed to. [How images are built](../howto/images.md).",
        md.fence("yaml", examples.IMAGES),
        keys.table(keys.image, links={"context_directories": "context_directories"}),
        "### context_directories",
        "A list of these:",
        keys.table(keys.items(keys.image["properties"]["context_directories"])),
        "## A process",
        "What stands under `processes`, by the name of the process. All of it may be left out.",
        keys.table(process, leave_out=settings.SETTINGS),
        "`cmd`, `cmds`, and `command` with `args` exclude one another. Besides these keys it has the "
        "[settings](#settings), `env` among them.",
        "## Settings",
        SETTINGS,
        keys.table(
            process,
            leave_out=set(process["properties"]) - set(settings.SETTINGS),
            links={key: key for key in settings.SETTINGS},
            more={"group": _of_group},
        ),
        *(part for key in settings.SETTINGS for part in keys.setting(key)),
        "## A group",
        "A member that has `processes` of its own is a group: a Pod of several containers on Kubernetes. Besides these "
        "keys it has the [settings](#settings).",
        keys.table(group, leave_out=settings.SETTINGS),
        "## Kinds of values",
        md.table(("kind", ""), WORDS.items()),
    )


def _of_group(key: str) -> str:
    """What a setting of a group is to its members."""
    return {settings.POD: "the Pod", settings.CONTAINER: "every member", settings.OWN: "the group"}[
        settings.SETTINGS[key].level
    ]


class Keys:
    """A schema, and how its keys are told."""

    def __init__(self, built: Schema) -> None:
        self.root = built
        self.image = self.inside(built["properties"]["images"]["additionalProperties"])

    def of(self, name: str) -> Schema:
        """A definition by its name."""
        found: Schema = self.root["$defs"][name]
        return found

    def seen(self, given: Schema) -> Schema:
        """A setting, which is said once and referred to, where it is said."""
        name = given.get("$ref", "").rpartition("/")[2]
        return self.of(name) if name.startswith("setting-") else given

    def inside(self, given: Schema) -> Schema:
        """The form of a value that has keys of its own; an empty one where there is none."""
        forms = [given, *given.get("anyOf", ())]
        return next((form for form in forms if "properties" in form), {})

    def items(self, given: Schema) -> Schema:
        """The form of the items of a list."""
        forms = [given, *given.get("anyOf", ())]
        found: Schema = next(
            form["items"] for form in forms if isinstance(form.get("items"), Mapping)
        )
        return found

    def table(
        self,
        given: Schema,
        *,
        leave_out: Collection[str] = (),
        links: Mapping[str, str] | None = None,
        more: Mapping[str, Callable[[str], str]] | None = None,
    ) -> str:
        """A row for each key of a mapping; those of ``links`` lead to a section, ``more`` makes further columns."""
        more = more or {}
        rows = []
        for key, found in given["properties"].items():
            if key not in leave_out:
                item = self.seen(found)
                about = _description(key, item)
                row = [
                    _key(key, links or {}),
                    self.kind(item),
                    _default(key, item, given),
                    md.text(about),
                ]
                rows.append([*row, *(tell(key) for tell in more.values())])
        return md.table(["key", "kind", "default", "what it is", *more], rows)

    def setting(self, key: str) -> Iterator[str]:
        """A section with an example, and the keys that a setting has below it."""
        item = self.of(f"setting-{key}")
        yield f"### {key}"
        yield md.text(item["description"])
        yield md.fence("yaml", examples.SETTINGS[key])
        if key == "volumes":
            yield from self._volumes(item)
        elif key == "tolerations":
            yield self.table(self.items(item))
        elif self.inside(item):
            yield self.table(self.inside(item))

    def _volumes(self, item: Schema) -> Iterator[str]:
        for kind, volume in self.items(item)["properties"].items():
            yield f"#### {kind}"
            yield md.text(volume["description"])
            yield self.table(self.inside(volume))

    def kind(self, given: Schema) -> str:
        """In words, what may stand there. What is true of any value (null, a parameter) is left out."""
        words = dict.fromkeys(self._kinds(given))
        return " or ".join(words)

    def _kinds(self, given: Schema) -> Iterator[str]:
        if "$ref" in given:
            yield _word(KINDS[given["$ref"].rpartition("/")[2]])
        elif "enum" in given:
            yield md.codes((str(word) for word in given["enum"] if word), " ")
        elif "properties" in given:
            yield "mapping"
        elif "anyOf" in given:
            yield from self._choices(given["anyOf"])
        else:
            yield from self._plain(given)

    def _choices(self, forms: list[Schema]) -> Iterator[str]:
        words = any("enum" in form for form in forms)
        for form in forms:
            if not (words and form.get("pattern") == _REFERENCE):  # words may come from a parameter
                yield from self._kinds(form)

    def _plain(self, given: Schema) -> Iterator[str]:
        types = [given["type"]] if isinstance(given.get("type"), str) else given.get("type", [])
        if given.get("additionalProperties") == {"type": "null"}:
            return
        for name in types:
            if name == "object":
                yield self._mapping(given)
            elif name == "array":
                yield self._list(given)
            elif name == "string" and given.get("pattern") == _REFERENCE:
                continue
            elif name != "null" and not (name in {"number", "boolean"} and types[0] == "string"):
                yield {"string": "text", "boolean": "true or false"}.get(name, name)

    def _mapping(self, given: Schema) -> str:
        items = given.get("additionalProperties")
        key = (
            "variable" if given.get("propertyNames") == self.of("env")["propertyNames"] else "name"
        )
        return (
            md.code(f"{{{key}: {self._bare(items)}}}") if isinstance(items, Mapping) else "mapping"
        )

    def _list(self, given: Schema) -> str:
        if "prefixItems" in given:
            return md.code(f"[{', '.join(map(self._bare, given['prefixItems']))}]")
        return (
            f"list of {self.kind(given['items'])}"
            if isinstance(given.get("items"), Mapping)
            else "list"
        )

    def _bare(self, given: Schema) -> str:
        return self.kind(given).replace("`", "")


def _word(kind: str) -> str:
    return md.code(kind) if kind.startswith("{") else kind


def _key(key: str, links: Mapping[str, str]) -> str:
    return f"[{md.code(key)}](#{links[key]})" if key in links else md.code(key)


def _description(key: str, item: Schema) -> str:
    if not item.get("description"):
        raise Undescribed(
            f"the key {key!r} of the experiment file has no description; write one in its schema"
        )
    return str(item["description"])


def _default(key: str, item: Schema, around: Schema) -> str:
    """What holds where a key is not there: as the schema has it, else as its description says."""
    if key in around.get("required", ()):
        return "required"
    if "default" in item:
        return md.code(str(item["default"]).lower())
    told = re.search(r"; the default is (\[.*\]|\S+?)\.?$", item["description"])
    return md.code(told[1]) if told and told[1] not in {"nothing", "chosen", "all"} else ""
