"""What the SDK documents about its names: signatures, members, and the docstrings of attributes."""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple, is_typeddict

_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_WIDTH = 100  # of a signature, before each parameter gets a line of its own


class Attribute(NamedTuple):
    """A field of a dataclass, a key of a TypedDict or a member of an enumeration."""

    name: str
    type: str
    meaning: str


class Member(NamedTuple):
    """A public method or property of a class."""

    name: str
    function: Callable[..., Any]
    is_property: bool


def signature(name: str, function: Callable[..., Any]) -> str:
    """Return the signature as one would read it in the source, on one line if it fits."""
    found = inspect.signature(function)
    parameters = [*_parameters(found)]
    returns = "" if found.return_annotation is found.empty else f" -> {_written(found.return_annotation)}"
    prefix = "async " if inspect.iscoroutinefunction(inspect.unwrap(function)) else ""
    line = f"{prefix}{name}({', '.join(parameters)}){returns}"
    if len(line) <= _WIDTH:
        return line
    lines = "".join(f"    {parameter},\n" for parameter in parameters)
    return f"{prefix}{name}(\n{lines}){returns}"


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """Return the parameters as they are written, `self` left out."""
    return [*_parameters(inspect.signature(function))]


def returned_by(function: Callable[..., Any]) -> str:
    """Return the annotation of what the function returns."""
    return _written(inspect.signature(function).return_annotation)


def members(cls: type) -> Iterator[Member]:
    """Yield the public methods and properties that the class itself defines, in the order of its source."""
    # getattr, because a descriptor may make the function.
    for name, value in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(value, property) and value.fget is not None:
            yield Member(name, value.fget, is_property=True)
        elif inspect.isfunction(function := getattr(cls, name)):
            yield Member(name, function, is_property=False)


def attributes(cls: type) -> Iterator[Attribute]:
    """Yield what the class itself declares, each with the string that stands below it in the source.

    The keys of a TypedDict include those of the TypedDicts that it extends.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    meanings = _meanings(tree)
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield Attribute(name, ast.unparse(node.annotation), meanings.get(name, ""))
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield Attribute(name, "", meanings.get(name, ""))
    if is_typeddict(cls):
        # Read from the source: at runtime a TypedDict is a plain dict without other bases.
        for base in tree.bases:
            extended = vars(sys.modules[cls.__module__]).get(ast.unparse(base))
            if extended is not None and is_typeddict(extended):
                yield from attributes(extended)


def alias(module: ModuleType, name: str) -> Attribute:
    """Return what a type alias of the module stands for, and the string below it in the source."""
    tree = ast.parse(inspect.getsource(module))
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            assert node.value is not None
            return Attribute(name, ast.unparse(node.value), _meanings(tree).get(name, ""))
    raise LookupError(f"{module.__name__} has no alias {name}")


def _parameters(found: inspect.Signature) -> Iterator[str]:
    has_star = False
    last_kind = None
    for parameter in found.parameters.values():
        if parameter.name == "self":
            continue
        if last_kind is parameter.POSITIONAL_ONLY and parameter.kind is not parameter.POSITIONAL_ONLY:
            yield "/"
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            yield "*"
            has_star = True
        yield _parameter(parameter)
        has_star = has_star or parameter.kind is parameter.VAR_POSITIONAL
        last_kind = parameter.kind
    if last_kind is inspect.Parameter.POSITIONAL_ONLY:
        yield "/"


def _parameter(parameter: inspect.Parameter) -> str:
    text = f"{_STARS.get(parameter.kind, '')}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_written(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f" = {_default(parameter.default)}"
    return text


def _default(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value).removeprefix("datetime.")


def _written(annotation: Any) -> str:
    """Return an annotation as its author wrote it: a string, unless the module evaluates its annotations."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    for prefix in ("builtins.", "collections.abc.", "datetime.", "typing."):
        text = text.replace(prefix, "")
    return text


def _meanings(body: ast.AST) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for node in getattr(body, "body", []):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                continue
            case ast.Expr(value=ast.Constant(value=str(text))) if name:
                found[name] = " ".join(text.split())
        name = ""
    return found
