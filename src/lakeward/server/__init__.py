"""The server: the Iceberg REST catalog (its reading half so far), over HTTP."""
