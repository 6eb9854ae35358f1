/* One person's rows to what it says of its sources: `statistics.unmixing.UnmixingScore` in one go.

Included once for every kind of processor, after records.h. Numbers lie as rows x sources, eight sources side by side, so
that a sum over rows never crosses from one lane to another. Single precision is added up over CHUNK rows, these in
double: the order depends on the person's own number of rows alone. */

typedef float NAME(singles) __attribute__((vector_size(32), aligned(4), may_alias));
typedef double NAME(doubles) __attribute__((vector_size(64), aligned(8), may_alias));
typedef int32_t NAME(mask) __attribute__((vector_size(32), aligned(4), may_alias));
#define SINGLES NAME(singles)
#define DOUBLES NAME(doubles)
#define MASK NAME(mask)
#define LANES 8

static inline SINGLES NAME(pick)(MASK which, SINGLES one, SINGLES other)
{
    return (SINGLES)(((MASK)one & which) | ((MASK)other & ~which));
}

static inline SINGLES NAME(within)(SINGLES x, SINGLES most)
{
#if KIND
    return (SINGLES)_mm256_max_ps(_mm256_min_ps((__m256)x, (__m256)most), (__m256)-most);
#else
    x = NAME(pick)(x > most, most, x);
    return NAME(pick)(x < -most, -most, x);
#endif
}

/* ---- sources ------------------------------------------------------------------------------------------------------ */

/* What scales a person to whole numbers of norm 2^26, or 0; a person of extreme size is first copied to `copy`. */
static double NAME(factor)(const double **given, Py_ssize_t count, double *copy)
{
    for (int again = 0; again < 2; again++) {
        const double *x = *given;
        double lanes[LANES] = {0}, size = 0.0, largest = 0.0;
        Py_ssize_t i = 0;
        for (; i + LANES <= count; i += LANES)
            for (int lane = 0; lane < LANES; lane++)
                lanes[lane] += x[i + lane] * x[i + lane];
        for (; i < count; i++)
            size += x[i] * x[i];
        for (int lane = 0; lane < LANES; lane++)
            size += lanes[lane];
        if (size > 1e-200 && size < 1e200)
            return 0x1p26 / (sqrt(size) * INSIDE);
        for (i = 0; i < count; i++) {
            double here = fabs(x[i]);
            if (!(here <= DBL_MAX))
                return 0.0;
            if (here > largest)
                largest = here;
        }
        if (largest == 0.0)
            return 0.0;
        for (i = 0; i < count; i++)
            copy[i] = x[i] / largest;
        *given = copy;
    }
    return 0.0;
}

/* Some rows times `groups` x 8 columns of the whole numbers of W: exact, and then single. */
static inline __attribute__((always_inline)) void NAME(seen)(const struct unmixing *u, const double *rows, int count,
                                                             int groups, const double *numbers, float *y)
{
    DOUBLES sums[4][3];
    for (int r = 0; r < count; r++)
        for (int g = 0; g < groups; g++)
            sums[r][g] = (DOUBLES){0};
    for (Py_ssize_t d = 0; d < u->columns; d++, numbers += u->padded) {
        for (int r = 0; r < count; r++) {
            double one = rows[r * u->columns + d];
            for (int g = 0; g < groups; g++)
                sums[r][g] += one * *(const DOUBLES *)(numbers + LANES * g);
        }
    }
    for (int r = 0; r < count; r++)
        for (int g = 0; g < groups; g++)
            *(SINGLES *)(y + r * u->padded + LANES * g) = __builtin_convertvector(sums[r][g], SINGLES);
}

static void NAME(sources)(const struct unmixing *u, const double *given, double factor, double *some, float *y)
{
    enum { FEW = KIND == 4 ? 4 : 2 };
    for (Py_ssize_t t = 0; t < u->rows; t += FEW) {
        Py_ssize_t here = u->rows - t < FEW ? u->rows - t : FEW;
        for (Py_ssize_t i = 0; i < here * u->columns; i++)
            some[i] = rint(given[t * u->columns + i] * factor);
        for (Py_ssize_t i = here * u->columns; i < FEW * u->columns; i++)
            some[i] = 0.0; /* y has room for FEW rows more */
        for (Py_ssize_t at = 0; at < u->padded; at += 3 * LANES) {
            float *to = y + t * u->padded + at;
            switch ((u->padded - at) / LANES) {
            case 1: NAME(seen)(u, some, FEW, 1, u->numbers + at, to); break;
            case 2: NAME(seen)(u, some, FEW, 2, u->numbers + at, to); break;
            default: NAME(seen)(u, some, FEW, 3, u->numbers + at, to);
            }
        }
    }
}

