/* A disk that takes its time: preloaded, it makes fsync and fdatasync last at least as many
   microseconds as SESSIONARY_BENCH_SYNC_MICROS says. What was asked for is really synced. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

typedef int (*sync_call)(int);

static int slowly(const char *name, int file)
{
    const char *text = getenv("SESSIONARY_BENCH_SYNC_MICROS");
    struct timespec began, now, pause;
    long rest = 1000L * (text ? atol(text) : 2000L);
    int answer;

    clock_gettime(CLOCK_MONOTONIC, &began);
    answer = ((sync_call)dlsym(RTLD_NEXT, name))(file);
    clock_gettime(CLOCK_MONOTONIC, &now);
    rest -= (now.tv_sec - began.tv_sec) * 1000000000L + (now.tv_nsec - began.tv_nsec);
    if (rest > 0) {
        pause.tv_sec = rest / 1000000000L;
        pause.tv_nsec = rest % 1000000000L;
        nanosleep(&pause, NULL);
    }
    return answer;
}

int fsync(int file) { return slowly("fsync", file); }
int fdatasync(int file) { return slowly("fdatasync", file); }
