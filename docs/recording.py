"""A recording of `rota status --watch` as a moving picture: what the terminal shows, once a second."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from matplotlib.font_manager import findfont
from PIL import Image, ImageDraw, ImageFont

STATUS = [sys.executable, "-m", "rota", "status"]
COLUMNS = 120
SIZE, MARGIN = 13, 14  # points, pixels
PAPER, INK = "#16202a", "#dfe7ec"
LONG, SHORT = 2500, 700  # milliseconds that the first and last frame, and another one, are shown


@contextmanager
def record_status(environ: Mapping[str, str], path: Path) -> Iterator[None]:
    """Records while it is open; a frame that looks like the one before is left out."""
    frames: list[str] = []
    over = threading.Event()

    def record() -> None:
        while not over.is_set():
            began = time.monotonic()
            said = subprocess.run(STATUS, env={**environ, "COLUMNS": str(COLUMNS)}, capture_output=True, text=True)
            if said.returncode == 0 and said.stdout not in frames[-1:]:
                frames.append(said.stdout)
            over.wait(max(0.0, 1 - (time.monotonic() - began)))

    thread = threading.Thread(target=record, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    write_recording(frames, path)


def write_recording(frames: Sequence[str], path: Path) -> None:
    """Writes the frames as an animated GIF. The same frames give the same bytes."""
    font = ImageFont.truetype(findfont("DejaVu Sans Mono"), SIZE)
    _, top, _, bottom = font.getbbox("█")
    width, height = int(font.getlength("x") * COLUMNS), int((bottom - top) * 1.12)
    lines = max(len(frame.splitlines()) for frame in frames)
    pictures = []
    for frame in frames:
        picture = Image.new("RGB", (width + 2 * MARGIN, lines * height + 2 * MARGIN), PAPER)
        draw = ImageDraw.Draw(picture)
        for row, line in enumerate(frame.splitlines()):
            draw.text((MARGIN, MARGIN + row * height), line, INK, font)
        pictures.append(picture.quantize(16))
    times = [LONG if i in (0, len(frames) - 1) else SHORT for i in range(len(frames))]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=times, loop=0, optimize=True)
