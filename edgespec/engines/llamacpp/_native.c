/* The extension that carries what must be C: `_filter.c` and `_crash.c`. As a module it is empty. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", "C callbacks; used through ctypes.", -1, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&module); }
