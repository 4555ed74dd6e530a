"""What can go wrong in the model server, as one value: code, where, remedy, and if it will pass."""


class Failure(Exception):
    """An expected failure. ``permanent`` means: trying the same again cannot help."""

    def __init__(
        self, code: str, message: str, *, where: str, remedy: str, permanent: bool = True
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.remedy = remedy
        self.permanent = permanent

    def __str__(self) -> str:
        return f"{self.where}: {self.message} ({self.code}); {self.remedy}"
