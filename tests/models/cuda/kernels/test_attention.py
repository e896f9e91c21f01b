"""Attention over pages where they lie is attention over what is gathered of them."""

import pytest
import torch

pytest.importorskip("triton")

from models.cuda.kernels.attention import attend
from models.cuda.kernels.sharing import sharing
from tests.models.cuda.kernels.cases import CLOSE, Attending, attention_differs

pytestmark = pytest.mark.usefixtures("without_gradients")

FLOAT, NARROW = torch.float32, torch.bfloat16
STEPS = {
    "one row": Attending((40,)),
    "a first position": Attending((0,)),
    "lengths about a page": Attending((62, 63, 64, 65)),
    "many rows, one head each": Attending((5, 200, 17, 90, 1), heads=3, kv_heads=3),
    "eight heads of one": Attending((100, 30), heads=8, kv_heads=1, head_dim=32),
    "three heads of one": Attending((100, 30), heads=6, kv_heads=2, head_dim=24),
    "a long row by shares": Attending((1000,), columns=1088),
    "long and short rows by shares": Attending((1000, 2, 500), columns=1088),
    "the last position": Attending((255, 254)),
}
CHUNKS = {
    "blocks": Attending((0, 70, 130), new=15, block=5),
    "causal": Attending((3, 64), new=20),
    "one block of all": Attending((63, 1), new=30, block=30),
    "more than a tile": Attending((10, 60), new=20, block=5, heads=6, kv_heads=2),
    "chunks by shares": Attending((900,), new=15, block=15, columns=1088),
    "odd sizes": Attending((77, 31, 12), new=7, block=3, heads=5, kv_heads=1, head_dim=12),
}


@pytest.mark.parametrize(
    ("case", "dtype", "eight"),
    [
        *(pytest.param(STEPS[name], FLOAT, False, id=name) for name in STEPS),
        *(
            pytest.param(CHUNKS[name], FLOAT, False, id=name, marks=pytest.mark.slow)
            for name in CHUNKS
        ),
        pytest.param(STEPS["long and short rows by shares"], NARROW, False, id="narrow, by shares"),
        pytest.param(CHUNKS["blocks"], NARROW, False, id="narrow blocks"),
        *(pytest.param(STEPS[name], FLOAT, True, id=f"{name}, 8 bits") for name in STEPS),
        pytest.param(CHUNKS["blocks"], FLOAT, True, id="blocks, 8 bits"),
        pytest.param(CHUNKS["odd sizes"], FLOAT, True, id="odd sizes, 8 bits"),
        pytest.param(CHUNKS["blocks"], NARROW, True, id="narrow blocks, 8 bits"),
    ],
)
def test_positions_attend_to_what_each_sees_in_pages_and_read_nothing_else(
    case: Attending, dtype: torch.dtype, eight: bool, device: torch.device
) -> None:
    assert attention_differs(attend, case, dtype, device, eight=eight) < CLOSE[dtype]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of NaN
def test_a_row_that_failed_leaves_the_others_alone(device: torch.device) -> None:
    queries = torch.randn(3, 2, 16, device=device)
    queries[1, 0, 3] = torch.nan
    cached, pages = torch.randn(2, 12 * 64, 2, 16, device=device), torch.arange(12).view(3, 4)
    seen = torch.tensor([[30], [40], [200]], device=device)
    found = attend(queries, cached[0], cached[1], seen, pages.to(device))
    assert found.isnan().any(1).tolist() == [False, True, False]
    assert not found[1, 16:].isnan().any()


@pytest.mark.parametrize("queries", [1, 3, 16, 100, 1000])
@pytest.mark.parametrize("columns", [1, 64, 256, 1075, 4096])
@pytest.mark.parametrize("dtype", [FLOAT, NARROW])
def test_positions_are_shared_out_only_where_a_card_would_idle(
    queries: int, columns: int, dtype: torch.dtype
) -> None:
    rows, tiles, shares = sharing(queries, 2, 4, columns, dtype)
    assert rows & (rows - 1) == shares & (shares - 1) == 0
    assert rows * tiles >= queries > rows * (tiles - 1)
    assert shares == 1 or (shares * tiles * 8 <= 256 and shares * 128 <= columns)
    assert sharing(1, 1, 16, 1075, dtype).shares == 8
