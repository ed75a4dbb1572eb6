"""Shows public classes and calls as users know them: without private bases, with all arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import update_wrapper
from types import FunctionType
from typing import Any, ForwardRef, TypeVar

ClassT = TypeVar("ClassT", bound=type[Any])
CallT = TypeVar("CallT", bound=Callable[..., Any])

_PACKAGE = __name__.partition(".")[0]


def as_one_class(cls: ClassT) -> ClassT:
    """Give a public class the methods of its private bases under its own name.

    Python names the class that defines a method in errors about arguments, in warnings about
    coroutines that were never awaited, and in `repr` of methods. A base may have several public
    classes, so each of them gets a copy of its functions.
    """
    for name in dir(cls):
        if name in vars(cls):
            continue
        found = inspect.getattr_static(cls, name)
        function = getattr(found, "__func__", found)
        if isinstance(function, FunctionType) and function.__module__.startswith(_PACKAGE):
            own = _copy(function, f"{cls.__qualname__}.{name}")
            setattr(cls, name, own if found is function else type(found)(own))
    return cls


def _copy(function: FunctionType, qualname: str) -> FunctionType:
    own = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    update_wrapper(own, function)
    del own.__wrapped__  # type: ignore[attr-defined]  # else `inspect` shows the function of the base
    own.__kwdefaults__ = function.__kwdefaults__
    own.__qualname__ = qualname
    return own


def lists_options(options: type[Any], **defaults: object) -> Callable[[CallT], CallT]:
    """Decorate a call that takes `**options: Unpack[…]`: `inspect` and `help` list them all.

    Args:
        options: the `TypedDict`.
        defaults: of options that are not None by default.
    """

    def decorate(call: CallT) -> CallT:
        signature = inspect.signature(call)
        *parameters, last = signature.parameters.values()
        if last.kind is not inspect.Parameter.VAR_KEYWORD:
            raise AssertionError(f"{call.__qualname__} takes no options")
        for name, annotation in options.__annotations__.items():
            shown = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
            parameters.append(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=defaults.get(name),
                    annotation=shown,
                )
            )
        call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return call

    return decorate


def check_options(call: str, options: Mapping[str, Any], allowed: type[Any]) -> None:
    """Refuse options that a call does not have, as Python does where they are listed.

    Args:
        call: the name of the call.
        options: its keyword arguments.
        allowed: the `TypedDict` of those that it has.

    Raises:
        TypeError: it has not all of them.
    """
    unknown = options.keys() - allowed.__optional_keys__
    if unknown:
        raise TypeError(f"{call}() got an unexpected keyword argument {min(unknown)!r}")
