"""The page in a real browser. Needs Chromium (`apt-get install chromium`); skipped, saying so, where there is none."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest_server import Running
from playwright.sync_api import Browser, Page, expect, sync_playwright

from edgespec.speculation.decoder import Decoder

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
SHOTS = os.environ.get("EDGESPEC_SCREENSHOTS")  # a folder to keep pictures in


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, server: Running) -> Iterator[Page]:
    """Every message in the console, every failed request and every request to another place fails the test."""
    page = browser.new_page(viewport={"width": 1000, "height": 720})
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request", lambda request: complaints.append(request.url) if not request.url.startswith((server.url, "data:")) else None
    )
    page.goto(server.url)
    yield page
    page.close()
    assert [text for text in complaints if "a status of 400" not in text] == []  # refusals are shown on the page


def shot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png")


def ask(page: Page, text: str) -> None:
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")


def done(page: Page) -> None:
    expect(page.locator("#stop")).to_be_hidden(timeout=60_000)


def test_a_question_is_answered_and_measured(page: Page) -> None:
    expect(page.locator("#model")).to_have_text("pair")
    ask(page, "What is the capital of France?")
    done(page)
    answer = page.locator(".turn.assistant")
    expect(answer).to_contain_text("The capital of France is Paris.")
    expect(answer.locator(".note")).to_contain_text("tokens/s")
    expect(page.locator("#memory-text")).to_contain_text("of 1.0 GiB")
    expect(page.locator("#acceptance-text")).to_contain_text("%")
    shot(page, "answer")


def test_what_was_guessed_is_coloured_when_asked_for(page: Page) -> None:
    ask(page, "Tell me a short story about Anna.")
    done(page)
    drafted = page.locator(".turn.assistant .drafted").first
    plain = page.locator(".turn.assistant span:not(.drafted)").first
    colour = "element => getComputedStyle(element).backgroundColor"
    assert drafted.evaluate(colour) != plain.evaluate(colour)
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Colour what was guessed right").uncheck()
    shot(page, "settings")
    page.get_by_role("button", name="Done").click()
    assert drafted.evaluate(colour) == plain.evaluate(colour)


def test_an_answer_is_stopped_with_the_button_and_with_escape(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = Decoder._verify

    def slowly(*arguments: Any) -> Any:
        time.sleep(0.1)
        return verify(*arguments)

    monkeypatch.setattr(Decoder, "_verify", slowly)  # as a large model would
    stops: list[Callable[[], None]] = [
        lambda: page.get_by_role("button", name="Stop").click(),
        lambda: page.keyboard.press("Escape"),
    ]
    for stop in stops:
        ask(page, "Tell me a short story about Anna.")
        expect(page.locator(".turn.assistant span").last).to_be_visible(timeout=30_000)
        stop()
        done(page)
        expect(page.locator(".turn.assistant .note").last).to_have_text("stopped")
        page.wait_for_function("async () => (await (await fetch('/v1/edgespec')).json()).running === 0")


def test_an_error_is_shown_and_the_next_question_works(page: Page) -> None:
    ask(page, "word " * 3000)
    expect(page.locator(".turn.error")).to_contain_text("do not fit the context", timeout=30_000)
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".turn")).to_have_count(0)
    ask(page, "What is the capital of France?")
    done(page)
    expect(page.locator(".turn.assistant")).to_contain_text("Paris")


def test_markup_in_an_answer_is_text(page: Page) -> None:
    page.evaluate("""() => {
        const event = { choices: [{ delta: {} }], edgespec: { spans: [["<img src=x onerror=alert(1)>", false]] } };
        const answer = `data: ${JSON.stringify(event)}\\n\\ndata: [DONE]\\n\\n`;
        window.fetch = async (url) => new Response(String(url).includes("chat") ? answer : "", { status: 200 });
    }""")  # fmt: skip
    ask(page, "hi")
    expect(page.locator(".turn.assistant")).to_contain_text("<img src=x")
    assert page.locator(".turn.assistant img").count() == 0


def test_the_keyboard_reaches_everything_in_order(page: Page) -> None:
    page.get_by_label("Your message").focus()
    reached = []
    for _ in range(6):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    assert {"send", "settings-open", "clear", "log"} <= set(reached)
    page.get_by_role("button", name="Settings").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 390), ("dark", 1000)])
def test_it_fits_a_phone_in_light_and_dark(browser: Browser, server: Running, scheme: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto(server.url)
    ask(page, "Tell me a short story about Anna.")
    done(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    for name in ("Settings", "New chat", "Send"):
        box = page.get_by_role("button", name=name).bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
        assert box["height"] >= 44
    luminance = page.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b) / 765"
    )
    assert (luminance < 0.5) == (scheme == "dark")
    shot(page, f"{scheme}-{width}")
    page.close()
