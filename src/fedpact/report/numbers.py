"""How a report writes numbers."""

from __future__ import annotations

import math

#: A number that someone chose has at most so many characters; a longer one was computed and is rounded.
CHOSEN = 7
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float) -> str:
    """About five digits, such as 0.2000, 31.42 and 1,234; scientific notation outside 10⁻³ to 10⁹; integers in full."""
    if isinstance(value, int):
        return f"{value:,}"
    if math.isnan(value):
        return "not known"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e9:
        digits_before = math.floor(math.log10(abs(value)))
        decimals = min(4, max(0, 4 - digits_before))
        return f"{value:,.{decimals}f}".replace("-", "−")
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}×{power(int(exponent))}".replace("-", "−")


def given(value: float) -> str:
    """A chosen number as it was written: 0.2, 0.001, 10⁻⁵; a computed one is rounded."""
    text = f"{value:g}"
    if not math.isfinite(value) or len(text) > CHOSEN:
        return number(float(value))
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        return text.replace("-", "−")
    if mantissa == "1":
        return power(int(exponent))
    return f"{mantissa}×{power(int(exponent))}"


def power(exponent: int) -> str:
    """A power of ten, such as 10⁻³."""
    return "10" + str(exponent).translate(SUPERSCRIPTS)


def size(count: float) -> str:
    """A number of bytes, such as 19.8 kB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} bytes"


def duration(seconds: float) -> str:
    """Such as 1.7 s, 3 min 12 s or 2 h 1 min."""
    if math.isnan(seconds):
        return "not known"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s"


def percent(fraction: float) -> str:
    """Such as 5.6 %."""
    if 0 < abs(fraction) < 1e-4:
        return f"{number(100 * fraction)} %"
    return f"{100 * fraction:.1f} %"
