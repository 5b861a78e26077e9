"""The documentation site as `make docs` builds it: its navigation, generated pages and links; in Chromium, no faults.

Pages are accessible by axe, in two sizes and two colour schemes, none is too wide for a phone, and the search works.
"""

import os
import re
import shutil
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from project.conftest import Require, Run

import shardcall
from shardcall_core.functions.table import FUNCTIONS
from shardcall_server.settings import Settings

pytestmark = pytest.mark.long

GROUPS = ["Start", "Use", "Run", "Understand"]
PAGES = (
    *("index", "quickstart", "arrays", "errors", "accuracy", "limits", "gallery/index", "gallery/heat"),
    *(f"reference/{name}" for name in ("client", "kernels", "methods", "settings", "metrics", "protos/array_service")),
)
REQUESTING = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}


class Page(HTMLParser):
    """The anchors, links and requests of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.requests: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            if tag == "a" and name == "href":
                self.links.append(value or "")
            if (tag, name) in REQUESTING and ("rel", "canonical") not in attrs:
                self.requests.append(value or "")


@pytest.fixture(scope="module")
def site(root: Path, run: Run, require: Require, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the site without executing the gallery; CI makes the environment, and `make docs` does elsewhere."""
    if os.environ.get("CI"):
        run("make", "--no-print-directory", "venv-docs")
    require((root / ".venv-docs/bin/mkdocs").exists(), "environment of the site, which make venv-docs makes")
    folder = tmp_path_factory.mktemp("site")
    variables = ("GALLERY=false", "NO_MKDOCS_2_WARNING=1")
    run("env", *variables, ".venv-docs/bin/mkdocs", "build", "--quiet", "--strict", "--site-dir", folder)
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in site.rglob("*.html")}


@pytest.fixture(autouse=True)
def _generators(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(root))


def test_the_navigation_has_every_page_once_in_four_groups(root: Path) -> None:
    from site_pages.navigation import groups_of

    groups = groups_of((root / "docs/index.md").read_text())
    assert list(groups) == GROUPS
    listed = [page for pages in groups.values() for page in pages]
    assert sorted(listed) == sorted({page.name for page in (root / "docs").glob("*.md")} - {"index.md"})


def test_anchors_and_links_are_those_of_a_code_host() -> None:
    from site_pages.links import PROJECT, anchor, with_links_to_the_project, with_titles

    headings = ("`shardcall status`", "What there is, and isn't", "AXIS_OUT_OF_RANGE")
    assert [*map(anchor, headings)] == ["shardcall-status", "what-there-is-and-isnt", "axis_out_of_range"]
    text = "[a](../SECURITY.md), [b](../examples/), [c](../protos/shardcall/v1/error.proto#L1), [d](hosts.md)"
    assert with_links_to_the_project(text) == (
        f"[a]({PROJECT}/blob/main/SECURITY.md), [b]({PROJECT}/tree/main/examples), "
        f"[c]({PROJECT}/blob/main/protos/shardcall/v1/error.proto#L1), [d](hosts.md)"
    )
    titled = with_titles("[hosts.md](hosts.md#faults), [x](hosts.md)")
    assert titled == "[Several hosts](hosts.md#faults), [x](hosts.md)"


def test_every_link_and_anchor_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else set()
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert len(pages) > 50
    assert [link for link in broken if not link.startswith("404.html")] == []  # which is served at any address


def test_no_page_requests_anything_of_another_host(site: Path, pages: dict[Path, Page]) -> None:
    requests = [address for page in pages.values() for address in page.requests]
    assert requests
    assert [address for address in requests if urlsplit(address).netloc] == []
    styles = [re.findall(r"url\([\"']?(https?:)?//", path.read_text()) for path in site.rglob("*.css")]
    assert styles
    assert not any(styles)


def test_the_search_has_an_index_that_a_page_of_the_file_system_loads(site: Path) -> None:
    index = (site / "search/search_index.js").read_text()
    assert index.startswith("var __index = ")
    for text in ("Client.put", "UNKNOWN_MESH_AXIS", "bidirectional_ring", "max_call_s"):
        assert text in index, text
    assert "iframe-worker.js" in (site / "index.html").read_text()


def test_the_reference_has_every_name(site: Path, pages: dict[Path, Page]) -> None:
    reference = site / "reference"
    anchors = {anchor for path, page in pages.items() if reference in path.parents for anchor in page.anchors}
    public = {name for name in shardcall.__all__ if name not in {"P", "__version__"}}
    targets = {anchor.rpartition(".")[2] for anchor in anchors}
    assert public - targets == set()
    methods = {name for name in vars(shardcall.Client) if not name.startswith("_")}
    assert methods - targets == set()
    assert set(FUNCTIONS) - pages[reference / "kernels.html"].anchors == set()
    settings = (reference / "settings.html").read_text()
    assert [name for name in Settings.model_fields if f"--{name.replace('_', '-')}<" not in settings] == []


def test_the_reference_has_every_proto_and_every_metric(root: Path, site: Path) -> None:
    packages = ("shardcall", "shardcall_inference")
    protos = {path.stem for package in packages for path in (root / "protos" / package / "v1").glob("*.proto")}
    assert {path.stem for path in (site / "reference/protos").glob("*.html")} == protos
    stated = set(re.findall(r"^\| `(shardcall_\w+)", (root / "docs/telemetry.md").read_text(), re.MULTILINE))
    metrics = (site / "reference/metrics.html").read_text()
    assert stated
    assert [name for name in stated if f"<code>{name}</code>" not in metrics] == []


@pytest.fixture
def check_in_browser(root: Path, run: Run, require: Require, site: Path) -> Run:
    """Checks pages in Chromium, which CI installs."""
    require(shutil.which("chromedriver") is not None, "Chromium with its driver")
    return partial(run, root / ".venv-docs/bin/python", "site_pages/browser_check.py", site, timeout_s=590)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_faults_in_a_browser(check_in_browser: Run, page: str) -> None:
    assert check_in_browser(f"{page}.html").endswith(" 0 faults\n")


def test_the_search_leads_to_a_page(check_in_browser: Run) -> None:
    assert check_in_browser("--search").endswith(" 0 faults\n")
