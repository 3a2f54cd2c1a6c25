// The CUDA driver of a GPU that computes nothing (see build.py): what Triton, cuda-bindings and torch call of it.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <driver_types.h>

#define ERROR_INVALID_VALUE 1
#define ERROR_NOT_SUPPORTED 801
#define MOST_SHARED_MEMORY 232448

static int context, module, graph, executable, node;  // whose addresses are handles

int cuInit(unsigned flags) { return 0; }

int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}

// Of functions that have a second version, callers mean that.
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    char second[100];
    snprintf(second, sizeof second, "%s_v2", name);
    *function = driver ? dlsym(driver, second) : NULL;
    if (driver && !*function) *function = dlsym(driver, name);
    if (found) *found = *function ? 0 : 1;
    return *function ? 0 : 500;
}

int cuGetErrorString(int error, const char **text) {
    *text = "null CUDA";
    return 0;
}

int cuGetErrorName(int error, const char **text) { return cuGetErrorString(error, text); }

// ---- device and context ----

int cuDeviceGet(int *device, int number) {
    *device = number;
    return 0;
}

int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    int (*runtime)(int *, int, int) = dlsym(RTLD_DEFAULT, "cudaDeviceGetAttribute");
    return runtime ? runtime(value, attribute, device) : ERROR_NOT_SUPPORTED;
}

int cuDevicePrimaryCtxRetain(void **current, int device) {
    *current = &context;
    return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active) {
    *flags = 0;
    *is_active = 1;
    return 0;
}

int cuCtxGetCurrent(void **current) { return cuDevicePrimaryCtxRetain(current, 0); }
int cuCtxSetCurrent(void *current) { return 0; }
int cuCtxPushCurrent_v2(void *current) { return 0; }
int cuCtxPopCurrent_v2(void **current) { return cuCtxGetCurrent(current); }

int cuCtxGetLimit(size_t *value, int limit) {
    *value = 0;
    return 0;
}

int cuCtxSetLimit(int limit, size_t value) { return 0; }

int cuCtxGetDevice(int *device) {
    *device = 0;
    return 0;
}

// ---- memory, as torch's segments that grow take it ----

int cuMemAddressReserve(void **pointer, size_t size, size_t alignment, void *wanted, uint64_t flags) {
    void (*add_block)(void *, size_t, int) = dlsym(RTLD_DEFAULT, "null_cuda_add_block");
    *pointer = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*pointer == MAP_FAILED) return cudaErrorMemoryAllocation;
    add_block(*pointer, size, cudaMemoryTypeDevice);
    return 0;
}

int cuMemAddressFree(void *pointer, size_t size) { return 0; }

int cuMemCreate(uint64_t *handle, size_t size, const void *properties, uint64_t flags) {
    static uint64_t handles;
    *handle = ++handles;
    return 0;
}

int cuMemRelease(uint64_t handle) { return 0; }
int cuMemMap(void *pointer, size_t size, size_t offset, uint64_t handle, uint64_t flags) { return 0; }
int cuMemSetAccess(void *pointer, size_t size, const void *access, size_t count) { return 0; }
int cuMemUnmap(void *pointer, size_t size) { return madvise(pointer, size, MADV_DONTNEED) ? 1 : 0; }

int cuMemGetAllocationGranularity(size_t *size, const void *properties, int which) {
    *size = 2 << 20;
    return 0;
}

int cuMemsetD32Async(unsigned *pointer, unsigned value, size_t count, void *stream) {
    for (size_t i = 0; i < count; i++) pointer[i] = value;
    return 0;
}

int cuPointerGetAttribute(void **value, int attribute, void *pointer) {
    int (*attributes_of)(struct cudaPointerAttributes *, const void *) =
        dlsym(RTLD_DEFAULT, "cudaPointerGetAttributes");
    struct cudaPointerAttributes attributes;
    attributes_of(&attributes, pointer);
    if (attributes.type == cudaMemoryTypeUnregistered) {
        fprintf(stderr, "null CUDA: forbidden: to give a kernel what is not on the device\n");
        return 1;
    }
    *value = pointer;
    return 0;
}

// ---- kernels ----

void null_cuda_runs(const char *name) __attribute__((weak));  // the profiler's
int cudaStreamIsCapturing(void *stream, int *captures) __attribute__((weak));

