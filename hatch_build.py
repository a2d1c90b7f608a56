"""What a built package holds beside its modules: task files, templates, the readme and the addresses.

The address stands in no file. A build reads it from the environment variable `POLICYGEN_REPOSITORY`, which the release
workflow sets to that of the repository it runs in. Without it, a package has the README as it is and no addresses.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

# A link or picture of the README that is neither an address nor a heading: `](`, its target.
_RELATIVE = re.compile(r"(?P<picture>!?)(?P<text>\[[^\]]*\])\((?!https?://|#)(?P<target>[^)\s]+)\)")


class CustomBuildHook(BuildHookInterface[Any]):
    """Puts the task files and the templates into the wheel, without the script that writes task files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add each file below the package."""
        root = Path(self.root)
        for path in (*root.glob("envs/**/*.toml"), *root.glob("templates/*.j2")):
            build_data["force_include"][str(path)] = f"policygen/{path.relative_to(root).as_posix()}"


class CustomMetadataHook(MetadataHookInterface):
    """Sets the fields that pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add `readme` and, where the address is known, `urls`; those of a source distribution stay as they are."""
        if "readme" in metadata:
            return
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["urls"] = {}
        if address := os.environ.get("POLICYGEN_REPOSITORY", "").rstrip("/"):
            release = f"v{metadata['version']}"
            text = _RELATIVE.sub(
                lambda link: (
                    f"{link['picture']}{link['text']}"
                    f"({address}/{'raw' if link['picture'] else 'blob'}/{release}/{link['target']})"
                ),
                text,
            )
            metadata["urls"] = {
                "Source": address,
                "Documentation": f"{address}/blob/{release}/docs/index.md",
                "Changelog": f"{address}/blob/{release}/CHANGELOG.md",
                "Issues": f"{address}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
