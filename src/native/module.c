/* zerosum.compute.backends._native: what a site does with every record or person, in one pass over memory.

Compiled where there is a compiler; without it NumPy does the same (compute/backends/native.py). The functions take contiguous
arrays through the buffer protocol, check their lengths, and run without the interpreter's lock. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD < 0 || FLT_EVAL_METHOD == 2
#error "sums must be taken in the order that is written, and in doubles: NumPy computes instead"
#endif

#define INSIDE (1 + 0x1p-46)
#define LONGEST 2048.0 /* the norm that rows have at most as whole numbers */
#define TARGET 2046.0  /* the norm that they are brought to, so that few are too long when they are rounded */
#define GOLDEN 0x9E3779B97F4A7C15u
#define MIXED 0xBF58476D1CE4E5B9u
#define STRIP 48      /* columns that a tile is wide */
#define TALL 8        /* and tall */
#define PANEL 256     /* rows whose products are added up in 32 bits */
#define ROWS 1024     /* rows that are held as whole numbers */
#define CHUNK 128     /* rows whose sums are kept in single precision */
#define LINE 64       /* bytes of a processor's cache that belong together */

struct placing {
    const double *center, *scale; /* or NULL */
    double lift, clip;            /* clip 0: every matrix is divided by its own norm */
    Py_ssize_t columns, width;    /* of a row, and with its lift */
    Py_ssize_t padded, stride;    /* width in whole strips, and in a scratch of doubles */
};

/* Of scores (statistics/unmixing.py has the same). */
#define SCORES 4
#define LEAST 0.2f
#define OWN 0.2f
#define STEEP 1.5f
#define FAR 2.0f
#define QUIET 1e-6

struct unmixing {
    const double *numbers, *worth, *signs; /* of W: whole numbers, padded; what they are worth; signs of scores */
    const int64_t *runs;                   /* where recordings begin, and the last ends */
    const int32_t *chosen;                 /* the score of each source */
    double rounding, correlation_weight, slope_weight, constant;
    Py_ssize_t rows, columns, sources, padded, recordings, window, size;
};

struct kernels {
    const char *kind;
    void (*norms)(const struct placing *, const double *, Py_ssize_t, double *, double *);
    void (*column)(const struct placing *, const double *, Py_ssize_t, double *, double *);
    void (*pack)(const struct placing *, const double *, Py_ssize_t, double *, uint32_t *);
    void (*gram)(const struct placing *, const int16_t *, Py_ssize_t, double *);
    void (*unmix)(const struct unmixing *, const double *, Py_ssize_t, void *, double *);
};

#define TABLE(kind) {kind, NAME(norms), NAME(column), NAME(pack), NAME(gram), NAME(unmix)}

/* The same source for every kind of processor: 64-bit x86 with AVX-512 and VNNI, with AVX2, and any. */

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define X86 1
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,bmi,bmi2,prefer-vector-width=512")
#define KIND 4
#define NAME(x) x##_4
#include "records.h"
#include "unmixing.h"
static const struct kernels kernels_4 = TABLE("avx512-vnni");
#undef NAME
#undef KIND
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2")
#define KIND 3
#define NAME(x) x##_3
#include "records.h"
#include "unmixing.h"
static const struct kernels kernels_3 = TABLE("avx2");
#undef NAME
#undef KIND
#pragma GCC pop_options
#endif

#define KIND 0
#define NAME(x) x##_0
#include "records.h"
#include "unmixing.h"
static const struct kernels kernels_0 = TABLE("any");

static const struct kernels *kernels = &kernels_0;

static int choose(const char *kind)
{
#ifdef X86
    __builtin_cpu_init();
    int three = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    int four = three && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512vnni");
    if (four && (!kind || strcmp(kind, kernels_4.kind) == 0)) {
        kernels = &kernels_4;
        return 1;
    }
    if (three && (!kind || strcmp(kind, kernels_3.kind) == 0)) {
        kernels = &kernels_3;
        return 1;
    }
#endif
    if (!kind || strcmp(kind, kernels_0.kind) == 0) {
        kernels = &kernels_0;
        return 1;
    }
    return 0;
}

