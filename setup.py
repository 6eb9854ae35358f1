"""The one compiled part. It is optional: where there is no C compiler, NumPy computes the same."""

from setuptools import Extension, setup

HEADERS = ["src/native/records.h", "src/native/tiles.h", "src/native/unmixing.h"]

setup(
    ext_modules=[
        Extension(
            "zerosum.statistics._native",
            sources=["src/native/module.c"],
            depends=HEADERS,
            # Nothing here that would let a sum be taken in another order, or a number be rounded otherwise.
            extra_compile_args=["-O3", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
