"""What `publish --dry-run` says: the files that would be written, what they would replace, and the
card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capgrade.labels.layout import CARD
from capgrade.schemas.files import MANIFEST, entry_of, found_manifest

NEW, CHANGED, SAME, DELETED = "new", "changed", "same", "deleted"


@dataclass(frozen=True)
class DryRun:
    """A dataset that was made elsewhere and not kept: each file with what would become of the one
    that is there, its bytes and rows; and the card."""

    files: Mapping[str, dict[str, Any]]
    card: str

    @classmethod
    def of(cls, made: Path, manifest: Mapping[str, Any], out: Path) -> DryRun:
        """Of a folder that was made, beside what is at `out`."""
        before = (found_manifest(out / MANIFEST) or {}).get("files", {})
        files = {}
        if before:
            before = {**before, MANIFEST: entry_of(out / MANIFEST, rows=0)}
        for name, entry in {
            **manifest["files"],
            MANIFEST: entry_of(made / MANIFEST, rows=0),
        }.items():
            there = before.get(name)
            change = NEW if there is None else SAME if there == entry else CHANGED
            files[name] = {"change": change, "bytes": entry["bytes"], "rows": entry["rows"]}
        gone = {name: {"change": DELETED, **before[name]} for name in before if name not in files}
        files |= {
            name: {key: entry[key] for key in ("change", "bytes", "rows")}
            for name, entry in gone.items()
        }
        return cls(files, (made / CARD).read_text(encoding="utf-8"))

    def json(self) -> dict[str, Any]:
        return {"files": dict(self.files), "card": self.card}

    def text(self) -> str:
        """A line for each file, then the card; the first line is the sum."""
        kept = [entry for entry in self.files.values() if entry["change"] != DELETED]
        size = sum(entry["bytes"] for entry in kept)
        lines = [f"dry run, nothing is written; it would be {len(kept)} files, {size:,} bytes"]
        for name, entry in self.files.items():
            rows = f", {entry['rows']:,} rows" if entry["rows"] else ""
            lines.append(f"  {entry['change']:<8}{name}: {entry['bytes']:,} bytes{rows}")
        return "\n".join([*lines, "", f"{CARD}:", "", self.card.rstrip()])
