"""Debian's Chromium, driven by Selenium, and axe-core in it: what `make test-browser` runs."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

WIDTHS = {"wide": 1280, "narrow": 390}
PICTURES = os.environ.get("ZEROSUM_PICTURES")  # a folder; where it is set, pages are drawn into it


def skip_unless_installed() -> None:
    for module in ("selenium", "axe_playwright_python"):
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed: make test-browser", allow_module_level=True)
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            words = f"{program} is not installed: apt-get install chromium chromium-driver"
            pytest.skip(words, allow_module_level=True)


@contextmanager
def chromium() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for each in ("--headless=new", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars", "--lang=en"):
        options.add_argument(each)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # which Chromium needs where root runs it
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    try:
        yield driver
    finally:
        driver.quit()


def wait(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What comes true in the browser, sooner or later; elements that were replaced meanwhile are looked for again."""
    from selenium.common.exceptions import WebDriverException

    end, last = time.monotonic() + seconds, None
    while time.monotonic() < end:
        try:
            if found := what():
                return found
        except WebDriverException as error:
            last = error
        time.sleep(0.05)
    raise AssertionError(f"it did not happen in {seconds:.0f} seconds") from last


def look(driver: Any, width: int, dark: bool) -> None:
    """As on a screen so wide, in light or in dark, tall enough for all of the page."""
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    tall = int(driver.execute_script("return document.documentElement.scrollHeight"))
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics | {"height": max(tall, 500)})


#: Colours that are still on their way from light to dark have a contrast that nobody gets to see.
_STILL = """
const still = new CSSStyleSheet();
still.replaceSync("*, *::before, *::after { transition: none !important; animation: none !important }");
document.adoptedStyleSheets = [...document.adoptedStyleSheets, still];
"""
#: Width, and whether dark.
VIEWS = tuple((width, dark) for width in WIDTHS.values() for dark in (False, True))
BOTH = (VIEWS[0], VIEWS[-1])  # each width and each scheme once: on a screen light, on a telephone dark


def faults(driver: Any, views: Sequence[tuple[int, bool]] = VIEWS, without: Sequence[str] = ()) -> list[str]:
    """What axe-core finds wrong with a page, of whatever weight, in light and dark, wide and narrow; and whether the
    page is wider than the screen. Rules `without` are not asked."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None
    assert spec.origin is not None
    script = Path(spec.origin).with_name("axe.min.js").read_text(encoding="utf-8")
    rules = {name: {"enabled": False} for name in without}
    driver.set_script_timeout(300)  # long pages, machines at work
    driver.execute_script(_STILL)
    found = []
    for width, dark in views:
        look(driver, width, dark)
        driver.execute_script(f"if (!window.axe) {{ {script} }}")
        said = driver.execute_async_script(
            "const done = arguments[1]; axe.run(document, arguments[0]).then(done, (e) => done(String(e)));",
            {"rules": rules, "resultTypes": ["violations"]},
        )
        assert isinstance(said, dict), said
        assert len(said["passes"]) > 10  # it did look
        for each in said["violations"]:
            targets = [node["target"] for node in each["nodes"]][:3]
            found.append(f"{each['impact']}: {each['id']} at {targets}, {width} wide, dark {dark}")
        if driver.execute_script("return document.documentElement.scrollWidth > window.innerWidth"):
            found.append(f"the page is wider than {width}")
    return found


def grave(found: Sequence[str]) -> list[str]:
    """Of these faults what keeps somebody out."""
    return [each for each in found if each.startswith(("serious", "critical", "the page"))]


def picture(driver: Any, name: str) -> None:
    """Where pictures are asked for: the page light and dark, wide and narrow, small enough for the docs."""
    if PICTURES is None:
        return
    from PIL import Image

    from gallery import save

    for size, width in WIDTHS.items():
        for dark in (False, True):
            look(driver, width, dark)
            time.sleep(0.3)
            shot = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
            Path(PICTURES).mkdir(parents=True, exist_ok=True)
            save(shot, Path(PICTURES) / f"watch-{name}-{size}-{'dark' if dark else 'light'}.webp")


def complaints(driver: Any) -> list[str]:
    """What the browser had to say: errors of scripts, and whatever the Content-Security-Policy kept out."""
    return [each["message"] for each in driver.get_log("browser") if each["level"] in ("SEVERE", "WARNING")]
