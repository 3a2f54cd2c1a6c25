"""Which precisions there are, on which devices, and what they change."""

import time

import pytest
import torch

from models import Float16OverflowError, default_dtype, load_model
from models.checkpoint import read_checkpoint
from models.device.cpu import has_products
from models.device.precision import checked_precision, exact_products, round_products, warn_of_slow_dtype
from models.model import Model
from models.network import Network
from tests.models import canary
from tests.models import golden_data as golden

MODEL = golden.GOLDEN / "fastconformer-ctc-bpe" / "model.nemo"
FLOAT16_ENCODER = 1e-2  # of the largest value; bfloat16 keeps three bits less


@pytest.mark.parametrize(
    ("machine", "avx512", "amx", "onednn", "dtype"),
    [
        ("x86_64", True, False, True, torch.bfloat16),
        ("x86_64", False, True, True, torch.bfloat16),
        ("x86_64", False, False, True, torch.float32),  # AVX-512 alone emulates it
        ("aarch64", False, False, True, torch.bfloat16),
        ("aarch64", False, False, False, torch.float32),
    ],
)
def test_a_cpu_takes_bfloat16_where_it_has_instructions_for_it(
    machine, avx512, amx, onednn, dtype, monkeypatch, fresh_products
):
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: onednn)
    monkeypatch.setattr("models.device.cpu.can_pack", lambda _: onednn)

    assert default_dtype(torch.device("cpu")) == dtype


def test_no_timing_decides_the_dtype(monkeypatch, fresh_products):
    def clock() -> float:
        raise AssertionError("a busy neighbour would change the transcripts")

    for name in ("perf_counter", "monotonic", "process_time"):
        monkeypatch.setattr(time, name, clock)

    default_dtype(torch.device("cpu"))


@pytest.fixture
def fresh_products():
    """Ask the processor anew, in the test and after it."""
    has_products.cache_clear()
    yield
    has_products.cache_clear()


@pytest.fixture
def gpu(monkeypatch):
    """Set the compute capability of the GPU ``cuda:1``."""

    def has(*capability):
        asked = torch.device("cuda:1")
        monkeypatch.setattr(
            torch.cuda, "get_device_capability", lambda device: capability if device == asked else (0, 0)
        )
        return asked

    return has


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [
        ((6, 1), torch.float32),
        ((7, 0), torch.float16),
        ((7, 5), torch.float16),
        ((8, 0), torch.bfloat16),
        ((12, 0), torch.bfloat16),
    ],
)
def test_a_gpu_takes_the_half_precision_that_it_has_units_for(capability, dtype, gpu):
    assert default_dtype(gpu(*capability)) == dtype


def test_tf32_is_for_gpus_since_ampere(gpu):
    assert checked_precision("tf32", gpu(8, 0)) == "tf32"
    for device in (gpu(7, 5), torch.device("cpu")):
        with pytest.raises(ValueError, match="tf32 is for GPUs since Ampere"):
            checked_precision("tf32", device)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_a_precision_is_asked_for_by_its_name_or_as_a_dtype(name, gpu):
    assert checked_precision(name, gpu(8, 0)) == checked_precision(getattr(torch, name), gpu(8, 0)) == name


@pytest.mark.parametrize("wanted", ["float64", torch.float64, "", "half"])
def test_another_precision_is_refused_with_the_names_of_those_that_there_are(wanted):
    with pytest.raises(ValueError, match="use one of float32, tf32, bfloat16, float16, int8"):
        load_model(MODEL, dtype=wanted)


@pytest.mark.parametrize(
    ("has", "dtype", "warnings"),
    [
        (False, torch.bfloat16, ["This CPU has no products in bfloat16, and emulates them; float32 is faster."]),
        (False, torch.float32, []),
        (True, torch.bfloat16, []),
        (False, torch.float16, ["This CPU has no products in float16, and emulates them; float32 is faster."]),
    ],
)
def test_a_dtype_that_is_emulated_here_runs_with_one_warning(has, dtype, warnings, monkeypatch, caplog):
    monkeypatch.setattr("models.device.precision.has_products", lambda _: has)

    model = load_model(MODEL, dtype=dtype)

    assert model.transcribe([golden.clip(golden.CLIPS[0])])[0].tokens
    assert [record.getMessage() for record in caplog.records] == warnings


def test_bfloat16_on_a_gpu_without_units_for_it_gets_a_warning(gpu, caplog):
    warn_of_slow_dtype(torch.bfloat16, gpu(7, 5))
    warn_of_slow_dtype(torch.bfloat16, gpu(8, 6))
    warn_of_slow_dtype(torch.float16, gpu(7, 5))

    assert [record.getMessage() for record in caplog.records] == [
        "This GPU has no units for bfloat16, and emulates it; float16 is several times as fast."
    ]


