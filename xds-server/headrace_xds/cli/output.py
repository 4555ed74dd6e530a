"""The formats of ``-o``: a table for people, whole values for programs."""

import argparse
import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import yaml

from headrace.config.write import Dumper
from headrace_xds.cli.tables import Column, table

FORMATS = ("table", "wide", "json", "yaml", "name")


def add_format(parser: argparse.ArgumentParser, *formats: str) -> None:
    """Give a command the flag ``-o``; the first format is the default."""
    choices = formats or FORMATS
    parser.add_argument(
        "-o", "--output", choices=choices, default=choices[0], help=f"default: {choices[0]}"
    )


def render(
    rows: Sequence[dict[str, Any]],
    columns: Sequence[Column],
    form: str,
    *,
    single: bool = False,
    prefix: str = "",
) -> str:
    """Rows in a format; ``single`` shows one value by itself instead of a list of one."""
    match form:
        case "json":
            return json.dumps(rows[0] if single else list(rows), indent=2, ensure_ascii=False)
        case "yaml":
            return documents(rows)
        case "name":
            return "\n".join(f"{prefix}{name_of(row)}" for row in rows)
        case _:
            return table(columns, rows, wide=form == "wide")


def documents(values: Sequence[object]) -> str:
    """Values as YAML documents."""
    return "---\n".join(
        yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
        for value in values
    )


def name_of(row: dict[str, Any]) -> str:
    """``kind/name`` of an object, the name of anything else."""
    if "metadata" in row:
        return f"{str(row['kind']).lower()}/{row['metadata']['name']}"
    return str(row.get("name") or row.get("id") or row.get("cluster"))


class _Dumper(Dumper):
    """Writes mappings in their own order too."""


def _mapping(dumper: yaml.SafeDumper, value: OrderedDict[str, object]) -> yaml.MappingNode:
    return dumper.represent_mapping("tag:yaml.org,2002:map", value.items())


_Dumper.add_representer(OrderedDict, _mapping)
