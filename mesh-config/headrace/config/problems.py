"""What can be wrong with a configuration: stable codes, where it is wrong, and how to say so.

A code is never reused: a check that goes leaves its row behind as a comment. HR01 are references,
HR02 values that contradict each other, HR03 advice, HR05 security, HR06 the loader's own, HR07 what
Envoy itself refuses.
"""

import difflib
import enum
import heapq
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec


class Severity(enum.IntEnum):
    """How bad a problem is; an error keeps the configuration from being used."""

    INFO = 0
    WARNING = 1
    ERROR = 2

    @property
    def label(self) -> str:
        """As people read it."""
        return self.name.capitalize()


class Code(msgspec.Struct, frozen=True):
    """One row of the table."""

    severity: Severity
    title: str
    remedy: str


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO

CODES: Final[dict[str, Code]] = {
    # References
    "HR0101": Code(_E, "Referenced pool not found", "Name a Pool of this configuration."),
    "HR0102": Code(_E, "Referenced model not found", "Name a Model of this configuration."),
    "HR0103": Code(_E, "Referenced region not found", "Name a region of the Mesh."),
    "HR0104": Code(_E, "Referenced zone not found", "Name a zone of the pool's region."),
    "HR0105": Code(
        _E, "Referenced alias not found", "Add the alias to the model, or mend the name."
    ),
    "HR0106": Code(_E, "Referenced version not found", "Add the version to the model."),
    "HR0107": Code(
        _E,
        "Referenced secret cannot be used",
        "Put tls.crt and tls.key, or ca.crt, into its folder below --secrets of the server.",
    ),
    # Contradictions
    "HR0201": Code(_E, "There must be exactly one Mesh", "Keep one Mesh object."),
    "HR0202": Code(
        _E, "Both version and alias, or neither", "Give either the version or the alias."
    ),
    "HR0203": Code(_E, "A split sends nothing anywhere", "Give one side a weight above 0."),
    "HR0204": Code(_E, "Two things with one name", "Rename one of them."),
    "HR0205": Code(_E, "Two gateways on one socket", "Give each gateway a port of its own."),
    "HR0206": Code(_E, "One API key for two tenants", "Give each tenant a key of its own."),
    "HR0207": Code(_E, "Two routes match the same requests", "Add a header or host to one."),
    "HR0208": Code(_E, "Discovery and nodes disagree", "List nodes for static discovery only."),
    "HR0209": Code(_E, "A region fails over to itself", "Name other regions only."),
    "HR0210": Code(
        _W, "Weights do not add up to 100 or 10000", "They are treated as ratios; write percents."
    ),
    "HR0211": Code(_W, "A mirror copies to the version that serves", "Mirror to another version."),
    "HR0212": Code(_E, "Version given twice", "Number each version once."),
    "HR0213": Code(
        _E, "A match that nothing can meet", "Ask for one value of a header, not for two."
    ),
    "HR0214": Code(
        _E, "Two static nodes on one socket", "Give each node an address or ports of its own."
    ),
    "HR0215": Code(_E, "A dimension of 0", "Write its size, or -1 for any size."),
    "HR0216": Code(
        _W, "A try may take longer than the whole request", "Lower perTryTimeout below timeout."
    ),
    "HR0217": Code(
        _W, "The route gives up before the SLO allows", "Raise timeout, or lower slo.latency."
    ),
    "HR0218": Code(
        _W, "Two sides of a split are one version", "Keep one of them, with both weights."
    ),
    "HR0219": Code(
        _W, "A static node reports its load elsewhere", "Use the orcaPort of the Mesh on all nodes."
    ),
    "HR0220": Code(
        _E, "A header that gateways remove", "Use a header of your own to match or to stick by."
    ),
    "HR0221": Code(
        _W, "A burst smaller than the rate", "Raise burst to requests, or leave it out."
    ),
    # Advice
    "HR0301": Code(
        _I, "Model without a route", "Its requests go to the alias stable, or the only version."
    ),
    "HR0302": Code(_W, "Tenant without API keys", "Nobody can call as this tenant; add a key."),
    "HR0303": Code(
        _W, "Waiting for company may break the SLO", "Lower maxQueueDelay or raise slo.latency."
    ),
    "HR0304": Code(_I, "Region without a gateway", "Its nodes serve other regions' failover only."),
    "HR0305": Code(_W, "Canary before stable", "List stable first: growing it then moves least."),
    "HR0306": Code(
        _W, "No version to route to by default", "Add an alias stable, or a route with a split."
    ),
    "HR0307": Code(_I, "Region with one way out", "Name failover regions, or accept its outages."),
    "HR0308": Code(_W, "Pool that no model is placed on", "Add it to a model's placement."),
    "HR0309": Code(_I, "Too much advice to list", "Act on what is listed first."),
    "HR0310": Code(
        _W,
        "Model out of reach of a gateway",
        "Place it in the gateway's region, or in a region that it fails over to.",
    ),
    "HR0311": Code(
        _I, "Sticky, with nothing to stick to", "Add a second side to the split, or drop sticky."
    ),
    "HR0312": Code(
        _W,
        "Model that only some headers reach",
        "Add a route without headers: a model with a route has no route of its own any more.",
    ),
    "HR0313": Code(
        _W,
        "A protection of the whole mesh is lifted",
        "Remove the override when the incident is over.",
    ),
    # Security
    "HR0501": Code(_W, "Gateway open to every network", "Bind an address, or give it tls."),
    "HR0502": Code(_W, "No tenant has a key", "Every inference will be refused; add a Tenant."),
    "HR0503": Code(
        _W,
        "Secret is broken, its last good content stays in service",
        "Put a certificate and the key that belongs to it into its folder.",
    ),
    # Loader
    "HR0601": Code(_E, "Not valid YAML", "Mend the syntax at this place."),
    "HR0602": Code(_E, "Unknown field", "Remove it, or mend its name."),
    "HR0603": Code(_E, "Duplicate key", "Keep one of them."),
    "HR0604": Code(_E, "Wrong type", "Write a value of the type that is named."),
    "HR0605": Code(_E, "Value out of range", "Write a value within the bounds."),
    "HR0606": Code(_E, "Value of the wrong form", "Write it in the form that is named."),
    "HR0607": Code(_E, "Missing field", "Add it."),
    "HR0608": Code(_E, "Unknown kind", "Use a kind of headrace.dev/v1alpha1."),
    "HR0609": Code(_E, "Unknown apiVersion", "Write apiVersion: headrace.dev/v1alpha1."),
    "HR0610": Code(_E, "Too large to read", "Split the file, or read fewer files."),
    "HR0611": Code(_E, "Nested too deeply", "Flatten it."),
    "HR0612": Code(_E, "Aliases expand to too much", "Write the parts out, or use fewer aliases."),
    "HR0613": Code(_E, "Object defined twice", "Keep one definition."),
    "HR0614": Code(_E, "Not text", "Save the file as UTF-8 text."),
    "HR0615": Code(_E, "Recursive alias", "An anchor cannot contain itself."),
    "HR0616": Code(_E, "Too many problems", "Mend those that are listed first."),
    "HR0617": Code(_E, "Merge keys and tags are not supported", "Write the value out."),
    # Envoy
    "HR0701": Code(
        _E,
        "Envoy refuses what this makes",
        "Change what Envoy's text names; where the object does not say it, report a defect.",
    ),
}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong; line and column count from 1."""

    code: str
    file: str
    line: int
    column: int
    path: str
    message: str
    object: str = ""
    """Kind and name, where they are known."""

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return CODES[self.code].severity

    @property
    def is_error(self) -> bool:
        """Whether it keeps the configuration from being used."""
        return self.severity is Severity.ERROR


def render(problem: Problem) -> str:
    """``file:line:col: path: message``."""
    place = f"{problem.file}:{problem.line}:{problem.column}"
    return f"{place}: {problem.path}: {problem.message}"


def render_analysis(problem: Problem) -> str:
    """``Error   [HR0101] (Route chat, mesh.yaml:14:11) message``, as analyzers print it."""
    place = f"{problem.file}:{problem.line}:{problem.column}"
    where = f"{problem.object}, {place}" if problem.object else place
    return f"{problem.severity.label:<7} [{problem.code}] ({where}) {problem.message}"


def document() -> str:
    """The page of the documentation that explains every code."""
    parts = [_PAGE]
    for prefix, title in _RANGES.items():
        parts.append(f"\n## {prefix}xx: {title}\n\n| code | severity | what | remedy |\n")
        parts.append("|---|---|---|---|\n")
        parts += [
            f"| [{code}](problems/{code}.md) | {row.severity.label} "
            f"| {row.title} | {row.remedy} |\n"
            for code, row in CODES.items()
            if code.startswith(prefix)
        ]
    return "".join(parts)


_RANGES = {
    "HR06": "the text itself",
    "HR01": "references",
    "HR02": "values that contradict each other",
    "HR03": "advice",
    "HR05": "security",
    "HR07": "what Envoy itself refuses",
}
_PAGE = """\
# Problems

