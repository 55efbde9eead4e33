"""The report page in a real browser: no error, nothing cut off, and all of it by keyboard."""

import pytest

from vfsl.report import write_page

pytestmark = [pytest.mark.slow]

ALL = ["story", "alignment", "positives", "completion", "training", "gain"]
ALL += ["ledger", "time", "steps", "repeat"]
SHOWN = "getComputedStyle(document.getElementById('tip')).display !== 'none'"
TIP = "document.getElementById('tip').textContent"


@pytest.fixture(scope="module")
def page(record, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(record(), path)
    return path


@pytest.fixture
def tab(browser):
    return browser.tab()


def focus_by_keyboard(tab, what):
    """Press Tab until that element has the focus, as somebody without a mouse would."""
    for _ in range(200):
        if tab.run(f"document.activeElement.matches({what!r})"):
            return
        tab.press("Tab", 9)
    raise AssertionError(f"{what} is not reached by Tab.")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_sections_show_without_errors_or_cuts(tab, page, width, dark):
    tab.open(page, width, dark=dark)
    heights = tab.run(
        "Object.fromEntries([...document.querySelectorAll('section')]"
        ".map(one => [one.id, one.getBoundingClientRect().height]))"
    )
    assert list(heights) == ALL
    assert min(heights.values()) > 40
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.errors == []


def test_nothing_sticks_out_with_long_names(tab, record, tmp_path):
    write_page(record(name=lambda place: f"{place}_" + "verylongname" * 12), tmp_path / "p.html")
    for width in (1280, 390):
        tab.open(tmp_path / "p.html", width)
        assert tab.run("document.documentElement.scrollWidth") <= width
        assert tab.errors == []


def test_the_ledger_filters_by_keyboard(tab, page):
    tab.open(page, 1280)
    shown = "document.querySelectorAll('#ledger-lines tbody tr:not([hidden])').length"
    assert tab.run(shown) == 43
    focus_by_keyboard(tab, "form[data-for=ledger-lines] select[name=protection]")
    for letter in "masked":
        tab.press(letter, ord(letter.upper()), letter)
    assert tab.run("document.activeElement.value") == "masked"
    assert tab.run(shown) == 1
    said = "document.querySelector('form[data-for=ledger-lines] output').textContent"
    assert tab.run(said) == "1 of 43 lines, 1.0 kB"
    focus_by_keyboard(tab, "form[data-for=ledger-lines] button")
    tab.press("Enter", 13, "\r")
    tab.run("new Promise(done => setTimeout(done))")  # a form is cleared after its event
    assert tab.run(shown) == 43
    focus_by_keyboard(tab, "nav a")
    focus_by_keyboard(tab, "form[data-for=ledger-lines] input[type=search]")
    for letter in "fact 42":
        tab.press(letter, ord(letter.upper()), letter)
    assert tab.run(shown) == 1


def test_tips_by_keyboard(tab, page):
    tab.open(page, 1280)
    assert not tab.run(SHOWN)
    focus_by_keyboard(tab, "#alignment svg.chart")
    assert tab.run(SHOWN)
    assert tab.run(TIP) == "Bank, in common: 300"
    tab.press("ArrowRight", 39)
    assert tab.run(TIP) == "Bank, its own: 500"
    tab.press("End", 35)
    assert tab.run(TIP) == "Shop, its own: 90"
    tab.press("Escape", 27)
    assert not tab.run(SHOWN)


def test_tips_by_pointer_stay_on_the_screen(tab, page):
    tab.open(page, 390)
    tab.run("document.documentElement.style.scrollBehavior = 'auto'")
    # Scrolling hides tips, and its event comes with the next frame.
    tab.run(
        "new Promise(done => { document.addEventListener('scroll', () => setTimeout(done), {once: "
        "true}); document.querySelector('#positives svg').scrollIntoView({block: 'center'}) })"
    )
    place = tab.run(
        "(box => [box.x + box.width / 2, box.y + box.height / 2])(document.querySelector("
        "'#positives svg.chart .mark:last-of-type').getBoundingClientRect())"
    )
    tab.hover(*place)
    assert tab.run(SHOWN)
    left, right = tab.run(
        "(box => [box.left, box.right])(document.getElementById('tip').getBoundingClientRect())"
    )
    assert left >= 0
    assert right <= 390
    assert tab.run(TIP).startswith("held-out positives found")


def test_print_has_every_section_and_no_controls(tab, page):
    tab.open(page, 1280)
    tab.call("Emulation.setEmulatedMedia", media="print")
    for gone in ("nav", "form.filter"):
        assert tab.run(f"getComputedStyle(document.querySelector('{gone}')).display") == "none"
    whole = "one => one.scrollHeight <= one.clientHeight + 1"
    assert tab.run(f"[...document.querySelectorAll('.tall')].every({whole})")
    assert len(tab.call("Page.printToPDF", printBackground=True)["data"]) > 10_000


def test_a_thousand_columns_load(tab, record, tmp_path):
    write_page(record(1000), tmp_path / "p.html")
    tab.open(tmp_path / "p.html", 390)
    assert tab.run("document.querySelectorAll('#completion tbody tr').length") > 1000
    assert tab.run("document.documentElement.scrollWidth") <= 390
    assert tab.errors == []
