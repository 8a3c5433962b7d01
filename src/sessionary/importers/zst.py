"""Files packed with Zstandard, unpacked while they are read; a bomb is stopped."""

import io
from typing import TYPE_CHECKING, BinaryIO, cast

import zstandard

from sessionary.errors import BadInput

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MOST = 4 * 1024 * 1024 * 1024
_WINDOW = 128 * 1024 * 1024


def unpacked(packed: BinaryIO, *, most: int = MOST) -> BinaryIO:
    """The bytes inside; `BadInput` when they are damaged or more than `most`."""
    return cast(BinaryIO, io.BufferedReader(_Unpacked(packed, most), 1024 * 1024))


def unpacked_text(packed: bytes, *, most: int) -> bytes:
    """A small text that was packed by itself."""
    return unpacked(io.BytesIO(packed), most=most).read()


class _Unpacked(io.RawIOBase):
    """Reads on and on; goes back to nowhere."""

    def __init__(self, packed: BinaryIO, most: int) -> None:
        unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        self._packed = packed
        self._stream = unpacker.stream_reader(packed, read_across_frames=True)
        self._most = most
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        """Go forward by reading; a place behind cannot be reached."""
        wanted = place if whence == io.SEEK_SET else self._place + place
        if whence == io.SEEK_END or wanted < self._place:
            raise io.UnsupportedOperation("what was unpacked is gone")
        while self._place < wanted:
            step = min(wanted - self._place, io.DEFAULT_BUFFER_SIZE)
            if not self.readinto(bytearray(step)):
                break
        return self._place

    def readinto(self, into: "WriteableBuffer") -> int:
        view = memoryview(into).cast("B")
        try:
            data = self._stream.read(len(view))
        except zstandard.ZstdError as error:
            raise BadInput(f"It cannot be unpacked ({error}).") from error
        self._place += len(data)
        if self._place > self._most:
            raise BadInput(f"It unpacks to more than {self._most:,} bytes; it was left alone.")
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._packed.close()
        super().close()
