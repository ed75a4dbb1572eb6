r"""Text from elsewhere, such as that of errors, as UTF-8 and as JSON. Pure.

A string of Python may hold half a character, a lone surrogate: file names, command lines and broken
JSON bring them. UTF-8 has no form for it. There is one rule for all packages:

- Text that is a report, such as the text of an error, is written with the escape `\udXXX` in the
  place of a lone surrogate, so a report never fails: `report_text`, `report_bytes`.
- Text that is a name or a value, such as a key or the name of a stream, is refused where it is
  given (`arguments.check_text`): another one in its place would be another name.
- JSON keeps the escapes of a lone surrogate, which JSON has a form for: it is written in ASCII, or
  through `json_bytes`. Only a value that a user gives to a serializer is refused.
- Bytes that are not UTF-8 are shown with escapes (`shown`), and are never written back in that
  form.
"""

from __future__ import annotations


def report_text(text: str) -> str:
    """Return text without lone surrogates: these are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def report_bytes(text: str, most: int) -> bytes:
    """Return text as UTF-8, of at most `most` bytes, cut between two characters."""
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= most:
        return encoded
    return encoded[:most].decode(errors="ignore").encode()


def json_bytes(text: str) -> bytes:
    """Return JSON as UTF-8: a lone surrogate, which can only be in a string, becomes its escape."""
    return text.encode("utf-8", "backslashreplace")


def shown(data: bytes) -> str:
    """Return bytes as text to be shown: what is not UTF-8 is escaped."""
    return data.decode("utf-8", "backslashreplace")


def error_text(error: BaseException) -> str:
    """Return the text of an error as a report; empty if it has none, or fails to make one."""
    try:
        return report_text(str(error))
    except Exception:  # noqa: BLE001 - of a class of the user
        return ""
