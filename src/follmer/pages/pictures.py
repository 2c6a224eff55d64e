"""Pictures inside a page."""

import base64
import re
import struct

from follmer.pages.parts import text

_PNG = b"\x89PNG\r\n\x1a\n"
_WIDE, _BESIDE = ' class="wide"', ' class="beside"'


def picture_size(content: bytes) -> tuple[int, int] | None:
    """Width and height of an SVG or PNG in its own coordinates; None where it is no whole one."""
    if content.startswith(_PNG) and len(content) > 24:
        width, height = struct.unpack(">II", content[16:24])
        return width, height
    box = re.search(rb'<svg[^>]*viewBox="\S+ \S+ ([\d.]+) ([\d.]+)"', content)
    if box and b"</svg>" in content:
        return round(float(box[1])), round(float(box[2]))
    return None


def picture(content: bytes, title: str, caption: str, remark: str = "") -> str:
    """An SVG or PNG with its title and caption, beside it where it is not wide."""
    # An image, not inline SVG: its names, styles and scripts stay its own.
    media = "image/png" if content.startswith(_PNG) else "image/svg+xml"
    width, height = picture_size(content) or (1, 1)
    wide = width > 1.6 * height
    aside = f" <small>{text(remark)}</small>" if remark else ""
    return (
        f'<figure{_WIDE if wide else ""}><div{"" if wide else _BESIDE}><div class="frame">'
        f'<img alt="{text(title)}" width="{width}" height="{height}" '
        f'src="data:{media};base64,{base64.b64encode(content).decode()}"></div>'
        f"<figcaption><b>{text(title)}</b>{aside}<br>{text(caption)}</figcaption></div></figure>"
    )
