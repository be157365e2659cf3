"""A headless Chromium, spoken to through a pipe (its DevTools protocol): no other package is needed."""

import itertools
import json
import os
import shutil
import subprocess
import tempfile

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --remote-debugging-pipe".split()
)


class Chromium:
    """One tab. ``errors``: what pages have written to the console as an error since they were last asked for."""

    def __init__(self, width, height=800):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self.to = os.pipe()
        self.back, mine = os.pipe()
        # Chromium reads from 3 and writes to 4
        start = f'exec "$0" "$@" 3<&{theirs} 4>&{mine}'
        command = ["bash", "-c", start, PROGRAM, *FLAGS, f"--user-data-dir={self.profile.name}"]
        self.process = subprocess.Popen(
            command, pass_fds=(theirs, mine), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs)
        os.close(mine)
        self.numbers, self.rest, self.events, self.session = itertools.count(1), b"", [], None
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
        self("Emulation.setDeviceMetricsOverride", **size)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.profile.cleanup()

    def __call__(self, method, **params):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while (answer := self.receive()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def receive(self):
        while b"\0" not in self.rest:
            more = os.read(self.back, 1 << 16)
            assert more, "Chromium has ended"
            self.rest += more
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def open(self, address):
        """Loads a page and returns what it has written to the console as an error."""
        self.events.clear()
        self("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.receive())
        self.value("1")  # what has been written until now has come
        return [str(event["params"])[:300] for event in self.events if is_error(event)]

    def value(self, expression):
        """Of JavaScript; a promise is waited for."""
        found = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")


def is_error(event):
    params = event.get("params", {})
    return (
        event.get("method") == "Runtime.exceptionThrown"
        or (event.get("method") == "Runtime.consoleAPICalled" and params["type"] == "error")
        or (event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error")
    )
