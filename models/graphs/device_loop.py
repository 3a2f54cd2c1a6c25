"""A loop on the GPU: it repeats a CUDA graph while a flag on the device is set, without the host.

A WHILE node of a graph (CUDA 12.4) holds the graph to repeat, followed by a kernel of one thread that reads the flag
and sets the node's condition. torch has no call for such nodes, but cuda-bindings has, which comes with torch for CUDA.
"""

import ctypes
import time
import weakref
from functools import cache
from typing import Any

import torch
from torch import Tensor

from models.device.fast_paths import FAST_PATHS, FastPath, PathState
from models.graphs.capture import captured_graph
from models.graphs.pool import Pool

# Older drivers cannot capture some launches of libraries in the body of a loop.
_LEAST_DRIVER = 12060
_PATIENCE_SECONDS = 2.0  # with a loop that takes microseconds

# Sets the condition to the flag, and to 0 when no round is left, because an endless loop would hang the device. The
# driver compiles this; `cudaGraphSetConditional` is a built-in of device code.
_CONDITION = b"""
.version 8.3
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry go_on(.param .u64 handle, .param .u64 going, .param .u64 left)
{
    .reg .b64 %node, %flag, %rounds;
    .reg .b32 %set, %more;
    .reg .pred %any;
    ld.param.u64 %node, [handle];
    ld.param.u64 %flag, [going];
    ld.param.u64 %rounds, [left];
    cvta.to.global.u64 %flag, %flag;
    cvta.to.global.u64 %rounds, %rounds;
    ld.global.u8 %set, [%flag];
    ld.global.s32 %more, [%rounds];
    sub.s32 %more, %more, 1;
    st.global.s32 [%rounds], %more;
    setp.gt.s32 %any, %more, 0;
    selp.b32 %set, %set, 0, %any;
    {
        .param .b64 node;
        .param .b32 value;
        st.param.b64 [node], %node;
        st.param.b32 [value], %set;
        call.uni cudaGraphSetConditional, (node, value);
    }
    ret;
}
\0"""


class DeviceLoop:
    """Repeats a captured graph, at least once."""

    def __init__(self, graph: "torch.cuda.CUDAGraph", going: Tensor) -> None:
        """Build the loop.

        Args:
            graph: a round; see ``captured_graph``.
            going: bool [1] on the device; a round writes to it whether another one follows.

        Raises:
            RuntimeError: if this device cannot loop; ``has_loops`` checks for the usual reasons.
        """
        from cuda.bindings import driver  # only installed with CUDA

        self._driver: Any = driver
        self._body = graph  # kept, because the loop uses its memory
        self._going = going
        self._left = torch.zeros(1, dtype=torch.int32, device=going.device)
        with torch.cuda.device(going.device):
            outer = _checked(driver.cuGraphCreate(0))
            try:
                self._add_node(outer)
                self._executable = _checked(driver.cuGraphInstantiate(outer, 0))
            finally:
                driver.cuGraphDestroy(outer)
        weakref.finalize(self, driver.cuGraphExecDestroy, self._executable)

    def run(self, rounds: int) -> None:
        """Launch the loop on the current stream, for at most ``rounds``; the host does not wait."""
        self._left.fill_(rounds)
        stream = torch.cuda.current_stream(self._left.device).cuda_stream
        _checked(self._driver.cuGraphLaunch(self._executable, self._driver.CUstream(stream)))

    def _add_node(self, outer: Any) -> None:  # noqa: ANN401  # cuda-bindings has no types
        driver = self._driver
        context = _checked(driver.cuCtxGetCurrent())
        # Each launch begins with the condition set.
        set_at_first, default = 1, driver.CU_GRAPH_COND_ASSIGN_DEFAULT
        handle = _checked(driver.cuGraphConditionalHandleCreate(outer, context, set_at_first, default))
        loop = driver.CUgraphNodeParams()
        loop.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        loop.conditional.handle = handle
        loop.conditional.type = driver.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE
        loop.conditional.size = 1
        loop.conditional.ctx = context
        # cuda-bindings 12 has the call with these arguments under its versioned name.
        add_node = getattr(driver, "cuGraphAddNode_v2", driver.cuGraphAddNode)
        _checked(add_node(outer, None, None, 0, loop))
        body = loop.conditional.phGraph_out[0]
        round_ = _checked(driver.cuGraphAddChildGraphNode(body, None, 0, driver.CUgraph(self._body.raw_cuda_graph())))
        condition = driver.CUDA_KERNEL_NODE_PARAMS()
        condition.func = _condition_kernel(self._left.device)
        condition.gridDimX = condition.gridDimY = condition.gridDimZ = 1
        condition.blockDimX = condition.blockDimY = condition.blockDimZ = 1
        arguments = int(handle), self._going.data_ptr(), self._left.data_ptr()
        condition.kernelParams = arguments, (ctypes.c_uint64,) * len(arguments)
        _checked(driver.cuGraphAddKernelNode(body, [round_], 1, condition))


@cache
def has_loops(device: torch.device) -> bool:
    """Return whether a GPU can loop by itself, after a trial; if not, one line in the log says why.

    Raises:
        SystemExit: if the trial does not end; the device is lost to this process.
    """
    with FAST_PATHS.trying(FastPath.LOOP):
        _check_driver()
        _condition_kernel(device)
        _check_counting(device)
        FAST_PATHS.note(FastPath.LOOP, PathState.USED)
    return FAST_PATHS.allows(FastPath.LOOP)


def _check_counting(device: torch.device) -> None:
    """Have a loop count, because a driver that knows loops may still run them wrongly."""
    count, five = torch.zeros(1, dtype=torch.int32, device=device), torch.full((1,), 5, device=device)
    going = torch.zeros(1, dtype=torch.bool, device=device)

    def count_on() -> None:
        count.add_(1)
        going.copy_(count < five)

    loop = DeviceLoop(captured_graph(count_on, device, Pool()), going)
    count.zero_()
    loop.run(rounds=10)
    with torch.cuda.device(device):
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
    patience = time.monotonic() + _PATIENCE_SECONDS
    while not done.query():  # type: ignore[no-untyped-call]
        if time.monotonic() > patience:
            raise SystemExit("the device hangs in a loop of its own; STENO_FAST_PATHS can leave the loop out")
    if count.tolist() != five.tolist():
        raise RuntimeError(f"it was to count to 5, and counted to {count.item()}")


def _check_driver() -> None:
    from cuda.bindings import driver  # where there is a GPU

    version = _checked(driver.cuDriverGetVersion())
    if version < _LEAST_DRIVER:
        raise RuntimeError(f"the driver is for CUDA {version // 1000}.{version % 1000 // 10}, and 12.6 is needed")


@cache
def _condition_kernel(device: torch.device) -> Any:  # noqa: ANN401  # cuda-bindings has no types
    from cuda.bindings import driver  # where there is a GPU

    with torch.cuda.device(device):
        return _checked(driver.cuModuleGetFunction(_checked(driver.cuModuleLoadData(_CONDITION)), b"go_on"))


def _checked(returned: tuple[Any, ...]) -> Any:  # noqa: ANN401  # whatever the call returns
    """Return what a call of cuda-bindings returns besides its status.

    Raises:
        RuntimeError: if the status is not success.
    """
    status, *values = returned
    if status:
        raise RuntimeError(f"CUDA error: {status.name}")
    return values[0] if values else None
