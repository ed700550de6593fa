"""Turns payloads into calls. Prepared once for each handler, so that a job costs one or two calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pulse.handlers.context import Context
from pulse.handlers.signatures import Signature
from pulse.payload import decoder_for

Call = Callable[[Any, Context], Any]


def decode_for(signature: Signature) -> Callable[[bytes], Any]:
    """Return the function from payload to arguments. It raises UndecodableArgs."""
    document = signature.document
    if document is None:
        if not signature.parameters:
            return _no_arguments
        return decoder_for(signature.keywords())
    read = decoder_for(document.annotation)
    if document.required:
        return read
    # With an empty payload the parameter has its default.
    return lambda payload: read(payload) if payload else _LEFT_OUT


def call_for(function: Callable[..., Any], signature: Signature) -> Call:
    """Return the function that calls the handler with decoded arguments and the context."""
    document, context = signature.document, signature.context
    if document is None:
        return _call_with_keywords(function, signature)
    name = document.name
    if context is None:
        call: Call = (
            (lambda value, _: function(**{name: value}))
            if document.keyword_only
            else (lambda value, _: function(value))
        )
    elif document.keyword_only or context.keyword_only:
        call = _call_by_name(function, signature)
    elif signature.context_is_first:
        call = lambda value, ctx: function(ctx, value)  # noqa: E731
    else:
        call = lambda value, ctx: function(value, ctx)  # noqa: E731
    if document.required:
        return call
    without = _call_with_keywords(function, signature)
    return lambda value, ctx: without({}, ctx) if value is _LEFT_OUT else call(value, ctx)


def _call_by_name(function: Callable[..., Any], signature: Signature) -> Call:
    assert signature.document is not None
    name = signature.document.name
    with_keywords = _call_with_keywords(function, signature)
    return lambda value, ctx: with_keywords({name: value}, ctx)


def _call_with_keywords(function: Callable[..., Any], signature: Signature) -> Call:
    context = signature.context
    if context is None:
        return lambda values, _: function(**values)
    if context.positional_only or (signature.context_is_first and not context.keyword_only):
        return lambda values, ctx: function(ctx, **values)
    context_name = context.name
    return lambda values, ctx: function(**values, **{context_name: ctx})


def _no_arguments(_: bytes) -> dict[str, Any]:
    return {}


class _LeftOut:
    def __repr__(self) -> str:
        return "(left out)"


_LEFT_OUT = _LeftOut()
