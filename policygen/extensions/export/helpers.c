static double pg_min(double a, double b)
{
    return isnan(a) || a < b ? a : b;
}

static double pg_max(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

static double pg_clip(double x, double low, double high)
{
    return pg_min(pg_max(x, low), high);
}

/* The remainder with the divisor's sign. */
static double pg_mod(double a, double b)
{
    double rest;
    if (!isfinite(a))
        return NAN;
    rest = fmod(a, b);
    return (rest < 0.0 && b >= 0.0) || (rest > 0.0 && b < 0.0) ? rest + b : rest;
}

static double pg_sign(double x)
{
    return isnan(x) ? x : (double)((x > 0.0) - (x < 0.0));
}

static int pg_same(double a, double b)
{
    return a <= b && a >= b;
}

/* The remembered value, or the start if there is none yet (NAN). */
static double pg_start(double before, double start)
{
    return isnan(before) ? start : before;
}

/* NaN counts as 0, infinity as a million. */
static double pg_finite(double x)
{
    if (isnan(x))
        return 0.0;
    if (isinf(x))
        return x > 0.0 ? 1000000.0 : -1000000.0;
    return x;
}

/* The number of edges at or below x; all of them if x is NaN. */
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
}

/* The nearest of the whole numbers 0 to last; last if x is NaN. */
static unsigned long pg_whole(double x, unsigned long last)
{
    if (x < 0.5)
        return 0;
    return x < (double)last - 0.5 ? (unsigned long)(x + 0.5) : last;
}

/* The index of the highest score; on a tie, the first. */
static unsigned long pg_highest(const double *scores, unsigned long count)
{
    unsigned long best = 0, i;
    for (i = 1; i < count; ++i) {
        if (scores[i] > scores[best])
            best = i;
    }
    return best;
}
