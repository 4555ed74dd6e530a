"""What a platform team may override for the whole mesh at once, without touching an object.

A field is here when three things hold: gateways read it on every request or attempt, so that a
change is live when they have it; any value within its bounds leaves a mesh that answers; and one
value for all models makes sense, as a switch in an incident does. So these are not here: Envoy's
own guard flags, which come and go with its builds and which ``--mode validate`` cannot judge;
limits on connections, which the overload manager decides and which no runtime key reaches;
thresholds that Envoy reads anew only when a node changes. What varies by model is in its objects.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.config.values import Percent, doc


class RuntimeSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Overrides for the whole mesh, in effect at once; without one, things are as routes say."""

    rate_limit_percent: Annotated[
        Percent | None,
        doc("Percentage of the requests over a rate limit that is refused; 0 lets all pass."),
    ] = None
    mirror_percent: Annotated[
        Percent | None,
        doc("Percentage that every mirror copies, instead of its own; 0 stops all copies."),
    ] = None
    retry_percent: Annotated[
        Percent | None,
        doc("Percentage of the failures worth a retry that get one; 0 stops all retries."),
    ] = None
    ejection_percent: Annotated[
        Percent | None,
        doc("Percentage of the failing nodes that gateways take out; 0 keeps them all in."),
    ] = None
    least_loaded_bias: Annotated[
        Annotated[float, Meta(ge=0, le=10)] | None,
        doc("How much open requests weigh in least-loaded: 0 not at all, 1 as they are."),
    ] = None
