"""``headrace explain``: what a kind or a field of the mesh language means, from its types."""

import argparse
import textwrap
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import msgspec

from headrace.config.explain import Explained, UnknownFieldError, explain
from headrace.config.problems import CODES
from headrace_xds.cli.console import BOLD, CommandError, Console, Exit
from headrace_xds.cli.output import add_format, render

EXAMPLES = """\
  headrace explain route                      what a Route is, and its fields
  headrace explain route.spec.retry           one field and those below it
  headrace explain model --recursive          every field of a kind
  headrace explain mesh.spec.regions -o json
  headrace explain HR0105                     a code of headrace analyze
"""
WIDTH = 96


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument("what", metavar="KIND[.FIELD...]|CODE", help="such as route.spec.retry")
    parser.add_argument("--recursive", action="store_true", help="all fields below, not one level")
    add_format(parser, "text", "json", "yaml")


def run(flags: argparse.Namespace, console: Console) -> int:
    """Print the explanation; exit 1 when there is no such kind, field or code."""
    if (code := CODES.get(flags.what.upper())) is not None:
        name = flags.what.upper()
        console.data(f"{name}: {code.title}\n    {code.severity.label}. {code.remedy}")
        return Exit.OK
    try:
        found = explain(flags.what)
    except UnknownFieldError as error:
        raise CommandError(str(error), remedy="see headrace explain KIND") from None
    if flags.output == "text":
        console.data("\n".join(_lines(found, console, recursive=flags.recursive)))
    else:
        shown = _plain(found, depth=-1 if flags.recursive else 1)
        console.data(render([shown], (), flags.output, single=True))
    return Exit.OK


def _lines(found: Explained, console: Console, *, recursive: bool) -> Iterator[str]:
    yield _head(found, console)
    yield from _wrapped(found.description, 4)
    if found.form:
        yield from _wrapped(f"Form: {found.form}.", 4)
    for field in found.fields:
        yield from _field(field, 2, console, recursive=recursive)


def _head(found: Explained, console: Console) -> str:
    parts = [f"KIND: {console.paint(found.kind, BOLD)}"]
    if found.path:
        parts += [f"FIELD: {console.paint(found.path, BOLD)} <{found.type}>", _default(found)]
    return "   ".join(parts)


def _default(found: Explained) -> str:
    if found.required:
        return "Required"
    return f"Default: {_value(found.default)}"


def _field(field: Explained, indent: int, console: Console, *, recursive: bool) -> Iterator[str]:
    note = "required" if field.required else f"default {_value(field.default)}"
    name = console.paint(field.name, BOLD)
    yield f"{' ' * indent}{name} <{field.type}, {note}>"
    yield from _wrapped(field.description, indent + 4)
    if recursive:
        for below in field.fields:
            yield from _field(below, indent + 4, console, recursive=True)


def _wrapped(text: str, indent: int) -> list[str]:
    blank = " " * indent
    return textwrap.wrap(text, WIDTH, initial_indent=blank, subsequent_indent=blank)


def _value(value: Any) -> str:
    """A default on one line, as YAML in braces writes it."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case "":
            return '""'
        case dict():
            return f"{{{', '.join(f'{key}: {_value(item)}' for key, item in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
    return str(value)


def _plain(found: Explained, *, depth: int) -> dict[str, Any]:
    """For programs: fields below as deep as asked for."""
    plain: OrderedDict[str, Any] = OrderedDict(msgspec.to_builtins(found))
    plain["fields"] = [_plain(each, depth=depth - 1) for each in found.fields] if depth else []
    return plain
