"""The folder of YAML that a local mesh runs on: found, copied, checked, given free ports."""

import shutil
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headrace import ir
from headrace.config import edit, schema
from headrace.config.analyze import analyze, usable
from headrace.config.load import Loaded, load
from headrace.config.problems import Problem
from headrace.config.secrets import SecretState
from headrace.config.write import write
from headrace.resolve import resolve
from headrace_xds.secrets import SecretStore
from headrace_xds.source.files import read_folder, write_file
from headrace_xds.source.secrets import read_secrets

_CHECKOUT = Path(__file__).parents[3] / "mesh-config" / "examples" / "local"
_WHEEL = Path("share") / "headrace" / "examples" / "local"


class BadConfigurationError(Exception):
    """A folder that no mesh can be started from; ``problems`` say why."""

    def __init__(self, folder: Path, problems: tuple[Problem, ...], *, reason: str = "") -> None:
        super().__init__(reason or f"{folder}: {len(problems)} problems")
        self.folder = folder
        self.problems = problems
        self.reason = reason


@dataclass(frozen=True)
class Checked:
    """A folder that passed every check."""

    files: Mapping[str, str]
    loaded: Loaded
    mesh: ir.Mesh


def examples() -> Path | None:
    """The example of a local mesh: in the checkout, else where the wheel put it."""
    places = (_CHECKOUT, Path(sysconfig.get_path("data")) / _WHEEL)
    return next((place for place in places if place.is_dir()), None)


def copy_examples(target: Path) -> bool:
    """Put the example into a folder that is not there yet; whether it was put there."""
    if target.exists():
        return False
    source = examples()
    if source is None:
        raise BadConfigurationError(
            target, (), reason="the example mesh is not installed; name a folder with -f"
        )
    copy(source, target)
    return True


def copy(source: Path, target: Path) -> None:
    """Copy the YAML files of a folder, whole or not at all."""
    fresh = target.with_name(f".{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for name, text in read_folder(source).files.items():
        (fresh / name).write_text(text)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)


def secrets(folder: str) -> Mapping[str, SecretState]:
    """What is known of the secrets of a folder; nothing is there where none is named."""
    store = SecretStore()
    if folder:
        store.take(read_secrets(Path(folder)))
    return store.states


def check(folder: Path, known_secrets: Mapping[str, SecretState] | None = None) -> Checked:
    """Load, analyze and resolve a folder; raises BadConfigurationError with every problem."""
    read = read_folder(folder)
    if read.unreadable or not read.files:
        reason = "; ".join(read.unreadable) or f"{folder}: no YAML file in it"
        raise BadConfigurationError(folder, (), reason=reason)
    loaded = load(sorted(read.files.items()))
    problems = analyze(loaded, known_secrets)
    if not usable(problems):
        raise BadConfigurationError(folder, problems)
    return Checked(read.files, loaded, resolve(loaded))


def set_ports(folder: Path, *, gateways: Mapping[str, int], orca_port: int) -> None:
    """Write other ports into the folder's Mesh; what the folder says otherwise stays."""
    checked = check(folder)
    mesh = next(p.object for p in checked.loaded.objects if isinstance(p.object, schema.Mesh))
    regions = tuple(
        msgspec.structs.replace(
            region,
            gateways=tuple(
                msgspec.structs.replace(gateway, port=gateways.get(gateway.name, gateway.port))
                for gateway in region.gateways
            ),
        )
        for region in mesh.spec.regions
    )
    spec = msgspec.structs.replace(mesh.spec, regions=regions, orca_port=orca_port)
    text = write(msgspec.structs.replace(mesh, spec=spec))
    for name, content in edit.upsert(checked.files, text).items():
        if checked.files.get(name) != content:
            write_file(folder / name, content)
