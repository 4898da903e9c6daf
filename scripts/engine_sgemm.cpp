// Which matrix products take llamafile's kernels in the engine as edgespec builds it.
//
// For these weight types they sum in the same order as the engine's one-row kernels do on x86, so a row of a tree equals the
// row of a pass of its own to the last bit, at 0.5 to 0.7 of the time. Their kernels for half and single precision, which
// attention would use, and for IQ4_NL do not: those products keep the engine's own. `scripts/engine.cmake` renames
// the engine's entry point to `llamafile_sgemm_any` and compiles this one beside it.
#include "ggml.h"
#include "llamafile/sgemm.h"

extern "C" bool llamafile_sgemm_any(const struct ggml_compute_params * params, int64_t m, int64_t n, int64_t k,
                                    const void * A, int64_t lda, const void * B, int64_t ldb, void * C,
                                    int64_t ldc, int Atype, int Btype, int Ctype);

static bool sums_like_one_row(int type) {
#if defined(__AVX2__)
    return type == GGML_TYPE_Q8_0 || type == GGML_TYPE_Q4_0 || type == GGML_TYPE_Q5_0;
#else
    (void) type;  // never compared elsewhere
    return false;
#endif
}

extern "C" bool llamafile_sgemm(const struct ggml_compute_params * params, int64_t m, int64_t n, int64_t k,
                                const void * A, int64_t lda, const void * B, int64_t ldb, void * C,
                                int64_t ldc, int Atype, int Btype, int Ctype) {
    return sums_like_one_row(Atype) && llamafile_sgemm_any(params, m, n, k, A, lda, B, ldb, C, ldc, Atype, Btype, Ctype);
}
