"""What the Mesh overrides for every model at once, whatever routes say."""

import msgspec

from headrace import ir
from headrace.why.story import Story


def applied(route: ir.Route, overrides: ir.Runtime) -> ir.Route:
    """The route with the percentages that are in effect instead of its own."""
    percent = overrides.mirror_percent
    if route.mirror is None or percent is None:
        return route
    return msgspec.structs.replace(route, mirror=ir.Mirror(route.mirror.version, percent))


def tell(overrides: ir.Runtime, story: Story) -> None:
    """Every override that can change what becomes of a request."""
    says = {
        "rateLimitPercent": (overrides.rate_limit_percent, "{} % of what exceeds it is refused"),
        "mirrorPercent": (overrides.mirror_percent, "{} % are copied, where a mirror is"),
        "retryPercent": (overrides.retry_percent, "{} % of the failures worth a retry get one"),
        "ejectionPercent": (overrides.ejection_percent, "{} % of the failing nodes are taken out"),
    }
    for field, (percent, text) in says.items():
        if percent is None:
            continue
        source = overrides.source
        place = story.places.at(source, "spec", "runtime", field) if source is not None else ""
        story.say("override", f"{field} of the mesh: {text.format(percent)}", place)
    if overrides.rate_limit_percent == 0:
        story.know(rate_limit=None)
    if overrides.mirror_percent == 0:
        story.know(mirror=None)
    if overrides.retry_percent == 0:
        story.know(retries=0)
