"""Folders and sockets of one model server, all under its state directory.

Triton's Python backend wants its stub beside its library, and tritonserver appends the port to a
socket's name. Both are hidden here: a farm of links for the one, a link with a plain name for the
other.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from headrace import limits
from headrace_models.binaries import Binaries
from headrace_models.failure import Failure

GRPC_PORT = 1
"""Number tritonserver appends to the name of its Unix socket; no port is opened."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Every path one model server uses."""

    state_dir: Path
    agent_socket: Path
    triton_socket: Path
    """Where callers of Triton connect: a link to the socket that tritonserver opens."""

    @property
    def run_dir(self) -> Path:
        """What only a running tritonserver needs."""
        return self.state_dir / "run"

    @property
    def backends_dir(self) -> Path:
        """Folder given to tritonserver as its backends."""
        return self.run_dir / "backends"

    @property
    def grpc_socket_stem(self) -> Path:
        """Socket name as given to tritonserver, without the port it appends."""
        return self.run_dir / "g"

    @property
    def grpc_socket(self) -> Path:
        """Socket that tritonserver opens."""
        return self.run_dir / f"g:{GRPC_PORT}"

    @property
    def repository_dir(self) -> Path:
        """Triton's model repository."""
        return self.state_dir / "repository"

    @property
    def placed_dir(self) -> Path:
        """Complete folders that the repository links to."""
        return self.state_dir / "placed"

    @property
    def lock_file(self) -> Path:
        """Held while a model server uses the state directory."""
        return self.state_dir / "lock"

    @property
    def record_file(self) -> Path:
        """How many times tritonserver was started here."""
        return self.state_dir / "triton.json"

    @property
    def shm_prefix(self) -> str:
        """Start of the names of this tritonserver's shared memory; no other server's begin so."""
        digest = hashlib.sha256(str(self.state_dir).encode()).hexdigest()
        return f"headrace_{digest[:12]}_"


def layout(state_dir: Path, agent_socket: Path, triton_socket: Path | None = None) -> Layout:
    """Absolute paths of a model server; raises Failure when a socket's path is too long."""
    home = state_dir.resolve()
    made = Layout(
        state_dir=home,
        agent_socket=agent_socket.absolute(),
        triton_socket=(triton_socket or home / "triton.sock").absolute(),
    )
    for socket in (made.grpc_socket, made.agent_socket, made.triton_socket):
        _check_length(socket)
    return made


def prepare(made: Layout, binaries: Binaries) -> None:
    """Create the folders and links; what is there already is set right."""
    for folder in (made.backends_dir / "python", made.repository_dir, made.placed_dir):
        folder.mkdir(parents=True, exist_ok=True)
    made.state_dir.chmod(0o700)
    for target in (binaries.backend_library, binaries.backend_api, binaries.stub):
        link(made.backends_dir / "python" / target.name, target)
    made.triton_socket.parent.mkdir(parents=True, exist_ok=True)
    made.agent_socket.parent.mkdir(parents=True, exist_ok=True)
    link(made.triton_socket, made.grpc_socket)


def link(place: Path, target: Path) -> None:
    """Make ``place`` a link to ``target`` in one step, whatever was there."""
    fresh = place.with_name(f".{place.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(place)


def _check_length(socket: Path) -> None:
    length = len(str(socket).encode())
    if length > limits.SOCKET_PATH_BYTES:
        raise Failure(
            "socket_path_too_long",
            f"a Unix socket's path may have {limits.SOCKET_PATH_BYTES} bytes, this has {length}",
            where=str(socket),
            remedy="choose a shorter --state-dir or --agent-socket",
        )
