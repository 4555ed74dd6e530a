"""What a control server has in effect, as values of the mesh language.

A place in it is an object and the line that ``headrace get OBJECT -o yaml`` shows.
"""

import msgspec

from headrace import limits
from headrace.config.load import Loaded, load
from headrace.why.explanation import Endpoint
from headrace_xds.cli.client import Admin
from headrace_xds.cli.output import documents, name_of


def objects(admin: Admin) -> Loaded:
    """Objects in effect."""
    read_from = files(admin)
    # The bound on the files of a folder says nothing about objects.
    size = limits.CONFIG_FILES
    read = [load(read_from[start : start + size]) for start in range(0, len(read_from), size)]
    return Loaded(
        objects=tuple(placed for part in read for placed in part.objects),
        problems=tuple(problem for part in read for problem in part.problems),
        files=tuple(file for file, _ in read_from),
    )


def files(admin: Admin) -> list[tuple[str, str]]:
    """Name and YAML of every object in effect."""
    rows = admin.items("/v1/objects")
    for row in rows:
        row.pop("status", None)
    return [(name_of(row), documents([row])) for row in rows]


def endpoints(admin: Admin) -> dict[str, list[Endpoint]]:
    """Endpoints by cluster, as gateways have them."""
    return {
        row["cluster"]: msgspec.convert(row["endpoints"], list[Endpoint])
        for row in admin.items("/v1/endpoints")
    }
