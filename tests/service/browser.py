"""Drives a real headless Chromium through chromedriver, in the W3C WebDriver protocol."""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.service.serving import PATIENCE, wait_for

# W3C WebDriver: the key that holds a reference to an element, and the code points of keys that print nothing.
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
TAB, ENTER, LEFT, RIGHT = "\ue004", "\ue007", "\ue012", "\ue014"

# It may run as root, without a network; its microphone is a beep that needs no permission.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--autoplay-policy=no-user-gesture-required",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--host-resolver-rules=MAP steno.test 127.0.0.1",
)


@dataclass
class Browser:
    """A window of the browser."""

    session: httpx.Client
    downloads: Path

    def _ask(self, command: str, **arguments: object) -> Any:
        answer = self.session.post(command, json=arguments).json()["value"]
        assert not (isinstance(answer, dict) and "error" in answer), answer
        return answer

    def open(self, url: str) -> None:
        self._ask("url", url=url)

    def run(self, script: str, *arguments: object) -> Any:
        """The value that a script returns."""
        return self._ask("execute/sync", script=script, args=arguments)

    def text(self, selector: str) -> str:
        """What the first element shows."""
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def shows(self, selector: str) -> bool:
        return self.run("return Boolean(document.querySelector(arguments[0])?.checkVisibility())", selector)

    def _element(self, selector: str) -> str:
        return self._ask("element", using="css selector", value=selector)[_ELEMENT]

    def click(self, selector: str) -> None:
        self._ask(f"element/{self._element(selector)}/click")

    def type(self, selector: str, text: str) -> None:
        """Type into an element; into a file input, a path."""
        self._ask(f"element/{self._element(selector)}/value", text=text)

    def press(self, *keys: str) -> None:
        """Press keys one after another, wherever the focus is."""
        strokes = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("actions", actions=[{"type": "key", "id": "keyboard", "actions": strokes}])

    def wait_text(self, selector: str, part: str) -> None:
        wait_for(lambda: part in self.text(selector))

    def devtools(self, command: str, **parameters: object) -> Any:
        """A command of the DevTools protocol."""
        return self._ask("goog/cdp/execute", cmd=command, params=parameters)

    def screen(self, width: int, height: int) -> None:
        """Pretend a screen of this size in CSS pixels; a window cannot be as narrow as a phone."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def requested_hosts(self) -> set[str]:
        """Hosts that the browser has asked since the last call; `blob:` and the browser's own pages have none."""
        messages = [json.loads(entry["message"])["message"] for entry in self._ask("se/log", type="performance")]
        sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
        urls = [httpx.URL(params["request"]["url"]) for params in sent]
        return {url.netloc.decode() for url in urls if url.scheme in ("http", "https", "ws", "wss")}

    def complaints(self) -> list[str]:
        """Errors and warnings of the page in the browser's console since the last call."""
        return [entry["message"] for entry in self._ask("se/log", type="browser")]


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Run a browser whose profile and downloads live in a folder, until the block ends."""
    downloads = folder / "downloads"
    downloads.mkdir()
    with (folder / "driver.log").open("w") as log:
        driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        with httpx.Client(base_url=_address(driver), timeout=PATIENCE, trust_env=False) as client:
            session = client.post("session", json={"capabilities": {"alwaysMatch": _capabilities(folder)}}).json()
            address = client.base_url.join(f"session/{session['value']['sessionId']}")
            client.base_url = f"{address}/"
            try:
                yield Browser(client, downloads)
            finally:
                client.delete(address).raise_for_status()  # or the browser would outlive its driver
    finally:
        driver.terminate()
        driver.wait()
        driver.stdout.close()


def _address(driver: subprocess.Popen) -> str:
    """Chromedriver says on which port it listens."""
    for line in driver.stdout:
        if port := re.search(r"started successfully on port (\d+)", line):
            return f"http://127.0.0.1:{port[1]}/"
    raise AssertionError("chromedriver did not start")


def _capabilities(folder: Path) -> dict[str, object]:
    return {
        "browserName": "chrome",
        "goog:chromeOptions": {
            "args": [*_FLAGS, f"--user-data-dir={folder / 'profile'}"],
            "prefs": {"download.default_directory": str(folder / "downloads")},
        },
        "goog:loggingPrefs": {"performance": "ALL"},
    }
