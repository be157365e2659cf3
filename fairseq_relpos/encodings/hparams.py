"""Hyperparameters of an encoding: what its constructor accepts, and their text forms."""

import inspect
import math
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin


def hyperparameters(cls: type) -> dict[str, inspect.Parameter]:
    """The hyperparameters that the constructor declares: name -> parameter with type and default. A trailing
    underscore, which avoids Python's own words, is not part of the name.

    Examples:
        >>> hyperparameters(find("t5"))["max_distance"].default
        128
    """
    found = {}
    for parameter in list(inspect.signature(cls).parameters.values())[1:]:  # without dims
        kind = parameter.annotation
        if isinstance(kind, str):  # as all are in a module with `from __future__ import annotations`
            kind = eval(kind, inspect.unwrap(cls.__init__).__globals__)  # type: ignore[misc]
        found[parameter.name.rstrip("_")] = parameter.replace(annotation=kind)
    return found


def check_declared(cls: type) -> None:
    """Raises ValueError for a hyperparameter without a default, or of a type that no text is read as."""
    for key, parameter in hyperparameters(cls).items():
        kind = parameter.annotation
        texts = get_origin(kind) is Literal and all(isinstance(value, str) for value in get_args(kind))
        if parameter.default is parameter.empty or not (texts or kind in _READERS):
            raise ValueError(
                f"hyperparameter {key} of {cls.__name__}: give it a default and one of the types bool, int, "
                'int | None, float, str, tuple or Literal["a", "b"]'
            )


def python_name(cls: type, key: str) -> str:
    """The constructor's own name for a hyperparameter."""
    return hyperparameters(cls)[key].name


def parse_hparams(text: str) -> dict[str, str]:
    """Parses "a=1 b=2" into {"a": "1", "b": "2"}.

    Examples:
        >>> parse_hparams("max_distance=64 num_buckets=16")
        {'max_distance': '64', 'num_buckets': '16'}
    """
    pairs = {}
    for item in (text or "").split():
        key, sign, value = item.partition("=")
        if not (key and sign and value):
            raise ValueError(
                f'hyperparameter {item!r} is not of the form name=value (for example "max_distance=128 num_buckets=32")'
            )
        if key in pairs:
            raise ValueError(f"hyperparameter {key} is given twice")
        pairs[key] = value
    return pairs


def to_text(value: Any) -> str:
    """The text form of a hyperparameter, which ``build`` reads back.

    Examples:
        >>> to_text(2.0), to_text((32, 4))
        ('2', '32,4')
    """
    if isinstance(value, (tuple, list)):
        return ",".join(map(to_text, value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def convert(name: str, key: str, value: Any, kind: Any) -> Any:
    """Reads a value or its text form as this type; ValueError says what is accepted."""
    if get_origin(kind) is Literal:
        if str(value) in get_args(kind):
            return str(value)
    else:
        try:
            return _READERS[kind][1](value)
        except (ValueError, TypeError):
            pass
    raise ValueError(f"{key}={to_text(value)} of {name} is not {accepted_values(kind)}")


def accepted_values(kind: Any) -> str:
    """The accepted values of a hyperparameter of this type, in words.

    Examples:
        >>> accepted_values(int)
        'an integer'
    """
    return " or ".join(get_args(kind)) if get_origin(kind) is Literal else _READERS[kind][0]


def _read_bool(value):
    text = str(value).lower()
    if text not in ("true", "1", "yes", "false", "0", "no"):
        raise ValueError
    return text in ("true", "1", "yes")


def _read_int(value):
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    return int(value)


def _read_float(value):
    if not math.isfinite(number := float(value)):
        raise ValueError
    return number


def _read_ints(value):
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(_read_int(part) for part in parts)


def _read_optional_int(value):
    return None if value is None or value == "None" else _read_int(value)


_READERS: dict[Any, tuple[str, Callable[[Any], Any]]] = {
    bool: ("True or False", _read_bool),
    int: ("an integer", _read_int),
    int | None: ("an integer", _read_optional_int),
    float: ("a finite number", _read_float),
    str: ("text", str),
    tuple: ("integers with commas between, such as 32,4", _read_ints),
}
