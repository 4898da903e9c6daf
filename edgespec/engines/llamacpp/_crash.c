/* What is said when the engine takes the process down: one line, written by a signal handler, which may not format anything.
 * So its parts are kept ready: `stage`, what the engine was last asked to do, and `reason`, what an assertion of its own said.
 */
#include "_native.h"

#ifdef _WIN32
EXPORT void edgespec_stage(const char *text) { (void)text; }
EXPORT void edgespec_reason(const char *message) { (void)message; }
EXPORT void edgespec_watch(void) {}
#else

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define LONGEST 512

static char stages[2][LONGEST] = {"before a model was loaded"};
static char *volatile stage = stages[0];
static char reason[LONGEST];
static const char *begin = "";

static void keep(char *place, const char *text) {
    strncpy(place, text, LONGEST - 1);
    for (char *end = place; *end; end++)
        if (*end == '\n' || *end == '\r') *end = ' ';
}

/* Written beside the one in use, so that a handler never sees half of it. */
EXPORT void edgespec_stage(const char *text) {
    char *next = stage == stages[0] ? stages[1] : stages[0];
    keep(next, text);
    stage = next;
}

/* ggml_abort_callback_t; "/where/it/was/built/ggml.c:123: GGML_ASSERT(x) failed" loses the folders of the build. */
EXPORT void edgespec_reason(const char *message) {
    size_t place = strcspn(message, ":");
    while (place && message[place - 1] != '/') place--;
    keep(reason, message + place);
}

static void say(const char *text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0) return; /* nobody is left to tell */
}

static const char *name_of(int number) {
    switch (number) {
        case SIGSEGV: return "SIGSEGV";
        case SIGBUS: return "SIGBUS";
        case SIGILL: return "SIGILL";
        case SIGFPE: return "SIGFPE";
        default: return "SIGABRT";
    }
}

/* Installed for one time, so the signal raised here does what it would have done, and the exit status is its own. */
static void on_crash(int number) {
    say(begin);
    say("edgespec: crashed with ");
    say(name_of(number));
    say(" ");
    say(stage);
    if (reason[0]) {
        say(" (");
        say(reason);
        say(")");
    }
    say(": run `edgespec doctor`\n");
    raise(number);
}

EXPORT void edgespec_watch(void) {
    static char room[1 << 16]; /* a stack that has overflowed has no room for a handler */
    const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    stack_t other = {.ss_sp = room, .ss_size = sizeof room};
    struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK | SA_RESETHAND};
    if (isatty(STDERR_FILENO)) begin = "\n"; /* the answer has not ended its line */
    sigemptyset(&action.sa_mask);
    sigaltstack(&other, NULL);
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) sigaction(fatal[i], &action, NULL);
}
#endif
