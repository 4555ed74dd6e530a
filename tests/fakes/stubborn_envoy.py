"""Programs in the place of Envoy that answer a check as they are told."""

import stat
from pathlib import Path

from headrace_xds.binaries import envoy


def refuses(folder: Path, marker: str) -> Path:
    """The real Envoy, but for configurations that contain a text."""
    return _script(
        folder / "envoy-refuses",
        f"""\
for last; do [ "$before" = "-c" ] && file=$last; before=$last; done
if grep -q -- '{marker}' "$file"; then
  echo "[1][1][critical][main] [f.cc:1] error initializing configuration '$file': it may not" >&2
  exit 1
fi
exec '{envoy()}' "$@"
""",
    )


def dies(folder: Path) -> Path:
    """Ends by a signal, as Envoy does on some configurations."""
    return _script(folder / "envoy-dies", "kill -SEGV $$\n")


def dies_once(folder: Path) -> Path:
    """Ends by a signal the first time, then takes everything."""
    body = f"[ -e '{folder}/died' ] || {{ touch '{folder}/died'; kill -SEGV $$; }}\n"
    return _script(folder / "envoy-dies-once", body)


def chatters(folder: Path, length: int) -> Path:
    """Refuses with a text of a length."""
    text = "[1][1][critical][main] [f.cc:1] " + "x" * length
    return _script(folder / "envoy-chatters", f"echo '{text}' >&2\nexit 1\n")


def counts(folder: Path) -> Path:
    """Takes everything, and notes in ``folder/running`` how many of it run at once."""
    body = f"""\
mkdir -p {folder}/now
touch {folder}/now/$$
ls {folder}/now | wc -l >> {folder}/running
sleep 0.05
rm {folder}/now/$$
"""
    return _script(folder / "envoy-counts", body)


def hangs(folder: Path) -> Path:
    """Never answers."""
    return _script(folder / "envoy-hangs", "exec sleep 600\n")


def _script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