/* ---- what Python sees --------------------------------------------------------------------------------------------- */

struct given {
    Py_buffer rows, center, scale, out;
    struct placing at;
    Py_ssize_t count;
};

static void give_back(struct given *given)
{
    PyBuffer_Release(&given->rows);
    if (given->center.obj)
        PyBuffer_Release(&given->center);
    if (given->scale.obj)
        PyBuffer_Release(&given->scale);
    PyBuffer_Release(&given->out);
}

static int refuse(struct given *given, const char *why)
{
    give_back(given);
    PyErr_SetString(PyExc_ValueError, why);
    return 0;
}

/* rows, center or None, scale or None, lift (0: none), clip (0: none), columns, out */
static int take(PyObject *args, struct given *given)
{
    struct placing *at = &given->at;
    memset(given, 0, sizeof *given);
    if (!PyArg_ParseTuple(args, "y*z*z*ddnw*", &given->rows, &given->center, &given->scale, &at->lift, &at->clip,
                          &at->columns, &given->out))
        return 0;
    if (at->columns < 1 || at->columns > 1 << 24)
        return refuse(given, "rows must have between 1 and 2^24 columns");
    Py_ssize_t each = at->columns * (Py_ssize_t)sizeof(double);
    if (given->rows.len % each || (given->center.obj && given->center.len != each) ||
        (given->scale.obj && given->scale.len != each))
        return refuse(given, "rows, center and scale must have the same columns of doubles");
    at->width = at->columns + (at->lift != 0);
    at->padded = (at->width + STRIP - 1) / STRIP * STRIP;
    at->stride = at->padded;
    at->center = given->center.buf;
    at->scale = given->scale.buf;
    given->count = given->rows.len / each;
    return 1;
}

static PyObject *wrong_size(struct given *given)
{
    refuse(given, "the result must have as many doubles as are found");
    return NULL;
}

