"""Where bytes are kept: the path manager, and one engine per kind of storage."""
