"""Records: plain data, which every room may know."""
