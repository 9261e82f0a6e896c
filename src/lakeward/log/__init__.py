"""The topic log: topics, partitions, segments, consumer groups and producers."""
