/* Single records: each row is a unit, placed about a centre, lifted, bounded and added up.

Included once for every kind of processor (module.c), with NAME(x) the function's own name there. What is computed for a
row depends on that row and on public values alone: loops run over one row, in an order that its length fixes. No product
is fused with a sum, so that every processor rounds as any other. */

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif

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

/* The fold of the squares of x, of which half the length is written down. */
static double NAME(square)(const double *restrict x, Py_ssize_t width, double *restrict work)
{
    Py_ssize_t half = width > 8 ? (width + 1) / 2 : width;
    for (Py_ssize_t i = 0; i < width - half; i++)
        work[i] = x[i] * x[i] + x[half + i] * x[half + i];
    for (Py_ssize_t i = width - half; i < half; i++)
        work[i] = x[i] * x[i];
    return NAME(fold)(work, half);
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

static void NAME(column)(const struct placing *at, const double *rows, Py_ssize_t count, double *restrict x,
                         double *restrict total)
{
    Py_ssize_t width = at->width;
    double *work = x + at->stride;
    for (Py_ssize_t r = 0; r < count; r++) {
        double norm, size = NAME(enter)(at, rows + r * at->columns, x, work, &norm);
        double share = NAME(weight)(at, norm, size) * x[width - 1];
        for (Py_ssize_t i = 0; i < width; i++)
            total[i] += x[i] * share;
    }
}

/* ---- sums of x x' in whole numbers -------------------------------------------------------------------------------- */

/* A row as whole numbers of norm LONGEST at most: up or down, as a hash of the row says (`rounded_scatter.round_rows`),
or towards zero if that is too long. */
static void NAME(whole)(double *restrict x, Py_ssize_t width, double factor, int32_t *restrict whole)
{
    uint64_t hash = 0;
    for (Py_ssize_t i = 0; i < width; i++) {
        double own = x[i] * factor + 0.0; /* a zero has no sign */
        uint64_t bits;
        x[i] = own;
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
        whole[i] = (int32_t)floor(x[i] + (share - 1.0));
    }
    int32_t size = 0; /* 2^24 entries that are rounded up make it less than 2^26 */
    for (Py_ssize_t i = 0; i < width; i++)
        size += whole[i] * whole[i];
    if (size > LONGEST * LONGEST)
        for (Py_ssize_t i = 0; i < width; i++)
            whole[i] = (int32_t)x[i];
}

/* A row, padded, as whole numbers; zeros where there is none. */
static void NAME(rounded)(const struct placing *at, const double *row, double *x, int32_t *whole)
{
    Py_ssize_t used = row ? at->width : 0;
    if (row) {
        double norm, size = NAME(enter)(at, row, x, x + at->stride, &norm);
        NAME(whole)(x, at->width, sqrt(NAME(weight)(at, norm, size)) * TARGET, whole);
    }
    memset(whole + used, 0, (size_t)(at->padded - used) * sizeof(int32_t));
}

/* Rows two by two into strips of STRIP columns, a column's two numbers in one word: pack[strip][pair of rows][column]. */
static void NAME(pack)(const struct placing *at, const double *rows, Py_ssize_t count, double *x, uint32_t *pack)
{
    Py_ssize_t pairs = (count + 1) / 2, strips = at->padded / STRIP;
    int32_t *two = (int32_t *)(x + 2 * at->stride);
    for (Py_ssize_t p = 0; p < pairs; p++) {
        const double *row = rows + 2 * p * at->columns;
        NAME(rounded)(at, row, x, two);
        NAME(rounded)(at, 2 * p + 1 < count ? row + at->columns : NULL, x, two + at->padded);
        for (Py_ssize_t s = 0; s < strips; s++) {
            uint32_t *to = pack + (s * pairs + p) * STRIP;
            const int32_t *a = two + s * STRIP, *b = a + at->padded;
            for (int i = 0; i < STRIP; i++)
                to[i] = ((uint32_t)a[i] & 0xFFFF) | (uint32_t)b[i] << 16;
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

#ifndef __clang__
#pragma GCC pop_options
#endif
