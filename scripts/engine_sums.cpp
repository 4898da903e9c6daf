// How the engine as edgespec builds it sums over the cells of a KV cache: in double precision, so that their order does not matter.
//
// A token that was accepted out of a tree lies in another cell than plain decoding would have put it in. The engine's kernels add
// cells up in single precision, one cell after the other, so the last bit of a sum depended on that, and rounding activations to
// 8 bits made it a difference that is seen, of up to a quarter of a logit. In double precision the sum that is rounded to
// single precision at the end is the same in any order, but for one in many millions. `scripts/engine.cmake` renames the
// engine's functions to `..._any` and compiles these beside them.
#include "ggml-cpu.h"

extern "C" double ggml_vec_soft_max_f32_any(int n, float * y, const float * x, float max);
extern "C" void ggml_vec_dot_f16_any(int n, float * s, size_t bs, ggml_fp16_t * x, size_t bx, ggml_fp16_t * y, size_t by, int nrc);

static const int CELLS = 256;  // the engine attends to a multiple of so many

struct Sum {
    static const int LANES = 16;  // side by side, for vector instructions
    double lanes[LANES] = {};

    void add(const float * x) {
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += x[lane];
    }

    void add_products(const float * x, const float * y) {
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += x[lane] * y[lane];
    }

    double total() const {
        double sum = 0.0;
        for (int lane = 0; lane < LANES; lane++)
            sum += lanes[lane];
        return sum;
    }
};

// y = exp(x - max), and the sum of that
extern "C" double ggml_vec_soft_max_f32(int n, float * y, const float * x, float max) {
    ggml_vec_soft_max_f32_any(n, y, x, max);
    Sum sum;
    int i = 0;
    for (; i + Sum::LANES <= n; i += Sum::LANES)
        sum.add(y + i);
    for (; i < n; i++)
        sum.lanes[0] += y[i];
    return sum.total();
}

// Values weighted by attention are sums over cells; other products of this type run along a head, always in the same order.
extern "C" void ggml_vec_dot_f16(int n, float * s, size_t bs, ggml_fp16_t * x, size_t bx, ggml_fp16_t * y, size_t by, int nrc) {
    if (n % CELLS != 0) {
        ggml_vec_dot_f16_any(n, s, bs, x, bx, y, by, nrc);
        return;
    }
    float a[CELLS], b[CELLS];
    Sum sum;
    for (int i = 0; i < n; i += CELLS) {
        ggml_cpu_fp16_to_fp32(x + i, a, CELLS);
        ggml_cpu_fp16_to_fp32(y + i, b, CELLS);
        for (int j = 0; j < CELLS; j += Sum::LANES)
            sum.add_products(a + j, b + j);  // a product of two numbers of 11 bits is exact in single precision
    }
    *s = (float) sum.total();
}
