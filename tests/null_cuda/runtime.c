// The CUDA runtime of a GPU that computes nothing (see build.py).
//
// Memory is the host's. Copies to the device and on it are made; what is copied back is zero, so that every run is the
// same. Kernels are not run, but how they are launched is checked. Captures are tracked, and what CUDA forbids
// during one is an error here as well. What is forbidden is said on standard error.

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <driver_types.h>

#define FORBIDDEN(status, ...)                                                                                         \
    do {                                                                                                               \
        fprintf(stderr, "null CUDA: forbidden: " __VA_ARGS__);                                                         \
        fputc('\n', stderr);                                                                                           \
        return failed(status);                                                                                         \
    } while (0)

#define TOTAL_MEMORY (80ull << 30)
#define MOST_SHARED_MEMORY 232448

typedef struct {
    unsigned x, y, z;
} Size3;

static __thread int last_error;

static int failed(int status) { return last_error = status; }

void null_cuda_runs(const char *name) __attribute__((weak));  // the profiler's

// ---- memory ----

enum { PAGEABLE = 0, PINNED = 1, DEVICE = 2 };  // as cudaMemoryType has them

typedef struct {
    char *begin;
    size_t size;
    int kind;
} Block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Block *blocks;
static int block_count, block_room;
static size_t device_bytes;

// The driver's reservations come here as well, but count when they are used.
void null_cuda_add_block(void *begin, size_t size, int kind) {
    pthread_mutex_lock(&lock);
    if (block_count == block_room) {
        block_room = block_room ? 2 * block_room : 1024;
        blocks = realloc(blocks, block_room * sizeof *blocks);
    }
    blocks[block_count++] = (Block){begin, size, kind};
    pthread_mutex_unlock(&lock);
}

static int kind_of(const void *pointer) {
    int kind = PAGEABLE;
    pthread_mutex_lock(&lock);
    for (int i = block_count - 1; i >= 0 && !kind; i--)
        if ((char *)pointer >= blocks[i].begin && (char *)pointer < blocks[i].begin + blocks[i].size)
            kind = blocks[i].kind;
    pthread_mutex_unlock(&lock);
    return kind;
}

static void remove_block(void *begin) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < block_count; i++)
        if (blocks[i].begin == begin) {
            if (blocks[i].kind == DEVICE) device_bytes -= blocks[i].size;
            blocks[i] = blocks[--block_count];
            break;
        }
    pthread_mutex_unlock(&lock);
}

// ---- captures ----

typedef struct {
    int captures;                // as cudaStreamCaptureStatus has it
    unsigned long long capture;  // its number
    int has_joined;              // a capture that began elsewhere
    int has_unseen_work;         // which the stream of the capture does not wait for yet
    int priority;
} Stream;

typedef struct {
    unsigned long long capture;
    Stream *recorded_on;
} Event;

#define MOST_STREAMS 4096

static Stream default_stream, *streams[MOST_STREAMS];
static int stream_count;
static unsigned long long captures_so_far;
static int captures_now, global_captures_now;  // of all threads
static __thread int captures_here, mode_of_capture, mode_of_thread;

static Stream *stream_of(void *handle) { return (size_t)handle < 16 ? &default_stream : handle; }

// Of calls that CUDA calls unsafe: a capture forbids them to its own thread unless it is relaxed, and a global one to
// all threads whose mode is global too.
static int is_forbidden_in_capture(void) {
    if (mode_of_thread == cudaStreamCaptureModeRelaxed) return 0;
    return (captures_here && mode_of_capture != cudaStreamCaptureModeRelaxed) ||
           (mode_of_thread == cudaStreamCaptureModeGlobal && global_captures_now);
}

int cudaStreamBeginCapture(void *handle, int mode) {
    Stream *stream = stream_of(handle);
    if (stream == &default_stream) FORBIDDEN(900, "to capture the default stream");
    if (stream->captures) FORBIDDEN(901, "to capture a stream that captures");
    stream->captures = captures_here = 1;
    stream->capture = ++captures_so_far;
    stream->has_joined = 0;
    mode_of_capture = mode;
    __atomic_add_fetch(&captures_now, 1, __ATOMIC_SEQ_CST);
    if (mode == cudaStreamCaptureModeGlobal) __atomic_add_fetch(&global_captures_now, 1, __ATOMIC_SEQ_CST);
    return 0;
}