What `headrace analyze` and the control server find in a configuration. An error keeps the whole
configuration from being used, and what was in effect stays so; warnings and infos do not. A code
keeps its meaning for ever. This page is generated from `headrace/config/problems.py`.
"""


def near(word: str, options: Iterable[str]) -> str:
    """``; did you mean "x"?``, or what there is to choose from, or nothing."""
    known = sorted(options)
    if len(word) <= _COMPARED:
        for option in difflib.get_close_matches(word, _alike(word, known), n=1, cutoff=0.6):
            return f'; did you mean "{option}"?'
    if known and len(known) <= _LISTED:
        return f"; expected one of: {', '.join(known)}"
    return ""


def _alike(word: str, options: Sequence[str]) -> list[str]:
    """Options that share most letters with a word, as many as may be compared closely."""
    letters = set(word)
    return heapq.nlargest(_OPTIONS, options, key=lambda each: -len(letters ^ set(each)))


def shown(text: str) -> str:
    """Text from a configuration as messages quote it: one line, bounded, nothing unprintable."""
    cut = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    if cut.isprintable():
        return cut
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in cut)


_SHOWN = 60
_LISTED = 20
_COMPARED = 64
"""A longer word is no slip of the pen; comparing takes time that grows with its square."""
_OPTIONS = 100
