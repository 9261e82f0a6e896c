"""What `lakeward demo` runs: real data through the whole of Lakeward, compared with its source at the end."""
