"""Cuts a byte stream into log lines of bounded length. Pure."""

from headrace import limits


class LogLines:
    """Takes chunks, gives complete lines; what a line has beyond the limit is dropped."""

    def __init__(self) -> None:
        self._rest = b""
        self._dropping = False

    def feed(self, chunk: bytes) -> list[str]:
        """Lines that this chunk completes."""
        *complete, self._rest = (self._rest + chunk).split(b"\n")
        lines = [self._cut(line) for line in complete if not self._skip()]
        if len(self._rest) > limits.LOG_LINE_BYTES:
            if not self._dropping:
                lines.append(self._cut(self._rest))
            self._dropping, self._rest = True, b""
        return lines

    def close(self) -> list[str]:
        """The last line, when the stream ended without a newline."""
        rest, self._rest = self._rest, b""
        return [self._cut(rest)] if rest and not self._dropping else []

    def _skip(self) -> bool:
        dropping, self._dropping = self._dropping, False
        return dropping

    @staticmethod
    def _cut(line: bytes) -> str:
        return line[: limits.LOG_LINE_BYTES].decode(errors="replace")
