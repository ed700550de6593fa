"""Pydantic models as JSON: written so that the model reads them back. Secrets are refused.

pydantic is never imported here: a value can only be a pydantic model if the application has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import msgspec

from pulse.errors import InvalidArgument


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
