"""Every way the mesh says no. Statuses, codes, retries and metric labels come from this table."""

import enum

import msgspec


class Refusal(enum.Enum):
    """Code, HTTP status, gRPC status number, whether the request may run elsewhere, remedy."""

    INVALID_JSON = ("invalid_json", 400, 3, False, "send one valid JSON object")
    INVALID_VALUE = ("invalid_value", 400, 3, False, "correct the field that the message names")
    INVALID_API_KEY = ("invalid_api_key", 401, 16, False, "send a known key as x-api-key")
    MODEL_NOT_FOUND = (
        "model_not_found",
        404,
        5,
        False,
        "see GET /v2/models/<name> for what exists",
    )
    NOT_FOUND = ("not_found", 404, 5, False, "use a path of the Open Inference Protocol")
    METHOD_NOT_ALLOWED = ("method_not_allowed", 405, 12, False, "use the method the API names")
    REQUEST_TOO_LARGE = ("request_too_large", 413, 8, False, "send a smaller body")
    ENCODING_NOT_ACCEPTED = ("encoding_not_accepted", 415, 3, False, "send the body uncompressed")
    QUOTA_EXCEEDED = ("quota_exceeded", 429, 8, False, "slow down; see retry-after")
    SLOW_SENDER = ("slow_sender", 408, 4, False, "send the request faster")
    SLOW_READER = ("slow_reader", 408, 8, False, "read the stream as fast as it is answered")
    CLIENT_GONE = ("client_gone", 499, 1, False, "none: the caller left")
    INTERNAL = ("internal", 500, 13, False, "report it with the request id")
    NOT_IMPLEMENTED = ("not_implemented", 501, 12, False, "use what the model supports")
    UPSTREAM_RESET = ("upstream_reset", 502, 14, False, "try again")
    OVERLOADED = ("overloaded", 503, 14, True, "try again after retry-after")
    NOT_READY = ("not_ready", 503, 14, True, "try again: the model is loading or being repaired")
    DRAINING = ("draining", 503, 14, True, "try again: the node is leaving")
    TIMEOUT = ("timeout", 504, 4, False, "raise the timeout or send less work")

    def __init__(self, code: str, http: int, grpc: int, elsewhere: bool, remedy: str) -> None:
        self.code = code
        self.http = http
        self.grpc = grpc
        self.elsewhere = elsewhere
        self.remedy = remedy


class Refused(Exception):
    """An expected refusal on its way to the edge, where it becomes a status and a body.

    ``elsewhere`` overrides the table where this one request may, or may not, run on another node.
    ``sick`` marks an answer that outlier detection shall hold against the node.
    """

    def __init__(
        self,
        refusal: Refusal,
        message: str,
        *,
        where: str = "",
        retry_after_s: float | None = None,
        elsewhere: bool | None = None,
        sick: bool = False,
    ) -> None:
        super().__init__(message)
        self.refusal = refusal
        self.message = message
        self.where = where
        self.retry_after_s = retry_after_s
        self.elsewhere = refusal.elsewhere if elsewhere is None else elsewhere
        self.sick = sick


class RefusalBody(msgspec.Struct, omit_defaults=True):
    """JSON body of a refusal on the Open Inference Protocol: ``error`` is what its clients read."""

    error: str
    code: str
    where: str = ""
    remedy: str = ""


def body(refused: Refused) -> bytes:
    """JSON body of a refusal."""
    return msgspec.json.encode(
        RefusalBody(
            error=refused.message,
            code=refused.refusal.code,
            where=refused.where,
            remedy=refused.refusal.remedy,
        )
    )