int cudaStreamEndCapture(void *handle, void **graph) {
    Stream *stream = stream_of(handle);
    if (!stream->captures) FORBIDDEN(901, "to end a capture that has not begun");
    int left = 0;
    for (int i = 0; i < stream_count; i++)
        if (streams[i] != stream && streams[i]->captures && streams[i]->capture == stream->capture) {
            left += streams[i]->has_unseen_work;
            streams[i]->captures = streams[i]->has_unseen_work = 0;
        }
    stream->captures = captures_here = 0;
    __atomic_sub_fetch(&captures_now, 1, __ATOMIC_SEQ_CST);
    if (mode_of_capture == cudaStreamCaptureModeGlobal) __atomic_sub_fetch(&global_captures_now, 1, __ATOMIC_SEQ_CST);
    *graph = malloc(1);
    if (left) FORBIDDEN(904, "to end a capture before %d streams are joined", left);
    return 0;
}

int cudaStreamIsCapturing(void *handle, int *captures) {
    *captures = stream_of(handle)->captures;
    return 0;
}

int cudaStreamGetCaptureInfo(
    void *handle, int *captures, unsigned long long *number, void **graph, void *before, void *edges, size_t *count
) {
    Stream *stream = stream_of(handle);
    *captures = stream->captures;
    if (number) *number = stream->capture;
    if (graph) *graph = stream->captures ? stream : NULL;
    if (before) *(void **)before = NULL;
    if (edges) *(void **)edges = NULL;
    if (count) *count = 0;
    return 0;
}

int cudaThreadExchangeStreamCaptureMode(int *mode) {
    int before = mode_of_thread;
    mode_of_thread = *mode;
    *mode = before;
    return 0;
}

// ---- streams and events ----

int cudaStreamCreateWithPriority(void **handle, unsigned flags, int priority) {
    Stream *stream = calloc(1, sizeof *stream);
    stream->priority = priority;
    pthread_mutex_lock(&lock);
    if (stream_count == MOST_STREAMS) abort();
    streams[stream_count++] = stream;
    pthread_mutex_unlock(&lock);
    *handle = stream;
    return 0;
}

int cudaStreamCreate(void **handle) { return cudaStreamCreateWithPriority(handle, 0, 0); }

int cudaStreamGetPriority(void *handle, int *priority) {
    *priority = stream_of(handle)->priority;
    return 0;
}

int cudaStreamQuery(void *handle) {
    if (stream_of(handle)->captures) FORBIDDEN(900, "to ask a stream that captures");
    return 0;
}

int cudaStreamSynchronize(void *handle) {
    if (stream_of(handle)->captures) FORBIDDEN(900, "to wait for a stream that captures");
    return 0;
}

// In no mode, and in no thread: the device includes the stream that captures.
int cudaDeviceSynchronize(void) {
    if (captures_now) FORBIDDEN(900, "to wait for the device in a capture");
    return 0;
}

int cudaStreamWaitEvent(void *handle, void *waited_for, unsigned flags) {
    Stream *stream = stream_of(handle);
    Event *event = waited_for;
    Stream *other = event->recorded_on;
    if (stream->captures && other && !event->capture) FORBIDDEN(905, "to wait in a capture for what is outside");
    if (!event->capture) return 0;
    if (!stream->captures && other->captures && other->capture == event->capture) {
        if (stream == &default_stream) FORBIDDEN(906, "to have the default stream join a capture");
        stream->captures = stream->has_joined = stream->has_unseen_work = 1;
        stream->capture = event->capture;
    }
    if (stream->captures && stream != other) other->has_unseen_work = 0;
    return 0;
}

