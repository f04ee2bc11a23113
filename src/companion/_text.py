"""Numbers and words for people."""

import math
import re
from typing import Any

import numpy as np

ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def check_id(value: str) -> None:
    """Raise ValueError unless ``value`` is lowercase words and digits joined by hyphens."""
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise ValueError(
            f"id must be lowercase words joined by hyphens, like 'growth-rate', not {value!r}"
        )


def require_text(name: str, value: object) -> str:
    """Return the stripped text; ValueError if it is no text or empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be a text that says something, not {value!r}")
    return value.strip()


def number(value: float, resolution: float | None = None) -> str:
    """Write a number with the digits that matter.

    With a ``resolution`` (a tolerance, the width of an interval) two digits of that are kept;
    otherwise four significant digits.

    >>> number(1.23456789, 0.01), number(4.0), number(0.000123456), number(12345.678)
    ('1.2346', '4', '0.0001235', '12346')
    >>> number(100.04), number(0.5), number(1e-11)
    ('100', '0.5', '1e−11')
    >>> number(float("inf")), number(2e-14, 1e-10), number(-3.1e9)
    ('∞', '2.0e−14', '−3.1e9')
    """
    value = float(value)
    if not math.isfinite(value):
        return {"inf": "∞", "-inf": "−∞"}.get(str(value), "not a number")
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    digits = 4
    if resolution and math.isfinite(resolution) and resolution > 0:
        digits = size - math.floor(math.log10(resolution)) + 3
        digits = min(max(digits, 2), 8)
    if value == round(value) and abs(value) < 1e7:
        return _minus(str(round(value)))
    if size < -5 or size >= 7:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return _minus(f"{mantissa if resolution else _short(mantissa)}e{int(exponent)}")
    text = f"{value:.{max(digits - 1 - size, 0)}f}"
    return _minus(text if resolution else _short(text))


def _short(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _minus(text: str) -> str:
    return text.replace("-", "−")


def numbers(values: Any, resolution: float | None = None, most: int = 4) -> str:
    """Write an array in short: up to ``most`` values in full, else how many and their range."""
    flat = np.ravel(np.asarray(values, dtype=float))
    if flat.size == 1:
        return number(flat[0], resolution)
    if flat.size <= most:
        return ", ".join(number(v, resolution) for v in flat)
    low, high = number(np.min(flat), resolution), number(np.max(flat), resolution)
    return f"{flat.size} values from {low} to {high}"


def plain(value: Any) -> Any:
    """Turn a value into what JSON can hold: arrays as lists, non-finite numbers as words.

    >>> plain([1, np.float64(0.5), np.inf])
    [1, 0.5, 'inf']
    """
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
