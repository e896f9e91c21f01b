"""A step of the stack in fixed shapes, as a recording needs it: one position of each sequence.

The rows are the first of a table of pages, whether or not a position is appended to them. All that
differs from step to step is read on the device. The output of idle rows is ignored; they write
where their next position would go, so nothing that a row holds is overwritten, or to the page for
padding, where a row has no page.
"""

from collections.abc import Iterator, Sequence

from torch import Tensor

from models.cuda.kernels.choice import Kernels
from models.cuda.kernels.reference import gather, read_places
from models.stack.attention import masked_statistics
from models.stack.block import Block, RmsNorm
from models.stack.fixed_layers import FixedPages
from models.stack.paged_cache import PAGE, PagePool
from samplers.ops.entropix import AttentionStatistics

MIN_COLUMNS = 256


def buckets(smallest: int, largest: int) -> Iterator[int]:
    """Yield ``smallest`` and its doubles while they are below ``largest``, then ``largest``."""
    size = smallest
    while size < largest:
        yield size
        size *= 2
    yield largest


class FixedStep(FixedPages):
    """The step over sequences in the pages of a pool.

    Attributes:
        rows: The numbers of rows to choose from, ascending.
        columns: The numbers of positions to choose from, ascending, whole pages.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        norm: RmsNorm,
        rotations: Tensor,
        pool: PagePool,
        kernels: Kernels,
        *,
        rows: int,
        max_length: int,
    ) -> None:
        """Allocate what is constant; call in inference mode.

        Args:
            blocks: The layers.
            norm: The final norm.
            rotations: ``[P, 1, head_dim / 2]`` complex, of each position.
            pool: Whose sequences are stepped.
            kernels: Which kernels are fused.
            rows: The most sequences.
            max_length: The most positions of each.
        """
        super().__init__(blocks, norm, rotations, pool, kernels)
        self.rows = tuple(buckets(1, rows))
        self.columns = tuple(buckets(MIN_COLUMNS, -(-max_length // PAGE) * PAGE))

    def size(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the least of `rows` and `columns` that hold so many."""
        return (
            next(size for size in self.rows if size >= rows),
            next(size for size in self.columns if size >= columns),
        )

    def run(
        self, x: Tensor, positions: Tensor, places: Tensor, seen: Tensor, pages: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Write one position to each of the first rows.

        Args:
            x: ``[n, D]``, of the first n rows.
            positions: ``[n]`` int64, position ids.
            places: ``[n]`` int64, where each is written among the positions of all pages.
            seen: ``[n]`` int64: how many positions of its sequence each sees, itself included.
            pages: ``[n, P]`` int64, of each sequence: the first of as many as one may have. Rows
                that see more than P pages hold have no output that matters.

        Returns:
            ``[n, D]`` after the final norm, and the last layer's queries ``[n, heads, head_dim]``.
        """
        seen = seen[:, None]
        bias = self.bias(seen, pages.shape[1] * PAGE)
        return self.run_in_pages(x, self.rotations[positions], places, seen, pages, bias)

    def attention(self, queries: Tensor, seen: Tensor, pages: Tensor) -> AttentionStatistics:
        """Return the attention statistics of each row in the last layer.

        Args:
            queries: ``[n, heads, head_dim]`` of `run`.
            seen: As given to it.
            pages: As given to it.
        """
        places = read_places(pages, pages.shape[1] * PAGE)
        keys = gather(self.pool.stored[-1].keys, places, len(pages))
        return masked_statistics(queries, keys, seen)