int cuModuleLoad(void **loaded, const char *path) {
    *loaded = &module;
    return 0;
}

int cuModuleLoadData(void **loaded, const void *image) { return cuModuleLoad(loaded, NULL); }
int cuModuleUnload(void *loaded) { return 0; }

int cuModuleGetFunction(void **function, void *loaded, const char *name) {
    *function = strdup(name);
    return 0;
}

int cuFuncGetAttribute(int *value, int attribute, void *function) {
    const int most_threads = 0, registers = 4;
    *value = attribute == most_threads ? 1024 : attribute == registers ? 64 : 0;
    return 0;
}

int cuFuncSetAttribute(void *function, int attribute, int value) { return 0; }
int cuFuncSetCacheConfig(void *function, int preferred) { return 0; }

// Refused as CUDA does: what is not aligned, boxes too large, and rows of a box that its swizzle does not span.
int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *sizes,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                           int swizzle, int promotion, int filling) {
    const int bfloat16 = 9, float16 = 6;
    if (type != bfloat16 && type != float16) return ERROR_NOT_SUPPORTED;  // nobody asks for another
    int refused = rank < 1 || rank > 5 || (uintptr_t)address % 16 || (swizzle && 2 * box[0] > 16u << swizzle);
    for (uint32_t dimension = 0; dimension < rank; dimension++)
        refused |= sizes[dimension] < 1 || box[dimension] < 1 || box[dimension] > 256 || steps[dimension] != 1;
    for (uint32_t dimension = 0; dimension + 1 < rank; dimension++) refused |= strides[dimension] % 16;
    if (refused) {
        fprintf(stderr, "null CUDA: forbidden: a tensor map that CUDA refuses\n");
        return ERROR_INVALID_VALUE;
    }
    memset(map, 0, 128);
    return 0;
}

int cuOccupancyMaxActiveClusters(int *count, void *function, const void *configuration) {
    *count = 1;
    return 0;
}

typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
} Launch;  // the beginning of CUlaunchConfig

int cuLaunchKernelEx(const Launch *launch, void *function, void **arguments, void **extra) {
    const unsigned *grid = launch->grid;
    if (!grid[0] || !grid[1] || !grid[2] || grid[1] > 65535 || grid[2] > 65535 || launch->shared > MOST_SHARED_MEMORY) {
        fprintf(
            stderr, "null CUDA: forbidden: to launch %u %u %u blocks of %s with %u bytes\n", grid[0], grid[1], grid[2],
            (char *)function, launch->shared
        );
        return cudaErrorInvalidConfiguration;
    }
    int captures = 0;
    if (cudaStreamIsCapturing) cudaStreamIsCapturing(launch->stream, &captures);
    if (null_cuda_runs && !captures) null_cuda_runs(function);
    return 0;
}

int cuLaunchKernel(
    void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
    unsigned block_z, unsigned shared, void *stream, void **arguments, void **extra
) {
    Launch launch = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream};
    return cuLaunchKernelEx(&launch, function, arguments, extra);
}

// ---- graphs that are put together by hand ----

int cuGraphCreate(void **created, unsigned flags) {
    *created = &graph;
    return 0;
}

int cuGraphDestroy(void *destroyed) { return 0; }

int cuGraphInstantiateWithFlags(void **created, void *from, uint64_t flags) {
    *created = &executable;
    return 0;
}

int cuGraphExecDestroy(void *destroyed) { return 0; }
int cuGraphLaunch(void *launched, void *stream) {
    if (null_cuda_runs) null_cuda_runs("graph");
    return 0;
}

int cuGraphConditionalHandleCreate(uint64_t *handle, void *from, void *current, unsigned value, unsigned flags) {
    *handle = 1;
    return 0;
}

int cuGraphAddNode_v2(
    void **added, void *to, const void *before, const void *edges, size_t count, struct cudaGraphNodeParams *parameters
) {
    static void *bodies[1] = {&graph};
    *added = &node;
    parameters->conditional.phGraph_out = (void *)bodies;
    return 0;
}

int cuGraphAddChildGraphNode(void **added, void *to, const void *before, size_t count, void *child) {
    *added = &node;
    return child ? 0 : cudaErrorInvalidValue;
}

int cuGraphAddKernelNode_v2(void **added, void *to, const void *before, size_t count, const void *parameters) {
    *added = &node;
    return 0;
}
