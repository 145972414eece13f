"""Generate the reference page for the experiment file from its JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from docs import examples, md
from symphony.model.document import schema
from symphony.model.settings import table as settings
from symphony.model.settings.value_types import PARAMETER_REFERENCE

Schema = Mapping[str, Any]

# The pattern of a string that contains a parameter. Every value can be given as such a string.
_REFERENCE = PARAMETER_REFERENCE

_DEFAULT_IN_DESCRIPTION = re.compile(r"; the default is (\[.*\]|\S+?)\.?$")

# The name of each definition in the schema, mapped to the kind of value that the page shows.
KINDS = {
    "name": "name",
    "text": "string",
    "filled": "string",
    "strings": "string or list",
    "line": "shell line",
    "lines": "shell line or list",
    "absolute": "absolute path",
    "port": "port",
    "count": "whole number",
    "copies": "whole number",
    "quantity": "amount",
    "duration": "duration",
    "backoff": "duration",
    "seconds": "duration",
    "env": "{variable: string}",
    "labels": "{key: value}",
    "services": "services",
    "files": "files",
    "member": "process or group",
    "process": "process",
    "group": "group",
}
WORDS = {
    "name": (
        "A string of 1 to 63 characters from a-z, 0-9 and `-`. A name begins with a letter and "
        "does not end with `-`."
    ),
    "string": "A string. Numbers and booleans are converted to strings.",
    "shell line": (
        "A string that a shell runs. In a list, each line runs only if all previous lines succeed."
    ),
    "amount": "A number, or a string with a unit, such as `2`, `0.5`, `500m` or `4Gi`.",
    "duration": "A number of seconds, or a string with units, such as `90s`, `5m` or `1h30m`.",
    "port": "A number from 1 to 65535.",
    "services": (
        "A name, a list of names, or `{name: port}`. With `null`, symphony chooses the port."
    ),
    "files": (
        "A path, a list of paths, or `{name: path}`. Relative paths are relative to the directory "
        "of the experiment file."
    ),
}

HEAD = """
An experiment file is a YAML or JSON file. This page describes all its keys. The page is generated
from the JSON Schema for experiment files. In Python, use the methods of
[`Process`](api/experiment.md) for the same settings.

An unknown key causes an error that names the line and, if there is one, a similar key. A value of
`null` has the same effect as omitting the key, except for a variable in `env`, whose empty text is
`''`. If the file declares [parameters](../howto/parameters.md), every value can contain `${name}`.
"""

EDITORS = """
## Use the schema in an editor

The schema is part of the package. This command prints its path:

```console
$ symphony config schema
...experiment.schema.json
```

Editors that use the YAML language server, such as VS Code with its YAML extension, Neovim and
Emacs, read the path from the first line of the file. With the schema, they complete keys, show the
descriptions of keys, and mark errors:

```text
# yaml-language-server: $schema=/path/to/experiment.schema.json
```

In a JSON file, write the key `"$schema": "/path/to/experiment.schema.json"`. symphony ignores this
key.

## Write shared values once

symphony ignores keys at the top level that begin with `x-`. Give their values YAML anchors, and use
them in several processes:

```yaml title="shared.yml"
name: shared
x-trainer: &trainer
  command: [python, train.py]
  env: &quiet {LEVEL: warning}
processes:
  small: *trainer
  large:
    <<: *trainer
    env: {<<: *quiet, LAYERS: 48}
```

