"""Records: plain data, known to every layer above errors."""
