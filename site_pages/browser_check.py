"""Opens pages of the built site in headless Chromium, as files: accessibility by axe, width on a phone, and the search.

    .venv-docs/bin/python site_pages/browser_check.py site [PAGE ...] [--search] [--pictures FOLDER]

The exit status is 1 if there is a violation; Debian has the browser as chromium and chromium-driver.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from axe_core_python.selenium import Axe
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.remote_connection import RemoteConnection
from selenium.webdriver.support.ui import WebDriverWait

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
_LINKS = "link-in-text-block"  # axe tries it only where it is requested
RULES: dict[str, dict[str, object]] = {
    "light": {"rules": {_LINKS: {"enabled": 1}}},
    "dark": {"runOnly": ["color-contrast", _LINKS]},
}
"""Options of axe by colour scheme: what no colour changes takes half the time, and is checked in light ones."""
WAIT_S = 60


def browser() -> webdriver.Chrome:
    """Returns a headless Chromium, which may read no address but files."""
    options = webdriver.ChromeOptions()
    offline = "--host-resolver-rules=MAP * ~NOTFOUND"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", offline):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.binary_location = "/usr/bin/chromium"
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    driver.set_script_timeout(10 * WAIT_S)
    executor = driver.command_executor
    assert isinstance(executor, RemoteConnection)
    executor.client_config.timeout = 10 * WAIT_S  # else axe has 2 minutes for a long page
    colours_anew = {"source": "localStorage.clear()"}  # a page keeps its colours there, for all
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", colours_anew)
    return driver


def resize(driver: webdriver.Chrome, width: int, height: int) -> None:
    """Gives the page a size, also below the smallest of a window."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def faults(driver: webdriver.Chrome, address: str, rules: dict[str, object]) -> Iterator[str]:
    """Yields what is wrong with a page in the present size and colours."""
    driver.get(address)
    overflow = driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
    if overflow > 0:
        yield f"{overflow} pixels wider than the window"
    for violation in Axe().run(driver, options={"resultTypes": ["violations"], **rules})["violations"]:
        nodes = violation["nodes"]
        element = " ".join(nodes[0]["html"].split())
        yield f"{violation['id']} ({violation['impact']}), {len(nodes)} times: {element[:160]}"
    log: Any = driver.get_log  # Selenium declares no types for it
    for entry in log("browser"):
        yield f"console: {entry['message'][:200]}"


def search_faults(driver: webdriver.Chrome, address: str) -> Iterator[str]:
    """Yields what is wrong with the search."""
    driver.get(address)
    driver.find_element(By.CSS_SELECTOR, "[data-md-component=search-query]").send_keys("bidirectional_ring")
    results = "[data-md-component=search-result] a.md-search-result__link"
    WebDriverWait(driver, WAIT_S).until(lambda driver: driver.find_elements(By.CSS_SELECTOR, results))
    links = [element.get_attribute("href") or "" for element in driver.find_elements(By.CSS_SELECTOR, results)]
    if not any("kernels.html" in link for link in links):
        yield f"the search leads to {links}"


def check_page(driver: webdriver.Chrome, site: Path, page: str, pictures: Path | None) -> int:
    """Prints what is wrong with a page in every size and colour scheme; returns how many faults."""
    count = 0
    for scheme, rules in RULES.items():
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
        for size, (width, height) in SIZES.items():
            resize(driver, width, height)
            for fault in faults(driver, (site / page).resolve().as_uri(), rules):
                count += 1
                print(f"{page}, {size}, {scheme}: {fault}", flush=True)
            if pictures:
                name = f"{page.removesuffix('.html').replace('/', '-')}-{size}-{scheme}.png"
                driver.save_screenshot(str(pictures / name))
    return count


def check_search(driver: webdriver.Chrome, site: Path) -> int:
    """Prints what is wrong with the search; returns how many faults."""
    resize(driver, *SIZES["desktop"])
    found = [*search_faults(driver, (site / "index.html").resolve().as_uri())]
    print("".join(f"{fault}\n" for fault in found), end="")
    return len(found)


def main() -> int:
    """Checks the pages; returns 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(description="Checks the built site in a browser.")
    parser.add_argument("site", type=Path)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="relative to the site")
    parser.add_argument("--search", action="store_true", help="check the search, too")
    parser.add_argument("--pictures", type=Path, help="the folder for a picture of every page in every size")
    arguments = parser.parse_args()
    with browser() as driver:
        count = sum(check_page(driver, arguments.site, page, arguments.pictures) for page in arguments.pages)
        if arguments.search:
            count += check_search(driver, arguments.site)
    print(f"{len(arguments.pages)} pages in {len(SIZES)} sizes and {len(RULES)} colour schemes: {count} faults")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
