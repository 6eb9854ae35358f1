"""The one compiled part. It is optional: where there is no C compiler, NumPy computes the same."""

import sysconfig

from setuptools import Extension, setup

HEADERS = ["src/native/records.h", "src/native/tiles.h", "src/native/unmixing.h"]
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")  # one wheel for every Python, but for those without a lock

setup(
    ext_modules=[
        Extension(
            "zerosum.compute.backends._native",
            sources=["src/native/module.c"],
            depends=HEADERS,
            # Nothing here that would let a sum be taken in another order, or a number be rounded otherwise.
            # Rows are packed as words of two numbers, and read as these.
            extra_compile_args=["-O3", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing", "-Wno-psabi"],
            libraries=["m"],
            py_limited_api=STABLE,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE else {},
)
