"""Questions that were asked once; the documentation has the answers."""