static PyObject *done(struct given *given, int had_memory)
{
    give_back(given);
    if (!had_memory)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static void *scratch(size_t bytes)
{
    return aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
}

typedef void over_rows(const struct placing *, const double *, Py_ssize_t, double *, double *);

static PyObject *run_over_rows(struct given *given, over_rows *work)
{
    double *x = scratch(2 * (size_t)given->at.stride * sizeof(double));
    if (x) {
        Py_BEGIN_ALLOW_THREADS
        work(&given->at, given->rows.buf, given->count, x, given->out.buf);
        Py_END_ALLOW_THREADS
        free(x);
    }
    return done(given, x != NULL);
}

static PyObject *norms(PyObject *self, PyObject *args)
{
    struct given given;
    if (!take(args, &given))
        return NULL;
    if (given.out.len != given.count * (Py_ssize_t)sizeof(double))
        return wrong_size(&given);
    return run_over_rows(&given, kernels->norms);
}

static PyObject *column(PyObject *self, PyObject *args)
{
    struct given given;
    if (!take(args, &given))
        return NULL;
    if (given.out.len != given.at.width * (Py_ssize_t)sizeof(double))
        return wrong_size(&given);
    memset(given.out.buf, 0, (size_t)given.out.len);
    return run_over_rows(&given, kernels->column);
}

/* The sum of x x' of all rows, added to `total`, and its upper triangle, row by row, to what is found: whole numbers. */
static void add_up(const struct given *given, double *x, uint32_t *pack, double *total)
{
    const struct placing *at = &given->at;
    const double *rows = given->rows.buf;
    for (Py_ssize_t r = 0; r < given->count; r += ROWS) {
        Py_ssize_t some = given->count - r < ROWS ? given->count - r : ROWS;
        kernels->pack(at, rows + r * at->columns, some, x, pack);
        kernels->gram(at, (const int16_t *)pack, some, total);
    }
    double *out = given->out.buf;
    for (Py_ssize_t i = 0; i < at->width; i++) {
        Py_ssize_t rest = at->width - i;
        memcpy(out, total + i * at->padded + i, (size_t)rest * sizeof(double));
        out += rest;
    }
}

static PyObject *scatter(PyObject *self, PyObject *args)
{
    struct given given;
    if (!take(args, &given))
        return NULL;
    size_t padded = (size_t)given.at.padded, width = (size_t)given.at.width;
    if ((size_t)given.out.len != width * (width + 1) / 2 * sizeof(double))
        return wrong_size(&given);
    double *x = scratch(2 * padded * sizeof(double) + 2 * padded * sizeof(int32_t));
    uint32_t *pack = scratch(ROWS / 2 * padded * sizeof(uint32_t));
    double *total = scratch(padded * padded * sizeof(double));
    int had_memory = x && pack && total;
    if (had_memory) {
        Py_BEGIN_ALLOW_THREADS
        memset(total, 0, padded * padded * sizeof(double));
        add_up(&given, x, pack, total);
        Py_END_ALLOW_THREADS
    }
    free(x);
    free(pack);
    free(total);
    return done(&given, had_memory);
}

/* people, numbers of W, worth, signs, runs, chosen, (rows, columns, sources, window), (rounding, weights), total */
static PyObject *unmixing(PyObject *self, PyObject *args)
{
    Py_buffer given[7] = {0};
    struct unmixing u = {0};
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*(nnnn)(dddd)w*", &given[0], &given[1], &given[2], &given[3], &given[4],
                          &given[5], &u.rows, &u.columns, &u.sources, &u.window, &u.rounding, &u.correlation_weight,
                          &u.slope_weight, &u.constant, &given[6]))
        return NULL;
    const Py_ssize_t most = (Py_ssize_t)1 << 24, each = sizeof(double);
    int fits = u.rows > 0 && u.columns > 0 && u.sources > 1 && u.window > 0 && u.rows < 64 * most && u.columns < most &&
               u.sources < most / 256;
    Py_ssize_t count = 0;
    u.padded = (u.sources + 7) / 8 * 8;
    u.size = u.sources * (u.sources - 1) + 3 * u.sources + 1;
    u.numbers = given[1].buf;
    u.worth = given[2].buf;
    u.signs = given[3].buf;
    u.runs = given[4].buf;
    u.chosen = given[5].buf;
    u.recordings = given[4].len / (Py_ssize_t)sizeof(int64_t) - 1;
    if (fits) {
        Py_ssize_t person = u.rows * u.columns * each;
        count = given[0].len / person;
        fits = given[0].len == count * person && given[1].len == u.columns * u.padded * each &&
               given[2].len == u.sources * each && given[3].len == u.sources * each && u.recordings > 0 &&
               given[5].len == u.sources * (Py_ssize_t)sizeof(int32_t) && given[6].len == u.size * each &&
               u.runs[0] == 0 && u.runs[u.recordings] == u.rows;
        for (Py_ssize_t run = 0; fits && run < u.recordings; run++)
            fits = u.runs[run] < u.runs[run + 1];
        for (Py_ssize_t i = 0; fits && i < u.sources; i++)
            fits = u.chosen[i] >= 0 && u.chosen[i] < SCORES;
    }
    void *space = NULL;
    if (fits) {
        size_t singles = (size_t)(4 * u.rows + 4) * (size_t)u.padded;
        size_t doubles = (size_t)((u.rows + 4) * u.columns + (3 * SCORES + 2 * u.padded) * u.padded + 3 * u.size);
        space = scratch(singles * sizeof(float) + doubles * sizeof(double));
    }
    if (space) {
        memset(given[6].buf, 0, (size_t)given[6].len);
        Py_BEGIN_ALLOW_THREADS
        kernels->unmix(&u, given[0].buf, count, space, given[6].buf);
        Py_END_ALLOW_THREADS
        free(space);
    }
    for (int i = 0; i < 7; i++)
        PyBuffer_Release(&given[i]);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "arrays of people, sources and recordings do not fit each other");
        return NULL;
    }
    if (!space)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* Rows of a table from its columns: each line of the result is written once, eight columns at a time. */
