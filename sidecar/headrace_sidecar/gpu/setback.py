"""``Setback``: something on the way to a ready version failed; says whether it may pass."""


class Setback(Exception):
    """An expected failure of a step in a version's life.

    ``permanent`` means that the same again cannot help. ``counted`` is False where nothing was
    tried because the model server is not there: that says nothing about the version.
    """

    def __init__(self, message: str, *, permanent: bool = False, counted: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.permanent = permanent
        self.counted = counted
