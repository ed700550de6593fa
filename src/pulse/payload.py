"""Encodes arguments to bytes and back: JSON by msgspec, including pydantic models, and raw bytes.

None is the empty payload, which means "no arguments". bytes are not changed. pydantic is never imported
here: a value can only be a pydantic model if the application has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeGuard

import msgspec

from pulse.errors import InvalidArgument, InvalidHandler


class UndecodableArgs(Exception):
    """The payload does not fit the handler. The message names the field. The handler did not run."""


Decode = Callable[[bytes], Any]


def encode(args: object) -> bytes:
    """Return the payload for these arguments. Raises InvalidArgument for values that JSON cannot hold."""
    if args is None:
        return b""
    if isinstance(args, bytes):
        return args
    try:
        return _encoder.encode(args)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgument(
            f"The arguments of type {type(args).__name__} cannot be written as JSON: {error}. "
            "Use dataclasses, msgspec Structs, pydantic models, dicts and plain values, or give bytes."
        ) from None


def decode_json(payload: bytes) -> Any:
    """Return the decoded JSON, or None for an empty payload."""
    if not payload:
        return None
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"The payload is not JSON ({error}); read `.payload` for its bytes.") from None


def decoder_for(annotation: Any) -> Decode:
    """Return a function from payload to a value of this type. It raises UndecodableArgs.

    Raises InvalidHandler if no JSON can be decoded to the type.
    """
    if annotation is bytes:
        return _as_they_are
    if is_pydantic_model(annotation):
        return _pydantic_decode(annotation)
    try:
        info = msgspec.inspect.type_info(annotation)
        read = msgspec.json.Decoder(annotation, dec_hook=_from_plain).decode
    except (TypeError, NameError) as error:
        raise InvalidHandler(f"JSON cannot be read as {annotation!r}: {error}.") from None
    if isinstance(info, msgspec.inspect.CustomType):
        raise InvalidHandler(
            f"JSON cannot be read as {annotation!r}: make it a dataclass, a msgspec.Struct, a pydantic model "
            "or a TypedDict, or take a dict."
        )
    # An empty payload is an empty object for a type that is an object, and null for any other.
    nothing = b"{}" if isinstance(info, _OBJECTS) else b"null"

    def decode(payload: bytes) -> Any:
        try:
            return read(payload or nothing)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UndecodableArgs(_sentence(str(error), payload)) from None
        except NotImplementedError as error:
            raise UndecodableArgs(str(error)) from None

    return decode


def is_pydantic_model(annotation: Any) -> TypeGuard[type[Any]]:
    """True for a pydantic model class."""
    pydantic = sys.modules.get("pydantic")
    base = getattr(pydantic, "BaseModel", None)
    return isinstance(base, type) and isinstance(annotation, type) and issubclass(annotation, base)


def _pydantic_decode(model: type[Any]) -> Decode:
    def decode(payload: bytes) -> Any:
        try:
            return model.model_validate_json(payload or b"{}")
        except ValueError as error:  # pydantic's ValidationError is one
            raise UndecodableArgs(_sentence(_pydantic_text(error), payload)) from None

    return decode


def _pydantic_text(error: ValueError) -> str:
    problems = error.errors() if hasattr(error, "errors") else ()
    texts = [f"{problem['msg']} - at `{'.'.join(['$', *map(str, problem['loc'])])}`" for problem in problems]
    return "; ".join(texts) or str(error)


def _sentence(problem: str, payload: bytes) -> str:
    if payload:
        return f"The arguments cannot be decoded: {problem}"
    return f"The job has no arguments, and its handler needs some: {problem}"


def _as_they_are(payload: bytes) -> bytes:
    return payload


def _to_plain(value: Any) -> Any:
    if is_pydantic_model(type(value)):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not a type that JSON supports")


def _from_plain(wanted: type[Any], value: Any) -> Any:
    if is_pydantic_model(wanted):
        try:
            return wanted.model_validate(value)
        except ValueError as error:
            raise ValueError(_pydantic_text(error)) from None
    raise NotImplementedError(f"The arguments cannot be decoded: JSON cannot be read as {wanted.__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_to_plain)
_OBJECTS = (
    msgspec.inspect.DictType,
    msgspec.inspect.StructType,
    msgspec.inspect.DataclassType,
    msgspec.inspect.TypedDictType,
)
