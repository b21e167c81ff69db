"""The page as a person uses it: `browse.py PAGES_PROGRAM [--screenshots FOLDER]`.

PAGES_PROGRAM writes the pages (tests/browser/pages.cpp); a headless Chromium opens them. Without Chromium this is
reported as not run (exit status 77)."""

import argparse
import os
import subprocess
import sys
import tempfile
import traceback

from devtools import Browser, find_chromium

# What the page downloads is kept, where a test can read it.
KEEP_DOWNLOADS = """
window.saved = [];
const made = URL.createObjectURL.bind(URL);
URL.createObjectURL = blob => { window.saved.push(blob); return made(blob); };
"""


class Page:
    def __init__(self, browser, folder, screenshots):
        self.browser, self.folder, self.screenshots = browser, folder, screenshots

    def open(self, name):
        self.name = name
        self.browser.open(os.path.join(self.folder, name + ".html"))

    def look(self, moment):
        if self.screenshots:
            self.browser.screenshot(os.path.join(self.screenshots, f"{self.name}-{moment}.png"))

    def run(self, script):
        return self.browser.run(script)

    def box(self, selector, index=0):
        box = self.run(f"(() => {{ const node = document.querySelectorAll({selector!r})[{index}];"
                       " node.scrollIntoView({block: 'nearest'}); const b = node.getBoundingClientRect();"
                       " return [b.x, b.y, b.width, b.height]; })()")
        assert box[2] > 0 and box[3] > 0, f"{selector} [{index}] is not to be seen: {box}"
        return box

    def click(self, selector, index=0):
        x, y, width, height = self.box(selector, index)
        self.browser.click(x + width / 2, y + height / 2)

    def click_button(self, text):
        index = self.run("[...document.querySelectorAll('.bar button')].findIndex(b => b.textContent === %r)" % text)
        assert index >= 0, f"no button {text}"
        self.click(".bar button", index)

    def who(self):
        """The words that the two lists at the side are about, and their headings."""
        return self.run("[...document.querySelectorAll('.side section')].map(s => s.querySelector('h4').textContent"
                        " + ' | ' + s.querySelector('.who').textContent)")

    def what(self):
        return self.run("document.querySelector('.what').textContent")

    def at_cell(self, row, column):
        """A point of a cell, found by resting the pointer on the matrix until the tip says so."""
        x, y, width, height = self.box(".extent canvas")
        rows, columns = self.run("[document.querySelectorAll('.numbers tbody tr').length,"
                                 " document.querySelectorAll('.numbers thead th').length - 1]")
        wanted = None
        step = 12
        for py in range(int(y + height - 6), int(y), -step):
            for px in range(int(x + width - 6), int(x), -step):
                self.browser.mouse("mouseMoved", px, py)
                if self.run("!document.querySelector('.tip').hidden && document.querySelector('.tip').textContent"
                            f".startsWith({row + ' → ' + column!r})"):
                    wanted = (px, py)
                    break
            if wanted:
                break
        assert wanted, f"no cell {row} → {column} ({rows} x {columns})"
        return wanted


def check(condition, *said):
    assert condition, said


def pinning(page):
    page.open("sentence")
    page.look("light")
    elsewhere = page.at_cell("cat", "mat")
    x, y = page.at_cell("sat", "on")
    page.browser.click(x, y)
    page.look("pinned")
    pinned = page.who()
    check(pinned == ["Row: where it looks | sat", "Column: who looks at it | on"], pinned)
    left, top, _, _ = page.box(".extent canvas")
    page.browser.move(*elsewhere)
    check(page.who() == pinned, "the lists moved with the pointer", page.who())
    # The label of a row is left of the cells: pinning one more sums both.
    page.browser.click(left + 20, y - 2 * 40 if y - 80 > top + 60 else y + 40)
    summed = page.who()
    check("sum of 2" in summed[0] and "sat" in summed[0], summed)
    page.click_button("Unpin")
    page.browser.move(x, y)
    check(page.who() == pinned, "unpinned, the lists follow the pointer", page.who())
    page.browser.move(*elsewhere)
    check(page.who() == ["Row: where it looks | cat", "Column: who looks at it | mat"], page.who())
    # The same cell twice: pinned, and not.
    page.browser.click(x, y)
    page.browser.click(x, y)
    page.browser.move(*elsewhere)
    check(page.who()[0].endswith("cat"), "a second click unpins", page.who())


