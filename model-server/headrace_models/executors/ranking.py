"""Scores documents against a query, for many requests in one go: what the ranking model runs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace import limits
from headrace_models.executors import buckets
from headrace_models.executors.bert import Encoder


class BadText(Exception):
    """What the caller sent cannot be ranked."""


@dataclass(frozen=True, slots=True)
class Question:
    """One query and the documents to score."""

    query: str
    documents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ranked:
    """Scores of every question in order, and what they cost."""

    scores: tuple[Tensor, ...]
    tokens: buckets.Tokens


def question(query: bytes, documents: Sequence[bytes]) -> Question:
    """The question in a request's tensors; raises BadText."""
    if len(documents) > limits.DOCUMENTS:
        raise BadText(f"at most {limits.DOCUMENTS} documents are scored, not {len(documents)}")
    try:
        return Question(query.decode(), tuple(document.decode() for document in documents))
    except UnicodeDecodeError as error:
        raise BadText(f"query and documents must be UTF-8: {error}") from error


def rank(encoder: Encoder, questions: Sequence[Question], *, bucketed: bool = True) -> Ranked:
    """Score every document against its own query: the cosine of their vectors."""
    texts = [text for one in questions for text in (one.query, *one.documents)]
    tokens = encoder.tokenize(texts)
    lengths = [len(ids) for ids in tokens]
    plan = buckets.plan(lengths) if bucketed else buckets.one(lengths)
    vectors = encoder.embed(tokens, plan)
    sizes = [1 + len(one.documents) for one in questions]
    scores = tuple(part[1:] @ part[0] for part in torch.split(vectors, sizes))
    return Ranked(scores=scores, tokens=buckets.count(plan, lengths))
