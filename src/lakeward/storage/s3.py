"""Storage in a bucket of S3 or of a store that speaks its protocol, through boto3; reading goes through pyarrow's own client."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import itertools
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.fs

from lakeward.errors import (
    ExtraMissing,
    ForkedProcess,
    InvalidSetting,
    ObjectNotFound,
    StorageError,
    StorageFull,
    StorageUnavailable,
    WarehouseNotWritable,
    says,
)
from lakeward.logs import log
from lakeward.storage.engine import DeleteFailure, ObjectInfo, OutputFile, check_prefix, check_settings
from lakeward.storage.locations import S3_SCHEME, bucket_and_key

SETTINGS = (
    *("endpoint", "region", "access_key", "secret_key", "session_token", "path_style"),
    *("connect_timeout", "read_timeout"),
)
CONNECT_SECONDS, READ_SECONDS = 5.0, 30.0  # for a connection, and for more bytes of an answer
ATTEMPTS = 4
PART_SIZE = 16 << 20  # bytes of one part of a large object: 10,000 parts, the protocol's limit, make 160 GB
DELETE_BATCH = 1000  # the protocol's limit
DEFAULT_REGION = "us-east-1"

_MISSING = ("NoSuchKey", "NotFound", "404", "NoSuchBucket")
_DENIED = ("AccessDenied", "AllAccessDisabled", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken")
_FULL = ("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "507")
_BUSY = ("SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "Throttling", "ThrottlingException")
# What pyarrow says where there was no answer; it has no error of its own for that.
_UNREACHED = (
    *("curlCode", "NETWORK_CONNECTION", "SERVICE_UNAVAILABLE", "SLOW_DOWN", "ouldn't connect"),
    *("timeout", "Timeout", "TIMEOUT", "timed out", "Timed out", "time out"),
)
_CHECKSUMS = ("SHA256", "SHA1", "CRC64NVME", "CRC32C", "CRC32")  # of what the store may keep, the strongest first


class S3Engine:
    """Settings: `endpoint`, `region`, `access_key`, `secret_key`, `session_token`, `path_style` (true for an endpoint of
    one's own unless told otherwise), `connect_timeout`, `read_timeout` (seconds for which a store may be silent, 5 and 30; a
    call is tried four times). What is not given comes from boto3's own chain: environment, profile, role.
    """

    name = "s3"

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self._config = dict(config or {})
        check_settings(self.name, self._config, SETTINGS)
        if ("access_key" in self._config) != ("secret_key" in self._config):
            raise InvalidSetting(
                "only one of the settings s3_access_key and s3_secret_key is there; give both or neither"
            )
        try:
            import boto3
        except ImportError:
            raise ExtraMissing("storage on S3 needs boto3; install it with: pip install 'lakeward[s3]'") from None
        self._session = boto3.session.Session(
            aws_access_key_id=self._config.get("access_key"),
            aws_secret_access_key=self._config.get("secret_key"),
            aws_session_token=self._config.get("session_token"),
            region_name=self._config.get("region"),
        )
        self._region = self._session.region_name or DEFAULT_REGION
        self._path_style = bool(self._config.get("path_style", "endpoint" in self._config))
        self._connect_seconds = float(self._config.get("connect_timeout", CONNECT_SECONDS))
        self._read_seconds = float(self._config.get("read_timeout", READ_SECONDS))
        self._own_client = self._make_client()
        self._pid = os.getpid()

    @property
    def _client(self) -> Any:
        """Raises ForkedProcess: this engine is the parent's, and so are its connections."""
        self._check_process()
        return self._own_client

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise ForkedProcess(
                f"a storage engine of S3 was made by process {self._pid}, and this is process {os.getpid()}, forked from it: "
                "open the lake here, too (lakeward.connect), and read or write with that"
            )

    def __repr__(self) -> str:
        return f"S3Engine(endpoint={self._config.get('endpoint')!r}, region={self._region!r})"

    def read(self, location: str) -> bytes:
        bucket, key = bucket_and_key(location)
        with _mapped("read", location):
            body: bytes = self._client.get_object(Bucket=bucket, Key=key)["Body"].read()
            return body

    def write(self, location: str, data: Any) -> None:
        bucket, key = bucket_and_key(location)
        body = bytes(memoryview(data))
        with _mapped("write", location):
            self._client.put_object(Bucket=bucket, Key=key, Body=body, ChecksumSHA256=_base64(hashlib.sha256(body)))

    def open_output(self, location: str) -> S3Output:
        return S3Output(self, location)

    def open_input(self, location: str) -> pa.NativeFile:
        with _mapped("read", location):
            self._check_process()
            # The credentials that boto3 has now: they may expire.
            found = self._session.get_credentials()
            keys = (None, None, None) if found is None else found.get_frozen_credentials()[:3]
            filesystem = self._filesystem(*keys)
            return filesystem.open_input_file("/".join(bucket_and_key(location)))

    def size(self, location: str) -> int:
        return int(self._head(location)["ContentLength"])

    def modified(self, location: str) -> datetime:
        modified: datetime = self._head(location)["LastModified"]
        return modified

    def exists(self, location: str) -> bool:
        try:
            self._head(location)
        except ObjectNotFound:
            return False
        return True

    def checksum(self, location: str) -> str | None:
        """What the store keeps over the whole object: a checksum of its own, else the MD5 that a plain ETag is."""
        head = self._head(location)
        if head.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT":
            for algorithm in _CHECKSUMS:
                value = head.get(f"Checksum{algorithm}")
                if value and "-" not in value:  # with '-': made of the parts' checksums
                    return f"{algorithm.lower()}:{base64.b64decode(value).hex()}"
        tag = head.get("ETag", "").strip('"')
        plain = head.get("ServerSideEncryption") in (None, "AES256") and "SSECustomerAlgorithm" not in head
        is_md5 = plain and len(tag) == 32 and all(c in "0123456789abcdef" for c in tag)
        return f"md5:{tag}" if is_md5 else None

    def sync(self, locations: Iterable[str]) -> None:
        """Nothing: an object is durable when its write has been answered."""

    def delete(self, locations: Iterable[str], *, below: str | None = None) -> list[DeleteFailure]:
        buckets: dict[str, list[str]] = {}
        for location in locations:
            bucket, key = bucket_and_key(location)
            buckets.setdefault(bucket, []).append(key)
        failures: list[DeleteFailure] = []
        for bucket, keys in buckets.items():
            for start in range(0, len(keys), DELETE_BATCH):
                failures += self._delete_batch(bucket, keys[start : start + DELETE_BATCH])
        return failures

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        bucket, key = bucket_and_key(prefix)
        check_prefix(prefix, S3_SCHEME + bucket)
        with _mapped("list", prefix):
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key):
                for each in page.get("Contents", ()):
                    yield ObjectInfo(f"{S3_SCHEME}{bucket}/{each['Key']}", each["Size"], each["LastModified"])

    def delete_prefix(self, prefix: str) -> int:
        found = self.list(prefix)
        count = 0
        while batch := [each.location for each in itertools.islice(found, DELETE_BATCH)]:
            failures = self.delete(batch)
            if failures:
                raise StorageError(
                    f"cannot delete below {prefix}: {failures[0].reason} ({failures[0].location}); try again"
                )
            count += len(batch)
        try:
            self.end_uploads(prefix)
        except StorageError as error:  # not every store, or every role, lists them; what is visible is gone
            log.warning("uploads_not_ended", prefix=prefix, error=str(error), code=error.code)
        return count

    def end_uploads(self, prefix: str, before: datetime | None = None) -> int:
        bucket, key = bucket_and_key(prefix)
        check_prefix(prefix, S3_SCHEME + bucket)
        count = 0
        with _mapped("end the uploads below", prefix):
            for page in self._client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=key):
                for each in page.get("Uploads", ()):
                    if each["Key"].startswith(key) and (before is None or each["Initiated"] < before):
                        self._client.abort_multipart_upload(Bucket=bucket, Key=each["Key"], UploadId=each["UploadId"])
                        count += 1
        return count

    def check_writable(self, location: str) -> None:
        probe = f"{location.rstrip('/')}/.lakeward-{secrets.token_hex(8)}"
        self.write(probe, b"lakeward")
        failures = self.delete([probe])
        if failures:
            raise WarehouseNotWritable(
                f"cannot delete below {location}: {failures[0].reason}; allow s3:DeleteObject on the bucket"
            )

    def _head(self, location: str) -> dict[str, Any]:
        bucket, key = bucket_and_key(location)
        with _mapped("look up", location):
            head: dict[str, Any] = self._client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
            return head

    def _delete_batch(self, bucket: str, keys: Sequence[str]) -> Sequence[DeleteFailure]:
        location = f"{S3_SCHEME}{bucket}/{keys[0]}"
        try:
            with _mapped("delete", location):
                answer = self._client.delete_objects(
                    Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
                )
        except StorageError as error:
            return [DeleteFailure(f"{S3_SCHEME}{bucket}/{key}", str(error)) for key in keys]
        return [
            DeleteFailure(f"{S3_SCHEME}{bucket}/{e.get('Key')}", str(e.get("Code")))
            for e in answer.get("Errors", ())
            if e.get("Code") not in _MISSING
        ]

    def _make_client(self) -> Any:
        from botocore.config import Config

        return self._session.client(
            "s3",
            endpoint_url=self._config.get("endpoint"),
            region_name=self._region,
            config=Config(
                s3={"addressing_style": "path" if self._path_style else "auto"},
                retries={"mode": "standard", "max_attempts": ATTEMPTS},
                connect_timeout=self._connect_seconds,
                read_timeout=self._read_seconds,
                max_pool_connections=32,
                # Stores other than Amazon's fail on checksums that they do not know; ours are given where they are checked.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    @functools.lru_cache(maxsize=2)  # noqa: B019 (engines are few and live as long as the process)
    def _filesystem(self, access_key: str | None, secret_key: str | None, token: str | None) -> pyarrow.fs.FileSystem:
        endpoint = self._config.get("endpoint")
        scheme, _, host = endpoint.rpartition("://") if endpoint else ("", "", None)
        return pyarrow.fs.S3FileSystem(
            access_key=access_key,
            secret_key=secret_key,
            session_token=token,
            anonymous=access_key is None,
            region=self._region,
            scheme=scheme or "https",
            endpoint_override=host.rstrip("/") if host else None,
            force_virtual_addressing=bool(endpoint) and not self._path_style,
            connect_timeout=self._connect_seconds,
            request_timeout=self._read_seconds,
            retry_strategy=pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        )


class S3Output(OutputFile):
    """An object written part by part; it appears at `close`. What is smaller than one part is one plain request."""

    def __init__(self, engine: S3Engine, location: str) -> None:
        self._engine, self._location = engine, location
        self._bucket, self._key = bucket_and_key(location)
        self._buffer = bytearray()
        self._size = 0
        self._upload: str | None = None
        self._parts: list[dict[str, Any]] = []
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._buffer += view
        self._size += view.nbytes
        while len(self._buffer) > PART_SIZE:
            self._send_part(PART_SIZE)
        return view.nbytes

    def flush(self) -> None:
        """Nothing: an object is not there before it is closed."""

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        if self._closed:
            return
        if self._upload is None:
            self._engine.write(self._location, self._buffer)
        else:
            self._send_part(len(self._buffer))
            with self._aborting():
                self._engine._client.complete_multipart_upload(
                    Bucket=self._bucket, Key=self._key, UploadId=self._upload, MultipartUpload={"Parts": self._parts}
                )
        self._closed = True
        self._buffer = bytearray()

    def abort(self) -> None:
        """Leave nothing behind; no effect once the object is closed."""
        if self._closed:
            return
        self._closed = True
        self._buffer = bytearray()
        if self._upload is not None:
            with contextlib.suppress(StorageError), _mapped("abort the upload of", self._location):
                self._engine._client.abort_multipart_upload(Bucket=self._bucket, Key=self._key, UploadId=self._upload)

    def _send_part(self, size: int) -> None:
        part = bytes(self._buffer[:size])
        del self._buffer[:size]
        number = len(self._parts) + 1
        with self._aborting():
            if self._upload is None:
                answer = self._engine._client.create_multipart_upload(Bucket=self._bucket, Key=self._key)
                self._upload = answer["UploadId"]
            answer = self._engine._client.upload_part(
                Bucket=self._bucket,
                Key=self._key,
                UploadId=self._upload,
                PartNumber=number,
                Body=part,
                ContentMD5=_base64(hashlib.md5(part, usedforsecurity=False)),
            )
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})

    @contextlib.contextmanager
    def _aborting(self) -> Iterator[None]:
        try:
            with _mapped("write", self._location):
                yield
        except BaseException:
            self.abort()
            raise


