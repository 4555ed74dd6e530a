"""Triton program of the ranking executor: how well documents answer a query, by MiniLM-L6.

Texts of all requests of a batch are grouped by length and padded within their group. How much of
what was computed was not padding is a metric of Triton's metrics page.
"""

import numpy as np
import torch
import triton_python_backend_utils as pb_utils

from headrace import metrics
from headrace_models.executors import parameters, ranking
from headrace_models.executors.bert import Encoder


class TritonPythonModel:
    """One instance of the model."""

    def initialize(self, args):
        """Map the weights and register the metrics."""
        given = parameters.read(args["model_config"])
        torch.set_num_threads(int(given["threads"]))
        self._batches = parameters.batches(args["model_config"])
        self._encoder = Encoder(given["weights"], given["tokenizer"])
        self._bucketed = given.get("buckets", "on") == "on"
        self._metrics = TokenMetrics(dict(parameters.labels(args["model_name"])))
        pb_utils.Logger.log_info(f"{args['model_instance_name']}: {self._encoder}")

    def execute(self, requests):
        """Answer every request; the order of answers is the order of requests."""
        read = [_read(request) for request in requests]
        good = [rows for rows in read if not isinstance(rows, ranking.BadText)]
        questions = [question for rows in good for question in rows]
        ranked = ranking.rank(self._encoder, questions, bucketed=self._bucketed)
        self._metrics.add(ranked.tokens)
        scores = iter(ranked.scores)
        return [
            _refusal(rows)
            if isinstance(rows, ranking.BadText)
            else self._response([next(scores) for _ in rows])
            for rows in read
        ]

    def _response(self, scores):
        rows = np.stack([row.numpy() for row in scores]).astype(np.float32)
        answer = rows if self._batches else rows[0]
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("scores", answer)])


class TokenMetrics:
    """Tokens computed since the start. The families are kept: Triton drops them with the object."""

    def __init__(self, labels):
        self._families = [
            pb_utils.MetricFamily(row.name, row.help, _kind(row))
            for row in (
                metrics.USEFUL_TOKENS,
                metrics.COMPUTED_TOKENS,
                metrics.USEFUL_TOKEN_RATIO,
            )
        ]
        self._useful, self._computed, self._ratio = (
            family.Metric(labels=labels) for family in self._families
        )
        self._totals = [0, 0]

    def add(self, tokens):
        """Count the tokens of one batch."""
        if not tokens.computed:
            return
        self._totals[0] += tokens.useful
        self._totals[1] += tokens.computed
        self._useful.increment(tokens.useful)
        self._computed.increment(tokens.computed)
        self._ratio.set(self._totals[0] / self._totals[1])


def _kind(row):
    return getattr(pb_utils.MetricFamily, row.kind.upper())


def _read(request):
    """Questions of a request, one a row, or what is wrong with one of them."""
    queries = pb_utils.get_input_tensor_by_name(request, "query").as_numpy().ravel()
    documents = pb_utils.get_input_tensor_by_name(request, "documents").as_numpy()
    rows = documents.reshape(len(queries), -1)
    try:
        return [
            ranking.question(query, list(row)) for query, row in zip(queries, rows, strict=True)
        ]
    except ranking.BadText as bad:
        return bad


def _refusal(bad):
    error = pb_utils.TritonError(str(bad), pb_utils.TritonError.INVALID_ARG)
    return pb_utils.InferenceResponse(error=error)
