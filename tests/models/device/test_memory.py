"""Too little memory is told from other errors, what errors hold is given back, and tensors leave room on a GPU."""

import weakref

import pytest
import torch

from models.device.memory import free_after, free_bytes, is_out_of_memory, leave_room


def test_too_little_memory_is_told_from_other_errors():
    for make, expected in ((torch.empty, True), (bytes, True), (torch.ones(3).view, False)):
        with pytest.raises((RuntimeError, MemoryError)) as caught:
            make(2**60)
        assert is_out_of_memory(caught.value) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (torch.AcceleratorError("CUDA error: out of memory"), True),  # a graph's instantiation too
        (RuntimeError("CUDA error: CUDA_ERROR_OUT_OF_MEMORY"), True),  # of cuda-bindings
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("cuFFT error: CUFFT_INTERNAL_ERROR"), True),
        (RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"), True),
        (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), False),
        (RuntimeError("cuFFT error: CUFFT_INVALID_SIZE"), False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`"), False),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"), False),
        (RuntimeError("Triton Error [CUDA]: out of resource: shared memory"), False),
        (ValueError("the book is called 'Out of memory'"), False),
    ],
)
def test_the_libraries_of_a_gpu_say_in_messages_that_memory_ran_out(error, expected):
    assert is_out_of_memory(error) is expected


def test_memory_is_given_back_after_the_tensors_that_an_error_holds(monkeypatch):
    tensors, left = [], []

    def fill(depth):
        tensor = torch.zeros(1)
        tensors.append(weakref.ref(tensor))
        try:
            fill(depth - 1) if depth else torch.empty(2**60)
        except RuntimeError as error:
            if depth:
                raise
            raise MemoryError from error

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: left.extend(tensor() for tensor in tensors))
    try:
        fill(3)
    except MemoryError as error:
        free_after(error)

    assert left == [None] * 4


@pytest.mark.parametrize(("name", "expected"), [("cpu", []), ("cuda", [(0.9, 2)]), ("cuda:1", [(0.9, 1)])])
def test_tensors_leave_room_on_a_gpu(monkeypatch, name, expected):
    limits = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *limit: limits.append(limit))

    leave_room(torch.device(name))

    assert limits == expected


@pytest.mark.gpu
def test_memory_that_torch_keeps_for_later_use_is_free():
    used = torch.zeros(2**28, dtype=torch.uint8, device="cuda")
    before = free_bytes(used.device)

    del used  # torch does not give it back to the driver

    assert free_bytes(torch.device("cuda")) >= before + 2**28


@pytest.mark.gpu
def test_memory_beyond_the_limit_of_tensors_is_not_free():
    device = torch.device("cuda")
    before = free_bytes(device)
    try:
        leave_room(device, 0.25)

        assert free_bytes(device) <= torch.cuda.get_device_properties(device).total_memory / 4 < before
    finally:
        leave_room(device, 1.0)
