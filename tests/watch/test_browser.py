"""The page in a real browser, with real sites and a real coordinator, each a process (`make test-browser`)."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import chromium, complaints, faults, grave, picture, skip_unless_installed, wait
from helpers.deployment import COMMAND, NAMES, Deployment
from helpers.watch_page import HOSTILE, hostile, served
from zerosum.site.decisions import Consents
from zerosum.study import Study
from zerosum.study.status import read_status

skip_unless_installed()

from selenium.webdriver.common.by import By  # noqa: E402  # only where it is there
from selenium.webdriver.common.keys import Keys  # noqa: E402

from zerosum.watch.app import MOST_STREAMS  # noqa: E402
from zerosum.watch.site_pages import SitePages  # noqa: E402

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("default::ResourceWarning")]
ROUNDS = 12


class World:
    """Four sites that serve, of which north asks its steward; coordinators and pages, and two windows of a browser."""

    def __init__(self, folder: Path, driver: Any) -> None:
        self.folder, self.driver = folder, driver
        self.sites = Deployment(folder, automatic=True)
        file = folder / "north" / "site.toml"
        file.write_text(file.read_text().replace("automatic = true", "automatic = false"))
        self.sites.start()
        self.processes: list[subprocess.Popen[str]] = []
        (folder / "studies").mkdir()
        self.homes: dict[str, str] = {}
        self.hub = self._open(self._watch("--state", folder / "studies"))
        self.north = self._open(self._watch("--site", folder / "north"))

    def _watch(self, *arguments: object) -> str:
        process = self._start("watch", *arguments)
        assert process.stdout is not None
        found = re.fullmatch(r"open (http://\S+)\n", process.stdout.readline())
        assert found is not None
        return found[1]

    def _start(self, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder
        )
        self.processes.append(process)
        return process

    def _open(self, address: str) -> str:
        self.driver.switch_to.new_window("tab")
        self.driver.get(address)
        wait(lambda: self.driver.find_element(By.CSS_SELECTOR, "#line.good"))
        assert "token" not in self.driver.current_url
        handle: str = self.driver.current_window_handle
        self.homes[handle] = self.driver.current_url
        return handle

    def coordinate(self, study: Path) -> subprocess.Popen[str]:
        name = study.stem
        places = [word for each, path in self.sites.sockets().items() for word in ("--site", f"{each}={path}")]
        out = ("--state", self.folder / "studies" / name, "--out", self.folder / f"{name}-out")
        return self._start("coordinator", "run", study, *out, *places, "--every", "0.2")

    def at(self, window: str, *, home: bool = False) -> World:
        self.driver.switch_to.window(window)
        if home:
            self.driver.get(self.homes[window])
        return self

    def text(self, id: str) -> str:
        return str(self.driver.find_element(By.ID, id).text)

    def sees(self, id: str, words: str) -> None:
        """Waits until a section has these words; if it never does, says what it has instead, and how things stand."""
        try:
            wait(lambda: words in self.text(id))
        except AssertionError as error:
            logged = [(line["time"], line["event"]) for line in self.sites.log("north")[-5:]]
            stands = {place.name: read_status(place) for place in (self.folder / "studies").iterdir()}
            line = self.driver.find_element(By.ID, "line").text
            shown = f"{self.driver.current_url}: {self.text(id)!r} ({line!r})"
            raise AssertionError(f"no {words!r} in {shown}; north: {logged}; coordinator: {stands}") from error

    def click(self, selector: str) -> None:
        wait(lambda: self.driver.find_element(By.CSS_SELECTOR, selector)).send_keys(Keys.ENTER)  # as without a mouse

    def mark(self) -> None:
        """A page that was loaded again has no mark."""
        self.driver.execute_script("window.marked = true")

    @property
    def marked(self) -> bool:
        return bool(self.driver.execute_script("return window.marked === true"))

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.communicate(timeout=30)
        self.sites.stop()


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, driver: Any) -> Iterator[World]:
    before = os.environ.get("ZEROSUM_STATE")
    os.environ["ZEROSUM_STATE"] = str(tmp_path_factory.mktemp("own"))
    made = World(tmp_path_factory.mktemp("w"), driver)
    try:
        yield made
    finally:
        made.stop()
        os.environ.pop("ZEROSUM_STATE") if before is None else os.environ.update(ZEROSUM_STATE=before)


def test_watch_browser_study_approved_on_page_runs_to_result(world: World) -> None:
    driver = world.driver
    world.at(world.hub)
    assert "vitals" not in world.text("now")
    assert faults(driver) == []
    world.mark()
    study = world.sites.study("k-means", name="vitals", seed=None, parameters=f"n_clusters = 1\nrounds = {ROUNDS - 3}")
    process = world.coordinate(study)
    wait(lambda: "vitals" in world.text("now"))  # by itself: nobody loaded the page again
    wait(lambda: "3 of 4 sites" in world.text("now"))
    assert world.marked
    world.click("#now h3 a")
    wait(lambda: re.search("north\\s+waits for its steward", world.text("sites")))
    assert len(re.findall("agreed", world.text("sites"))) == 3
    assert faults(driver) == []
    picture(driver, "coordinator-study-waiting")
    world.mark()

    world.at(world.north)
    wait(lambda: "vitals" in world.text("waiting"))
    assert driver.title.startswith("(1) ")
    assert faults(driver) == []
    world.click("#waiting .button")
    wait(lambda: "epsilon 2.0000 at delta 1e-05" in world.text("cost"))
    assert "policy" in world.text("cost")
    assert "pressure 60 to 200" in world.text("asked")
    assert faults(driver) == []
    picture(driver, "site-plan")
    west = world.sites.running["west"]
    west.send_signal(signal.SIGSTOP)  # the rounds wait for it, so that there is something to see
    try:
        world.click("#decide button.good")
        wait(lambda: "approved" in driver.find_element(By.CSS_SELECTOR, ".notice").text)
        (decided,) = [line["words"] for line in world.sites.log("north") if line["event"] == "decided"]
        assert decided.endswith("on the page")
        world.sees("state", "under way")
    finally:
        west.send_signal(signal.SIGCONT)
    world.mark()
    wait(lambda: f"{ROUNDS} of {ROUNDS} rounds" in world.text("state"))
    assert process.wait(60) == 0, process.communicate()
    wait(lambda: "over here" in world.text("state"))
    wait(lambda: "spent here" in world.text("state"))
    assert faults(driver) == []
    assert world.marked
    driver.find_element(By.CSS_SELECTOR, "header a").click()
    wait(lambda: re.search(r"\b2\.0000 of 10 .* 9\.6", world.text("site")))
    picture(driver, "site-home-after")

    world.at(world.hub)
    wait(lambda: "over" in world.text("state"))
    wait(lambda: f"{ROUNDS} of {ROUNDS} rounds" in world.text("state"))
    result = json.loads((world.folder / "vitals-out" / "result.json").read_text())
    wait(lambda: driver.find_element(By.ID, "result"))
    assert world.marked  # from waiting to the result without being loaded again
    assert all(name in world.text("result") for name in result["estimate"])
    assert "ledger" not in driver.page_source  # a coordinator sees no site's
    assert faults(driver) == []
    picture(driver, "coordinator-study-finished")
    assert complaints(driver) == []


def test_watch_browser_running_study_updates_page(world: World) -> None:
    """Between two rounds, held there by a site that does not answer for a while."""
    driver = world.at(world.hub, home=True).driver
    study = world.sites.study("k-means", name="moving", seed=None, parameters="n_clusters = 1\nrounds = 37")
    plan = Study.load(study).plan()
    place = world.folder / "moving.json"
    place.write_bytes(plan.to_json())
    Consents(world.folder / "north" / "state").decide(plan.digest(), "approved")
    places = [word for each, path in world.sites.sockets().items() for word in ("--site", f"{each}={path}")]
    state = world.folder / "studies" / "moving"
    out = ("--state", state, "--out", world.folder / "moving-out", "--plan", place)
    process = world._start("coordinator", "run", study, *out, *places, "--every", "0.2")
    west = world.sites.running["west"]
    wait(lambda: (state / "status.json").exists() and read_status(state)["rounds"] >= 3)
    west.send_signal(signal.SIGSTOP)
    try:
        wait(lambda: re.search(r"moving.*\n.*under way", world.text("now")))
        done = read_status(state)["rounds"]
        assert 3 <= done < 40
        wait(lambda: f"{done} of 40 rounds" in world.text("now"))
        world.click("#now h3 a")
        wait(lambda: "under way" in world.text("state"))
        picture(driver, "coordinator-study-during")
        world.at(world.north, home=True)
        wait(lambda: "moving" in world.text("now"))
        picture(driver, "site-home-during")
    finally:
        west.send_signal(signal.SIGCONT)
    assert process.wait(60) == 0
    wait(lambda: "moving" not in world.text("now"))
    world.at(world.hub)
    wait(lambda: "40 of 40 rounds" in world.text("state"))
    assert complaints(driver) == []


def test_watch_browser_refusal_and_reason_reach_coordinator(world: World) -> None:
    driver, reason = world.driver, f"not before the board met {HOSTILE}"
    world.at(world.hub, home=True)
    process = world.coordinate(world.sites.study(name="another", seed=None))
    wait(lambda: "another" in world.text("now"))
    world.click("#now h3 a")
    world.mark()
    world.at(world.north, home=True)
    wait(lambda: "another" in world.text("waiting"))
    world.click("#waiting .button")
    area = wait(lambda: driver.find_element(By.ID, "reason"))
    area.send_keys(reason)
    driver.execute_script("arguments[0].focus()", area)
    world.click("#decide button.bad")
    wait(lambda: "refused" in driver.find_element(By.CSS_SELECTOR, ".notice").text)
    assert reason in world.text("state")
    assert faults(driver) == []
    world.at(world.hub)
    wait(lambda: reason in world.text("state"))
    assert "site 'north'" in world.text("state")
    assert world.marked
    picture(driver, "coordinator-study-refused")
    assert faults(driver) == []
    assert process.wait(60) == 2
    assert complaints(driver) == []
    spent = {name: len(world.sites.spent(name)) for name in NAMES}
    assert len(set(spent.values())) == 1  # nobody spent on what was refused


def test_watch_browser_hostile_name_stays_text(driver: Any, tmp_path: Path) -> None:
    """A hostile coordinator's plan, on the page of a steward."""
    from zerosum.cli.site import site_init

    site_init(tmp_path / "s0", json_=True)
    plan = hostile()
    Consents(tmp_path / "s0" / "state").keep(plan)
    with served(SitePages(tmp_path / "s0" / "site.toml")) as visitor:
        driver.get(f"{visitor.origin}/?token={visitor.access.token}")
        wait(lambda: driver.find_element(By.CSS_SELECTOR, "#waiting .button")).click()
        wait(lambda: HOSTILE in driver.find_element(By.ID, "asked").text)
        assert driver.find_elements(By.CSS_SELECTOR, "main img, main script") == []
        assert grave(faults(driver)) == []
        assert complaints(driver) == []
        driver.get("about:blank")


