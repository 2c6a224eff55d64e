"""Made-up results and figures, and the files that hold them."""

import json
import struct
import zlib

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="300pt" height="200pt" viewBox="0 0 300 200">'
    '<rect width="300" height="200" fill="#ff00ff"/></svg>'
)


def png(width, height, colour):
    """A PNG of one colour."""

    def chunk(kind, body):
        checksum = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + checksum

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes(colour) * width) * height)
    chunks = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def record(experiment, method="n_sfs", preset="auto", seed=0, settings=None, **metrics):
    return {
        "experiment": experiment,
        "preset": preset,
        "method": method,
        "seed": seed,
        "metrics": metrics,
        "seconds": 2.0,
        "settings": settings or {},
    }


def write(folder, **files):
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
