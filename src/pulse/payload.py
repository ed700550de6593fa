"""Encodes arguments to bytes and back: JSON by msgspec, including pydantic models, and raw bytes.

None is the empty payload, which means "no arguments". bytes are not changed. A pydantic model is written so
that the model reads it back. pydantic is never imported here: a value can only be a pydantic model if the
application has imported it.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, TypeGuard

import msgspec

from pulse.errors import InvalidArgument, InvalidHandler


class UndecodableArgs(Exception):
    """The payload does not fit the handler. The message names the field. The handler did not run."""

    @property
    def problem(self) -> str:
        """The message without its subject: for values that are no arguments."""
        return str(self).removeprefix(_UNDECODABLE)


Decode = Callable[[bytes], Any]


def encode(args: object, what: str = "arguments") -> bytes:
    """Return the payload for these arguments. Raises InvalidArgument for values that JSON cannot hold."""
    if args is None:
        return b""
    if isinstance(args, bytes):
        return args
    try:
        payload = _encoder.encode(args)
    except InvalidArgument:
        raise
    except Exception as error:  # also of serializers of the application
        raise InvalidArgument(
            f"The {what} of type {type(args).__name__} cannot be written as JSON: {error}. "
            "Use dataclasses, msgspec Structs, pydantic models, dicts and plain values, or give bytes."
        ) from None
    # An encoder writes null for NaN and infinity: most payloads have none, and are done here.
    # `find` takes half as long as `in`, which first looks for a number.
    if payload.find(b"null") >= 0 and (path := find_non_finite(args)) is not None:
        have = "have" if what == "arguments" else "has"
        raise InvalidArgument(
            f"The {what} {have} NaN or infinity at `{path}`, which JSON cannot hold: it would be stored as "
            "null. Use None or a string."
        )
    return payload


def encode_result(value: object) -> bytes:
    """Encode the result of a handler for storage. Raises InvalidArgument."""
    return encode(value, "result")


def decode_json(payload: bytes, what: str = "payload") -> Any:
    """Return the decoded JSON, or None for an empty payload."""
    if not payload:
        return None
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"The {what} is not JSON ({error}); read `.{_BYTES_OF[what]}` for its bytes."
        ) from None


def decode_result(result: bytes) -> Any:
    """Decode a result without its type: the decoded JSON, or bytes that are not JSON."""
    try:
        return msgspec.json.decode(result)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return result


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
    if isinstance(info, msgspec.inspect.CustomType) and annotation is not object and not _is_path(annotation):
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


def result_decoder_for(annotation: Any) -> Decode:
    """Return a function from a stored result to a value of this type, or to plain values if none is known.

    It raises InvalidArgument.
    """
    try:
        if annotation in (Any, None, type(None), object):
            return decode_result
        read = _as_they_are if annotation == bytes | None else decoder_for(annotation)
    except InvalidHandler:
        return decode_result

    def decode(result: bytes) -> Any:
        try:
            return read(result)
        except UndecodableArgs as error:
            problem = error.problem
        raise InvalidArgument(f"The result cannot be read as {annotation!r}: {problem}")

    return decode


def _pydantic_decode(model: type[Any]) -> Decode:
    validate = validator_of(model)

    def decode(payload: bytes) -> Any:
        try:
            return validate(payload or b"{}")
        except ValueError as error:
            raise UndecodableArgs(_sentence(str(error), payload)) from None

    return decode


def _sentence(problem: str, payload: bytes) -> str:
    if payload:
        return f"{_UNDECODABLE}{problem}"
    return f"The job has no arguments, and its handler needs some: {problem}"


def _is_path(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, PurePath)


def _as_they_are(payload: bytes) -> bytes:
    return payload


def _to_plain(value: Any) -> Any:
    if is_pydantic_model(type(value)):
        return msgspec.Raw(dump_json(value))
    if isinstance(value, PurePath):
        return str(value)
    if is_secret(value):
        raise TypeError(f"{type(value).__name__} holds a secret; store a reference to it")
    name = type(value).__name__
    if hasattr(value, "_meta") and hasattr(value, "pk"):
        raise TypeError(
            f"{name} is a model of Django; give its key, such as {name.lower()}.pk, and read the row in the "
            "handler"
        )
    raise TypeError(f"{name} is not a type that JSON supports")


def _from_plain(wanted: type[Any], value: Any) -> Any:
    if wanted is object:  # `dict[str, object]`: any JSON is one
        return value
    if is_pydantic_model(wanted):
        # As JSON: a strict model reads a datetime from a text there, and not from a str.
        return validator_of(wanted)(msgspec.json.encode(value))
    if issubclass(wanted, PurePath):
        if isinstance(value, str):
            return wanted(value)
        raise ValueError(f"Expected a path as `str`, got `{type(value).__name__}`")
    raise NotImplementedError(f"{_UNDECODABLE}JSON cannot be read as {wanted.__name__}")


_UNDECODABLE = "The arguments cannot be decoded: "
# The attributes of JobInfo with the bytes.
_BYTES_OF = {"payload": "payload", "value": "value_bytes"}
_encoder = msgspec.json.Encoder(enc_hook=_to_plain)
_OBJECTS = (
    msgspec.inspect.DictType,
    msgspec.inspect.StructType,
    msgspec.inspect.DataclassType,
    msgspec.inspect.TypedDictType,
)


# A double of MessagePack, and one whose exponent is all ones.
_DOUBLE = b"\xcb"
_NON_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")


def find_non_finite(args: object) -> str | None:
    """Return the path of a float that is NaN or infinite, or None.

    The arguments are packed, which is quick, and walked through only if that shows such a float.
    """
    try:
        packed = _packer.encode(args)
    except Exception:  # what only the encoder of JSON can write
        return _find(args, "$")
    if _DOUBLE not in packed:  # most arguments with a None have no float at all
        return None
    # These bytes can be part of a text by chance.
    return _find(args, "$") if _NON_FINITE.search(packed) else None


def _find(value: Any, path: str) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    for name, member in _members(value):
        if (found := _find(member, f"{path}{name}")) is not None:
            return found
    return None


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f".{name}", member) for name, member in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{at}]", member) for at, member in enumerate(value))
    elif isinstance(value, msgspec.Struct):
        yield from ((f".{name}", getattr(value, name)) for name in value.__struct_fields__)
    elif dataclasses.is_dataclass(value):
        yield from ((f".{each.name}", getattr(value, each.name)) for each in dataclasses.fields(value))
    elif hasattr(type(value), "model_fields"):  # a pydantic model
        yield from ((f".{name}", member) for name, member in dict(value).items())


def _to_packable(value: Any) -> Any:
    if hasattr(type(value), "model_fields"):
        return dict(value)
    return str(value)


_packer = msgspec.msgpack.Encoder(enc_hook=_to_packable)


def is_pydantic_model(annotation: Any) -> TypeGuard[type[Any]]:
    """True for a pydantic model class."""
    pydantic = sys.modules.get("pydantic")
    base = getattr(pydantic, "BaseModel", None)
    return isinstance(base, type) and isinstance(annotation, type) and issubclass(annotation, base)


def is_secret(value: object) -> bool:
    """True for a SecretStr, SecretBytes or Secret[…]."""
    pydantic = sys.modules.get("pydantic")
    kinds = [getattr(pydantic, name, None) for name in ("SecretStr", "SecretBytes", "Secret")]
    return any(isinstance(kind, type) and isinstance(value, kind) for kind in kinds)


def dump_json(model: Any) -> bytes:
    """Return the JSON of a model. Raises InvalidArgument for a secret, which would be stored as asterisks.

    Computed fields are left out: the model computes them again, or refuses them if it forbids
    extras.
    """
    payload = _dump(model)
    if b"**" in payload and (path := _find_secret(model, type(model).__name__)) is not None:
        raise InvalidArgument(
            f"{path} is a secret, which would be stored as asterisks. "
            "Store a reference to the secret, and have the handler read it."
        )
    if b"NaN" in payload or b"Infinity" in payload:
        try:
            msgspec.json.decode(payload)
        except msgspec.DecodeError:
            raise InvalidArgument(
                f"{type(model).__name__} holds NaN or infinity, which JSON cannot hold. Use None or a string."
            ) from None
    return payload


def validator_of(model: type[Any]) -> Callable[[bytes], Any]:
    """Return the function from JSON to the model. It raises ValueError with a text that names the fields."""

    def validate(payload: bytes) -> Any:
        try:
            return model.model_validate_json(payload)
        except ValueError as error:  # pydantic's ValidationError is one
            raise ValueError(_text(error)) from None

    return validate


def _dump(model: Any) -> bytes:
    """Dump by alias if the model can read that, else by name. Decided once for each class.

    An alias is read and written, a serialization alias is written only, and nested models have
    aliases too. The only sure test is to read the written bytes.
    """
    kind = type(model)
    by_alias = _by_alias.get(kind)
    if by_alias is not None:
        return _written(model, by_alias)
    for by_alias in (True, False):
        payload = _written(model, by_alias)
        try:
            kind.model_validate_json(payload)
        except Exception:  # also of the application's validators; the caller decides
            continue
        _by_alias[kind] = by_alias
        return payload
    return _written(model, True)


def _written(model: Any, by_alias: bool) -> bytes:
    text: str = model.model_dump_json(by_alias=by_alias, round_trip=True)
    return text.encode()


def _find_secret(value: Any, path: str) -> str | None:
    """Return the path of a secret that is not empty, or None."""
    if is_secret(value):
        return path if value.get_secret_value() else None
    members: list[tuple[str, Any]] = []
    if is_pydantic_model(type(value)):
        members = [(f"{path}.{name}", member) for name, member in dict(value).items()]
    elif isinstance(value, Mapping):
        members = [(f"{path}.{name}", member) for name, member in value.items()]
    elif isinstance(value, list | tuple | set | frozenset):
        members = [(f"{path}[{at}]", member) for at, member in enumerate(value)]
    for name, member in members:
        if (found := _find_secret(member, name)) is not None:
            return found
    return None


def _text(error: ValueError) -> str:
    problems = error.errors() if hasattr(error, "errors") else ()
    texts = [f"{problem['msg']} - at `{'.'.join(['$', *map(str, problem['loc'])])}`" for problem in problems]
    return "; ".join(texts) or str(error)


# Weak keys are not needed: applications define their models once.
_by_alias: dict[type[Any], bool] = {}
