"""SQL of this part, and nothing else. Functions take a connection and never commit."""