def test_watch_browser_refused_stream_reconnects(driver: Any, tmp_path: Path) -> None:
    """A browser gives a stream up for good when it is answered with an error; the page does not."""
    from zerosum.cli.site import site_init

    site_init(tmp_path / "s0", json_=True)
    with served(SitePages(tmp_path / "s0" / "site.toml")) as visitor:
        visitor.watch.streams = MOST_STREAMS
        driver.get(f"{visitor.origin}/?token={visitor.access.token}")
        wait(lambda: driver.find_element(By.CSS_SELECTOR, "#line.bad"))
        visitor.watch.streams = 0
        wait(lambda: driver.find_element(By.CSS_SELECTOR, "#line.good"), 20.0)
        driver.get("about:blank")
        driver.get_log("browser")


def test_watch_browser_pages_of_other_origins_decide_nothing(driver: Any, tmp_path: Path) -> None:
    """A web page, on another port of the same host or on another site, that posts to the loopback port: even one that
    found out the address, in a browser that was let in."""
    from helpers.small_studies import make
    from zerosum.cli.site import site_init

    site_init(tmp_path / "s0", json_=True)
    plan, consents = make("local", study="vitals"), Consents(tmp_path / "s0" / "state")
    consents.keep(plan)
    with served(SitePages(tmp_path / "s0" / "site.toml")) as visitor:
        driver.get(f"{visitor.origin}/?token={visitor.access.token}")
        wait(lambda: driver.find_element(By.ID, "waiting"))
        target = f"{visitor.origin}{visitor.root}study/{plan.digest()}/decision"
        seen: list[str] = []
        form = (
            f'<form method="post" action="{target}"><input name="decision" value="approved">'
            '<input name="form" value="guessed"><button>x</button></form>'
            f'<img src="{visitor.origin}{visitor.root}"><iframe src="{visitor.origin}{visitor.root}"></iframe>'
        )

        class Evil(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append(self.headers.get("Cookie", ""))
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(form.encode())

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            for host in ("127.0.0.1", "localhost"):  # of the same site as the page, and of another
                driver.get(f"http://{host}:{server.server_address[1]}/")
                read = driver.execute_async_script(
                    "const done = arguments[1]; fetch(arguments[0], {credentials: 'include'})"
                    ".then((a) => a.text(), () => 'kept out').then(done);",
                    f"{visitor.origin}{visitor.root}",
                )
                assert read == "kept out"
                posted = driver.execute_async_script(
                    "const done = arguments[1]; fetch(arguments[0], {method: 'POST', credentials: 'include',"
                    " mode: 'no-cors', headers: {'Content-Type': 'application/x-www-form-urlencoded'},"
                    " body: 'decision=approved&form=x'}).then((a) => a.type, () => 'kept out').then(done);",
                    target,
                )
                assert posted in ("opaque", "kept out")
                driver.find_element(By.TAG_NAME, "button").click()
                wait(lambda: driver.find_element(By.TAG_NAME, "h1").text in ("No access", "Not decided"))
                assert consents.decision(plan.digest()) is None
            assert all(visitor.access.session not in each for each in seen)  # cookies know no ports; paths they know
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
        driver.get("about:blank")
        driver.get_log("browser")
