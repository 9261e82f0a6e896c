"""Lakeward: a streaming lakehouse kept by one SQL registry."""

__version__ = "0.1.0"
