/* Single records: each row is a unit, placed about a centre, lifted, bounded and added up.

Included once for every kind of processor (module.c), with NAME(x) the function's own name there. What is computed for a
row depends on that row and on public values alone: loops run over one row, in an order that its length fixes. Nothing
here is a sum of products within one expression, so that a processor with fused multiplication rounds as any other. */

/* The sum of `count` numbers by adding the second half to the first until a few are left, as `units.fold` does. */
static double NAME(fold)(double *values, Py_ssize_t count)
{
    while (count > 8) {
        Py_ssize_t half = (count + 1) / 2;
        for (Py_ssize_t i = 0; i < count - half; i++)
            values[i] += values[half + i];
        count = half;
    }
    double total = values[0];
    for (Py_ssize_t i = 1; i < count; i++)
        total += values[i];
    return total;
}

static double NAME(square)(const double *x, Py_ssize_t width, double *work)
{
    for (Py_ssize_t i = 0; i < width; i++)
        work[i] = x[i] * x[i];
    return NAME(fold)(work, width);
}

/* x becomes the row as it enters, and *norm its norm; returned is what it was divided by, as `rows.sized` does it. */
static double NAME(enter)(const struct placing *at, const double *row, double *x, double *work, double *norm)
{
    Py_ssize_t columns = at->columns, width = at->width;
    if (at->center)
        for (Py_ssize_t i = 0; i < columns; i++)
            x[i] = row[i] - at->center[i];
    else
        memcpy(x, row, (size_t)columns * sizeof(double));
    if (at->scale)
        for (Py_ssize_t i = 0; i < columns; i++)
            x[i] /= at->scale[i];
    if (width > columns)
        x[columns] = at->lift;
    double size = NAME(square)(x, width, work);
    if (size > 1e-200 && size < 1e200) {
        *norm = sqrt(size);
        return 1.0;
    }
    double largest = 0.0;
    int sound = 1;
    for (Py_ssize_t i = 0; i < width; i++) {
        double here = fabs(x[i]);
        if (!(here <= DBL_MAX))
            sound = 0;
        if (here > largest)
            largest = here;
    }
    if (!sound || largest == 0.0) {
        memset(x, 0, (size_t)width * sizeof(double));
        *norm = 0.0;
        return 1.0;
    }
    for (Py_ssize_t i = 0; i < width; i++)
        x[i] /= largest;
    *norm = sqrt(NAME(square)(x, width, work));
    return largest;
}

/* By what the matrix of a row of this norm, divided by `size` before, is multiplied (`Scatter._weights`). */
static double NAME(weight)(const struct placing *at, double norm, double size)
{
    double matrix = norm * norm;
    if (!(matrix > 0))
        return 0.0;
    double weight = 1 / (matrix * INSIDE);
    if (at->clip > 0) {
        double back = size / sqrt(at->clip);
        back *= back;
        if (!(weight < back))
            weight = back;
    }
    return weight;
}

static void NAME(norms)(const struct placing *at, const double *rows, Py_ssize_t count, double *x, double *found)
{
    double *work = x + at->stride;
    for (Py_ssize_t r = 0; r < count; r++) {
        double norm, size = NAME(enter)(at, rows + r * at->columns, x, work, &norm);
        found[r] = norm * size;
    }
}

static void NAME(column)(const struct placing *at, const double *rows, Py_ssize_t count, double *x, double *total)
{
    Py_ssize_t width = at->width;
    double *work = x + at->stride;
    for (Py_ssize_t r = 0; r < count; r++) {
        double norm, size = NAME(enter)(at, rows + r * at->columns, x, work, &norm);
        double share = NAME(weight)(at, norm, size) * x[width - 1];
        for (Py_ssize_t i = 0; i < width; i++)
            work[i] = x[i] * share;
        for (Py_ssize_t i = 0; i < width; i++)
            total[i] += work[i];
    }
}

/* ---- sums of x x' in whole numbers -------------------------------------------------------------------------------- */

