"""Takes the picture of the page that the README shows: `python -m tests.service.page_picture OUT.png` (`make picture`).

A real service with the bundled model, a real browser, and the recording of samples/.
"""

import base64
import sys
import tempfile
from pathlib import Path

from tests.service.browser import Browser, chromium
from tests.service.serving import steno_serve, wait_for

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "austen.flac"


def main() -> None:
    """Write the picture."""
    (out,) = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with steno_serve(folder / "log") as server, chromium(folder) as browser:
            take(browser, str(server.client.base_url), Path(out))


def take(browser: Browser, address: str, out: Path) -> None:
    """Write the picture of a page whose recording was transcribed."""
    browser.screen(880, 812)
    browser.open(address)
    browser.wait_text("[data-number=state]", "ready")
    browser.type("#file", str(SAMPLE))
    browser.wait_text("#status", "transcribed in")
    wait_for(lambda: browser.shows("#waveform"))
    picture = browser.devtools("Page.captureScreenshot", format="png")
    out.write_bytes(base64.b64decode(picture["data"]))


if __name__ == "__main__":
    main()