static void interleave_columns(const double *const *columns, Py_ssize_t width, Py_ssize_t rows, double *out)
{
    for (Py_ssize_t first = 0; first < rows; first += CHUNK) {
        Py_ssize_t end = rows - first < CHUNK ? rows : first + CHUNK, c = 0;
        for (; c + 8 <= width; c += 8)
            for (Py_ssize_t r = first; r < end; r++) {
                double *row = out + r * width + c;
                for (Py_ssize_t i = 0; i < 8; i++)
                    row[i] = columns[c + i][r];
            }
        for (; c < width; c++)
            for (Py_ssize_t r = first; r < end; r++)
                out[r * width + c] = columns[c][r];
    }
}

/* a tuple of columns of doubles, first row, the rows that become (rows, columns) */
static PyObject *interleave(PyObject *self, PyObject *args)
{
    PyObject *given;
    Py_buffer out;
    Py_ssize_t first, taken = 0;
    if (!PyArg_ParseTuple(args, "O!nw*", &PyTuple_Type, &given, &first, &out))
        return NULL;
    const Py_ssize_t width = PyTuple_Size(given), each = sizeof(double), most = (Py_ssize_t)1 << 24;
    Py_buffer *held = width > 0 && width < most ? calloc((size_t)width, sizeof *held) : NULL;
    const double **columns = held ? calloc((size_t)width, sizeof *columns) : NULL;
    int fits = columns && first >= 0 && out.len % (width * each) == 0;
    Py_ssize_t rows = fits ? out.len / (width * each) : 0;
    while (fits && taken < width) {
        if (PyObject_GetBuffer(PyTuple_GetItem(given, taken), &held[taken], PyBUF_SIMPLE) < 0)
            break;
        fits = held[taken].len % each == 0 && first <= held[taken].len / each && rows <= held[taken].len / each - first;
        columns[taken] = (const double *)held[taken].buf + first;
        taken++;
    }
    int whole = fits && taken == width;
    if (whole) {
        Py_BEGIN_ALLOW_THREADS
        interleave_columns(columns, width, rows, out.buf);
        Py_END_ALLOW_THREADS
    }
    for (Py_ssize_t i = 0; i < taken; i++)
        PyBuffer_Release(&held[i]);
    PyBuffer_Release(&out);
    free(columns);
    free(held);
    if (whole)
        Py_RETURN_NONE;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "columns must hold as many doubles as the result has rows");
    return NULL;
}

static PyObject *kind(PyObject *self, PyObject *args)
{
    const char *wanted = NULL;
    if (!PyArg_ParseTuple(args, "|z", &wanted))
        return NULL;
    if (wanted && !choose(wanted)) {
        PyErr_Format(PyExc_ValueError, "this processor is not of the kind %s", wanted);
        return NULL;
    }
    return PyUnicode_FromString(kernels->kind);
}

static PyMethodDef methods[] = {
    {"norms", norms, METH_VARARGS, "The norm of every row as it enters."},
    {"column", column, METH_VARARGS, "The last column of the sum of bounded x x'."},
    {"scatter", scatter, METH_VARARGS, "The upper triangle of the sum of bounded x x', in whole numbers."},
    {"unmixing", unmixing, METH_VARARGS, "The sum of what people say of their sources."},
    {"interleave", interleave, METH_VARARGS, "Rows of a table from its columns."},
    {"kind", kind, METH_VARARGS, "The kind of processor that is computed for, or another from now on."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "What a site does with every record or person, in one pass over memory.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__native(void)
{
    choose(NULL);
    return PyModule_Create(&definition);
}
