"""The hot schema among other users of protobuf in the same process, and without its C runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[1] / "unit" / "wire"

ANOTHER_CLIENT = """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Field = descriptor_pb2.FieldDescriptorProto
pool = descriptor_pool.Default()

def declare(name, package, field):
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    for message in ("Message", "PublishRequest", "PublishResponse", "Ack", "Header"):
        file.message_type.add(name=message).field.add(
            name=field, number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL
        )
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName(f"{package}.Message")
    return message_factory.GetMessageClass(descriptor)

def declare_all():
    theirs = declare("api.proto", "proto", "text")
    assert theirs.FromString(theirs(text="x").SerializeToString()).text == "x"
    # Even our own names, in a shape of theirs.
    declare("liftbridge_aio/wire/hot.proto", "liftbridge_aio.wire.hot", "text")
"""

USE_OURS = """
from liftbridge_aio.wire.codec import decode_message, frame_publish, publish_head

frame_publish(publish_head("s", 1, 0), b"v", b"k", None, None, "1")
message = decode_message(b"\\x08\\x05\\x2a\\x01s")
assert (message.offset, message.stream, message.headers) == (5, "s", {})
"""


def run(program: str, **environment: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.mark.parametrize("ours_first", [True, False])
def test_another_client_in_the_process_declares_the_same_names(ours_first: bool) -> None:
    order = [USE_OURS, "declare_all()", USE_OURS] if ours_first else ["declare_all()", USE_OURS]
    run("\n".join([ANOTHER_CLIENT, *order]))


def test_the_default_pool_is_left_alone() -> None:
    program = """
from google.protobuf import descriptor_pool
for name in ("proto.Message", "liftbridge_aio.wire.hot.Message"):
    try:
        descriptor_pool.Default().FindMessageTypeByName(name)
    except KeyError:
        continue
    raise SystemExit(f"{name} is in the default pool")
"""
    run(USE_OURS + program)


def test_the_codec_is_right_without_the_c_runtime() -> None:
    pytest_run = f"""
import sys
import pytest
from google.protobuf.internal import api_implementation

class FewExamples:
    def pytest_configure(self):
        from hypothesis import settings
        settings.register_profile("few", max_examples=5, deadline=None)
        settings.load_profile("few")

assert api_implementation.Type() == "python"
folder = {str(UNIT)!r}
files = [f"{{folder}}/test_codec_batches.py", f"{{folder}}/test_codec_oracle.py"]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *files], plugins=[FewExamples()]))
"""
    run(pytest_run, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python")
