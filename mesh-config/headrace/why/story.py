"""The explanation while it is being put together: facts for programs, steps for people."""

from collections.abc import Sequence
from typing import Any

from headrace.refusals import Refused
from headrace.why.explanation import Explanation, Step
from headrace.why.places import Places


class Story:
    """Facts and steps so far."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._facts: dict[str, Any] = {}
        self._steps: list[Step] = []

    def __repr__(self) -> str:
        return f"<Story steps={len(self._steps)} facts={','.join(self._facts)}>"

    def say(self, topic: str, says: str, place: str = "", notes: Sequence[Step] = ()) -> None:
        """Add a step."""
        self._steps.append(Step(topic=topic, says=says, place=place, notes=tuple(notes)))

    def know(self, **facts: Any) -> None:
        """Set fields of the explanation."""
        self._facts.update(facts)

    def refuse(self, refused: Refused) -> None:
        """The gateway ends the request here."""
        refusal = refused.refusal
        self.know(refusal=refusal.code, status=refusal.http, grpc_status=refusal.grpc)
        self.say(
            "refused",
            f"{refusal.code} (HTTP {refusal.http}, gRPC {refusal.grpc}): {refused.message}; "
            f"{refusal.remedy}",
        )

    def told(self) -> Explanation:
        """The whole explanation."""
        return Explanation(steps=tuple(self._steps), **self._facts)
