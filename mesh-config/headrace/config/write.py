"""Objects back to YAML that the loader reads as the same objects."""

from typing import Any

import msgspec
import yaml

from headrace.config import schema
from headrace.config.yaml import scalar


class Dumper(yaml.SafeDumper):
    """YAML as people write it: no anchors, and quotes where YAML 1.1 or 1.2 would see no text."""

    def ignore_aliases(self, data: object) -> bool:
        """Equal values are written again, not referred to."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=_style(value))


def _style(value: str) -> str | None:
    if not value.replace("\n", "").isprintable():
        return '"'
    if "\n" in value:
        return "|"
    plain = yaml.ScalarNode("tag:yaml.org,2002:str", value)
    return None if isinstance(scalar(plain), str) else "'"


Dumper.add_representer(str, _text)


def write(item: schema.Object) -> str:
    """One document with every field, those at their defaults too."""
    plain: dict[str, Any] = msgspec.to_builtins(item)
    order = ("apiVersion", "kind", "metadata", "spec")
    return yaml.dump(
        {key: plain[key] for key in order},
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
    )
