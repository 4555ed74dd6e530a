"""A small configuration that has no problem at all, for tests that change one thing of it."""

from typing import Final

from headrace.config.analyze import analyze
from headrace.config.load import load
from headrace.config.problems import Problem

KEY: Final = "2a97516c354b68848cdbd8f54a226a0a55b21ed138e207ad6c5cbb9c00aa5aea"
CLEAN: Final = f"""\
apiVersion: headrace.dev/v1alpha1
kind: Mesh
metadata: {{name: small}}
spec:
  regions:
  - name: eu
    zones: [eu-1]
    gateways: [{{name: gw-eu}}]
---
apiVersion: headrace.dev/v1alpha1
kind: Pool
metadata: {{name: gpus}}
spec: {{region: eu, zone: eu-1, gpu: {{type: t4}}}}
---
apiVersion: headrace.dev/v1alpha1
kind: Model
metadata: {{name: echo}}
spec:
  inputs: [{{name: data, datatype: BYTES, shape: [1]}}]
  outputs: [{{name: data, datatype: BYTES, shape: [1]}}]
  versions:
  - {{version: 1, executor: identity}}
  - {{version: 2, executor: identity}}
  aliases: {{stable: 1, canary: 2}}
---
apiVersion: headrace.dev/v1alpha1
kind: Route
metadata: {{name: echo}}
spec:
  model: echo
  split: [{{alias: stable, weight: 90}}, {{alias: canary, weight: 10}}]
  timeout: 10s
---
apiVersion: headrace.dev/v1alpha1
kind: Tenant
metadata: {{name: demo}}
spec: {{apiKeys: [{{sha256: {KEY}}}]}}
"""


def changed(old: str, new: str, text: str = CLEAN) -> str:
    """The configuration with one part of its text changed, which must be there once."""
    assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
    return text.replace(old, new)


def problems_of(*texts: str) -> tuple[Problem, ...]:
    """Every problem of files a.yaml, b.yaml and so on."""
    return analyze(load([(f"{chr(97 + index)}.yaml", text) for index, text in enumerate(texts)]))


def shown_by(problem: Problem, text: str) -> str:
    """Rest of the line that a problem points at."""
    return text.splitlines()[problem.line - 1][problem.column - 1 :]
