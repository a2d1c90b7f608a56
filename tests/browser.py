"""A real browser for tests of pages: headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
_PATIENCE = 60.0  # seconds, for a machine that has other work to do


@dataclass
class Browser:
    """One tab; `errors` are what scripts and rules of pages complained of, `requests` the addresses that were asked."""

    connection: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _number: int = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Carry out a command of the protocol."""
        self._number += 1
        self.connection.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.connection.recv(timeout=_PATIENCE))
            if message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        said = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(said["exceptionDetails"].get("text")))
            case "Log.entryAdded" if said["entry"]["level"] == "error":
                self.errors.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
            case "Network.requestWillBeSent" if not said["request"]["url"].startswith("data:"):
                self.requests.append(said["request"]["url"])

    def open(self, address: str, *, width: int = 1400, dark: bool = False) -> None:
        """Open a page in a window of that width."""
        self.errors.clear()
        self.requests.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + _PATIENCE
        while not self.value(condition):
            assert time.monotonic() < end, f"{condition} never came true"
            time.sleep(0.05)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Save a picture of the page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])


@contextlib.contextmanager
def browsing() -> Iterator[Browser]:
    """A browser with a profile of its own, closed afterwards."""
    from websockets.sync.client import connect

    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        quiet = ["--disable-background-networking", "--disable-component-update", "--disable-extensions"]
        places = ["--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            [CHROMIUM, *options, *quiet, *places], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            port = _port(Path(profile) / "DevToolsActivePort", process)
            with connect(_tab(port), max_size=None, compression=None) as connection:
                browser = Browser(connection)
                for domain in ("Page", "Runtime", "Log", "Network"):
                    browser.call(f"{domain}.enable")
                yield browser
                with contextlib.suppress(Exception):
                    browser.call("Browser.close")
        finally:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(said: Path, process: subprocess.Popen[bytes]) -> int:
    end = time.monotonic() + _PATIENCE
    while not (said.exists() and said.read_text().strip()):
        assert process.poll() is None, "chromium ended at once"
        assert time.monotonic() < end, "chromium does not start"
        time.sleep(0.05)
    return int(said.read_text().splitlines()[0])


def _tab(port: int) -> str:
    from urllib.request import urlopen

    with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=_PATIENCE) as answer:
        tabs = json.load(answer)
    address: str = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
    return address
