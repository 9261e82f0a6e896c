"""The certificates that this machine trusts, as a file that Java reads.

A Java that comes as a Python package brings authorities of its own, and knows nothing of one that a company's proxy uses.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_NAMED = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")  # environment variables that name a bundle
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_PASSWORD = "changeit"  # noqa: S105 - Java's own for such files, which hold nothing secret


def trusted_certificates() -> list[bytes]:
    """The certificates of authorities that programs on this machine trust, each once, in DER; empty where none are found."""
    found: dict[bytes, None] = {}
    for bundle in _bundles():
        for text in _PEM.findall(bundle.read_text(encoding="utf-8", errors="replace")):
            try:
                found[ssl.PEM_cert_to_DER_cert(text)] = None
            except ValueError:  # one that is damaged leaves the others as they are
                continue
    return list(found)


def _bundles() -> Iterator[Path]:
    named = [os.environ.get(name) for name in _NAMED]
    for path in (*named, ssl.get_default_verify_paths().cafile, *_BUNDLES):
        if path and Path(path).is_file():
            yield Path(path)


def java_store(certificates: Iterable[bytes]) -> bytes:
    """A Java key store (format JKS, version 2) of trusted certificates.

    Source of the format: OpenJDK, sun.security.provider.JavaKeyStore.
    """
    entries = list(certificates)
    data = struct.pack(">III", 0xFEEDFEED, 2, len(entries))
    for number, certificate in enumerate(entries):
        data += struct.pack(">I", 2) + _text(f"ca{number}") + struct.pack(">q", 0) + _text("X.509")
        data += struct.pack(">I", len(certificate)) + certificate
    digest = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + data, usedforsecurity=False)
    return data + digest.digest()


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
