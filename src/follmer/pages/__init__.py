"""Pages for the browser with everything in them: they work offline and run no script."""

from follmer.pages.parts import badge, facts, notes, page, plain, text
from follmer.pages.pictures import picture, picture_size

__all__ = ["badge", "facts", "notes", "page", "picture", "picture_size", "plain", "text"]
