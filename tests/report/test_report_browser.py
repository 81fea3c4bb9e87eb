"""The page in a real browser, from a file and without a network; pictures of it are kept as artifacts of the tests."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from example_records import COEFFICIENTS, ended, hostile, one_class, solved, whole

from fedpact.report import sections
from fedpact.report.page import page

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("chromium")]  # one browser, on one worker

#: Where the pictures go: FEDPACT_ARTIFACTS, or a folder that git ignores.
ARTIFACTS = Path(os.environ.get("FEDPACT_ARTIFACTS") or Path(__file__).parents[1] / "artifacts")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")

#: The least contrast of a text to what is behind it, as WCAG 2 defines it, and that text.
CONTRAST = """
const channels = (color) => color.match(/[\\d.]+/g).map(Number);
const light = (color) => channels(color).slice(0, 3).map((c) => c / 255)
  .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const color = getComputedStyle(e).backgroundColor;
    if ((channels(color)[3] ?? 1) > 0) return color;
  }
  return "rgb(255, 255, 255)";
};
const found = [...document.querySelectorAll("body *")]
  .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) && e.checkVisibility())
  .filter((e) => !e.matches("title, desc"))
  .map((e) => {
    const style = getComputedStyle(e);
    const [a, b] = [light(e.closest("svg") ? style.fill : style.color), light(behind(e))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), e.textContent];
  });
return [found.length, ...found.sort((x, y) => x[0] - y[0])[0]];
"""

#: Texts of charts that leave their chart, and pairs of them that lie over each other.
LABELS = """
const [cut, over] = [[], []];
for (const svg of document.querySelectorAll("figure > svg")) {
  const [all, frame] = [[...svg.querySelectorAll("text")], svg.getBoundingClientRect()];
  const boxes = all.map((text) => text.getBoundingClientRect());
  boxes.forEach((a, i) => {
    const inside = a.left >= frame.left - 1 && a.right <= frame.right + 1;
    if (!inside || a.top < frame.top - 1 || a.bottom > frame.bottom + 1) cut.push(all[i].textContent);
    boxes.slice(0, i).forEach((b, j) => {
      const apart = a.left >= b.right || b.left >= a.right || a.top >= b.bottom || b.top >= a.bottom;
      if (!apart) over.push([all[i].textContent, all[j].textContent]);
    });
  });
}
return [cut, over];
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("no chromium and chromedriver here; Debian has both: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    records = {
        "solved": solved(secure=True),
        "slow": solved(method="proximal-al"),  # hundreds of exchanges
        "ended": ended("max_rounds"),
        "hostile": hostile(),
        "many": solved(100),
        "warned": one_class(),
        "whole": whole(),
    }
    for name, record in records.items():
        made = sections.report(record, coefficients=COEFFICIENTS if name in ("whole", "hostile") else ())
        (folder / f"{name}.html").write_text(page(made), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in records}


def show(browser: Any, path: Path, width: int = 1200, scheme: str = "light", media: str = "") -> None:
    """Open a page on a screen of this width, and wait until it is all there."""
    from selenium.webdriver.support.ui import WebDriverWait

    features = [{"name": "prefers-color-scheme", "value": scheme}]
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(path.as_uri())
    WebDriverWait(browser, 60).until(lambda page: page.execute_script("return document.readyState") == "complete")


def keep(browser: Any, name: str) -> Path:
    """A picture of the whole page."""
    width, height = browser.execute_script("const e = document.documentElement; return [e.clientWidth, e.scrollHeight]")
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    (ARTIFACTS / name).write_bytes(base64.b64decode(shot["data"]))
    return ARTIFACTS / name


@pytest.mark.parametrize("name", ["solved", "ended", "hostile", "many", "whole"])
def test_it_opens_without_error_and_loads_nothing(name: str, browser: Any, pages: dict[str, Path]) -> None:
    browser.get_log("browser")  # what came before
    show(browser, pages[name])
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.execute_script("return document.scripts.length + document.images.length") == 0
    assert browser.title.endswith(": report of a run")


@pytest.mark.parametrize("width", [390, 1280])
def test_charts_are_drawn_and_their_labels_fit(width: int, browser: Any, pages: dict[str, Path]) -> None:
    for name in ("solved", "slow", "many", "whole"):
        show(browser, pages[name], width)
        boxes = browser.execute_script(
            "return [...document.querySelectorAll('#course figure > svg')].map((svg) => "
            "[...svg.querySelectorAll('path.line')].map((line) => line.getBoundingClientRect())"
            ".map((box) => [box.width, box.height]))"
        )
        assert [len(lines) for lines in boxes] == [1, 1, 2, 1]
        assert all(w > 50 and h > 10 for lines in boxes for w, h in lines)
        cut, over = browser.execute_script(LABELS)
        assert cut == []
        assert over == []


def test_every_chart_says_in_words_what_it_shows(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["whole"])
    charts = browser.execute_script(
        "return [...document.querySelectorAll('figure > svg')].map((svg) => [svg.getAttribute('role'), "
        "...svg.getAttribute('aria-labelledby').split(' ').map((id) => document.getElementById(id).textContent)])"
    )
    assert len(charts) == 11  # asked, effects, recall, trade-off (2), ROC, calibration, course (4)
    assert all(role == "img" and len(title) > 3 and len(about) > 20 for role, title, about in charts)


