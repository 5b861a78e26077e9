"""The live page in a browser, and while the mesh restarts and the server shuts down."""

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from end_to_end.live_pages import admin_token, page_server
from end_to_end.processes import wait_for
from end_to_end.test_live_page import X

import shardcall as sc

pytestmark = pytest.mark.long

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def test_probes_and_page_during_a_restart_of_the_mesh(pages):
    with closing(pages.snapshots()) as snapshots:
        assert pages.get("/readyz") == (200, "ready\n")
        (worker,) = pages.running.worker_pids()
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: pages.get("/readyz") == (503, "not ready: the mesh starts again\n"))
        assert pages.get("/healthz") == (200, "ok\n")
        shown = next(one for one in snapshots if not one["mesh"]["ready"])
        assert shown["mesh"]["exits"] == {"killed": 1}
        assert "signal 9" in shown["mesh"]["last_exit_reason"]
        wait_for(lambda: pages.get("/readyz")[0] == 200)
        assert next(one for one in snapshots if one["mesh"]["ready"])["mesh"]["restarts"] == 1


def test_a_server_that_shuts_down_is_not_ready_and_ends_although_the_page_is_open(tmp_path):
    with page_server(tmp_path / "log", devices=1) as server, sc.connect(server.running.address) as client:
        (worker,) = server.running.worker_pids()
        with closing(server.snapshots()) as snapshots:
            next(snapshots)
            os.kill(worker, signal.SIGSTOP)
            waiting = threading.Thread(target=client.diff, args=[X[:, 0]])
            waiting.start()
            wait_for(lambda: next(snapshots)["queue"]["calls"] == 1)
            server.running.process.send_signal(signal.SIGTERM)
            wait_for(lambda: server.get("/readyz") == (503, "not ready: the server shuts down\n"))
            assert server.get("/healthz") == (200, "ok\n")
            assert next(one for one in snapshots if one["mesh"]["draining"])
            os.kill(worker, signal.SIGCONT)
            waiting.join()
            assert server.running.process.wait(30) == 0


@contextmanager
def browser() -> Iterator:
    """A headless Chromium."""
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs chromium and chromedriver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield opened
    finally:
        opened.quit()


def test_a_browser_opens_the_link_once_and_watches_calls_and_a_restart(tmp_path):
    with page_server(tmp_path / "log", "--no-auth") as server, browser() as chrome:
        key = server.link.partition("#")[2]
        assert len(key) >= 40
        assert key not in server.log.read_text()
        chrome.get(server.link)

        def text(name: str) -> str:
            return str(chrome.find_element("id", name).text) if chrome.find_elements("id", name) else ""

        wait_for(lambda: text("state") == "ready")
        assert chrome.current_url == f"{server.base}/"
        assert chrome.execute_script("return document.cookie") == ""
        with sc.connect(server.running.address) as client:
            client.put(X, name="shown.array")
            client.gradient(X, axis=0)
            with pytest.raises(sc.AxisError):
                client.gradient(X, axis=7)
            wait_for(lambda: "AXIS_OUT_OF_RANGE" in text("errors"))
        assert "gradient" in text("calls")
        assert "shown.array" in text("arrays")
        assert chrome.find_elements("css selector", "#calls .waterfall i:not(.total)")
        (worker,) = server.running.worker_pids()
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: "killed 1×" in text("restarts"))
        wait_for(lambda: text("state") == "ready")
        resources = "performance.getEntriesByType('resource')"
        hosts = chrome.execute_script(f"return {resources}.map((one) => new URL(one.name).host)")
        assert set(hosts) == {server.base.removeprefix("http://")}
        assert [line for line in chrome.get_log("browser") if "401" not in line["message"]] == []
        with browser() as other:  # the link was used
            other.get(server.link)
            wait_for(lambda: "was used" in other.find_element("id", "message").text)


_DRAW_NAMES = """
const name = arguments[0], now = JSON.parse(JSON.stringify(last));
now.principals = [{name, arrays: 0, bytes: 0, max_bytes: null, programs: 0, calls: 0, ended: 0}];
now.errors = [{reason: name, kernel: name, method: name, client: name, request_id: name, count: 1, ago_s: 1}];
now.hosts = [{name, present: false, absent_s: 1, absent_reason: name, devices: 1, sent_bytes: 0, received_bytes: 0}];
now.mesh = {...now.mesh, missing: name, last_exit_reason: name, platform: name, ready: false, restarts: 1};
draw(now);
return [document.querySelectorAll("main img, main script").length, document.querySelector("#errors td").textContent];
"""


def test_a_browser_signs_in_uses_keys_up_and_shows_names_as_text(tmp_path):
    with page_server(tmp_path / "log", devices=1) as server, browser() as chrome:
        chrome.get(server.link)
        chrome.find_element("id", "token").send_keys(admin_token())
        chrome.find_element("css selector", "#sign-in button").click()
        wait_for(lambda: bool(chrome.find_elements("css selector", "#devices .device")))
        chrome.execute_script("location.hash = 'key'")  # the link is opened where somebody is signed in already
        wait_for(lambda: any("/session" in line["message"] for line in chrome.get_log("browser")))  # it is a wrong key
        assert chrome.current_url == f"{server.base}/"
        name = "<img src=x onerror='document.title=1'><script>document.title=2</script>"
        assert chrome.execute_script(_DRAW_NAMES, name) == [0, name]
        assert chrome.title not in ("1", "2")
        chrome.set_window_size(390, 800)  # of a phone
        root = "document.documentElement"
        assert chrome.execute_script(f"return {root}.scrollWidth <= {root}.clientWidth")