FLAGS = (
    "matmul.allow_tf32",
    "cudnn.allow_tf32",
    "matmul.allow_bf16_reduced_precision_reduction",
    "matmul.allow_fp16_reduced_precision_reduction",
)
OWNERS = {"matmul": torch.backends.cuda.matmul, "cudnn": torch.backends.cudnn}


def flags():
    return [getattr(OWNERS[owner], name) for owner, name in (flag.split(".") for flag in FLAGS)]


def set_flags(allowed):
    for flag, value in zip(FLAGS, allowed, strict=True):
        owner, name = flag.split(".")
        setattr(OWNERS[owner], name, value)


@pytest.fixture
def all_allowed():
    before = flags()
    set_flags([True] * 4)
    yield
    set_flags(before)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16", "float16"])
def test_on_a_gpu_products_round_only_what_was_asked_for(precision, all_allowed):
    round_products(torch.device("cpu"), precision)
    assert flags() == [True] * 4

    round_products(torch.device("cuda:1"), precision)
    assert flags() == [precision == "tf32"] * 2 + [False] * 2


def test_features_are_exact_also_with_tf32(all_allowed):
    round_products(torch.device("cuda"), "tf32")

    with exact_products():
        assert flags()[0] is False
    assert flags()[:2] == [True, True]


def test_a_model_sets_the_rounding_of_products_for_each_batch(monkeypatch):
    model, asked = load_model(MODEL), []
    monkeypatch.setattr("models.device_model.round_products", lambda *which: asked.append(which))

    model.transcribe([golden.clip(golden.CLIPS[0])])

    assert asked == [(torch.device("cpu"), "float32")]


def test_weights_beyond_the_range_of_float16_are_refused_by_name():
    checkpoint = read_checkpoint(MODEL)
    checkpoint.state["ctc.projection.bias"][3] = 1e5

    with pytest.raises(ValueError, match=r"ctc\.projection\.bias has a value of 1e\+05, beyond the range of float16"):
        Model(checkpoint, torch.device("cpu"), torch.float16)


OVERFLOWING = [*golden.DECODERS, (canary.NAME, "aed")]


def scaled_up(path, dtype):
    """A model whose features are ten thousand times as large as they should be."""
    model = load_model(path, dtype=dtype)
    model.model.network.encoder.register_forward_pre_hook(lambda _, given: (given[0] * 1e4, *given[1:]))
    return model


@pytest.mark.parametrize(("name", "decoder"), [*OVERFLOWING, ("bundled", "ctc")])
def test_values_beyond_the_range_of_float16_are_an_error(name, decoder):
    path = name if name == "bundled" else golden.GOLDEN / name / "model.nemo"

    with pytest.raises(Float16OverflowError, match="use bfloat16 or float32"):
        scaled_up(path, torch.float16).transcribe([golden.clip("slt-1s")], decoder=decoder)


def test_an_aligner_whose_values_are_beyond_the_range_of_float16_finds_no_times():
    model = load_model(golden.GOLDEN / canary.NAME / "model.nemo", dtype=torch.float16, aligner=MODEL)
    model._aligner.network.encoder.register_forward_pre_hook(lambda _, given: (given[0] * 1e4, *given[1:]))

    with pytest.raises(Float16OverflowError, match="use bfloat16 or float32"):
        model.transcribe([golden.clip("slt-1s")], timestamps=True)


@pytest.mark.parametrize("name", golden.MODELS)
def test_float16_has_the_texts_of_float32(name):
    exact, clips = golden.model(name), sorted(golden.clips(), key=len)[:4]
    rounded = load_model(golden.GOLDEN / name / "model.nemo", dtype="float16")

    features, lengths = exact.features(clips)
    wanted, frames = exact.encode(features, lengths)
    encoded, rounded_frames = rounded.encode(features, lengths)

    assert encoded.dtype == torch.float16
    assert rounded_frames.tolist() == frames.tolist()
    assert (encoded.float() - wanted).abs().max() < FLOAT16_ENCODER * wanted.abs().max()
    for decoder in exact.decoders:
        found = rounded.transcribe(clips, decoder=decoder), exact.transcribe(clips, decoder=decoder)
        differing = sum(one.text != other.text for one, other in zip(*found, strict=True))
        assert differing <= 1  # a token that wins by little may be another one


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", golden.MODELS)
def test_weights_stored_in_half_precision_are_folded_in_float32(name, stored):
    checkpoint = read_checkpoint(golden.GOLDEN / name / "model.nemo")
    state = {
        name: tensor.to(stored) if tensor.is_floating_point() else tensor for name, tensor in checkpoint.state.items()
    }

    def folded(state):
        network = Network.without_weights(checkpoint.config)
        network.load_state_dict(state, assign=True)
        network.fold()
        return network.float().state_dict(keep_vars=True) | dict(network.named_buffers())

    exact = folded({name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in state.items()})
    for name, tensor in folded(state).items():
        torch.testing.assert_close(tensor, exact[name], msg=lambda text, name=name: f"{name}: {text}")