@pytest.mark.parametrize("width", [1280, 500, 390])
def test_every_verdict_is_in_sight(width: int, browser: Any, pages: dict[str, Path]) -> None:
    """Without scrolling sideways: inside the screen, and inside the box that its table scrolls in."""
    for name in ("whole", "ended", "hostile"):
        show(browser, pages[name], width)
        seen = browser.execute_script(
            "return [...document.querySelectorAll('.pill')].map((pill) => [pill.getBoundingClientRect().left, "
            "pill.getBoundingClientRect().right, pill.closest('.scroll').getBoundingClientRect().right])"
        )
        assert len(seen) >= 7
        assert all(left >= 0 and right <= min(edge, width) for left, right, edge in seen), name
        if name == "whole":
            assert keep(browser, f"report-{width}.png").stat().st_size > 50_000


@pytest.mark.parametrize("width", [500, 390, 360])
def test_a_table_that_does_not_fit_shows_that_it_scrolls(width: int, browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["whole"], width)
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth)"
        ".map((box) => getComputedStyle(box).backgroundImage)"
    )
    assert boxes
    assert all(image.count("linear-gradient") == 2 for image in boxes)


@pytest.mark.parametrize("name", ["solved", "ended", "hostile", "many", "whole"])
def test_a_narrow_screen_scrolls_in_boxes_only(name: str, browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages[name], 360)
    for summary in browser.find_elements("css selector", "summary"):
        summary.click()
    inner, body, boxes = browser.execute_script(
        "const wide = (e) => [e.scrollWidth, e.clientWidth];"
        "const boxes = [...document.querySelectorAll('.scroll')];"
        "return [wide(document.documentElement), wide(document.body), boxes.map(wide)]"
    )
    assert inner[0] <= inner[1] <= 360
    assert body[0] <= body[1]
    assert any(scroll > client for scroll, client in boxes)
    if name == "hostile":
        assert keep(browser, "report-narrow.png").stat().st_size > 20_000


def test_it_can_be_read_by_keyboard(browser: Any, pages: dict[str, Path]) -> None:
    from selenium.webdriver import ActionChains, Keys

    def press(key: str) -> None:
        ActionChains(browser).send_keys(key).perform()

    def active(script: str) -> Any:
        return browser.execute_script(f"const e = document.activeElement; return {script}")

    show(browser, pages["solved"], 360)
    press(Keys.TAB)
    assert active("e.className") == "skip"
    assert active("e.getBoundingClientRect().left") >= 0  # it is seen only now
    press(Keys.ENTER)
    assert active("e.id") == "verdict"
    wanted = browser.execute_script("return document.querySelectorAll('.scroll:not(details *), summary').length")
    reached = set()
    for _ in range(wanted + 12):  # the links of the contents come first
        press(Keys.TAB)
        if active("e.matches('.scroll, summary')"):
            reached.add(active("e.getAttribute('aria-label') || e.textContent"))
            assert active("getComputedStyle(e).outlineStyle") == "solid"
        if active("e.matches('summary')"):
            press(Keys.ENTER)
            assert active("e.parentElement.open") is True
    assert len(reached) >= wanted
    assert {"Constraints by owner", "The numbers behind the charts", "Fields that left an owner"} <= reached


def test_a_box_scrolls_by_arrow_keys(browser: Any, pages: dict[str, Path]) -> None:
    from selenium.webdriver import Keys
    from selenium.webdriver.support.wait import WebDriverWait

    show(browser, pages["solved"], 360)
    box = browser.find_element("css selector", ".scroll")
    box.send_keys(Keys.ARROW_RIGHT)
    assert WebDriverWait(browser, 5).until(lambda _: browser.execute_script("return arguments[0].scrollLeft", box)) > 0


@pytest.mark.parametrize(("scheme", "ground"), [("light", "rgb(244, 246, 248)"), ("dark", "rgb(17, 23, 29)")])
def test_text_stands_out_in_light_and_dark(scheme: str, ground: str, browser: Any, pages: dict[str, Path]) -> None:
    for name in ("ended", "warned", "whole"):
        show(browser, pages[name], scheme=scheme)
        assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == ground
        count, least, text = browser.execute_script(CONTRAST)
        assert count > 100
        assert least >= 4.5, text  # WCAG 2, level AA
    assert keep(browser, f"report-{scheme}.png").stat().st_size > 50_000


def test_it_is_printed_light_and_whole(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["many"], scheme="dark", media="print")
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    hidden = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].filter((e) => e.checkVisibility())"
        ".filter((e) => e.scrollHeight > e.clientHeight + 1).length"
    )
    assert hidden == 0  # all hundred rows
    assert not browser.find_element("css selector", "nav").is_displayed()
    show(browser, pages["whole"])
    pdf = base64.b64decode(browser.print_page())
    assert pdf.startswith(b"%PDF-")
    assert len(pdf) > 30_000
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    (ARTIFACTS / "report.pdf").write_bytes(pdf)
