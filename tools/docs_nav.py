"""The navigation of the documentation, made when it is built: a new page in its folder needs no second entry elsewhere."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

# In the order in which a newcomer reads. Each is a folder docs/NAME or a page docs/NAME.md, or both.
SECTIONS = {
    "Tutorial": ("tutorial",),
    "How-to": ("how-to",),
    "Reference": ("reference",),
    "Explanation": ("architecture", "explanation"),
    "Decisions": ("decisions",),
}


def pages_of(docs: Path, names: tuple[str, ...]) -> list[str]:
    """The pages of one section, the section's own page first."""
    found: list[Path] = []
    for name in names:
        found += [docs / f"{name}.md"] if (docs / f"{name}.md").exists() else []
        found += sorted((docs / name).rglob("*.md"), key=lambda page: (page.name != "index.md", page))
    return [page.relative_to(docs).as_posix() for page in found]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    docs = Path(config.docs_dir)
    sections = {title: pages_of(docs, names) for title, names in SECTIONS.items()}
    placed = {"index.md", *(page for pages in sections.values() for page in pages)}
    others = sorted(page.name for page in docs.glob("*.md") if page.name not in placed)
    config.nav = ["index.md", *others, *({title: pages} for title, pages in sections.items() if pages)]
    return config
