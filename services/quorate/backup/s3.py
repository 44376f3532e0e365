"""Objects in a bucket of an S3-compatible store, through pyarrow.

The URL is s3://BUCKET/PREFIX, with the options of pyarrow's S3FileSystem as its query, such as
`?endpoint_override=HOST:PORT&scheme=http&region=us-east-1`, or `tls_ca_file_path=FILE` for a store
with the certificate of a private authority. Credentials come from where AWS's tools take them:
AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the machine's role.

A store has no lock that works with every server, and pyarrow offers no conditional put. Two writers
therefore notice each other when one publishes a manifest (see `archive.Archive.publish`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from quorate.backup.errors import BackupError, MissingObjectError
from quorate.backup.stores import CHUNK_BYTES


class S3Store:
    """Objects below a prefix of a bucket. Raises BackupError for an invalid URL."""

    def __init__(self, url: str) -> None:
        try:
            from pyarrow import ArrowInvalid, fs  # noqa: PLC0415
        except ImportError:
            raise BackupError(f"{url}: S3 needs pyarrow: pip install 'quorate[backup]'") from None
        self.url = _shown(url)
        self._fs: Any = fs
        try:
            self._files, root = fs.FileSystem.from_uri(url)
        except (ArrowInvalid, OSError) as error:
            reason = str(error).replace(url, self.url)
            raise BackupError(f"{self.url} is not the URL of a bucket: {reason}") from None
        self._root = root.rstrip("/")
        if not self._root:
            raise BackupError(f"{self.url} names no bucket: expected s3://BUCKET/PREFIX")

    def names(self, folder: str) -> list[str]:
        selector = self._fs.FileSelector(f"{self._root}/{folder}", allow_not_found=True)
        found = self._files.get_file_info(selector)
        return sorted(
            f"{folder}/{info.base_name}" for info in found if info.type == self._fs.FileType.File
        )

    def chunks(self, name: str) -> Iterator[bytes]:
        try:
            stream = self._files.open_input_stream(f"{self._root}/{name}")
        except FileNotFoundError:
            raise MissingObjectError(name) from None
        with stream:
            while data := stream.read(CHUNK_BYTES):
                yield data

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        path = f"{self._root}/{name}"
        size = 0
        with self._files.open_output_stream(path) as stream:
            for chunk in chunks:
                stream.write(chunk)
                size += len(chunk)
        stored = self._files.get_file_info(path).size
        if stored != size:
            raise OSError(f"{self.url}/{name} has {stored} of {size} bytes after it was written")

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            path = f"{self._root}/{name}"
            if self._files.get_file_info(path).type != self._fs.FileType.NotFound:
                self._files.delete_file(path)

    @contextmanager
    def writing(self) -> Iterator[None]:
        yield


def _shown(url: str) -> str:
    """The URL for messages, without its options and the keys that pyarrow takes before an @."""
    scheme, separator, place = url.partition("?")[0].partition("://")
    return f"{scheme}{separator}{place.rpartition('@')[2]}"
