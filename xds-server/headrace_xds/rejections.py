"""Who is to blame when a client refuses a response of several resources."""


def culprits(names: tuple[str, ...], message: str, *, partial: bool) -> tuple[str, ...]:
    """Names the refusal is certainly about; empty when it does not say.

    Envoy applies the good clusters and listeners of a refused response and writes ``name: reason``
    for each bad one. Endpoints and routes are refused whole, and the text names nobody.
    """
    if len(names) == 1:
        return names
    if not partial:
        return ()
    named = {word[:-1] for word in message.split() if word.endswith(":")}
    return tuple(name for name in names if name in named)


def halves(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Two parts to offer one after the other until a single name is left to blame."""
    middle = len(names) // 2
    return names[:middle], names[middle:]
