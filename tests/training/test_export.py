"""An exported network is the trained one: load_model gives the same, and the names and shapes are NeMo's."""

import io
import signal
import tarfile

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from models import load_model
from models.checkpoint import read_checkpoint
from models.features import LogMelFeatures
from tests.conftest import GOLDEN
from tests.training.small_run import CHECKPOINT
from training.export import _write_archive, export_nemo
from training.recipe_shapes import Student, Transducer
from training.student import StudentNetwork, student_config
from training.vocabulary_file import read_vocabulary


def golden(name):
    return GOLDEN / name / "model.nemo"


def statistic(name):
    return name.endswith(("running_mean", "running_var"))


def trained(student):
    """A network whose every tensor differs from its initial value, and its configuration.

    Its weights are numbers that half precision holds, so that an export loses nothing.
    """
    config = student_config(student, read_vocabulary(CHECKPOINT).size)
    network = StudentNetwork(config, dropout=0.1, seed=1)
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if tensor.is_floating_point():
                tensor.add_(0.1 * torch.rand(tensor.shape, generator=torch.Generator().manual_seed(len(name))))
                if not statistic(name):
                    tensor.copy_(tensor.half())
        if network.predictor:
            network.predictor.embedding.weight[-1] = 0  # the start's, which training leaves alone
    return config, network.eval()


def exported(path, student):
    config, network = trained(student)
    front_end = LogMelFeatures(config.features)
    export_nemo(path, config, read_vocabulary(CHECKPOINT), network.state_dict(), front_end, dropout=0.1)
    return config, network


TRANSDUCERS = st.builds(
    Transducer,
    predictor_width=st.integers(1, 9),
    predictor_layers=st.integers(1, 2),
    joint_width=st.integers(1, 9),
    durations=st.sampled_from([None, (0, 1, 2, 3, 4), (1, 3)]),
)
STUDENTS = st.builds(
    Student,
    transducer=st.none() | TRANSDUCERS,
    layers=st.integers(1, 3),
    width=st.sampled_from([8, 12]),
    heads=st.sampled_from([1, 2]),
    feed_forward_factor=st.integers(1, 4),
    kernel_size=st.sampled_from([1, 5]),
    subsampling_factor=st.sampled_from([4, 8]),
    subsampling_channels=st.integers(1, 6),
)


@given(STUDENTS)
@settings(max_examples=8, deadline=None)
def test_load_model_gives_the_network_back(tmp_path_factory, student):
    path = tmp_path_factory.mktemp("export") / "model.nemo"
    config, network = exported(path, student)
    features, lengths = torch.randn(2, 80, 50), torch.tensor([50, 31])

    checkpoint = read_checkpoint(path)
    encoded, frames = load_model(path).encode(features, lengths)

    with torch.no_grad():
        expected, expected_frames = network.encoder(features, lengths)
    assert checkpoint.config == config
    for name, value in network.state_dict().items():
        if value.is_floating_point():  # the loader leaves batch norm's count of steps at 0
            assert torch.equal(checkpoint.state[name].float(), value), name
    torch.testing.assert_close(encoded, expected, atol=1e-4, rtol=1e-4)  # folded, products are others
    assert torch.equal(frames, expected_frames)


def members(path):
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def weights(path):
    content = next(content for name, content in members(path).items() if name.endswith("model_weights.ckpt"))
    return torch.load(io.BytesIO(content), weights_only=True)


# The golden models' own shapes.
GOLDENS = {
    "fastconformer-ctc-bpe": None,
    "hybrid-tdt-ctc-bpe": Transducer(predictor_width=48, joint_width=56),
    "hybrid-rnnt-ctc-bpe": Transducer(predictor_width=48, predictor_layers=2, joint_width=56, durations=None),
}


def of_golden_shape(name):
    return Student(layers=2, width=64, heads=4, subsampling_channels=32, transducer=GOLDENS[name])


def test_the_front_end_is_nemos(tmp_path):
    path = tmp_path / "model.nemo"
    exported(path, of_golden_shape("fastconformer-ctc-bpe"))

    for name in ("preprocessor.featurizer.window", "preprocessor.featurizer.fb"):
        torch.testing.assert_close(weights(path)[name], weights(CHECKPOINT)[name], rtol=1e-5, atol=1e-7)


def test_weights_are_in_half_precision_and_running_statistics_are_not(tmp_path):
    path = tmp_path / "model.nemo"
    _, network = exported(path, Student(layers=1, width=8, heads=2))
    full = {"preprocessor.featurizer.window", "preprocessor.featurizer.fb"}

    stored = {name: value for name, value in weights(path).items() if value.is_floating_point()}

    for name, value in stored.items():
        assert value.dtype == (torch.float32 if name in full or statistic(name) else torch.float16), name
    assert len(stored) == len(full) + sum(value.is_floating_point() for value in network.state_dict().values())


@pytest.mark.parametrize("name", GOLDENS)
def test_the_configuration_says_what_nemos_own_says(tmp_path, name):
    path = tmp_path / "model.nemo"
    exported(path, of_golden_shape(name))
    ours, nemos = (
        yaml.safe_load(next(content for name, content in members(file).items() if name.endswith(".yaml")))
        for file in (path, golden(name))
    )

    assert ours["validation_ds"] == nemos["validation_ds"]
    for section in ("encoder", "decoder", "preprocessor", "joint", "loss"):
        assert (section in ours) == (section in nemos)
        common = ours.get(section, {}).keys() & nemos.get(section, {}).keys()
        different = {key for key in common if ours[section][key] != nemos[section][key]}
        # A student does not scale its input, is not dithered, and drops nothing in its heads; the golden hybrids'
        # encoders have another shape. Everything else is as NeMo made it.
        assert different <= {"xscaling", "dither", "prednet", "jointnet", "tdt_kwargs"} | (
            {"feat_in", "ff_expansion_factor", "use_bias", "features"} if GOLDENS[name] else set()
        )
    assert nemos["encoder"].keys() - ours["encoder"].keys() <= {"conv_context_size", "pos_emb_max_len"}
    assert ours["target"] == nemos["target"]
    for key in ("model_path", "vocab_path", "spe_tokenizer_vocab"):
        assert "./" + ours["tokenizer"][key].removeprefix("nemo:") in members(path)


class Interrupted(dict):
    """Files of which the second is interrupted from the keyboard."""

    def items(self):
        name, content = next(iter(super().items()))
        yield name, content
        signal.raise_signal(signal.SIGINT)


def test_an_export_that_is_interrupted_leaves_nothing_of_itself(tmp_path):
    path = tmp_path / "model.nemo"
    path.write_bytes(b"old")

    with pytest.raises(KeyboardInterrupt):
        _write_archive(path, Interrupted(first=b"a", second=b"b"))

    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("model.nemo", b"old")]


def test_a_new_network_depends_on_its_seed_only():
    config = student_config(Student(layers=1, width=8, heads=2), 5)
    state = torch.get_rng_state()

    first, same, other = (StudentNetwork(config, 0.0, seed) for seed in (1, 1, 2))

    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), same.parameters(), strict=True))
    assert not torch.equal(first.ctc.projection.weight, other.ctc.projection.weight)