def _base64(digest: Any) -> str:
    return base64.b64encode(digest.digest()).decode()


@contextlib.contextmanager
def _mapped(action: str, location: str) -> Iterator[None]:
    """Raise boto3's and pyarrow's errors as Lakeward's."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        HTTPClientError,
        NoCredentialsError,
        PartialCredentialsError,
    )
    from botocore.exceptions import ConnectionError as Unreached

    try:
        yield
    except ClientError as error:
        raise _client_error(action, location, error.response) from error
    except FileNotFoundError:
        raise _not_found(action, location) from None
    except (BotoCoreError, OSError) as error:
        if says(error, "ACCESS_DENIED"):
            raise _denied(action, location, "AccessDenied") from error
        if isinstance(error, (HTTPClientError, Unreached, ConnectionError, TimeoutError)) or says(error, *_UNREACHED):
            raise StorageUnavailable(
                f"cannot {action} {location}: the store does not answer, or broke off; check that it runs and that s3_endpoint is "
                "right, then try again"
            ) from error
        if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
            raise StorageError(
                f"cannot {action} {location}: there are no keys for the store; set s3_access_key and s3_secret_key, or give the "
                "process keys or a role of its own"
            ) from error
        raise StorageError(
            f"cannot {action} {location}: the request failed ({type(error).__name__}); check s3_endpoint, s3_region and the keys"
        ) from error


def _client_error(action: str, location: str, response: Mapping[str, Any]) -> StorageError:
    code = str(response.get("Error", {}).get("Code", ""))
    if code == "NoSuchBucket":
        return ObjectNotFound(f"cannot {action} {location}: there is no such bucket; make it or correct the warehouse")
    if code in _MISSING:
        return _not_found(action, location)
    if code in _DENIED:
        return _denied(action, location, code)
    if code in _FULL:
        return StorageFull(f"cannot {action} {location}: {code}; free space or raise the quota, then try again")
    if code in _BUSY or response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) in (429, 500, 502, 503, 504):
        return StorageUnavailable(f"cannot {action} {location}: {code}; the store is in trouble, try again later")
    return StorageError(
        f"cannot {action} {location}: the store says {code or 'no'}; look at its log, and check s3_endpoint and s3_region"
    )


def _not_found(action: str, location: str) -> ObjectNotFound:
    return ObjectNotFound(f"cannot {action} {location}: there is no such object; check the location")


def _denied(action: str, location: str, code: str) -> WarehouseNotWritable:
    return WarehouseNotWritable(f"cannot {action} {location}: {code}; check the credentials and the bucket's policy")
