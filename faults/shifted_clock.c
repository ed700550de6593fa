/* Preloaded into Postgres: its wall clock is ahead of the machine's by the nanoseconds in a file, which may change. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static long long nothing;
static volatile long long *ahead = &nothing;
static int (*read_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void prepare(void) {
    const char *path = getenv("PULSE_TEST_CLOCK");
    int file = path == NULL ? -1 : open(path, O_RDONLY);
    read_clock = dlsym(RTLD_NEXT, "clock_gettime");
    if (file >= 0) {
        void *memory = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
        if (memory != MAP_FAILED)
            ahead = memory;
        close(file);
    }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = read_clock(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long moment = now->tv_sec * SECOND + now->tv_nsec + *ahead;
        now->tv_sec = moment / SECOND;
        now->tv_nsec = moment % SECOND;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec moment;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &moment);
    now->tv_sec = moment.tv_sec;
    now->tv_usec = moment.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    if (result != NULL)
        *result = moment.tv_sec;
    return moment.tv_sec;
}
