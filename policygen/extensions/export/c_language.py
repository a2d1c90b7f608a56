"""C99 equivalents of the policy language, and small functions for missing operations."""

from __future__ import annotations

from policygen.extensions.export.expressions import Language
from policygen.quantities.compiled import INFINITE

_HELPERS = {
    "pg_least": """static double pg_least(double a, double b)
{
    return a != a || a < b ? a : b;
}""",
    "pg_most": """static double pg_most(double a, double b)
{
    return a != a || a > b ? a : b;
}""",
    "pg_clip": """static double pg_clip(double x, double low, double high)
{
    return pg_least(pg_most(x, low), high);
}""",
    "pg_mod": """/* The remainder with the divisor's sign. */
static double pg_mod(double a, double b)
{
    double rest;
    if (!isfinite(a))
        return NAN;
    rest = fmod(a, b);
    return rest != 0.0 && (b < 0.0) != (rest < 0.0) ? rest + b : rest;
}""",
    "pg_sign": """static double pg_sign(double x)
{
    return x != x ? x : (double)((x > 0.0) - (x < 0.0));
}""",
    "pg_square": """static double pg_square(double x)
{
    return x * x;
}""",
    "pg_prev": """/* The remembered value, or the start if there is none yet (NAN). */
static double pg_prev(double before, double start)
{
    return before != before ? start : before;
}""",
    "pg_finite": f"""/* NaN counts as 0, infinity as a million. */
static double pg_finite(double x)
{{
    return x != x ? 0.0 : isfinite(x) ? x : x > 0.0 ? {INFINITE!r} : {-INFINITE!r};
}}""",
    "pg_bin": """/* The number of edges at or below x; all of them if x is NaN. */
static unsigned long pg_bin(double x, const float *edges, unsigned long count)
{
    unsigned long first = 0, last = count;
    while (first < last) {
        const unsigned long middle = (first + last) / 2;
        if (x < (double)edges[middle])
            last = middle;
        else
            first = middle + 1;
    }
    return first;
}""",
    "pg_whole": """/* The nearest of the whole numbers 0 to last; last if x is NaN. */
static unsigned long pg_whole(double x, unsigned long last)
{
    if (x < 0.5)
        return 0;
    return x < (double)last - 0.5 ? (unsigned long)(x + 0.5) : last;
}""",
}

C = Language(
    both="{0} && {1}",
    either="{0} || {1}",
    no="!({0})",
    number_of_test="(double)({0})",
    choice="({0} ? {1} : {2})",
    functions={
        "/": "{0} / ({1} + 0.0)",  # there is no negative zero
        "^": "pow({0} + 0.0, {1})",
        "atan2": "atan2({0} + 0.0, {1} + 0.0)",
        "mod": "pg_mod({0}, {1})",
        "sign": "pg_sign({0})",
        "min": "pg_least({0}, {1})",
        "max": "pg_most({0}, {1})",
        "clip": "pg_clip({0}, {1}, {2})",
        "abs": "fabs({0})",
        "prev": "pg_prev({0}, {1})",
        "square": "pg_square({0})",
        "finite": "pg_finite({0})",
        "rint": "(rint({0}) + 0.0)",  # there is no negative zero
        **{name: f"{name}({{0}})" for name in ("sin", "cos", "tan", "tanh", "exp", "log", "sqrt", "floor", "atan")},
    },
    folded=("min", "max"),
    helpers=_HELPERS,
)