/* y to mean square 1 for every source; whether the person is heard at all. `squares` becomes those of y. */
static int NAME(scaled)(const struct unmixing *u, float *y, float *squares)
{
    Py_ssize_t padded = u->padded;
    double heard = 0.0;
    for (Py_ssize_t at = 0; at < padded; at += LANES) {
        double power[LANES] = {0};
        for (Py_ssize_t first = 0; first < u->rows; first += CHUNK) {
            Py_ssize_t last = first + CHUNK < u->rows ? first + CHUNK : u->rows;
            SINGLES sum = {0};
            for (Py_ssize_t t = first; t < last; t++) {
                SINGLES own = *(SINGLES *)(y + t * padded + at);
                sum += own * own;
            }
            for (int lane = 0; lane < LANES; lane++)
                power[lane] += sum[lane];
        }
        SINGLES scale;
        for (int lane = 0; lane < LANES; lane++) {
            if (at + lane < u->sources)
                heard = fmax(heard, sqrt(power[lane] / (double)u->rows) * u->worth[at + lane]);
            scale[lane] = power[lane] > 0 ? (float)sqrt((double)u->rows / fmax(power[lane], 1.0)) : 0.0f;
        }
        for (Py_ssize_t t = 0; t < u->rows; t++) {
            SINGLES own = *(SINGLES *)(y + t * padded + at) * scale;
            *(SINGLES *)(y + t * padded + at) = own;
            *(SINGLES *)(squares + t * padded + at) = own * own;
        }
    }
    return heard > u->rounding;
}

/* The mean over `window` rows around each row of its recording (`sources.moving_average`); overwrites what it is of. */
static void NAME(average)(const struct unmixing *u, float *values, float *around)
{
    Py_ssize_t padded = u->padded;
    for (Py_ssize_t run = 0; run < u->recordings; run++) {
        Py_ssize_t rows = u->runs[run + 1] - u->runs[run], window = u->window < rows ? u->window : rows;
        Py_ssize_t whole = rows - window + 1, before = window / 2, start = 0;
        float *sums = values + u->runs[run] * padded, *found = around + u->runs[run] * padded;
        float *middle = found + before * padded, share = 1.0f / (float)window;
        for (Py_ssize_t length = 1;; length *= 2) { /* sums over 1, 2, 4, ... rows, as the window's digits ask for them */
            if (window & length) {
                const float *part = sums + start * padded;
                if (start)
                    for (Py_ssize_t i = 0; i < whole * padded; i++)
                        middle[i] += part[i];
                else
                    memcpy(middle, part, (size_t)(whole * padded) * sizeof(float));
                start += length;
            }
            if (2 * length > window)
                break;
            const float *next = sums + length * padded;
            for (Py_ssize_t i = 0; i < (rows - 2 * length + 1) * padded; i++)
                sums[i] += next[i];
        }
        for (Py_ssize_t i = 0; i < whole * padded; i++)
            middle[i] *= share;
        for (Py_ssize_t t = 0; t < before; t++)
            memcpy(found + t * padded, middle, (size_t)padded * sizeof(float));
        for (Py_ssize_t t = before + whole; t < rows; t++)
            memcpy(found + t * padded, middle + (whole - 1) * padded, (size_t)padded * sizeof(float));
    }
}

/* ---- scores ------------------------------------------------------------------------------------------------------- */

/* tanh as a quotient of polynomials, to 4e-7. */
static inline SINGLES NAME(tanh)(SINGLES x)
{
    x = NAME(within)(x, (SINGLES){0} + 8.5f);
    SINGLES z = x * x;
    SINGLES above = (((1.42694283e-8f * z + 2.12512259e-5f) * z + 0.00353403948f) * z + 0.134132579f) * z + 1.0f;
    SINGLES below = (((8.14521627e-7f * z + 0.000334888435f) * z + 0.0260228012f) * z + 0.467465818f) * z + 1.0f;
    return x * above / below;
}

