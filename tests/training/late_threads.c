/* Threads of gloo wait a while after they have told the rank that a collective is done, with its tensors still in
   their hands: what a loaded machine does to them now and then. LATE_MS: how long. For LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

static void (*real)(void *);
static long milliseconds;

__attribute__((constructor)) static void prepare(void) {
  const char *given = getenv("LATE_MS");
  milliseconds = given ? atol(given) : 0;
  real = dlsym(RTLD_NEXT, "_ZNSt18condition_variable10notify_allEv");
}

void _ZNSt18condition_variable10notify_allEv(void *condition) {
  char name[16] = "";
  if (!real) real = dlsym(RTLD_NEXT, "_ZNSt18condition_variable10notify_allEv");
  real(condition);
  prctl(PR_GET_NAME, name);
  if (milliseconds && !strncmp(name, "pt_gloo", 7)) {
    struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&pause, 0);
  }
}
