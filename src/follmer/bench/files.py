"""Where the bench finds its data."""

import os
from pathlib import Path

from follmer.errors import FileError

_PLACES = ("data", "../shared/data")


def data_file(name: str) -> Path:
    """The file of that name under `FOLLMER_DATA`, or under ./data or ../shared/data."""
    own = os.environ.get("FOLLMER_DATA")
    places = [Path(place) for place in ([own] if own else _PLACES)]
    for place in places:
        if (place / name).exists():
            return place / name
    raise FileError(
        f"the data file {name} was not found under {', '.join(map(str, places))}.",
        hint="FOLLMER_DATA=<folder that holds it>",
    )