/* For each score (volatility, tanh, cube, both) and each source the sums over rows of what slopes are made of, psi^2 and
psi y; and psi itself of each source's own score. */
static void NAME(score)(const struct unmixing *u, const float *y, const float *around, float *psi, double *sums)
{
    Py_ssize_t padded = u->padded;
    SINGLES least = (SINGLES){0} + LEAST, far = (SINGLES){0} + FAR, nothing = {0};
    SINGLES slow = (SINGLES){0} + (1 - LEAST), other = (SINGLES){0} + (1 - LEAST) * (1 - OWN);
    SINGLES own_part = (SINGLES){0} + (1 - LEAST) * OWN;
    for (Py_ssize_t at = 0; at < padded; at += LANES) {
        MASK is[SCORES];
        for (int score = 0; score < SCORES; score++)
            for (int lane = 0; lane < LANES; lane++)
                is[score][lane] = at + lane < u->sources && u->chosen[at + lane] == score ? -1 : 0;
        for (Py_ssize_t first = 0; first < u->rows; first += CHUNK) {
            Py_ssize_t last = first + CHUNK < u->rows ? first + CHUNK : u->rows;
            SINGLES slope0 = nothing, slope2 = nothing, slope3 = nothing;
            SINGLES power0 = nothing, power1 = nothing, power2 = nothing, power3 = nothing;
            SINGLES along0 = nothing, along1 = nothing, along2 = nothing, along3 = nothing;
            for (Py_ssize_t t = first; t < last; t++) {
                SINGLES own = *(const SINGLES *)(y + t * padded + at), mean = *(const SINGLES *)(around + t * padded + at);
                SINGLES square = own * own;
                SINGLES size0 = slow * mean + least, size3 = other * mean + own_part * square + least;
                SINGLES both = 1.0f / (size0 * size3), inverse0 = both * size3, inverse3 = both * size0;
                SINGLES psi0 = own * inverse0, psi1 = NAME(tanh)(STEEP * own), psi3 = own * inverse3;
                SINGLES near = NAME(within)(own, far), psi2 = -(near * near * near);
                slope0 += inverse0;
                slope3 += inverse3;
                slope2 += NAME(pick)(square >= far * far, square, nothing);
                power0 += psi0 * psi0;
                power1 += psi1 * psi1;
                power2 += psi2 * psi2;
                power3 += psi3 * psi3;
                along0 += psi0 * own;
                along1 += psi1 * own;
                along2 += psi2 * own;
                along3 += psi3 * own;
                *(MASK *)(psi + t * padded + at) = ((MASK)psi0 & is[0]) | ((MASK)psi1 & is[1]) | ((MASK)psi2 & is[2]) | ((MASK)psi3 & is[3]);
            }
            SINGLES found[SCORES][3] = {{slope0, power0, along0}, {nothing, power1, along1}, {slope2, power2, along2}, {slope3, power3, along3}};
            for (int score = 0; score < SCORES; score++)
                for (int what = 0; what < 3; what++)
                    for (int lane = 0; lane < LANES; lane++)
                        sums[(score * 3 + what) * padded + at + lane] += found[score][what][lane];
        }
    }
}

/* products[i][j] += the sum over some rows of left_i right_j, for FOUR i and `groups` x 8 of j. */
#define FOUR 4
static inline __attribute__((always_inline)) void NAME(multiply)(const float *left, const float *right, Py_ssize_t rows,
                                                                 Py_ssize_t padded, int groups, double *products)
{
    SINGLES sums[FOUR][3];
    for (int i = 0; i < FOUR; i++)
        for (int g = 0; g < groups; g++)
            sums[i][g] = (SINGLES){0};
    for (Py_ssize_t t = 0; t < rows; t++, left += padded, right += padded)
        for (int i = 0; i < FOUR; i++)
            for (int g = 0; g < groups; g++)
                sums[i][g] += left[i] * *(const SINGLES *)(right + LANES * g);
    for (int i = 0; i < FOUR; i++)
        for (int g = 0; g < groups; g++)
            for (int lane = 0; lane < LANES; lane++)
                products[i * padded + LANES * g + lane] += sums[i][g][lane];
}