/* A row as whole numbers of norm `longest` at most: up or down, as a hash of the row says (`rounded_scatter.round_rows`), or
towards zero if that is too long. */
static void NAME(whole)(double *x, Py_ssize_t width, double factor, double longest, double *work)
{
    uint64_t hash = 0;
    for (Py_ssize_t i = 0; i < width; i++)
        x[i] *= factor;
    for (Py_ssize_t i = 0; i < width; i++) {
        double own = x[i] + 0.0; /* a zero has no sign; in the line above it would have one where products are fused */
        uint64_t bits;
        memcpy(&bits, &own, sizeof bits);
        bits += GOLDEN * ((uint64_t)i + 1);
        hash += (bits ^ bits >> 32) * MIXED;
    }
    hash = (hash ^ hash >> 32) * MIXED;
    hash ^= hash >> 29;
    for (Py_ssize_t i = 0; i < width; i++) {
        uint64_t drawn = hash + GOLDEN * ((uint64_t)i + 1);
        double share;
        drawn = (drawn ^ drawn >> 32) * MIXED;
        drawn = drawn >> 12 | 0x3FF0000000000000u; /* a double from 1 to 2 */
        memcpy(&share, &drawn, sizeof share);
        work[i] = floor(x[i] + (share - 1.0));
    }
    double lanes[8] = {0}, size = 0.0; /* whole numbers: exact in any order */
    Py_ssize_t i = 0;
    for (; i + 8 <= width; i += 8)
        for (int lane = 0; lane < 8; lane++)
            lanes[lane] += work[i + lane] * work[i + lane];
    for (; i < width; i++)
        size += work[i] * work[i];
    for (int lane = 0; lane < 8; lane++)
        size += lanes[lane];
    if (size > longest * longest)
        for (Py_ssize_t j = 0; j < width; j++)
            work[j] = trunc(x[j]);
}

/* `work` becomes the row as whole numbers. */
static void NAME(rounded)(const struct placing *at, const double *row, double *x, double *work)
{
    double norm, size = NAME(enter)(at, row, x, work, &norm);
    NAME(whole)(x, at->width, sqrt(NAME(weight)(at, norm, size)) * at->target, at->longest, work);
}

/* Rows two by two into strips of STRIP columns: pack[strip][pair of rows][column][which of the two]. */
static void NAME(pack)(const struct placing *at, const double *rows, Py_ssize_t count, double *x, int16_t *pack)
{
    Py_ssize_t width = at->width, pairs = (count + 1) / 2, strips = at->padded / STRIP;
    double *work = x + at->stride;
    int16_t *two = (int16_t *)(work + at->stride);
    for (Py_ssize_t p = 0; p < pairs; p++) {
        for (int which = 0; which < 2; which++) {
            int16_t *one = two + which * at->padded;
            Py_ssize_t r = 2 * p + which;
            memset(one, 0, (size_t)at->padded * sizeof(int16_t));
            if (r >= count)
                continue;
            NAME(rounded)(at, rows + r * at->columns, x, work);
            for (Py_ssize_t i = 0; i < width; i++)
                one[i] = (int16_t)work[i];
        }
        for (Py_ssize_t s = 0; s < strips; s++) {
            int16_t *to = pack + (s * pairs + p) * 2 * STRIP;
            const int16_t *first = two + s * STRIP, *second = first + at->padded;
            for (int i = 0; i < STRIP; i++) {
                to[2 * i] = first[i];
                to[2 * i + 1] = second[i];
            }
        }
    }
}

#include "tiles.h"

/* The upper triangle of the sum of x x', added to `total`, padded x padded numbers: all whole, all exact. */
static void NAME(gram)(const struct placing *at, const int16_t *pack, Py_ssize_t count, double *total)
{
    Py_ssize_t pairs = (count + 1) / 2, strips = at->padded / STRIP;
    static const Py_ssize_t few = PANEL / 2;
    int32_t tile[TALL][STRIP];
    double sums[STRIP][STRIP];
    for (Py_ssize_t J = 0; J < strips; J++)
        for (Py_ssize_t I = 0; I <= J; I++) {
            const int16_t *left = pack + I * pairs * 2 * STRIP, *right = pack + J * pairs * 2 * STRIP;
            memset(sums, 0, sizeof sums);
            for (Py_ssize_t p = 0; p < pairs; p += few) {
                Py_ssize_t some = pairs - p < few ? pairs - p : few;
                for (int t = 0; t < STRIP; t += TALL) {
                    NAME(tile)(left + p * 2 * STRIP + 2 * t, right + p * 2 * STRIP, some, tile);
                    for (int i = 0; i < TALL; i++)
                        for (int j = 0; j < STRIP; j++)
                            sums[t + i][j] += tile[i][j];
                }
            }
            for (int i = 0; i < STRIP; i++) {
                double *to = total + (I * STRIP + i) * at->padded + J * STRIP;
                for (int j = 0; j < STRIP; j++)
                    to[j] += sums[i][j];
            }
        }
}

static void NAME(add)(const struct placing *at, const double *rows, Py_ssize_t count, double *x, void *pack, double *total)
{
    NAME(pack)(at, rows, count, x, pack);
    NAME(gram)(at, pack, count, total);
}

#if KIND == 4
#include "bytes.h"
#else
#define add_bytes_3 add_3
#define add_bytes_0 add_0
#endif
