/* The same for rows of norm 127 at most, in bytes: twice as many products at a time. A product takes bytes with a sign on
its left and without one on its right, so numbers stand there with 128 added, and 128 times the sum of the left is taken
off again. */

/* Rows four by four into strips of STRIP columns, a column's four bytes in one word: signed, then with 128 added. `sums`
is what every column adds up to. */
static void NAME(pack_bytes)(const struct placing *at, const double *rows, Py_ssize_t count, double *x, uint32_t *pack,
                             int32_t *sums)
{
    Py_ssize_t padded = at->padded, fours = (count + 3) / 4;
    int32_t *four = (int32_t *)(x + 2 * at->stride);
    uint32_t *right = pack + ROWS / 4 * padded;
    memset(sums, 0, (size_t)padded * sizeof(int32_t));
    for (Py_ssize_t q = 0; q < fours; q++) {
        NAME(rounded)(at, rows, 4 * q, 4, count, x, four);
        for (Py_ssize_t s = 0; s < padded / STRIP; s++) {
            uint32_t *to = pack + (s * fours + q) * STRIP, *with = right + (s * fours + q) * STRIP;
            const int32_t *a = four + s * STRIP, *b = a + padded, *c = b + padded, *d = c + padded;
            int32_t *all = sums + s * STRIP;
            for (int i = 0; i < STRIP; i++) {
                all[i] += a[i] + b[i] + c[i] + d[i];
                uint32_t low = ((uint32_t)a[i] & 255) | ((uint32_t)b[i] & 255) << 8;
                uint32_t word = low | ((uint32_t)c[i] & 255) << 16 | (uint32_t)d[i] << 24;
                to[i] = word;
                with[i] = word ^ 0x80808080u;
            }
        }
    }
}

#define DOT(sum, these) __asm__("vpdpbusd %1, %2, %0" : "+v"(sum) : "v"(one), "v"(these));
#define STEP(i) one = _mm512_set1_epi32((int32_t)left[i]); DOT(a##i, x) DOT(b##i, y) DOT(c##i, z)

static __attribute__((noinline)) void NAME(tile_bytes)(const uint32_t *left, const uint32_t *right, Py_ssize_t fours,
                                                       int32_t tile[TALL][STRIP])
{
    EACH(BEGIN)
    for (Py_ssize_t q = 0; q < fours; q++, left += STRIP, right += STRIP) {
        __m512i x = _mm512_loadu_si512(right), y = _mm512_loadu_si512(right + 16), z = _mm512_loadu_si512(right + 32), one;
        EACH(STEP)
    }
    EACH(END)
}

#undef DOT
#undef STEP

/* As `gram`. ROWS products of 255 and 127 add up to less than 2^31. */
static void NAME(gram_bytes)(const struct placing *at, const uint32_t *pack, const int32_t *sums, Py_ssize_t count,
                             double *total)
{
    Py_ssize_t fours = (count + 3) / 4, strips = at->padded / STRIP, each = fours * STRIP;
    const uint32_t *right = pack + ROWS / 4 * at->padded;
    int32_t tile[TALL][STRIP];
    for (Py_ssize_t J = 0; J < strips; J++)
        for (Py_ssize_t I = 0; I <= J; I++)
            for (Py_ssize_t t = 0; t < STRIP; t += TALL) {
                NAME(tile_bytes)(pack + I * each + t, right + J * each, fours, tile);
                for (int i = 0; i < TALL; i++) {
                    Py_ssize_t row = I * STRIP + t + i;
                    int32_t more = 128 * sums[row];
                    double *to = total + row * at->padded + J * STRIP;
                    for (int j = 0; j < STRIP; j++)
                        to[j] += tile[i][j] - more;
                }
            }
}

static void NAME(add_bytes)(const struct placing *at, const double *rows, Py_ssize_t count, double *x, void *pack,
                            double *total)
{
    int32_t *sums = (int32_t *)(x + 2 * at->stride) + 4 * at->padded;
    NAME(pack_bytes)(at, rows, count, x, pack, sums);
    NAME(gram_bytes)(at, pack, sums, count, total);
}
