"""PyTorch's storages on the pretended GPU; skipped if Triton or PyTorch is missing."""

from __future__ import annotations

import copy
import pickle
from io import BytesIO
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest

from tests.support.pretended_gpu import session, torch  # noqa: F401  (the fixture)


def test_a_storage_is_made_where_it_is_asked_for() -> None:
    storage = torch.UntypedStorage(12, device="cuda")
    assert (storage.device, storage.is_cuda) == (torch.device("cuda:0"), True)
    assert torch.empty(0, device="cuda").set_(storage).is_cuda
    assert storage.cpu().device == torch.UntypedStorage(3).device == torch.device("cpu")
    assert torch.UntypedStorage(3, device="meta").device.type == "meta"


def test_legacy_storages_have_a_device() -> None:
    storage = torch.randn(5, 5).storage()
    assert isinstance(storage.float(), torch.FloatStorage) and not isinstance(storage, torch.cuda.FloatStorage)
    assert isinstance(storage.cuda().double(), torch.cuda.DoubleStorage)
    assert isinstance(storage.cuda().cpu().int(), torch.IntStorage)
    assert torch.cuda.IntStorage(10).fill_(3).tolist() == [3] * 10


@pytest.mark.parametrize("device", ("cpu", "cuda"))
def test_deep_copies_are_where_the_original_is(device: str) -> None:
    tensor = torch.ones(3, device=device)
    found: Any = copy.deepcopy({"both": [tensor, tensor[1:]]})["both"]
    assert [one.device.type for one in found] == [device] * 2 and found[0].data_ptr() + 4 == found[1].data_ptr()


@pytest.mark.parametrize("device", ("cpu", "cuda"))
def test_what_another_process_receives_is_where_it_was(device: str) -> None:
    sent = BytesIO()
    ForkingPickler(sent).dump([torch.ones(3, device=device), torch.nn.Parameter(torch.zeros(2, device=device))])
    tensor, parameter = pickle.loads(sent.getvalue())
    assert {tensor.device.type, parameter.device.type} == {device} and parameter.requires_grad
