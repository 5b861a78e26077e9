"""Opens pages of the built site in headless Chromium, as files: accessibility by axe, width on a phone, and the search.

    .venv-docs/bin/python site_pages/browser_check.py site [--pictures FOLDER] [--pages PAGE ...]

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

PAGES = (
    "index.html",
    "quickstart.html",
    "arrays.html",
    "errors.html",
    "accuracy.html",
    "limits.html",
    "gallery/index.html",
    "gallery/heat.html",
    "reference/client.html",
    "reference/kernels.html",
    "reference/methods.html",
    "reference/settings.html",
    "reference/metrics.html",
    "reference/protos/array_service.html",
)
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
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
    return driver


def resize(driver: webdriver.Chrome, width: int, height: int) -> None:
    """Gives the page a size, also below the smallest of a window."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def faults(driver: webdriver.Chrome, address: str) -> Iterator[str]:
    """Yields what is wrong with a page in the present size and colours."""
    driver.get(address)
    driver.execute_script("localStorage.clear()")  # the colours of the page before
    driver.refresh()
    overflow = driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
    if overflow > 0:
        yield f"{overflow} pixels wider than the window"
    for violation in Axe().run(driver, options={"resultTypes": ["violations"]})["violations"]:
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


def main() -> int:
    """Checks the pages; returns 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(description="Checks the built site in a browser.")
    parser.add_argument("site", type=Path)
    parser.add_argument("--pages", nargs="+", default=PAGES)
    parser.add_argument("--pictures", type=Path, help="the folder for a picture of every page in every size")
    arguments = parser.parse_args()
    count = 0
    with browser() as driver:
        for scheme in ("light", "dark"):
            media = [{"name": "prefers-color-scheme", "value": scheme}]
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
            for size, (width, height) in SIZES.items():
                resize(driver, width, height)
                for page in arguments.pages:
                    for fault in faults(driver, (arguments.site / page).resolve().as_uri()):
                        count += 1
                        print(f"{page}, {size}, {scheme}: {fault}", flush=True)
                    if arguments.pictures:
                        name = f"{page.removesuffix('.html').replace('/', '-')}-{size}-{scheme}.png"
                        driver.save_screenshot(str(arguments.pictures / name))
        resize(driver, *SIZES["desktop"])
        for fault in search_faults(driver, (arguments.site / "index.html").resolve().as_uri()):
            count += 1
            print(fault)
    print(f"{len(arguments.pages)} pages in {len(SIZES)} sizes and 2 colours: {count} faults")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