/* left' right, columns x columns as padded. */
static void NAME(products)(const struct unmixing *u, const float *left, const float *right, double *products)
{
    Py_ssize_t padded = u->padded;
    memset(products, 0, (size_t)(padded * padded) * sizeof(double));
    for (Py_ssize_t first = 0; first < u->rows; first += CHUNK) {
        Py_ssize_t some = u->rows - first < CHUNK ? u->rows - first : CHUNK;
        const float *from = left + first * padded, *to = right + first * padded;
        for (Py_ssize_t i = 0; i < u->sources; i += FOUR)
            for (Py_ssize_t at = 0; at < padded; at += 3 * LANES) {
                double *here = products + i * padded + at;
                switch ((padded - at) / LANES) {
                case 1: NAME(multiply)(from + i, to + at, some, padded, 1, here); break;
                case 2: NAME(multiply)(from + i, to + at, some, padded, 2, here); break;
                default: NAME(multiply)(from + i, to + at, some, padded, 3, here);
                }
            }
    }
}

/* ---- what a person says ------------------------------------------------------------------------------------------- */

static void NAME(say)(const struct unmixing *u, const double *sums, double *F, const double *C, double *told)
{
    Py_ssize_t R = u->sources, padded = u->padded, pairs = R * (R - 1) / 2;
    double rows = (double)u->rows, window = (double)(u->window < u->rows ? u->window : u->rows);
    double *turns = told, *correlations = told + pairs, *slopes = told + 2 * pairs;
    for (Py_ssize_t i = 0; i < R; i++)
        for (int score = 0; score < SCORES; score++) {
            const double *its = sums + score * 3 * padded + i;
            double steep = its[0] / rows, power = its[padded] / rows, along = its[2 * padded] / rows, part = 0.0;
            if (score == 1)
                steep = part = STEEP;
            else if (score == 2)
                steep = 3 * (steep - 1);
            else {
                double own = score == 3 ? (double)OWN : 0.0;
                part = 2 * (1 - (double)LEAST) * ((1 - own) / window + own);
            }
            double left = power - along * along, size = left > QUIET ? sqrt(left) : INFINITY;
            if (score < 3)
                slopes[score * R + i] = C[i * padded + i] > 0 ? (steep - part * power - along) / size * u->slope_weight : 0.0;
            if (u->chosen[i] == score)
                for (Py_ssize_t j = 0; j < R; j++)
                    F[i * padded + j] = (F[i * padded + j] - along * C[i * padded + j]) / rows * (u->signs[i] / size);
        }
    for (Py_ssize_t i = 0; i < R; i++)
        for (Py_ssize_t j = i + 1; j < R; j++) {
            *turns++ = (F[i * padded + j] - F[j * padded + i]) * 0.70710678118654752;
            *correlations++ = C[i * padded + j] / rows * u->correlation_weight;
        }
    told[2 * pairs + 3 * R] = u->constant;
}

/* Adds what every person says, divided by its norm, to `total`. */
static void NAME(unmix)(const struct unmixing *u, const double *people, Py_ssize_t count, void *space, double *total)
{
    Py_ssize_t padded = u->padded, size = u->size, numbers = u->rows * u->columns;
    float *y = space, *squares = y + (u->rows + 4) * padded, *around = squares + u->rows * padded;
    float *psi = around + u->rows * padded;
    double *copy = (double *)(psi + u->rows * padded), *some = copy + numbers, *sums = some + 4 * u->columns;
    double *F = sums + 3 * SCORES * padded, *C = F + padded * padded, *told = C + padded * padded;
    double *x = told + size, *work = x + size;
    struct placing at = {.columns = size, .width = size};
    for (Py_ssize_t p = 0; p < count; p++) {
        const double *given = people + p * numbers;
        double factor = NAME(factor)(&given, numbers, copy), norm;
        if (factor == 0.0)
            continue;
        NAME(sources)(u, given, factor, some, y);
        if (!NAME(scaled)(u, y, squares))
            continue;
        NAME(average)(u, squares, around);
        memset(sums, 0, (size_t)(3 * SCORES * padded) * sizeof(double));
        NAME(score)(u, y, around, psi, sums);
        NAME(products)(u, psi, y, F);
        NAME(products)(u, y, y, C);
        NAME(say)(u, sums, F, C, told);
        NAME(enter)(&at, told, x, work, &norm);
        norm *= INSIDE;
        if (norm > 0)
            for (Py_ssize_t i = 0; i < size; i++)
                total[i] += x[i] / norm;
    }
}

#undef SINGLES
#undef DOUBLES
#undef MASK
#undef LANES
#undef FOUR
