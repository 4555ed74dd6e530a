"""The admin API as the commands use it."""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from headrace_xds.cli.console import CommandError, Exit

DEFAULT_SERVER = "http://127.0.0.1:10080"
ENVIRONMENT = "HEADRACE_SERVER"
TIMEOUT_S = 30.0


class Refusal(CommandError):
    """The server said no; ``problems`` are those of a configuration it refused."""

    def __init__(self, status: int, body: Mapping[str, Any], *, where: str) -> None:
        super().__init__(str(body.get("detail", f"HTTP status {status}")), where=where)
        self.code = status
        self.problems: list[dict[str, Any]] = list(body.get("problems", ()))


class Admin:
    """One control server, asked by HTTP. It is on this machine, so no proxy is ever used."""

    def __init__(self, server: str | None = None) -> None:
        self.server = (server or os.environ.get(ENVIRONMENT) or DEFAULT_SERVER).rstrip("/")
        if "://" not in self.server:
            self.server = f"http://{self.server}"
        if not self.server.startswith(("http://", "https://")):
            raise CommandError(
                "the server must be an http or https address",
                where=self.server,
                remedy=f"pass --server or set {ENVIRONMENT}, such as {DEFAULT_SERVER}",
                status=Exit.USAGE,
            )
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def __repr__(self) -> str:
        return f"Admin({self.server})"

    def get(self, path: str, **query: str) -> Any:
        """JSON under a path."""
        return self._ask("GET", path, query, None)

    def items(self, path: str, **query: str) -> list[dict[str, Any]]:
        """Items of the list under a path."""
        answer = self.get(path, **query)
        if not isinstance(answer, dict) or not isinstance(answer.get("items"), list):
            raise CommandError(
                "the answer is no list",
                where=f"{self.server}{path}",
                remedy="is this the admin API of a headrace-xds of the same release?",
            )
        return list(answer["items"])

    def post(self, path: str, body: str, **query: str) -> Any:
        """JSON answer to a YAML body."""
        return self._ask("POST", path, query, body.encode())

    def delete(self, path: str) -> Any:
        """JSON answer to a deletion."""
        return self._ask("DELETE", path, {}, None)

    def _ask(self, method: str, path: str, query: Mapping[str, str], body: bytes | None) -> Any:
        tail = f"?{urllib.parse.urlencode(query)}" if query else ""
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked above
            f"{self.server}{urllib.parse.quote(path)}{tail}",
            data=body,
            method=method,
            headers={"content-type": "application/yaml"} if body is not None else {},
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                raise Refusal(error.code, _body(error), where=f"{method} {path}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise CommandError(
                f"the control server does not answer: {reason}",
                where=self.server,
                remedy=f"start it with headrace up, or name another with --server or {ENVIRONMENT}",
                status=Exit.UNREACHABLE,
            ) from None


def _body(error: urllib.error.HTTPError) -> dict[str, Any]:
    try:
        body = json.load(error)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