int cudaEventCreateWithFlags(void **event, unsigned flags) {
    *event = calloc(1, sizeof(Event));
    return 0;
}

int cudaEventCreate(void **event) { return cudaEventCreateWithFlags(event, 0); }

int cudaEventRecordWithFlags(void *recorded, void *handle, unsigned flags) {
    Stream *stream = stream_of(handle);
    *(Event *)recorded = (Event){stream->captures ? stream->capture : 0, stream};
    if (stream->captures && stream->has_joined) stream->has_unseen_work = 1;
    return 0;
}

int cudaEventRecord(void *event, void *handle) { return cudaEventRecordWithFlags(event, handle, 0); }

int cudaEventQuery(void *event) {
    if (((Event *)event)->capture) FORBIDDEN(907, "to ask an event of a capture");
    if (is_forbidden_in_capture()) FORBIDDEN(900, "to ask an event in a capture");
    return 0;
}

int cudaEventSynchronize(void *event) {
    if (((Event *)event)->capture) FORBIDDEN(907, "to wait for an event of a capture");
    return 0;
}

int cudaEventElapsedTime(float *milliseconds, void *from, void *to) {
    *milliseconds = 1;
    return 0;
}

int cudaStreamAddCallback(void *stream, void (*call)(void *, int, void *), void *data, unsigned flags) {
    call(stream, 0, data);
    return 0;
}

int cudaLaunchHostFunc(void *stream, void (*call)(void *), void *data) {
    call(data);
    return 0;
}

// ---- taking memory, and copying ----

static int take(void **pointer, size_t size, int kind) {
    if (is_forbidden_in_capture()) FORBIDDEN(900, "to take memory in a capture");
    if (kind == DEVICE && device_bytes + size > TOTAL_MEMORY) return failed(cudaErrorMemoryAllocation);
    if (posix_memalign(pointer, 4096, size ? size : 1)) return failed(cudaErrorMemoryAllocation);
    if (kind == DEVICE) device_bytes += size;
    null_cuda_add_block(*pointer, size, kind);
    return 0;
}

int cudaMalloc(void **pointer, size_t size) { return take(pointer, size, DEVICE); }
int cudaMallocAsync(void **pointer, size_t size, void *stream) { return take(pointer, size, DEVICE); }
int cudaHostAlloc(void **pointer, size_t size, unsigned flags) { return take(pointer, size, PINNED); }

int cudaFree(void *pointer) {
    if (!pointer) return 0;
    if (is_forbidden_in_capture()) FORBIDDEN(900, "to give memory back in a capture");
    remove_block(pointer);
    free(pointer);
    return 0;
}

int cudaFreeAsync(void *pointer, void *stream) { return cudaFree(pointer); }
int cudaFreeHost(void *pointer) { return cudaFree(pointer); }

int cudaHostRegister(void *pointer, size_t size, unsigned flags) {
    null_cuda_add_block(pointer, size, PINNED);
    return 0;
}

int cudaHostUnregister(void *pointer) {
    remove_block(pointer);
    return 0;
}

int cudaMemGetInfo(size_t *left, size_t *total) {
    *total = TOTAL_MEMORY;
    *left = TOTAL_MEMORY - device_bytes;
    return 0;
}

int cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer) {
    memset(attributes, 0, sizeof *attributes);
    attributes->type = kind_of(pointer);
    attributes->devicePointer = attributes->type ? (void *)pointer : NULL;
    attributes->hostPointer = attributes->type == PINNED ? (void *)pointer : NULL;
    return 0;
}

int cudaMemcpyAsync(void *to, const void *from, size_t size, int way, void *handle) {
    int captures = stream_of(handle)->captures, kind_to = kind_of(to), kind_from = kind_of(from);
    int is_back = way == cudaMemcpyDeviceToHost, is_up = way == cudaMemcpyHostToDevice;
    if (!is_back && kind_to != DEVICE) FORBIDDEN(1, "to copy to what is not on the device");
    if (!is_up && kind_from != DEVICE) FORBIDDEN(1, "to copy from what is not on the device");
    if (captures && ((is_up && !kind_from) || (is_back && !kind_to)))
        FORBIDDEN(900, "to copy %zu bytes of pageable memory in a capture", size);
    if (is_back)
        memset(to, 0, size);
    else if (!captures)
        memmove(to, from, size);
    return 0;
}

