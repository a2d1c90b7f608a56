"""Settings of Sphinx, and what is generated for it: copies of guides and results, settings, templates' variables.

`make docs` builds the site into docs/_build/html; a warning, such as a broken link, fails the build. Lines that begin
with `%` are for readers of the sources, such as on GitHub: the site leaves them out.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import policygen
from policygen.llm import LLMOptions
from policygen.runs.config import Budgets, EpisodeSettings, PromptSettings, SearchSettings

HERE = Path(__file__).parent
GENERATED = HERE / "_generated"

project, author, copyright = "policygen", "policygen contributors", "policygen contributors"
version = release = policygen.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_click"]
exclude_patterns = ["_build"]
html_theme, html_title = "furo", f"policygen {version}"
html_static_path: list[str] = []
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
smartquotes = False  # `--option` and quotes stay as typed, so that commands can be copied
nb_execution_mode = "off"  # guides hold their outputs; notebooks/execute.py renews them
nb_merge_streams = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
default_role = "code"  # docstrings mark code with single backticks
toc_object_entries = False
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
suppress_warnings = ["mystnb.unknown_mime_type", "misc.highlighting_failure"]

PARTS = {
    "Search": SearchSettings,
    "Episodes": EpisodeSettings,
    "Prompts and replies": PromptSettings,
    "Requests": LLMOptions,
    "Budgets": Budgets,
}


def settings_page() -> str:
    """Return a table of every setting: name, default, meaning."""
    lines = []
    for title, part in PARTS.items():
        lines += [f"## {title}", "", "| setting | default | meaning |", "| --- | --- | --- |"]
        for name, field in part.model_fields.items():
            default = "required" if field.is_required() else f"`{field.default}`"
            lines.append(f"| `{name}` | {default} | {cell(field.description or '')} |")
        lines.append("")
    return "\n".join(lines)


def variables_page() -> str:
    """Return a table of the variables that templates are given, with their kind and an example."""
    _, *rows = (HERE.parent / "policygen/cli/variables.txt").read_text(encoding="utf-8").splitlines()
    lines = ["| variable | kind | example |", "| --- | --- | --- |"]
    for row in rows:
        if row.count("\t") == 2:
            name, kind, example = row.split("\t")
            lines.append(f"| `{name}` | {kind} | `{cell(example)}` |")
    return "\n".join(lines)


def cell(text: str) -> str:
    """Return a text that stays within one cell of a table."""
    return text.replace("|", "\\|").replace("`", "'")


# Sphinx reads pages below this folder only. The copies keep their places, so that links between them hold.
for folder, patterns in (("notebooks", ("*.ipynb",)), ("results", ("*.md", "benchmarks/*"))):
    shutil.rmtree(HERE / folder, ignore_errors=True)
    for pattern in patterns:
        for path in sorted((HERE.parent / folder).glob(pattern)):
            if path.is_file():
                target = HERE / path.relative_to(HERE.parent)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
GENERATED.mkdir(exist_ok=True)
for page, text in (("settings.inc", settings_page()), ("variables.inc", variables_page())):
    (GENERATED / page).write_text(text, encoding="utf-8")
