/* Between ggml's scheduler and Python: of the ~1000 questions a pass asks, only those about the last node of a
 * streamed segment reach the interpreter. Without this, every graph node would take and give back the GIL.
 *
 * No header of ggml is needed: a tensor is only ever handed to `name` and `describe`, ggml's own ggml_get_name and
 * ggml_op_desc, and to Python.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "_native.h"

typedef struct {
    const char *(*name)(const void *tensor);
    const char *(*describe)(const void *tensor);
    const char *operation; /* what such a node must compute, by `describe`; NULL: anything */
    int (*boundary)(int key, int ask, const void *tensor); /* Python; 0 ends the pass */
    const char *const *parts;          /* names of the nodes that end the segments of a layer, in order */
    const unsigned char *streamed;     /* one flag per segment: layer * part_count + part */
    int part_count;
    int layers;
    volatile int stop; /* read by edgespec_abort after every node */
    double seconds;    /* spent in `boundary`, waiting included */
} edgespec_filter;

/* The segment that ends with the node of this name ("l_out-17"), or -1. */
static int segment_of(const edgespec_filter *filter, const char *name) {
    for (int part = 0; part < filter->part_count; part++) {
        size_t length = strlen(filter->parts[part]);
        if (strncmp(name, filter->parts[part], length) != 0 || name[length] != '-') continue;
        char *end;
        long layer = strtol(name + length + 1, &end, 10);
        if (*end == 0 && end != name + length + 1 && layer >= 0 && layer < filter->layers)
            return (int)layer * filter->part_count + part;
    }
    return -1;
}

static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ggml_backend_sched_eval_callback. Never answers false to `ask == false`: ggml would end the pass as a success
 * with the logits of the pass before. A pass that must end is ended by edgespec_abort. */
EXPORT bool edgespec_eval(void *tensor, bool ask, void *user_data) {
    edgespec_filter *filter = user_data;
    int segment = segment_of(filter, filter->name(tensor));
    if (segment < 0 || !filter->streamed[segment]) return !ask;
    if (filter->operation && strcmp(filter->describe(tensor), filter->operation) != 0) return !ask;
    if (!filter->stop) {
        double start = now();
        if (!filter->boundary(segment, ask, tensor)) filter->stop = 1;
        filter->seconds += now() - start;
    }
    return true;
}

/* ggml_abort_callback */
EXPORT bool edgespec_abort(void *user_data) { return ((edgespec_filter *)user_data)->stop != 0; }
