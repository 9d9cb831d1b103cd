from planner.model.tensor import Role
from planner.model.tensors import draft_tensors, parameters
from tests.model.families.dense import bundled, config, kv_bytes, spec_of


def test_mimo_7b_and_its_draft_layer() -> None:
    spec = bundled("XiaomiMiMo/MiMo-7B-Base")
    assert parameters(spec) == 7_622_619_136
    draft = list(draft_tensors(spec))
    # a layer of 177,223,680, the [H, 2H] matrix that joins embedding and output, three norms
    assert sum(tensor.numel for tensor in draft) == 177_223_680 + 2 * 4096**2 + 3 * 4096
    assert parameters(spec) + sum(tensor.numel for tensor in draft) == 7_833_409_536  # as published
    assert [tensor.shape for tensor in draft if tensor.role is Role.DRAFT] == [(4096, 8192)]
    # 36 layers x 8 heads x 256 x 2 B; the draft layer keeps a cache of its own
    assert kv_bytes(spec, 8192) == 36 * 8192 * 4096 == 1_207_959_552
    assert len(spec.draft_layers[0].caches()) == 1


def test_without_draft_layers() -> None:
    assert list(draft_tensors(spec_of(config("XiaomiMiMo/MiMo-7B-Base", num_nextn_predict_layers=0)))) == []
