"""Where in the YAML a decision stands: ``file:line`` of a field, or of what is written nearest."""

from collections.abc import Iterator

from headrace import ir
from headrace.config import schema
from headrace.config.load import Loaded, Placed
from headrace.config.references import version_of

Path = tuple[str | int, ...]


class Places:
    """Positions of the objects that a mesh was resolved from; none are known without them."""

    def __init__(self, loaded: Loaded | None = None) -> None:
        objects = loaded.objects if loaded is not None else ()
        self._objects = {(placed.kind, placed.name): placed for placed in objects}

    def __repr__(self) -> str:
        return f"<Places objects={len(self._objects)}>"

    def of(self, kind: str, name: str, *path: str | int) -> str:
        """Place of a field of an object; empty when nothing is known of the object."""
        placed = self._objects.get((kind, name))
        if placed is None:
            return ""
        line, _ = placed.line_at(path)
        return f"{placed.file}:{line}"

    def at(self, source: ir.Source, *path: str | int) -> str:
        """Place of a field of what a part of the IR came from."""
        return self.of(source.kind, source.name, *path) or f"{source.file}:{source.line}"

    def is_default(self, source: ir.Source, *path: str | int) -> bool:
        """Whether nobody wrote a field, as far as that is known."""
        placed = self._objects.get((source.kind, source.name))
        return placed is not None and not placed.line_at(path)[1]

    def side(self, source: ir.Source, version: int) -> str:
        """Place of the side of a split that is a version; of the alias, where there is no split."""
        placed = self._objects.get((source.kind, source.name))
        path = next(self._paths_of(placed, version), ()) if placed is not None else ()
        return self.at(source, *path)

    def _paths_of(self, placed: Placed, version: int) -> Iterator[Path]:
        item = placed.object
        if isinstance(item, schema.Model):
            yield ("spec", "aliases", "stable") if "stable" in item.spec.aliases else ("spec",)
        if not isinstance(item, schema.Route):
            return
        model = self._objects.get(("Model", item.spec.model))
        for index, arm in enumerate(item.spec.split):
            known = model is not None and isinstance(model.object, schema.Model)
            if known and version_of(arm, model.object) == version:  # type: ignore[union-attr,arg-type]
                yield ("spec", "split", index)

    def header(self, source: ir.Source, wanted: tuple[str, str]) -> str:
        """Place of a header that a route asks for."""
        placed = self._objects.get((source.kind, source.name))
        path: Path = ("spec", "match", "headers")
        if placed is not None and isinstance(placed.object, schema.Route):
            for index, header in enumerate(placed.object.spec.match.headers):
                if (header.name, header.value) == wanted:
                    path = (*path, index)
                    break
        return self.at(source, *path)

    def key(self, tenant: str, sha256: str) -> str:
        """Place of a tenant's key."""
        placed = self._objects.get(("Tenant", tenant))
        if placed is None or not isinstance(placed.object, schema.Tenant):
            return ""
        hashes = [key.sha256 for key in placed.object.spec.api_keys]
        index = hashes.index(sha256) if sha256 in hashes else 0
        return self.of("Tenant", tenant, "spec", "apiKeys", index)

    def version(self, source: ir.Source, version: int) -> str:
        """Place of a version in the model that it is of."""
        placed = self._objects.get((source.kind, source.name))
        path: Path = ("spec", "versions")
        if placed is not None and isinstance(placed.object, schema.Model):
            numbers = [each.version for each in placed.object.spec.versions]
            path = (*path, numbers.index(version)) if version in numbers else path
        return self.at(source, *path)

    def gateway(self, mesh: str, gateway: ir.Gateway) -> str:
        """Place of a gateway."""
        placed = self._objects.get(("Mesh", mesh))
        if placed is None or not isinstance(placed.object, schema.Mesh):
            return ""
        for region in placed.object.spec.regions:
            names = [each.name for each in region.gateways]
            if gateway.name in names:
                return self.region(mesh, region.name, "gateways", names.index(gateway.name))
        return ""

    def region(self, mesh: str, name: str, *path: str | int) -> str:
        """Place of a field of a region."""
        placed = self._objects.get(("Mesh", mesh))
        if placed is None or not isinstance(placed.object, schema.Mesh):
            return ""
        names = [region.name for region in placed.object.spec.regions]
        index = names.index(name) if name in names else 0
        return self.of("Mesh", mesh, "spec", "regions", index, *path)
