"""Damaged, contradictory and malicious checkpoints are refused with their own error, and nothing of them runs."""

import os
import pickle
import random
import tarfile
import zipfile
from contextlib import suppress
from io import BytesIO

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models import CheckpointError, load_identifier, load_model
from models.checkpoint.document import MAX_DEPTH, MAX_NODES
from models.checkpoint.nemo.archive import MAX_HEADER_BYTES, MAX_MEMBERS
from models.errors import (
    MissingCheckpointError,
    TensorMismatchError,
    UnreadableCheckpointError,
    UnsafeCheckpointError,
    UnsupportedValueError,
)
from tests.conftest import FACTS
from tests.models.checkpoint.nemo_files import (
    CONFIG,
    TOKENIZER,
    WEIGHTS,
    all_members,
    archive,
    golden_document,
    golden_members,
    golden_tensors,
    member,
    put,
    refusal,
    saved,
    with_config,
)


class Payload:
    """Creates a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.nemo"


@pytest.fixture
def trap(tmp_path):
    """A folder that exists only if code of the checkpoint ran."""
    folder = tmp_path / "code ran"
    yield folder
    assert not folder.exists()


# A golden model of each kind of archive, and what loads it.
LOADERS = {"hybrid-tdt-ctc-bpe": load_model, "identifier-statistics": load_identifier}
every_kind = pytest.mark.parametrize("kind", LOADERS)


def refused(path, file, content, kind="hybrid-tdt-ctc-bpe"):
    """Try to load a golden checkpoint with another content of one of its files."""
    return refusal(archive(path, golden_members(kind) | {file: content}), LOADERS[kind])


# The file and the archive


@every_kind
def test_a_missing_file_is_refused(path, kind):
    error = refusal(path, LOADERS[kind])

    assert isinstance(error, MissingCheckpointError)
    assert path.name in str(error)


@pytest.mark.parametrize("content", [b"", b"\x00" * 10_240, b"RIFF....WAVE", b"\x1f\x8b", b"\x1f\x8b\x08" + b"x" * 99])
def test_a_file_that_is_not_an_archive_is_refused(path, content):
    path.write_bytes(content)

    assert isinstance(refusal(path), UnreadableCheckpointError)


def test_a_folder_is_refused(tmp_path):
    assert isinstance(refusal(tmp_path), UnreadableCheckpointError)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in LOADERS for name in golden_members(kind)])
def test_an_archive_without_a_file_that_it_needs_is_refused_by_its_name(path, kind, name):
    members = golden_members(kind)
    del members[name]

    error = refusal(archive(path, members), LOADERS[kind])

    assert isinstance(error, UnreadableCheckpointError)
    assert name in str(error)


@pytest.mark.parametrize(
    "extra",
    [
        member("../escape"),
        member("folder/../../escape"),
        member("/etc/escape"),
        member("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("link", type=tarfile.LNKTYPE, linkname=CONFIG),
        member("pipe", type=tarfile.FIFOTYPE),
        member("device", type=tarfile.CHRTYPE),
        member(f"folder/{CONFIG}", b"a second one"),
        member("unknown", type=b"Z"),
        member("x" * 100_000),
        member("sparse", pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}),
    ],
    ids=lambda extra: f"{extra[0].type}{extra[0].name[:24]}",
)
@pytest.mark.parametrize("gzipped", [False, True], ids=["plain", "gzipped"])
def test_a_member_that_is_not_just_a_file_is_refused(path, extra, gzipped):
    layout = tarfile.PAX_FORMAT if extra[0].pax_headers else tarfile.GNU_FORMAT
    members = [member(name, content) for name, content in golden_members().items()]

    error = refusal(archive(path, [*members, extra], gzipped=gzipped, layout=layout))

    assert isinstance(error, UnsafeCheckpointError | UnreadableCheckpointError)
    assert isinstance(error, UnsafeCheckpointError) or "sparse" in extra[0].name


@pytest.mark.parametrize(
    "members",
    [
        [member(f"artifact{index}") for index in range(MAX_MEMBERS + 1)],
        [member("x", pax_headers={"comment": "9" * MAX_HEADER_BYTES})],
    ],
    ids=["many", "long"],
)
def test_too_many_members_and_a_long_extended_header_are_refused(path, members):
    assert isinstance(refusal(archive(path, members, layout=tarfile.PAX_FORMAT)), UnsafeCheckpointError)


def test_a_negative_size_is_refused(path):
    archive(path, golden_members())
    header = bytearray(path.read_bytes()[:512])
    header[124:136] = (-512).to_bytes(12, "big", signed=True)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path.write_bytes(bytes(header) + path.read_bytes()[512:])

    assert isinstance(refusal(path), CheckpointError)


# A file of 2 MB of noise may unpack to four times that and 16 MB; below, what it lacks is reported.
@pytest.mark.parametrize(
    ("noise_bytes", "zero_bytes", "kind"),
    [
        (0, 50_000_000, UnsafeCheckpointError),
        (2_000_000, 23_500_000, UnsafeCheckpointError),
        (2_000_000, 22_000_000, UnreadableCheckpointError),
    ],
    ids=["bomb", "above", "below"],
)
def test_a_gzipped_file_unpacks_to_four_times_its_size_and_some_text(path, noise_bytes, zero_bytes, kind):
    content = random.Random(0).randbytes(noise_bytes) + bytes(zero_bytes)
    archive(path, [member("zeros", content)], gzipped=True)

    assert type(refusal(path)) is kind


@given(share=st.floats(0, 1, exclude_max=True), gzipped=st.booleans(), kind=st.sampled_from(list(LOADERS)))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_cut_short_is_refused(path, share, gzipped, kind):
    members = golden_members(kind)
    whole = archive(path, members, gzipped=gzipped).read_bytes()
    content = len(whole) if gzipped else 512 * len(members) + sum(map(len, members.values()))
    path.write_bytes(whole[: int(content * share)])

    assert isinstance(refusal(path, LOADERS[kind]), UnreadableCheckpointError)


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_bytes_never_give_anything_but_a_model_or_an_error_of_ours(path, data):
    content = bytearray(archive(path, golden_members("fastconformer-ctc-bpe")).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        # Headers and configuration stand first, the index of the weights' zip file near the end.
        place = data.draw(st.integers(0, 8000) | st.integers(len(content) - 40_000, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)

    with suppress(CheckpointError):
        load_model(path)


def test_control_characters_in_a_checkpoints_name_do_not_reach_the_terminal(path):
    error = refusal(archive(path, [member("../\x1b[2Jclear\nnext")]))

    assert str(error).isprintable()


def test_the_message_of_an_error_is_one_printable_line():
    assert str(CheckpointError("one\n\ttwo \x1b[31m")) == "one two ?[31m"


# The configuration


def billion_laughs():
    lines = ["a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "document",
    [
        billion_laughs(),
        "target: &loop [*loop]",
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        "{a: " * 100_000,
        "labels: [" + "a," * MAX_NODES + "]",
        "a: " + "b" * 10_000_000,
        "a: 1" + ":59" * 1_000_000,
    ],
    ids=["billion laughs", "contains itself", "deep", "deeper", "long", "large", "number to the base of 60"],
)
def test_a_configuration_built_to_exhaust_its_reader_is_refused(path, document):
    assert isinstance(refused(path, CONFIG, document.encode()), UnsafeCheckpointError)


@pytest.mark.parametrize(
    "document", [b"- a list", b"", b"a: [", b"\xff\xfe\xfa", b"a: !!timestamp x", b"a: !!bool x", b"? [a]\n: b"]
)
def test_a_configuration_that_is_no_configuration_is_refused(path, document):
    assert isinstance(refused(path, CONFIG, document), UnreadableCheckpointError)


HUGE = b"0x" + b"f" * 9000


@pytest.mark.parametrize("document", [b"target: " + HUGE, b"target: {? " + HUGE + b"\n: 1}"], ids=["value", "key"])
def test_a_number_that_python_does_not_write_is_refused(path, document):
    error = refused(path, CONFIG, document)

    assert isinstance(error, UnsupportedValueError)
    assert "36000 bits" in str(error)


@every_kind
def test_a_configuration_that_asks_for_an_object_is_refused(path, trap, kind):
    document = f"target: !!python/object/apply:os.mkdir ['{trap}']".encode()

    assert isinstance(refused(path, CONFIG, document, kind), UnreadableCheckpointError)


def test_a_configuration_that_is_not_supported_is_refused_by_key(path):
    document = golden_document()
    put(document, "encoder.self_attention_model", "abs_pos\nand a second line")

    error = refusal(archive(path, with_config(golden_members(), document)))

    assert isinstance(error, UnsupportedValueError)
    assert error.key == "encoder.self_attention_model"


# The weights


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "legacy"])
@pytest.mark.parametrize("hidden", [False, True], ids=["instead", "among tensors"])
@every_kind
def test_pickled_code_is_refused_and_not_run(path, trap, options, hidden, kind):
    content = golden_tensors(kind) | {"code": Payload(trap)} if hidden else Payload(trap)

    error = refused(path, WEIGHTS, saved(content, **options), kind)

    assert isinstance(error, UnsafeCheckpointError)
    assert "mkdir" in str(error)


def test_a_bare_pickle_is_refused_and_not_run(path, trap):
    assert isinstance(refused(path, WEIGHTS, pickle.dumps(Payload(trap))), UnsafeCheckpointError)


def hashing_bomb():
    """A dict whose key is a tuple of two times the tuple before it, and so on: to hash it takes 2 ** 60 steps."""
    doubled = b"".join(b"q" + bytes([level]) + b"h" + bytes([level]) + b"\x86" for level in range(60))
    return b"\x80\x02}" + b")" + doubled + b"K\x01s."


def as_zip(*records, compression=zipfile.ZIP_STORED):
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as weights:
        for name, content in records:
            weights.writestr(name, content)
        weights.writestr("archive/version", "3\n")
    return buffer.getvalue()


def unzipped(weights):
    """The records of a zip file by name, except that of the version."""
    with zipfile.ZipFile(BytesIO(weights)) as file:
        return {name: file.read(name) for name in file.namelist() if not name.endswith("/version")}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("names", [["data.pkl"], ["DATA.PKL"], ["data.pkl", "data.pkl"]], ids=str)
def test_a_pickle_is_checked_under_every_name_that_torch_reads(path, names):
    doubled = b"\x80\x02})q\x01h\x01\x86K\x01s."  # a tuple that holds another twice, which takes no time to hash
    pickles = [doubled, b"\x80\x02}."]
    weights = as_zip(*[(f"archive/{name}", pickles[place]) for place, name in enumerate(names)])

    assert isinstance(refused(path, WEIGHTS, weights), UnsafeCheckpointError)


@pytest.mark.parametrize(
    "weights",
    [as_zip(("archive/data.pkl", hashing_bomb())), hashing_bomb(), saved({"vast": torch.ones(1).expand(2**40)})],
    ids=["hashed for years in a zip", "hashed for years", "describes more than it holds"],
)
def test_weights_built_to_exhaust_their_reader_are_refused(path, weights):
    assert isinstance(refused(path, WEIGHTS, weights), UnsafeCheckpointError)


def test_storages_that_torch_would_read_many_times_are_refused(path):
    files = unzipped(saved({"one": torch.ones(999), "two": torch.ones(999)}))
    files["archive/data/a"] = files.pop("archive/data/0")
    del files["archive/data/1"]
    pickled = files["archive/data.pkl"].replace(b"X\1\0\0\x000", b"X\1\0\0\0a")
    files["archive/data.pkl"] = pickled.replace(b"X\1\0\0\x001", b"X\1\0\0\0A")

    assert isinstance(refused(path, WEIGHTS, as_zip(*files.items())), UnsafeCheckpointError)


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "legacy"])
def test_one_tensor_under_two_names_is_read(path, options):
    tensors = golden_tensors()
    tensors["encoder.layers.1.self_attn.pos_bias_u"] = tensors["encoder.layers.0.self_attn.pos_bias_u"]

    load_model(archive(path, golden_members() | {WEIGHTS: saved(tensors, **options)}))


@pytest.mark.parametrize(
    "content",
    [[1, 2], {"a": 1}, {1: torch.ones(1)}, torch.ones(2), {"a": torch.ones(2, dtype=torch.complex64)}],
    ids=["list", "number", "unnamed", "tensor", "complex"],
)
def test_weights_that_are_not_named_tensors_are_refused(path, content):
    assert isinstance(refused(path, WEIGHTS, saved(content)), UnreadableCheckpointError)


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(3, 3).to_sparse(), torch.empty(4, device="meta"), torch.ones(3, dtype=torch.bool)],
    ids=["sparse", "without values", "boolean"],
)
def test_tensors_that_are_not_plain_numbers_are_refused(path, tensor):
    weights = saved(golden_tensors() | {"encoder.pre_encode.out.bias": tensor})

    assert isinstance(refused(path, WEIGHTS, weights), CheckpointError)


def test_compressed_weights_are_refused(path):
    files = unzipped(saved(golden_tensors()))

    error = refused(path, WEIGHTS, as_zip(*files.items(), compression=zipfile.ZIP_DEFLATED))

    assert "has compressed records" in str(error)


def test_a_second_directory_hides_no_record_from_the_checks(path):
    files = unzipped(saved({"zeros": torch.zeros(10**6)}))
    bomb = as_zip(*files.items(), compression=zipfile.ZIP_DEFLATED)
    other = as_zip(*dict.fromkeys(files, b"").items())
    start = zipfile.ZipFile(BytesIO(other)).start_dir
    two = bomb[:-22] + other[start:-22] + bomb[-22:]  # before its end record of 22 bytes, which torch follows

    assert "a directory in another place" in str(refused(path, WEIGHTS, two))


HYBRID, STATISTICS = LOADERS
ATTENTION = "identifier-attention"
UNFIT = [
    (HYBRID, "encoder.layers.1.norm_out.weight", None, "encoder.layers.1.norm_out.weight [64] is missing"),
    (HYBRID, "joint.joint_net.2.weight", None, "joint.joint_net.2.weight [134, 56] is missing"),
    (HYBRID, "encoder.layers.2.norm_out.weight", torch.ones(64), "'encoder.layers.2.norm_out.weight' [64] is unexpe"),
    (HYBRID, "adapter\nlayer", torch.ones(2, 3), r"'adapter\nlayer' [2, 3] is unexpected"),
    (HYBRID, "joint.enc.weight", torch.ones(56, 63), "joint.enc.weight is [56, 63] but must be [56, 64]"),
    (HYBRID, "joint.enc.bias", torch.ones(()), "joint.enc.bias is [] but must be [56]"),
    (HYBRID, "joint.enc.bias", torch.ones(56, dtype=torch.int64), "joint.enc.bias holds torch.int64"),
    (HYBRID, "joint.enc.bias", torch.full((56,), torch.nan), "bias holds values that are infinite or not numbers"),
    (HYBRID, "ctc_decoder.decoder_layers.0.bias", torch.full((129,), torch.inf), "infinite or not numbers"),
    (HYBRID, "preprocessor.featurizer.fb", torch.ones(1, 64, 257), "fb is [1, 64, 257] but must be [1, 80, 257]"),
    (HYBRID, "decoder.prediction.embed.weight", torch.ones(129, 48), "a start symbol, its last row, that is not zero"),
    (STATISTICS, "decoder.final.weight", None, "decoder.final.weight [6, 16] is missing"),
    (STATISTICS, "decoder.final.bias", torch.ones(7), "decoder.final.bias is [7] but must be [6]"),
    (STATISTICS, "decoder.final.bias", torch.full((6,), torch.nan), "infinite or not numbers"),
    (STATISTICS, "decoder.emb_layers.1.0.weight", torch.ones(2), "'decoder.emb_layers.1.0.weight' [2] is unexpected"),
    (STATISTICS, "encoder.encoder.1.res.0.0.conv.weight", None, "encoder.encoder.1.res.0.0.conv.weight"),
    (STATISTICS, "loss.scale", torch.ones(1), "'loss.scale' [1] is unexpected"),
    (ATTENTION, "decoder._pooling.attention_layer.2.bias", None, "attention_layer.2.bias [32] is missing"),
    (ATTENTION, "decoder.emb_layers.0.0.running_var", None, "decoder.emb_layers.0.0.running_var [64] is missing"),
]
OF_STATELESS = [
    ("stateless-tdt", "decoder.prediction.embeds.1.weight", None, "prediction.embeds.1.weight [129, 12] is missing"),
    ("stateless-tdt", "decoder.prediction.embeds.2.weight", torch.ones(129, 12), "embeds.2.weight' [129, 12] is unexp"),
    ("stateless-tdt", "decoder.prediction.embeds.0.weight", torch.ones(129, 24), "is [129, 24] but must be [129, 36]"),
    ("stateless-tdt", "decoder.prediction.embeds.1.weight", torch.ones(129, 12), "has a start symbol, its last row,"),
]


@pytest.mark.parametrize(
    ("model", "name", "tensor", "told"),
    [*UNFIT, *(pytest.param(*row, marks=pytest.mark.facts("golden-streaming")) for row in OF_STATELESS)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tensor_that_does_not_fit_is_named_with_its_shape(path, model, name, tensor, told):
    stateless = model == "stateless-tdt"
    members = all_members(FACTS / "golden-streaming" / model / "model.nemo") if stateless else golden_members(model)
    tensors = torch.load(BytesIO(members[WEIGHTS]), weights_only=True)
    tensors.pop(name, None)
    if tensor is not None:
        tensors[name] = tensor
    load = load_identifier if model.startswith("identifier") else load_model

    error = refusal(archive(path, members | {WEIGHTS: saved(tensors)}), load)

    assert isinstance(error, TensorMismatchError)
    assert told in str(error)
    assert len(error.problems) == 1


def test_every_tensor_that_does_not_fit_is_kept_but_few_are_listed(path):
    tensors = {name: tensor for name, tensor in golden_tensors().items() if "layers.1" not in name}

    error = refused(path, WEIGHTS, saved(tensors))

    assert isinstance(error, TensorMismatchError)
    assert len(error.problems) == 39  # what a layer has, but the count of batch norm
    assert str(error).endswith("and 33 more")


def test_sizes_that_contradict_the_weights_are_refused(path):
    document = golden_document()
    put(document, "encoder.ff_expansion_factor", 3)

    error = refusal(archive(path, with_config(golden_members(), document)))

    assert isinstance(error, TensorMismatchError)
    assert "feed_forward1.linear1.weight is [128, 64] but must be [192, 64]" in str(error)


# The tokenizer


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x0a\xff\xff\xff\xff\x0f"])
def test_a_file_that_is_not_a_sentencepiece_model_is_refused(path, content):
    error = refused(path, TOKENIZER, content)

    assert isinstance(error, UnreadableCheckpointError)
    assert "SentencePiece" in str(error)


def test_a_large_sentencepiece_model_is_refused_unread(path):
    assert isinstance(refused(path, TOKENIZER, b"\0" * (16 * 2**20 + 1)), UnsafeCheckpointError)


def test_a_vocabulary_of_another_size_is_refused(path):
    document = golden_document()
    for key in ("decoder.vocab_size", "joint.num_classes", "aux_ctc.decoder.num_classes"):
        put(document, key, 100)
    for key in ("labels", "joint.vocabulary", "aux_ctc.decoder.vocabulary"):
        put(document, key, None)

    error = refusal(archive(path, with_config(golden_members(), document)))

    assert isinstance(error, UnsupportedValueError)
    assert "128 pieces" in str(error)


def test_an_artifact_outside_the_archive_is_not_looked_for(path, tmp_path):
    (tmp_path / "outside.model").write_bytes(golden_members()[TOKENIZER])
    document = golden_document()
    put(document, "tokenizer.model_path", str(tmp_path / "outside.model"))

    error = refusal(archive(path, with_config(golden_members(), document)))

    assert "outside.model" in str(error)


def test_the_honest_parts_of_these_tests_make_a_checkpoint(path):
    members = with_config(golden_members(), golden_document()) | {WEIGHTS: saved(golden_tensors())}

    assert load_model(archive(path, members)).decoders == ("tdt", "ctc")
