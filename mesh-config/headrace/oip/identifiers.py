"""Names, versions and ids that arrive from outside, before anything looks them up."""

import re
from typing import Final

from headrace import limits
from headrace.oip.tensors import invalid
from headrace.refusals import Refusal, Refused

_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_VERSION: Final = re.compile(r"[0-9]{1,9}")


def check_model(name: str, where: str) -> str:
    """The model name; Refused when nothing may be called so."""
    if not name or "/" in name or "\\" in name or ".." in name or _UNPRINTABLE.search(name):
        raise invalid(where, "a model name has no slash, no '..' and no control character")
    if len(name) > limits.MODEL_NAME_LENGTH:
        raise invalid(where, f"a model name has at most {limits.MODEL_NAME_LENGTH} characters")
    return name


def parse_version(text: str, where: str) -> int | None:
    """The version; None where the text is empty; Refused when it is no version."""
    if not text:
        return None
    if not (_VERSION.fullmatch(text) and text.isascii()):
        raise Refused(
            Refusal.MODEL_NOT_FOUND, f"{where}: a version is a positive integer", where=where
        )
    return int(text)


def check_id(request_id: str, where: str) -> str:
    """The request id; Refused when it is too long or unprintable."""
    if len(request_id) > limits.REQUEST_ID_LENGTH:
        raise invalid(where, f"a request id has at most {limits.REQUEST_ID_LENGTH} characters")
    if _UNPRINTABLE.search(request_id):
        raise invalid(where, "a request id has no control characters")
    return request_id
