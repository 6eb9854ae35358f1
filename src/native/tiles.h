/* tile[i][j]: the sum over `pairs` pairs of rows of left column i times right column j, of 16-bit whole numbers. PANEL
rows of norm LONGEST add up to less than 2^31. Three ways to the same numbers, one for each kind of processor. */

#if KIND == 4

/* Written out, since the compiler keeps accumulators of this instruction in memory otherwise. */
#define DOT(sum, these) __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(one), "v"(these));
#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define BEGIN(i) __m512i a##i = _mm512_setzero_si512(), b##i = a##i, c##i = a##i;
#define STEP(i) memcpy(&two, left + 2 * i, sizeof two); one = _mm512_set1_epi32(two); DOT(a##i, x) DOT(b##i, y) DOT(c##i, z)
#define END(i) _mm512_storeu_si512(tile[i], a##i); _mm512_storeu_si512(tile[i] + 16, b##i); _mm512_storeu_si512(tile[i] + 32, c##i);

static __attribute__((noinline)) void NAME(tile)(const int16_t *left, const int16_t *right, Py_ssize_t pairs,
                                                 int32_t tile[TALL][STRIP])
{
    EACH(BEGIN)
    for (Py_ssize_t p = 0; p < pairs; p++, left += 2 * STRIP, right += 2 * STRIP) {
        __m512i x = _mm512_loadu_si512(right), y = _mm512_loadu_si512(right + 32), z = _mm512_loadu_si512(right + 64), one;
        int32_t two;
        EACH(STEP)
    }
    EACH(END)
}

#undef DOT
#undef EACH
#undef BEGIN
#undef STEP
#undef END

#elif KIND == 3

static void NAME(tile)(const int16_t *left, const int16_t *right, Py_ssize_t pairs, int32_t tile[TALL][STRIP])
{
    for (int i = 0; i < TALL; i += 4)
        for (int j = 0; j < STRIP; j += 16) {
            __m256i sums[4][2];
            for (int k = 0; k < 4; k++)
                sums[k][0] = sums[k][1] = _mm256_setzero_si256();
            for (Py_ssize_t p = 0; p < pairs; p++) {
                const int16_t *at = right + 2 * (p * STRIP + j);
                __m256i x = _mm256_loadu_si256((const __m256i *)at), y = _mm256_loadu_si256((const __m256i *)(at + 16));
                for (int k = 0; k < 4; k++) {
                    int32_t two;
                    memcpy(&two, left + 2 * (p * STRIP + i + k), sizeof two);
                    __m256i one = _mm256_set1_epi32(two);
                    sums[k][0] = _mm256_add_epi32(sums[k][0], _mm256_madd_epi16(one, x));
                    sums[k][1] = _mm256_add_epi32(sums[k][1], _mm256_madd_epi16(one, y));
                }
            }
            for (int k = 0; k < 4; k++) {
                _mm256_storeu_si256((__m256i *)(tile[i + k] + j), sums[k][0]);
                _mm256_storeu_si256((__m256i *)(tile[i + k] + j + 8), sums[k][1]);
            }
        }
}

#else

static void NAME(tile)(const int16_t *left, const int16_t *right, Py_ssize_t pairs, int32_t tile[TALL][STRIP])
{
    memset(tile, 0, sizeof(int32_t) * TALL * STRIP);
    for (Py_ssize_t p = 0; p < pairs; p++, left += 2 * STRIP, right += 2 * STRIP)
        for (int i = 0; i < TALL; i++)
            for (int j = 0; j < STRIP; j++)
                tile[i][j] += left[2 * i] * right[2 * j] + left[2 * i + 1] * right[2 * j + 1];
}

#endif
