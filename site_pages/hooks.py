"""The hooks of mkdocs: navigation, generated pages, anchors as on a code host, and links out of docs/."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # mkdocs imports this file alone

from site_pages import gallery, reference  # noqa: E402
from site_pages.links import anchor, with_links_to_the_project, with_titles  # noqa: E402
from site_pages.navigation import groups_of  # noqa: E402

ASSETS = Path(__file__).parent / "assets"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Makes the navigation from docs/index.md, and anchors those of a code host."""
    groups = groups_of((ROOT / "docs/index.md").read_text())
    config.nav = [
        {"Home": "index.md"},
        *({title: pages} for title, pages in groups.items()),
        {"Reference": reference.navigation()},
        {"Gallery": gallery.navigation()},
    ]
    config.mdx_configs["toc"]["slugify"] = anchor
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages and the assets."""
    for name, text in reference.pages().items():
        files.append(File.generated(config, name, content=text))
    for name, content in gallery.files(execute=config.extra["gallery"]).items():
        files.append(File.generated(config, name, content=content))
    for asset in ASSETS.iterdir():
        files.append(File.generated(config, f"assets/{asset.name}", abs_src_path=str(asset)))
    return files


def on_post_page(output: str, **_: Any) -> str:
    """Names the dialog of the search, for those who hear the page."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">')


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Directs links to files outside docs/ to the project, and names pages by their titles."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    if page.file.generated_by:  # by this file: its links are those of the site
        return markdown
    return with_titles(with_links_to_the_project(markdown))