Variables of all processes can also be written in `env` at the top level.
"""

SETTINGS = """
These settings can be set on a process or a group. The last column shows to which part of a group a
setting applies. A setting that applies to every member also applies to members that are added
later. A setting that applies to the Pod cannot be set on a member. [Comparison of
backends](parity.md) lists the settings that each backend supports.
"""


class Undescribed(Exception):
    """Raised if a key in the schema has no description."""


def page(built: Schema | None = None) -> str:
    """Return the page as Markdown.

    ``built`` is the schema to describe. By default, it is the package's schema. Raises
    `Undescribed` if a key in the schema has no description.
    """
    keys = Keys(schema.build() if built is None else built)
    process, group = keys.of("process"), keys.of("group")
    return md.page(
        "# Experiment file",
        HEAD,
        md.fence("yaml", examples.WHOLE),
        EDITORS,
        "## Experiment",
        keys.table(keys.root, links={"images": "images", "processes": "processes"}),
        "## Images",
        "`images` maps repositories to image descriptions. [Build images](../howto/images.md) "
        "explains how symphony builds the images.",
        md.fence("yaml", examples.IMAGES),
        keys.table(keys.image, links={"context_directories": "context_directories"}),
        "### context_directories",
        "Each element of the list has these keys:",
        keys.table(keys.items(keys.image["properties"]["context_directories"])),
        "## Processes",
        "`processes` maps names to processes. All keys of a process are optional.",
        keys.table(process, leave_out=settings.SETTINGS),
        "Set only one of `cmd`, `cmds`, and `command` with `args`. A process can also have the "
        "[settings](#settings) below.",
        "## Settings",
        SETTINGS,
        keys.table(
            process,
            leave_out=set(process["properties"]) - set(settings.SETTINGS),
            links={key: key for key in settings.SETTINGS},
            more={"In a group": _effect_in_group},
        ),
        *(part for key in settings.SETTINGS for part in keys.setting(key)),
        "## Groups",
        "An element of `processes` that has the key `processes` is a group. On Kubernetes, a group "
        "is a Pod with several containers. A group can also have the [settings](#settings) above.",
        keys.table(group, leave_out=settings.SETTINGS),
        "## Kinds of values",
        md.table(("Kind", "Values"), WORDS.items()),
    )


def _effect_in_group(key: str) -> str:
    """Return the part of a group to which a setting applies."""
    effects = {
        settings.POD: "the Pod",
        settings.CONTAINER: "every member",
        settings.OWN: "the group",
    }
    return effects[settings.SETTINGS[key].level]


class Keys:
    """A schema, with methods that describe its keys."""

    def __init__(self, built: Schema) -> None:
        self.root = built
        self.image = self.inside(built["properties"]["images"]["additionalProperties"])

    def of(self, name: str) -> Schema:
        """Return the schema's definition called ``name``."""
        found: Schema = self.root["$defs"][name]
        return found

    def resolve(self, given: Schema) -> Schema:
        """Return the setting that ``given`` refers to, or ``given`` if it does not refer to a
        setting.
        """
        name = given.get("$ref", "").rpartition("/")[2]
        return self.of(name) if name.startswith("setting-") else given

    def inside(self, given: Schema) -> Schema:
        """Return the alternative of ``given`` that has keys, or an empty mapping if no alternative
        has keys.
        """
        forms = [given, *given.get("anyOf", ())]
        return next((form for form in forms if "properties" in form), {})

    def items(self, given: Schema) -> Schema:
        """Return the schema of a list's elements."""
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
        """Return a table with a row for each key of a mapping, except the keys in ``leave_out``.

        ``links`` maps keys to the anchors that they link to. ``more`` maps the headers of
        additional columns to functions that return the cell for a key.
        """
        more = more or {}
        rows = []
        for key, value in given["properties"].items():
            if key in leave_out:
                continue
            item = self.resolve(value)
            row = [
                _key(key, links or {}),
                self.kind(item),
                _default(key, item, given),
                md.text(_description(key, item)),
            ]
            rows.append(row + [describe(key) for describe in more.values()])
        return md.table(["Key", "Kind", "Default", "Description", *more], rows)

    def setting(self, key: str) -> Iterator[str]:
        """Yield the parts of a setting's section: heading, description, example and keys."""
        item = self.of(f"setting-{key}")
        yield f"### {key}"
        yield md.text(item["description"])
        yield md.fence("yaml", examples.SETTINGS[key])
        if key == "volumes":
            yield from self._volumes(item)
        elif key in ("tolerations", "topology_spread"):
            yield self.table(self.items(item))
        elif self.inside(item):
            yield self.table(self.inside(item))

    def _volumes(self, item: Schema) -> Iterator[str]:
        for kind, volume in self.items(item)["properties"].items():
            yield f"#### {kind}"
            yield md.text(volume["description"])
            yield self.table(self.inside(volume))

    def kind(self, given: Schema) -> str:
        """Return a description of the values that a schema allows.

        Null and parameters are omitted, because they are always allowed.
        """
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
        has_enum = any("enum" in form for form in forms)
        for form in forms:
            # Omit the alternative for strings with a parameter, which follows an enumeration.
            if not (has_enum and form.get("pattern") == _REFERENCE):
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
                yield {"boolean": "true or false"}.get(name, name)

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
    """Return the table cell for a key's default.

    The default comes from the schema or, if the schema has none, from the key's description. For a
    required key, the cell is ``required``.
    """
    if key in around.get("required", ()):
        return "required"
    if "default" in item:
        return md.code(str(item["default"]).lower())
    found = _DEFAULT_IN_DESCRIPTION.search(_description(key, item))
    return "none" if found is None else md.code(found[1])
