"""Single values of the mesh language: what is allowed, how it is described and how it is written.

``form`` names a check of ``forms`` that a pattern cannot make; ``hint`` ends the message about a
value of another form.
"""

from typing import Annotated, Literal

from msgspec import Meta

from headrace.units import BYTES_PATTERN, DURATION_PATTERN

Name = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        description="Lower-case letters, digits and inner hyphens, at most 63 (an RFC 1123 label).",
        extra={"hint": "use lower-case letters, digits and inner hyphens, at most 63"},
    ),
]
Wait = Annotated[
    str,
    Meta(
        pattern=DURATION_PATTERN,
        description="Such as 250ms; 0ms is none.",
        extra={"form": "duration", "hint": "write it like 2ms, 250ms or 1.5s"},
    ),
]
Duration = Annotated[
    str,
    Meta(
        pattern=DURATION_PATTERN,
        description="Such as 250ms, 30s or 1m30s.",
        extra={"form": "some-time", "hint": "write it like 250ms, 30s or 1m30s"},
    ),
]
Size = Annotated[
    str,
    Meta(
        pattern=BYTES_PATTERN,
        description="Such as 512MiB or 16GiB.",
        extra={"form": "size", "hint": "write it like 512MiB or 16GiB"},
    ),
]
Address = Annotated[
    str, Meta(max_length=45, description="An IP address.", extra={"form": "address"})
]
Host = Annotated[
    str,
    Meta(
        pattern=r"^(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$",
        description="A host without its port; *.example.com is every host below example.com.",
        extra={"hint": "write it like example.com or *.example.com, without scheme and port"},
    ),
]
Header = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9-]{1,128}$",
        description="Name of a header, in lower case.",
        extra={"hint": "write it in lower case, like x-user"},
    ),
]
Port = Annotated[int, Meta(ge=1, le=65535)]
Percent = Annotated[int, Meta(ge=0, le=100)]
VersionNumber = Annotated[int, Meta(ge=1, le=999_999, description="Version of a model.")]
Tier = Annotated[
    Literal["critical", "standard", "sheddable"],
    Meta(description="What is refused last, in between, and first when the mesh is full."),
]
Balance = Annotated[
    Literal["round-robin", "least-request", "utilization", "least-loaded"],
    Meta(
        description="How a gateway picks among ready nodes. utilization: by load reports straight "
        "from the nodes; least-loaded: least-request over weights the control server sends."
    ),
]