int cudaMemcpy(void *to, const void *from, size_t size, int way) {
    if (is_forbidden_in_capture()) FORBIDDEN(900, "to copy and wait in a capture");
    return cudaMemcpyAsync(to, from, size, way, NULL);
}

int cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t size, void *stream) {
    return cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream);
}

int cudaMemcpy2DAsync(
    void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows, int way, void *stream
) {
    for (size_t row = 0; row < rows; row++) {
        int status = cudaMemcpyAsync((char *)to + row * to_pitch, (char *)from + row * from_pitch, width, way, stream);
        if (status) return status;
    }
    return 0;
}

int cudaMemsetAsync(void *pointer, int value, size_t size, void *stream) {
    if (kind_of(pointer) != DEVICE) FORBIDDEN(1, "to set what is not on the device");
    if (!stream_of(stream)->captures) memset(pointer, value, size);
    return 0;
}

int cudaMemset(void *pointer, int value, size_t size) { return cudaMemsetAsync(pointer, value, size, NULL); }

// ---- graphs ----

int cudaGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
    *executable = malloc(1);
    return 0;
}

int cudaGraphGetNodes(void *graph, void **nodes, size_t *count) {
    *count = 1;
    return 0;
}

int cudaGraphNodeGetDependencies(void *node, void **before, void *edges, size_t *count) {
    *count = 0;
    return 0;
}

int cudaGraphLaunch(void *executable, void *stream) {
    if (null_cuda_runs) null_cuda_runs("graph");
    return 0;
}

// ---- kernels ----

static __thread struct {
    Size3 grid, block;
    size_t shared;
    void *stream;
} configuration;

static int launched(Size3 grid, Size3 block, size_t shared, void *stream) {
    size_t threads = (size_t)block.x * block.y * block.z;
    if (!grid.x || !grid.y || !grid.z || !threads || threads > 1024 || grid.y > 65535 || grid.z > 65535 ||
        shared > MOST_SHARED_MEMORY)
        FORBIDDEN(
            9, "to launch %u %u %u blocks of %u %u %u threads with %zu bytes", grid.x, grid.y, grid.z, block.x, block.y,
            block.z, shared
        );
    if (null_cuda_runs && !stream_of(stream)->captures) null_cuda_runs("kernel");
    return 0;
}

int cudaLaunchKernel(const void *kernel, Size3 grid, Size3 block, void **arguments, size_t shared, void *stream) {
    return launched(grid, block, shared, stream);
}

int __cudaLaunchKernel(void *kernel, Size3 grid, Size3 block, void **arguments, size_t shared, void *stream) {
    return launched(grid, block, shared, stream);
}

int cudaLaunchKernelExC(const cudaLaunchConfig_t *wanted, const void *kernel, void **arguments) {
    Size3 grid = {wanted->gridDim.x, wanted->gridDim.y, wanted->gridDim.z};
    Size3 block = {wanted->blockDim.x, wanted->blockDim.y, wanted->blockDim.z};
    return launched(grid, block, wanted->dynamicSmemBytes, wanted->stream);
}

unsigned __cudaPushCallConfiguration(Size3 grid, Size3 block, size_t shared, void *stream) {
    configuration.grid = grid;
    configuration.block = block;
    configuration.shared = shared;
    configuration.stream = stream;
    return 0;
}

int __cudaPopCallConfiguration(Size3 *grid, Size3 *block, size_t *shared, void *stream) {
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *(void **)stream = configuration.stream;
    return 0;
}

int __cudaGetKernel(void **kernel, const void *function) {
    *kernel = (void *)function;
    return 0;
}

void **__cudaRegisterFatBinary(void *binary) {
    static void *handle;
    return &handle;
}

char __cudaInitModule(void **handle) { return 1; }

int cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel) {
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->binaryVersion = attributes->ptxVersion = 90;
    attributes->maxDynamicSharedSizeBytes = MOST_SHARED_MEMORY;
    return 0;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *kernel, int threads, size_t shared, unsigned flags
) {
    *blocks = 2;
    return 0;
}

int cudaGetSymbolAddress(void **pointer, const void *symbol) {
    static char anything[1 << 16];
    *pointer = anything;
    return 0;
}

// ---- the device: an H100 ----

int cudaGetDeviceCount(int *count) {
    *count = 1;
    return 0;
}

int cudaGetDevice(int *device) {
    *device = 0;
    return 0;
}

int cudaSetDevice(int device) { return device ? failed(cudaErrorInvalidDevice) : 0; }

int cudaDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}

int cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock:
        case cudaDevAttrMaxBlockDimX:
        case cudaDevAttrMaxBlockDimY: *value = 1024; break;
        case cudaDevAttrMaxBlockDimZ: *value = 64; break;
        case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
        case cudaDevAttrMaxGridDimY:
        case cudaDevAttrMaxGridDimZ: *value = 65535; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = 49152; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = MOST_SHARED_MEMORY; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 233472; break;
        case cudaDevAttrMaxRegistersPerBlock:
        case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
        case cudaDevAttrMultiProcessorCount: *value = 132; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
        case cudaDevAttrL2CacheSize: *value = 50 << 20; break;
        case cudaDevAttrClockRate: *value = 1755000; break;
        case cudaDevAttrMemoryClockRate: *value = 2619000; break;
        case cudaDevAttrGlobalMemoryBusWidth: *value = 5120; break;
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        default: *value = 0;
    }
    return 0;
}

int cudaGetDeviceProperties(struct cudaDeviceProp *is, int device) {
    memset(is, 0, sizeof *is);
    strcpy(is->name, "no GPU, but its interface");
    is->totalGlobalMem = TOTAL_MEMORY;
    is->sharedMemPerBlock = 49152;
    is->sharedMemPerBlockOptin = MOST_SHARED_MEMORY;
    is->sharedMemPerMultiprocessor = 233472;
    is->regsPerBlock = is->regsPerMultiprocessor = is->totalConstMem = 65536;
    is->warpSize = 32;
    is->maxThreadsPerBlock = is->maxThreadsDim[0] = is->maxThreadsDim[1] = 1024;
    is->maxThreadsDim[2] = 64;
    is->maxGridSize[0] = 2147483647;
    is->maxGridSize[1] = is->maxGridSize[2] = 65535;
    is->major = 9;
    is->multiProcessorCount = 132;
    is->maxThreadsPerMultiProcessor = 2048;
    is->maxBlocksPerMultiProcessor = 32;
    is->l2CacheSize = 50 << 20;
    is->concurrentKernels = is->unifiedAddressing = 1;
    is->asyncEngineCount = 3;
    return 0;
}

int cudaDeviceGetPCIBusId(char *name, int size, int device) {
    snprintf(name, size, "0000:00:00.0");
    return 0;
}

int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return 0;
}

int cudaDeviceCanAccessPeer(int *can, int device, int other) {
    *can = 0;
    return 0;
}

int cudaGetLastError(void) {
    int error = last_error;
    last_error = 0;
    return error;
}

int cudaPeekAtLastError(void) { return last_error; }
const char *cudaGetErrorName(int error) { return "null CUDA"; }

const char *cudaGetErrorString(int error) {
    static __thread char text[40];
    snprintf(text, sizeof text, "null CUDA: error %d", error);
    return text;
}

// Of functions that have a second version, torch means that.
int cudaGetDriverEntryPointByVersion(
    const char *name, void **function, unsigned version, unsigned long long flags, int *found
) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    char second[100];
    snprintf(second, sizeof second, "%s_v2", name);
    *function = driver ? dlsym(driver, second) : NULL;
    if (driver && !*function) *function = dlsym(driver, name);
    if (found) *found = *function ? 0 : 1;
    return 0;
}
