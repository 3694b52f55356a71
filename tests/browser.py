"""A headless Chromium, driven through its DevTools protocol: open a page, press keys, evaluate JavaScript, see errors.

Just what the tests need. `websocket` comes with JupyterLab.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest
import websocket

KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Tab": 9, " ": 32}      # Windows virtual key codes
PATIENCE = 240                                            # seconds, for a machine that is busy with other things


def chromium() -> str:
    """Where Chromium is. Without one the test is skipped, or fails where MINISPEC_REQUIRE_BROWSER is 1."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found:
        return found
    if os.environ.get("MINISPEC_REQUIRE_BROWSER") == "1":
        pytest.fail("no Chromium on this machine, but MINISPEC_REQUIRE_BROWSER=1")
    pytest.skip("needs Chromium: apt-get install chromium")


def wait_for(ready: Callable[[], object], what: str, seconds: float = PATIENCE) -> object:
    """The first true value of `ready()`. Raises TimeoutError, which says what was waited for."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := ready():
            return value
        time.sleep(0.2)
    raise TimeoutError(f"waited {seconds} s for {what}")


def stop(process: subprocess.Popen, seconds: float = 30) -> None:
    """Ask the process to end, and make it end."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Browser:
    """One page. errors: what it wrote to the console as an error, and the exceptions that nobody caught."""

    def __init__(self, profile: Path):
        self.process = subprocess.Popen(
            [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--window-size=1400,1000", "--remote-debugging-port=0",
             f"--user-data-dir={profile}", "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.errors: list[str] = []
        self.sent = 0
        try:
            self.connect(profile)
        except BaseException:
            stop(self.process)
            raise

    def connect(self, profile: Path) -> None:
        """Find the page that Chromium opened, and listen to it."""
        port_file = profile / "DevToolsActivePort"
        port = wait_for(lambda: port_file.exists() and port_file.read_text().split("\n")[0], "Chromium to start")
        targets = wait_for(lambda: [t for t in self.targets(port) if t["type"] == "page"], "a page")
        self.socket = websocket.create_connection(targets[0]["webSocketDebuggerUrl"], timeout=PATIENCE,
                                                  suppress_origin=True)
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)      # as a window that lies in front

    @staticmethod
    def targets(port: str) -> list[dict]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=PATIENCE) as answer:
            return json.load(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()
        stop(self.process)

    def call(self, method: str, **params: object) -> dict:
        """One command -> its result; what the page reports meanwhile is looked at for errors."""
        self.sent += 1
        self.socket.send(json.dumps({"id": self.sent, "method": method, "params": params}))
        while (message := json.loads(self.socket.recv())).get("id") != self.sent:
            self.note(message.get("method"), message.get("params", {}))
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']['message']}")
        return message["result"]

    def note(self, event: str | None, params: dict) -> None:
        if event == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}".strip())

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState == 'complete'")

    def evaluate(self, expression: str) -> object:
        """The value of a JavaScript expression; a promise is awaited. Raises RuntimeError where it throws."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"].get("exception", {}).get("description", expression))
        return done["result"].get("value")

    def wait(self, expression: str, seconds: float = PATIENCE) -> None:
        """Until a JavaScript expression is true. Raises TimeoutError."""
        wait_for(lambda: self.evaluate(f"Boolean({expression})"), expression, seconds)

    def press(self, key: str) -> None:
        """A key as a user presses it: it goes to whatever has the focus."""
        code = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": KEYS[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", **code, **({"text": key} if key == " " else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def click(self, selector: str) -> None:
        """The mouse goes to the middle of the first such element, once it can be seen there, and presses its button."""
        self.call("Runtime.evaluate", expression=f"""function middle() {{
            const found = document.querySelector({json.dumps(selector)}), box = found?.getBoundingClientRect();
            const x = box?.x + box?.width / 2, y = box?.y + box?.height / 2;
            return box?.width && found.contains(document.elementFromPoint(x, y)) ? [x, y] : null;
        }}""")
        self.wait("middle()")
        x, y = self.evaluate("middle()")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for event in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=event, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
