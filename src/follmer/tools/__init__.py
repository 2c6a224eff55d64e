"""Small things that every room uses: argument checks, files, progress bars, tables."""
