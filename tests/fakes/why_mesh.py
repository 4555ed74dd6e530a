"""A mesh with something of everything that decides where a request goes."""

import hashlib

from headrace import ir
from headrace.config.analyze import analyze, usable
from headrace.config.load import Loaded, load
from headrace.resolve import resolve

FILE = "why.yaml"
KEY = "demo-key"
GOLD_KEY = "gold-key"


def _sha256(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _model(name: str, versions: int, more: str = "") -> str:
    listed = "".join(
        f"  - {{version: {number}, executor: identity}}\n" for number in range(1, versions + 1)
    )
    return f"""---
apiVersion: headrace.dev/v1alpha1
kind: Model
metadata: {{name: {name}}}
spec:
  inputs: [{{name: x, datatype: FP32, shape: [1]}}]
  outputs: [{{name: y, datatype: FP32, shape: [1]}}]
  balance: round-robin
  versions:
{listed}{more}"""


def _route(name: str, spec: str) -> str:
    return f"""---
apiVersion: headrace.dev/v1alpha1
kind: Route
metadata: {{name: {name}}}
spec:
{spec}"""


YAML = "".join(
    (
        """\
apiVersion: headrace.dev/v1alpha1
kind: Mesh
metadata: {name: test}
spec:
  regions:
  - name: eu
    zones: [eu-a]
    gateways: [{name: eu, port: 0}]
    failover: [us]
  - name: us
    zones: [us-a]
---
apiVersion: headrace.dev/v1alpha1
kind: Pool
metadata: {name: eu-gpus}
spec: {region: eu, zone: eu-a, gpu: {type: t4}}
---
apiVersion: headrace.dev/v1alpha1
kind: Pool
metadata: {name: us-gpus}
spec: {region: us, zone: us-a, gpu: {type: t4}}
""",
        _model("vision", 3, "  aliases: {stable: 1, canary: 2}\n"),
        _model("ranking", 1, "  idempotent: true\n"),
        _model("audio", 2),
        _model("text", 3, "  aliases: {stable: 1}\n"),
        _route(
            "vision-beta",
            "  model: vision\n"
            "  match:\n"
            '    headers: [{name: x-beta, value: "1"}]\n'
            "    hosts: [beta.example, '*.b.example']\n"
            "  split: [{alias: canary}]\n",
        ),
        _route(
            "vision-gold",
            "  model: vision\n"
            "  match: {headers: [{name: x-plan, value: gold}, {name: x-area, value: 'a, b'}]}\n"
            "  split: [{version: 3}]\n"
            "  timeout: 3s\n",
        ),
        _route(
            "vision-host",
            "  model: vision\n  match: {hosts: [eu.example]}\n  split: [{version: 2}]\n"
            "  rateLimit: {requests: 10000, per: 1s}\n",
        ),
        _route(
            "vision",
            "  model: vision\n"
            "  split: [{alias: stable, weight: 90}, {alias: canary, weight: 10}]\n"
            "  sticky: {header: x-user}\n",
        ),
        _route(
            "audio-yes",
            "  model: audio\n"
            "  match: {headers: [{name: x-audio, value: 'yes'}]}\n"
            "  split: [{version: 1, weight: 1}, {version: 2, weight: 1}]\n",
        ),
        _route(
            "text",
            "  model: text\n"
            "  split:\n"
            "  - {version: 1, weight: 50}\n"
            "  - {version: 2, weight: 30}\n"
            "  - {version: 3, weight: 20}\n"
            "  sticky: {header: x-user}\n"
            "  retry: {attempts: 0}\n"
            "  mirror: {version: 2}\n",
        ),
        f"""---
apiVersion: headrace.dev/v1alpha1
kind: Tenant
metadata: {{name: demo}}
spec: {{apiKeys: [{{sha256: {_sha256(KEY)}}}]}}
---
apiVersion: headrace.dev/v1alpha1
kind: Tenant
metadata: {{name: gold}}
spec: {{tier: critical, apiKeys: [{{sha256: {_sha256("other")}}}, {{sha256: {_sha256(GOLD_KEY)}}}]}}
""",
    )
)


def why_mesh() -> tuple[Loaded, ir.Mesh]:
    """The mesh, and where its parts stand."""
    loaded = load([(FILE, YAML)])
    found = analyze(loaded)
    assert usable(found), found
    return loaded, resolve(loaded)
