"""What can be wrong with a configuration: stable codes, where it is wrong, and how to say so.

A code is never reused: a check that goes leaves its row behind as a comment. HR01 are references,
HR02 values that contradict each other, HR03 advice, HR05 security, HR06 the loader's own.
"""

import difflib
import enum
from collections.abc import Iterable
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
    # Contradictions
    "HR0201": Code(_E, "There must be exactly one Mesh", "Keep one Mesh object."),
    "HR0202": Code(_E, "Version and alias", "Give either version or alias, not both and not none."),
    "HR0203": Code(_E, "A split sends nothing anywhere", "Give one side a weight above 0."),
    "HR0204": Code(_E, "Two things with one name", "Rename one of them."),
    "HR0205": Code(_E, "Two gateways on one socket", "Give each gateway a port of its own."),
    "HR0206": Code(_E, "One API key for two tenants", "Give each tenant a key of its own."),
    "HR0207": Code(_E, "Two routes match the same requests", "Add a header or host to one."),
    "HR0208": Code(_E, "Static pool and nodes disagree", "List nodes for static discovery only."),
    "HR0209": Code(_E, "A region fails over to itself", "Name other regions only."),
    "HR0210": Code(
        _W, "Weights do not add up to 100 or 10000", "They are treated as ratios; write percents."
    ),
    "HR0211": Code(_W, "A mirror copies to the only version", "Mirror to another version."),
    "HR0212": Code(_E, "Version given twice", "Number each version once."),
    # Advice
    "HR0301": Code(_I, "Model without a route", "An implicit route sends it to alias stable."),
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
    # Security
    "HR0501": Code(_W, "Gateway open to every network", "Bind an address, or front it with TLS."),
    "HR0502": Code(_W, "No tenant has a key", "Every inference will be refused; add a Tenant."),
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
    "HR0610": Code(_E, "File too large", "Split it into several files."),
    "HR0611": Code(_E, "Nested too deeply", "Flatten it."),
    "HR0612": Code(_E, "Aliases expand to too much", "Write the parts out, or use fewer aliases."),
    "HR0613": Code(_E, "Object defined twice", "Keep one definition."),
    "HR0614": Code(_E, "Not text", "Save the file as UTF-8 text."),
    "HR0615": Code(_E, "Recursive alias", "An anchor cannot contain itself."),
    "HR0616": Code(_E, "Too many problems", "Mend those that are listed first."),
    "HR0617": Code(_E, "Merge keys and tags are not supported", "Write the value out."),
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


def near(word: str, options: Iterable[str]) -> str:
    """``; did you mean "x"?``, or what there is to choose from, or nothing."""
    known = sorted(options)
    found = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if found:
        return f'; did you mean "{found[0]}"?'
    if known and len(known) <= _LISTED:
        return f"; expected one of: {', '.join(known)}"
    return ""


_LISTED = 20
