"""Reference pages show a front's bound methods as what they are: functions, with the parameters and docstring of the room's.

`get_topic = bound(topics.get)` is an attribute to a reader of source text. See src/lakeward/fronts.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from griffe import (
    Attribute,
    Class,
    Docstring,
    ExprCall,
    ExprKeyword,
    ExprLambda,
    Extension,
    Function,
    GriffeLoader,
    Module,
    Parameter,
    ParameterKind,
    Parameters,
)


class Fronts(Extension):
    def on_package(self, *, pkg: Module, loader: GriffeLoader, **kwargs: Any) -> None:
        for owner in list(_classes(pkg)):
            for each in list(owner.members.values()):
                if isinstance(each, Attribute) and (call := _binding(each)) is not None:
                    owner.set_member(each.name, _method(each, call, loader))


def _classes(module: Module) -> Iterator[Class]:
    for each in module.members.values():
        if isinstance(each, Class):
            yield each
        elif isinstance(each, Module):
            yield from _classes(each)


def _binding(attribute: Attribute) -> ExprCall | None:
    call = attribute.value
    return call if isinstance(call, ExprCall) and str(call.function) in ("bound", "late_bound") else None


def _method(attribute: Attribute, call: ExprCall, loader: GriffeLoader) -> Function:
    found, *more = call.arguments
    first, _, rest = str(found.body if isinstance(found, ExprLambda) else found).partition(".")
    # A name of the module, whatever the class has under it.
    path = attribute.module.resolve(first) + (f".{rest}" if rest else "")
    fixed = sum(not isinstance(each, ExprKeyword) for each in more)
    target: Any = loader.modules_collection[path]
    function: Any = target.all_members["__init__"] if isinstance(target, Class) else target
    skipped = fixed + 1 + isinstance(target, Class)  # the registry, and what a class calls self
    own = next((str(each.value) for each in more if isinstance(each, ExprKeyword) and each.name == "own"), "")
    taken = [each for each in list(function.parameters)[skipped:] if f"'{each.name}'" not in own.replace('"', "'")]
    front = Parameter("self", kind=ParameterKind.positional_or_keyword)
    made = Function(
        attribute.name,
        lineno=attribute.lineno,
        endlineno=attribute.endlineno,
        parameters=Parameters(front, *taken),
        returns=target.name if isinstance(target, Class) else function.returns,
    )
    if target.docstring is not None:
        made.docstring = Docstring(target.docstring.value, parent=made, parser="google")
    return made
