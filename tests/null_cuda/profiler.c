// The profiler of a GPU that computes nothing (see build.py). Its kernels follow each other by a clock of their own: each
// runs for two ticks, and then none for one tick, so the device is idle for a third of the time.

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include <cupti.h>

#define TICK 500  // of the clock that torch gives; less than the host takes for a launch

typedef CUpti_ActivityKernel9 Kernel;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static uint64_t (*clock_of_torch)(void);
static int is_on;
static uint64_t now;
static uint8_t *buffer;
static size_t room, used;

static void hand_over(void) {
    if (buffer) complete(NULL, 0, buffer, room, used);
    buffer = NULL;
}

// Called for each kernel that is launched, and for each graph.
void null_cuda_runs(const char *name) {
    static uint32_t launches;
    pthread_mutex_lock(&lock);
    if (is_on) {
        if (!now) now = clock_of_torch();
        if (!buffer) {
            size_t most;
            request(&buffer, &room, &most);
            used = 0;
        }
        Kernel *kernel = (Kernel *)(buffer + used);
        memset(kernel, 0, sizeof *kernel);
        kernel->kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
        kernel->start = now;
        kernel->end = now + 2 * TICK;
        kernel->gridX = kernel->gridY = kernel->gridZ = kernel->blockX = kernel->blockY = kernel->blockZ = 1;
        kernel->correlationId = ++launches;
        kernel->name = name;
        now += 3 * TICK;
        used += sizeof *kernel;
        if (used + sizeof *kernel > room) hand_over();
    }
    pthread_mutex_unlock(&lock);
}

CUptiResult cuptiGetVersion(uint32_t *version) {
    *version = CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
    *text = "null CUDA";
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(
    CUpti_BuffersCallbackRequestFunc requested, CUpti_BuffersCallbackCompleteFunc completed
) {
    request = requested;
    complete = completed;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
    clock_of_torch = clock;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) is_on = 1, now = 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) is_on = 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag) {
    pthread_mutex_lock(&lock);
    hand_over();
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *from, size_t size, CUpti_Activity **record) {
    uint8_t *next = *record ? (uint8_t *)*record + sizeof(Kernel) : from;
    if (next + sizeof(Kernel) > from + size) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)next;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped) {
    *dropped = 0;
    return CUPTI_SUCCESS;
}
