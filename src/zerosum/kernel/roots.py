"""Root of a function of one variable: Brent's method (Brent 1973, chapter 4), as in `scipy.optimize.brentq`.

It is repeated here because every command that prints an epsilon solves for a root, and to load `scipy.optimize` takes
longer than to load NumPy. The iterates are those of `scipy.optimize.brentq`, bit for bit, so that calibrated noise is
the same.
"""

from __future__ import annotations

from collections.abc import Callable

_MOST_ITERATIONS = 100  # as in SciPy; smooth functions take about 10


def find_root(
    function: Callable[[float], float],
    lower: float,
    upper: float,
    *,
    absolute: float = 2e-12,
    relative: float = 4 * 2.0**-52,
) -> float:
    """A root of `function` between `lower` and `upper`.

    Parameters
    ----------
    function : callable
        Continuous, with values of different signs at the two ends. A value may be infinite.
    lower, upper : float
        Ends of the bracket.
    absolute, relative : float
        The result x is within `absolute + relative * |x|` of a root.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        The values at both ends have the same sign.
    ArithmeticError
        The method did not converge in 100 iterations, as for functions that are flat at their root.

    Examples
    --------
    >>> find_root(lambda x: x * x - 2, 0.0, 2.0)
    1.4142135623731364
    """
    # x is the best estimate, `last` the one before it, and `across` lies on the other side of the root.
    last, x = lower, upper
    f_last, f_x = function(last), function(x)
    if f_last == 0:
        return last
    if f_x == 0:
        return x
    if (f_last < 0) == (f_x < 0):
        raise ValueError(f"the function has the same sign at {lower:g} and {upper:g}")
    across, f_across, step, step_before = last, f_last, 0.0, 0.0
    for _ in range(_MOST_ITERATIONS):
        if f_last != 0 and f_x != 0 and (f_last < 0) != (f_x < 0):
            across, f_across = last, f_last
            step = step_before = x - last
        if abs(f_across) < abs(f_x):  # the end with the smaller value is the better estimate
            last, x, across = x, across, x
            f_last, f_x, f_across = f_x, f_across, f_x
        smallest = (absolute + relative * abs(x)) / 2
        half = (across - x) / 2
        if f_x == 0 or abs(half) < smallest:
            return x
        # Bisection, unless interpolation makes a step that is short compared with the steps before.
        short = False
        if abs(step_before) > smallest and abs(f_x) < abs(f_last):
            if last == across:  # two points are known: the secant
                rise, run = -f_x * (x - last), f_x - f_last
            else:  # three points: inverse quadratic extrapolation
                slope_last, slope_across = (f_last - f_x) / (last - x), (f_across - f_x) / (across - x)
                rise = -f_x * (f_across * slope_across - f_last * slope_last)
                run = slope_across * slope_last * (f_across - f_last)
            if run != 0 and 2 * abs(rise / run) < min(abs(step_before), 3 * abs(half) - smallest):
                step_before, step, short = step, rise / run, True
        if not short:
            step_before = step = half
        last, f_last = x, f_x
        # A step is never shorter than the tolerance, so that the bracket closes from both sides.
        x += step if abs(step) > smallest else (smallest if half > 0 else -smallest)
        f_x = function(x)
    raise ArithmeticError(f"no root found between {lower:g} and {upper:g}")
