"""Screenshots of a report of every algorithm, for docs/gallery.md.

    make pictures

which also draws the page of `zerosum watch`. Needs a Chromium on the path (Debian: `apt-get install chromium`). Every
study is run, its report written, opened in a browser of so many points across, in the light and in the dark scheme, and
photographed. Of all but one algorithm only the result is shown; the rest of the page looks alike.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image, ImageChops

from gallery_studies import STUDIES
from zerosum.report.build import write_report

WIDE, NARROW = 1280, 390
SHADES = 31  # of each colour
#: What is photographed: width, height at most, scheme.
RESULT = {
    "wide-light": (WIDE, 4200, "light"),
    "wide-dark": (WIDE, 4200, "dark"),
    "narrow-light": (NARROW, 5200, "light"),
    "narrow-dark": (NARROW, 5200, "dark"),
}
PAGE = {
    "page-wide-light": (WIDE, 5200, "light"),
    "page-wide-dark": (WIDE, 5200, "dark"),
    "page-narrow-light": (NARROW, 7000, "light"),
    "page-narrow-dark": (NARROW, 7000, "dark"),
}
_ONLY = "<style>nav,footer,main>:not(#result){display:none}h2{border:0!important;margin-top:0!important}</style></head>"


def browser() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    raise SystemExit("there is no Chromium on the path: apt-get install chromium")


def photograph(page: Path, size: tuple[int, int], scheme: str, scratch: Path) -> Image.Image:
    """The page as a browser of this size shows it, without what is empty below it."""
    picture = scratch / "shot.png"
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    where = [f"--user-data-dir={scratch / 'profile'}", f"--window-size={size[0]},{size[1]}", f"--screenshot={picture}"]
    address = page.absolute().as_uri()
    subprocess.run([*command, *dark, *where, address], check=True, capture_output=True, timeout=120)
    whole = Image.open(picture).convert("RGB")
    empty = Image.new("RGB", whole.size, whole.getpixel((whole.width - 1, whole.height - 1)))
    box = ImageChops.difference(whole, empty).getbbox()
    bottom = whole.height if box is None else min(whole.height, box[3] + 20)
    return whole.crop((0, 0, whole.width, bottom))


def result_only(page: Path) -> Path:
    """A copy of a page for the photograph: what is not the result is hidden."""
    copy = page.with_name("shown.html")
    copy.write_text(page.read_text(encoding="utf-8").replace("</head>", _ONLY, 1), encoding="utf-8")
    return copy


def save(picture: Image.Image, path: Path) -> None:
    """In fewer shades and without a loss, which is both sharper and smaller for a page of text."""
    shades = [round(round(value * SHADES / 255) * 255 / SHADES) for value in range(256)]
    picture.convert("RGB").point(shades * 3).save(path, "WEBP", lossless=True, quality=90, method=4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    parser.add_argument("--only", nargs="*", choices=sorted(STUDIES), help="these algorithms only")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        for name in given.only or STUDIES:
            result, space = STUDIES[name]()
            result.write(Path(folder) / name)
            page = write_report(Path(folder) / name, space)
            views = {view: (page, each) for view, each in PAGE.items() if name == "mean"}
            views |= {view: (result_only(page), each) for view, each in RESULT.items()}
            for view, (shown, (width, height, scheme)) in views.items():
                path = given.out / f"{name}-{view}.webp"
                save(photograph(shown, (width, height), scheme, Path(folder)), path)
                print(f"{path}: {path.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