def zoom(page):
    page.open("sentence")
    width = "parseFloat(document.querySelector('.extent').style.width)"
    fit = page.run(width)
    page.click_button("+")
    larger = page.run(width)
    check(larger > 1.2 * fit, fit, larger)
    page.click_button("−")
    page.click_button("Fit")
    check(page.run(width) == fit, "Fit gives the first size")
    page.run("document.querySelector('.scroller').focus()")
    page.browser.key("+")
    check(page.run(width) > 1.2 * fit)
    page.browser.key("0")
    check(page.run(width) == fit)
    x, y, w, h = page.box(".extent canvas")
    page.browser.wheel(x + w / 2, y + h / 2, -100, ctrl=True)
    check(page.run(width) > 1.1 * fit, "the wheel with Ctrl zooms")
    for _ in range(9):
        page.browser.key("+")
    canvas = page.run("[document.querySelector('.extent canvas').width, innerWidth]")
    check(canvas[0] <= canvas[1], "the canvas is no larger than the window", canvas)


def keys(page):
    page.open("sentence")
    page.run("document.querySelector('.scroller').focus()")
    page.browser.key("Home")
    for _ in range(9):
        page.browser.key("ArrowUp")
    live = "document.querySelector('[aria-live]').textContent"
    check(page.run(live).startswith("The → The: "), page.run(live))
    page.browser.key("ArrowDown")
    page.browser.key("ArrowDown")
    page.browser.key("ArrowRight")
    check(page.run(live).startswith("sat → cat: "), page.run(live))
    page.browser.key("End")
    check(page.run(live).startswith("sat → .: "), page.run(live))
    page.browser.key("Enter")
    check(page.who() == ["Row: where it looks | sat", "Column: who looks at it | ."], page.who())
    page.browser.key("ArrowUp")
    check(page.who()[0].endswith("sat"), "pinned stays")
    # Another head of the same words keeps the pins; brackets go through heads, braces through layers.
    check("mean over 4 heads" in page.what(), page.what())
    page.browser.key("]")
    check(page.what() == "encoder.self layer 1 · head 1", page.what())
    check(page.who()[0].endswith("sat"))
    page.browser.key("}")
    check(page.what() == "encoder.self layer 2 · head 1", page.what())
    page.browser.key("Escape")
    check(page.who()[0].endswith("cat"), "unpinned, the cursor is meant", page.who())
    for _ in range(5):
        page.browser.key("}")
    check(page.what() == "decoder.cross layer 1", page.what())
    pressed = page.run("[...document.querySelectorAll('.heads [aria-pressed=true]')].map(b => b.title)")
    check(pressed == ["decoder.cross layer 1, head 1"], pressed)
    # Tab reaches the matrix and all buttons.
    reached = set()
    for _ in range(40):
        page.browser.key("Tab")
        reached.add(page.run("document.activeElement.className || document.activeElement.textContent"))
    check({"scroller", "CSV", "Words", "Unpin"} <= reached, reached)


def dark_mode(page):
    ground = "getComputedStyle(document.body).backgroundColor"
    corner = ("(() => { const c = document.querySelector('.extent canvas');"
              " return [...c.getContext('2d').getImageData(1, 1, 1, 1).data].slice(0, 3).join(); })()")
    thumbnail = "document.querySelector('.heads canvas').toDataURL()"
    page.open("sentence")
    light = [page.run(ground), page.run(corner), page.run(thumbnail)]
    check(light[:2] == ["rgb(251, 251, 249)", "255,255,255"], light[:2])
    page.browser.scheme("dark")
    dark = [page.run(ground), page.run(corner), page.run(thumbnail)]
    page.look("dark")
    check(dark[:2] == ["rgb(16, 18, 25)", "24,27,37"], dark[:2])
    check(light[2] != dark[2], "the thumbnails are painted anew")
    page.click("#theme")
    check([page.run(ground), page.run(corner)] == light[:2], "the button overrules the system")
    page.browser.scheme("light")
    check(page.run(ground) == light[0])
    page.click("#theme")
    check(page.run(ground) == dark[0], page.run(ground))
    page.click("#theme")
    page.click_button("Words")
    page.look("words-light")
    words = page.run("document.querySelector('.graph .scroller').innerHTML")
    page.browser.scheme("dark")
    page.click("#theme")
    check(page.run("document.querySelector('.graph .scroller').innerHTML") != words, "the arcs are painted anew")
    page.look("words-dark")


ARCS = "document.querySelectorAll('.graph .scroller path').length"


