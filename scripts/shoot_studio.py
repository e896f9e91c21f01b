"""Take the screenshots of docs/studio with Debian's Chromium: `python -m scripts.shoot_studio`."""

from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served
from tests.browser.conftest import Studio

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "studio"
BODY = {
    "input": "Nobody shows people what a sampler does to speech. [pause:0.3s] This page does.",
    "repetition_penalty": 1.15,
    "ras": True,
    "seed": 11,
}
WIDE = {"width": 1360, "height": 1000}
PHONE = {"width": 390, "height": 844}
_COLOURS = 96


def shoot(browser: Browser, address: str) -> None:
    """Write all pictures: a take and two takes on a wide screen, a take on a phone."""
    for scheme in ("light", "dark"):
        page = opened(browser, address, WIDE, scheme)
        write(page.page, f"desktop-{scheme}")
        if scheme == "light":
            page.request(**BODY, temperature=0.9)
            page.speak()
            quiet(page.page)
            page.page.click("[data-take='1'] .side.a")
            page.page.click("[data-take='2'] .side.b")
            page.page.wait_for_selector(".compare [data-side=b] .words span")
            write(page.page, "compare-light")
        page = opened(browser, address, PHONE, scheme)
        page.page.locator(".tabs").scroll_into_view_if_needed()
        page.page.evaluate("document.querySelector('.tabs').scrollIntoView()")
        write(page.page, f"phone-{scheme}")


def opened(browser: Browser, address: str, size: dict[str, int], scheme: Any) -> Studio:
    """Return a page with one take."""
    context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
    first_visit = scheme == "light" or size is PHONE  # the other shows all knobs and curves
    studio = Studio(context.new_page(), address, first_visit=first_visit)
    studio.open(BODY)
    number = studio.speak()
    quiet(studio.page)
    shown = ".words span" if first_visit else "[data-curve]"
    studio.page.wait_for_selector(f"[data-take='{number}'] {shown}")
    studio.page.focus(f"[data-take='{number}'] [role=slider]")
    for _ in range(9):
        studio.page.keyboard.press("Shift+ArrowRight")
    studio.page.evaluate("document.activeElement.blur()")
    return studio


def quiet(page: Any) -> None:
    """Stop the sound and let the page come to rest."""
    page.keyboard.press("Escape")
    page.wait_for_timeout(800)


def write(page: Any, name: str) -> None:
    """Write a small picture of what is on the screen, without how busy this machine was."""
    page.add_style_tag(content=".facts :is(.first, .gaps) { display: none; }")
    page.wait_for_timeout(300)
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(colors=_COLOURS).save(FOLDER / f"{name}.png", optimize=True)


def main() -> None:
    """Serve the built-in voice and take the pictures."""
    FOLDER.mkdir(exist_ok=True)
    with served(create_app(Settings(device="cpu"))) as client, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        shoot(browser, str(client.base_url).rstrip("/"))
        browser.close()


if __name__ == "__main__":
    main()
