"""Single values of the mesh language: what is allowed, how it is described and how it is written.

``form`` names a check of ``forms`` that a pattern cannot make; ``hint`` ends the message about a
value of another form. ``type`` is what people call a value of it.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta

from headrace.units import BYTES_PATTERN, DURATION_PATTERN

Name = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        description="Lower-case letters, digits and inner hyphens, at most 63 (an RFC 1123 label).",
        extra={
            "type": "name",
            "hint": "use lower-case letters, digits and inner hyphens, at most 63",
        },
    ),
]
Wait = Annotated[
    str,
    Meta(
        pattern=DURATION_PATTERN,
        description="Such as 250ms; 0ms is none.",
        extra={"type": "duration", "form": "duration", "hint": "write it like 2ms, 250ms or 1.5s"},
    ),
]
Duration = Annotated[
    str,
    Meta(
        pattern=DURATION_PATTERN,
        description="Such as 250ms, 30s or 1m30s.",
        extra={
            "type": "duration",
            "form": "some-time",
            "hint": "write it like 250ms, 30s or 1m30s",
        },
    ),
]
Size = Annotated[
    str,
    Meta(
        pattern=BYTES_PATTERN,
        description="Such as 512MiB or 16GiB.",
        extra={"type": "size", "form": "size", "hint": "write it like 512MiB or 16GiB"},
    ),
]
Address = Annotated[
    str,
    Meta(max_length=45, description="An IP address.", extra={"type": "address", "form": "address"}),
]
Host = Annotated[
    str,
    Meta(
        pattern=r"^(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$",
        description="A host without its port; *.example.com is every host below example.com.",
        extra={
            "type": "host",
            "hint": "write it like example.com or *.example.com, without scheme and port",
        },
    ),
]
Header = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9-]{1,128}$",
        description="Name of a header, in lower case.",
        extra={"type": "header", "hint": "write it in lower case, like x-user"},
    ),
]
TensorName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,127}$",
        extra={"hint": "begin with a letter or _; use letters, digits, _, . and -, at most 128"},
    ),
]
Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "BF16", "BYTES",
]  # fmt: skip
GpuType = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9-]{1,32}$",
        extra={"hint": "use lower-case letters, digits and hyphens, at most 32"},
    ),
]
HeaderValue = Annotated[
    str,
    Meta(
        # What HTTP cannot carry in a header, or takes off its ends, no request could meet.
        pattern=r"^([^\x00-\x20\x7f]([^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?)?$",
        max_length=1024,
        extra={"hint": "write it quoted, without control characters or blanks at its ends"},
    ),
]
Sha256 = Annotated[
    str,
    Meta(
        pattern=r"^[0-9a-f]{64}$",
        extra={"hint": "write 64 lower-case hex digits, as printf KEY | sha256sum gives"},
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


def doc(text: str, **bounds: Any) -> Meta:
    """What a field means, for people and editors, and the bounds that ``Meta`` knows."""
    return Meta(description=text, **bounds)