def words(page):
    page.open("sentence")
    page.click_button("Words")
    check(page.run("document.querySelector('.stage > .scroller').hidden"), "the matrix makes room")
    whole = page.run(ARCS)
    labels = page.run("[...document.querySelectorAll('.graph .scroller text')].map(t => t.textContent)")
    check(labels == 2 * ["The", "cat", "sat", "on", "the", "mat", "."], labels)
    drawn = page.run("new Set([...document.querySelectorAll('.graph .scroller path')].map(p => p.getAttribute('stroke'))).size")
    check(drawn == 4, "a colour for each head", drawn)
    # Resting on a word shows its arcs alone, a click keeps them.
    sat = ".graph .scroller g[data-axis='0'][data-index='2'] rect"
    x, y, w, h = page.box(sat)
    page.browser.move(x + w / 2, y + h / 2)
    one = page.run(ARCS)
    check(4 <= one < whole / 3, one, whole)
    page.browser.click(x + w / 2, y + h / 2)
    page.browser.move(5, 5)
    check(page.run(ARCS) == one, "pinned arcs stay")
    check(page.who()[0] == "Row: where it looks | sat", page.who())
    page.look("words-pinned")
    # Fewer heads, fewer arcs; and the lists are about these heads.
    before = page.run("document.querySelector('.side .meter span:last-child').textContent")
    page.click(".chips button", 0)
    check(page.run(ARCS) < one, "a head less")
    check(page.run("document.querySelector('.side .meter span:last-child').textContent") != before)
    for chip in (1, 2, 3):
        page.click(".chips button", chip)
    check(page.run(ARCS) == 0, "no head, no arc")
    page.click(".chips button", 1)
    check(page.run("new Set([...document.querySelectorAll('.graph .scroller path')]"
                   ".map(p => p.getAttribute('stroke'))).size") == 1)
    # Keys: the column of the left, then that of the right.
    page.click_button("Unpin")
    page.run("document.querySelector('.graph .scroller').focus()")
    live = "document.querySelector('[aria-live]').textContent"
    page.browser.key("Home")
    page.browser.key("ArrowDown")
    check(page.run(live).startswith("cat → "), page.run(live))
    page.browser.key("ArrowRight")
    check(page.run(live).startswith("cat ← "), page.run(live))
    page.browser.key("Enter")
    check(page.who()[1] == "Column: who looks at it | cat", page.who())
    page.browser.key("Escape")
    page.browser.key("]")
    check(page.what().endswith("head 1"), page.what())
    check(page.run("[...document.querySelectorAll('.chips button')].map(b => b.getAttribute('aria-pressed')).join()")
          == "true,false,false,false", "one head chosen above is one head here")
    # Source with target, and back to the matrix.
    page.browser.key("}")
    page.browser.key("}")
    check(page.run("document.querySelectorAll('.graph .scroller text').length") == 15)
    size = "document.querySelector('.graph .scroller svg').getBoundingClientRect().height"
    height = page.run(size)
    page.click_button("+")
    check(page.run(size) > 1.3 * height)
    page.click_button("Matrix")
    check(page.run("document.querySelector('.graph').hidden"))
    page.box(".extent canvas")


def saving(page):
    page.open("sentence")
    page.run(KEEP_DOWNLOADS)
    page.click_button("CSV")
    page.click_button("PNG")
    page.click_button("Words")
    page.click_button("SVG")
    page.browser.settle()
    kinds = page.run("new Promise(done => setTimeout(done, 300)).then(() => saved.map(b => b.type))")
    check(sorted(kinds) == ["image/png", "image/svg+xml", "text/csv"], kinds)
    csv = page.run("saved.find(b => b.type === 'text/csv').text()")
    rows = csv.lstrip("\ufeff").strip().split("\r\n")
    check(len(rows) == 8 and rows[0] == '"","The","cat","sat","on","the","mat","."', rows[0])
    check(abs(sum(float(cell) for cell in rows[3].split(",")[1:]) - 1) < 1e-3, rows[3])
    svg = page.run("saved.find(b => b.type === 'image/svg+xml').text()")
    read = page.run("saved.find(b => b.type === 'image/svg+xml').text().then(text => {"
                    " const d = new DOMParser().parseFromString(text, 'image/svg+xml');"
                    " return [d.querySelectorAll('parsererror').length, d.querySelectorAll('path').length]; })")
    check(read[0] == 0 and read[1] == page.run(ARCS), read, svg[:200])


