"""Screenshots of a report of every algorithm, for docs/gallery.md.

    PYTHONPATH=benchmarks python benchmarks/gallery.py --out docs/pictures

Needs a Chromium on the path (Debian: `apt-get install chromium`). Every study is run, its report written, opened in a browser
of so many points across, in the light or the dark scheme, and photographed; the pictures are small enough for a page.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from gallery_studies import STUDIES
from zerosum.report.compose import write_report

WIDE, NARROW = 1280, 390
MOST = 80_000  # bytes of a picture
#: What is photographed of each: width, height, scheme, where in the page.
VIEWS = {
    "wide-light": (WIDE, 1100, "light", "result"),
    "narrow-dark": (NARROW, 1100, "dark", "result"),
}
WHOLE = {
    "page-wide-light": (WIDE, 2900, "light", ""),
    "page-wide-dark": (WIDE, 2900, "dark", ""),
    "page-narrow-light": (NARROW, 3600, "light", ""),
    "page-narrow-dark": (NARROW, 3600, "dark", ""),
}


def browser() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    raise SystemExit("there is no Chromium on the path: apt-get install chromium")


def photograph(page: Path, size: tuple[int, int], scheme: str, place: str, scratch: Path) -> Image.Image:
    """The page as a browser of this size shows it, from a place in it on."""
    picture = scratch / "shot.png"
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    where = [f"--user-data-dir={scratch / 'profile'}", f"--window-size={size[0]},{size[1]}", f"--screenshot={picture}"]
    address = page.absolute().as_uri() + (f"#{place}" if place else "")
    subprocess.run([*command, *dark, *where, address], check=True, capture_output=True, timeout=120)
    return Image.open(picture).convert("RGB")


def save(picture: Image.Image, path: Path) -> None:
    """As small as it must be."""
    for quality in (85, 70, 55, 40, 25, 10):
        buffer = io.BytesIO()
        picture.save(buffer, "WEBP", quality=quality, method=6)
        if buffer.tell() <= MOST:
            break
    path.write_bytes(buffer.getvalue())


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
            views = VIEWS | (WHOLE if name == "mean" else {})
            for view, (width, height, scheme, place) in views.items():
                shot = photograph(page, (width, height), scheme, place, Path(folder))
                path = given.out / f"{name}-{view}.webp"
                save(shot, path)
                print(f"{path}: {path.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