def large(page):
    page.open("large")
    page.look("fit")
    paint = page.run("[document.querySelector('.extent canvas').width, document.querySelector('.extent canvas').height]")
    check(paint[0] <= 1280 and paint[1] <= 900, paint)
    colours = page.run("(() => { const c = document.querySelector('.extent canvas'); const d = c.getContext('2d')"
                       ".getImageData(0, 0, c.width, c.height).data; const all = new Set();"
                       " for (let i = 0; i < d.length; i += 4) all.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);"
                       " return all.size; })()")
    check(colours > 20, "nothing is painted", colours)
    page.run("document.querySelector('.scroller').focus()")
    for _ in range(8):
        page.browser.key("+")
    page.browser.key("End")
    for _ in range(60):
        page.browser.call("Input.dispatchKeyEvent", type="keyDown", key="PageDown")
    page.browser.settle()
    live = page.run("document.querySelector('[aria-live]').textContent")
    check(live.startswith("word511 → word511: "), live)
    scrolled = page.run("[document.querySelector('.scroller').scrollLeft, document.querySelector('.scroller').scrollTop]")
    check(min(scrolled) > 1000, "the cursor's cell is brought into sight", scrolled)
    page.look("zoomed")
    page.click_button("Words")
    arcs = page.run(ARCS)
    check(100 < arcs <= 2000, arcs)
    page.look("words")
    page.run("document.querySelector('.graph .scroller').focus()")
    page.browser.key("End")
    live = page.run("document.querySelector('[aria-live]').textContent")
    check(live.startswith("word511 → "), live)
    check(4 <= page.run(ARCS) < 60, page.run(ARCS))
    sight = page.run("(() => { const a = document.querySelector(\".graph g[data-axis='0'][data-index='511']\")"
                     ".getBoundingClientRect(), b = document.querySelector('.graph .scroller').getBoundingClientRect();"
                     " return a.top >= b.top - 1 && a.bottom <= b.bottom + 40; })()")
    check(sight, "the keyboard's word is brought into sight")
    page.run("document.querySelector('details').open = true")
    page.browser.settle()
    check(page.run("document.querySelectorAll('.numbers td').length") == 10000)


def hostile(page):
    page.open("hostile")
    page.look("light")
    script = "</script><img src=x onerror=\"window.owned=1\">"
    check(page.run("document.title") == script, page.run("document.title"))
    check(page.run("document.querySelector('h1').textContent") == script)
    for _ in range(2):
        check(page.run("[document.querySelectorAll('img, iframe, object').length, window.owned === undefined,"
                       " document.querySelectorAll('script').length]") == [0, True, 2])
        check(page.run("[...document.querySelectorAll('*')].every(n => [...n.attributes].every(a => !/^on/.test(a.name)))"),
              "an event handler in the markup")
        text = page.run("document.body.innerText")
        # Texts are shown, their controls are not.
        check("{{script}}" in text and "__proto__" in text)
        wrong = [hex(ord(c)) for c in text if c in "\u202e\u202c\u2028\x1b\x07\0\x9b"]
        check(not wrong, wrong)
        page.run("document.querySelector('details').open = true")
        page.click_button("Words")
    page.look("words")
    check(page.run("document.querySelectorAll('.graph .scroller text').length") == 2 * 23,
          page.run("document.querySelectorAll('.graph .scroller text').length"))
    check(page.run("document.documentElement.scrollWidth <= innerWidth"), "a long word widens the page")
    for index in range(3):
        page.click(".graph .scroller g[data-axis] rect", index)
    page.run(KEEP_DOWNLOADS)
    page.click_button("SVG")
    page.click_button("CSV")
    check(page.run("saved[0].text().then(text => new DOMParser().parseFromString(text, 'image/svg+xml')"
                   ".querySelectorAll('parsererror, script, img').length)") == 0)
    csv = page.run("saved[1].text()")
    check("\"'=1+1\"" in csv, "a spreadsheet would run it")
    check(page.run("window.owned === undefined"))


def report(page):
    page.open("report")
    page.look("light")
    check(page.run("document.querySelectorAll('.viewer .extent canvas').length") == 2)
    colours = page.run("[...document.querySelectorAll('figure .f0, figure .c0')].map(n => { const s = getComputedStyle(n);"
                       " return n.tagName === 'path' ? s.stroke : s.fill; })")
    check(len(colours) > 4 and set(colours) == {"rgb(180, 80, 10)"}, colours)
    check(page.run("document.querySelectorAll('main b').length") == 0)
    page.browser.scheme("dark")
    page.look("dark")
    check(page.run("getComputedStyle(document.querySelector('figure .f1')).fill") == "rgb(76, 201, 160)")
    page.open("scripts")
    page.click_button("Words")
    page.look("words")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pages")
    parser.add_argument("--screenshots")
    parser.add_argument("--only", help="the name of one part")
    options = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print("not run: no Chromium (Debian: chromium)")
        return 77
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.pages, folder], check=True)
        if options.screenshots:
            os.makedirs(options.screenshots, exist_ok=True)
        browser = Browser(chromium)
        try:
            for part in (pinning, zoom, keys, dark_mode, words, saving, large, hostile, report):
                if options.only and part.__name__ != options.only:
                    continue
                browser.scheme("light")
                try:
                    part(Page(browser, folder, options.screenshots))
                    complaints = browser.complaints()
                    assert not complaints, complaints
                    print(f"{part.__name__}: ok")
                except (AssertionError, RuntimeError) as error:
                    failed.append(part.__name__)
                    lines = [f for f in traceback.extract_tb(error.__traceback__) if f.name == part.__name__]
                    where = f" at line {lines[-1].lineno}, {lines[-1].line}" if lines else ""
                    print(f"{part.__name__}: FAILED{where}: {error}")
        finally:
            browser.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
