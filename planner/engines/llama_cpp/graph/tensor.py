"""Tensors and operations of a ggml graph, as far as their sizes, layouts and lifetimes go.

A tensor has four extents with the fastest first, and a stride in bytes for each. Views share their source's
memory. The order of `nodes` is ggml's: depth first, sources from left to right, each time something is expanded.

Source: ggml 0.25.3 `src/ggml.c` (shapes of results, ggml_visit_parents_graph).
"""

from __future__ import annotations

from typing import Final

F32: Final = 4
F16: Final = 2
I32: Final = 4
I64: Final = 8

Shape = tuple[int, int, int, int]

# A result of these may take its first fitting source's place (ggml-alloc.c, ggml_op_can_inplace).
IN_PLACE: Final = frozenset(
    {
        "fill",
        "scale",
        "add",
        "add_id",
        "sub",
        "mul",
        "div",
        "sqr",
        "sqrt",
        "unary",
        "rope",
        "rms_norm",
        "clamp",
        "soft_max",
    }
)
VIEWS: Final = frozenset({"reshape", "view", "permute", "transpose"})


class Tensor:
    """One tensor: its extents `ne`, its strides `nb`, its bytes, what it is computed from and where it lives.

    `home` is the device of a tensor that is allocated outside the graph (a weight, a cache), -1 otherwise.
    `operand_rows` is what a device counts when it decides whether a batch is worth copying a weight for.
    """

    __slots__ = (
        "address",
        "backend",
        "children",
        "extra_bytes",
        "home",
        "input",
        "item",
        "nb",
        "nbytes",
        "ne",
        "op",
        "operand_rows",
        "output",
        "owned",
        "seen",
        "size",
        "sources",
        "view_of",
        "views",
        "weight",
    )

    def __init__(
        self,
        op: str,
        ne: Shape,
        sources: tuple[Tensor, ...] = (),
        *,
        item: int = F32,
        nb: Shape | None = None,
        view_of: Tensor | None = None,
    ) -> None:
        self.op = op
        self.ne = ne
        self.item = item
        first, second, third, fourth = ne
        if nb is None:
            row = item * first
            nb = (item, row, row * second, row * second * third)
            self.nbytes = row * second * third * fourth
        else:
            last = (first - 1) * nb[0] + (second - 1) * nb[1] + (third - 1) * nb[2] + (fourth - 1) * nb[3]
            self.nbytes = item + last
        self.nb = nb
        self.sources = list(sources)
        self.view_of = view_of
        self.home = -1
        self.weight = self.input = self.output = self.seen = self.owned = False
        self.backend = -1
        self.children = self.views = self.address = self.size = self.extra_bytes = self.operand_rows = 0

    @property
    def contiguous(self) -> bool:
        """Whether its elements lie one after the other."""
        item, row, plane, cube = self.nb
        first, second, third, _ = self.ne
        return item == self.item and row == item * first and plane == row * second and cube == plane * third


class Graph:
    """A graph under construction: inputs, weights, caches, and the operations between them.

    Args:
        rows_by_expert: rows count for one expert when a device weighs whether to copy experts (ik_llama.cpp).
    """

    def __init__(self, *, rows_by_expert: bool = False) -> None:
        self.rows_by_expert = rows_by_expert
        self.nodes: list[Tensor] = []
        self.leaves: list[Tensor] = []

    def expand(self, tensor: Tensor) -> None:
        """Puts the tensor and what it needs behind what stands in the graph already."""
        if tensor.seen:
            return
        tensor.seen = True
        for source in tensor.sources:
            if not source.seen:
                self.expand(source)
        (self.leaves if tensor.op == "none" else self.nodes).append(tensor)

    # what is not computed

    def new_input(self, *ne: int, item: int = F32) -> Tensor:
        """A tensor that the program fills before each batch."""
        tensor = Tensor("none", _shape(ne), item=item)
        tensor.input = True
        return tensor

    def weight(self, home: int, *ne: int, nbytes: int = 0) -> Tensor:
        """A weight on a device; `nbytes` as stored (0: nobody copies it)."""
        tensor = Tensor("none", _shape(ne))
        tensor.home, tensor.weight, tensor.nbytes = home, True, nbytes
        return tensor

    def cache(self, home: int, *ne: int, item: int = F16) -> Tensor:
        """Memory that outlives the graph: keys and values, recurrent states."""
        tensor = Tensor("none", _shape(ne), item=item)
        tensor.home = home
        return tensor

    # views

    def reshape(self, a: Tensor, *ne: int) -> Tensor:
        """The same elements under other extents."""
        return Tensor("reshape", _shape(ne), (a,), item=a.item, view_of=a.view_of or a)

    def view(self, a: Tensor, ne: tuple[int, ...], strides: tuple[int, ...] = ()) -> Tensor:
        """Part of a tensor; `strides` of the dimensions from the second on, where not contiguous."""
        shape = _shape(ne)
        nb = [a.item, a.item * shape[0], 0, 0]
        for dim in (1, 2, 3):
            nb[dim] = strides[dim - 1] if dim <= len(strides) else nb[dim - 1] * shape[dim - 1]
        return Tensor("view", shape, (a,), item=a.item, nb=(nb[0], nb[1], nb[2], nb[3]), view_of=a.view_of or a)

    def permute(self, a: Tensor, *axes: int) -> Tensor:
        """Dimension i of the source becomes dimension axes[i]."""
        ne, nb = [1, 1, 1, 1], [0, 0, 0, 0]
        for source, target in enumerate(axes):
            ne[target], nb[target] = a.ne[source], a.nb[source]
        return Tensor(
            "permute",
            (ne[0], ne[1], ne[2], ne[3]),
            (a,),
            item=a.item,
            nb=(nb[0], nb[1], nb[2], nb[3]),
            view_of=a.view_of or a,
        )

    def transpose(self, a: Tensor) -> Tensor:
        """The first two dimensions change places."""
        return self.permute(a, 1, 0, 2, 3)

    # element by element

    def same(self, op: str, a: Tensor, *others: Tensor) -> Tensor:
        """A result of the first source's extents: norms, activations, sums, products, rotations."""
        tensor = Tensor(op, a.ne, (a, *others), item=a.item)
        rows = a.ne[1] * a.ne[2] * a.ne[3]
        tensor.operand_rows = a.ne[2] if op == "rope" else rows
        return tensor

    def in_place(self, op: str, a: Tensor, *others: Tensor) -> Tensor:
        """A result written over its first source."""
        return Tensor(op, a.ne, (a, *others), item=a.item, nb=a.nb, view_of=a.view_of or a)

    def cont(self, a: Tensor, *ne: int) -> Tensor:
        """A contiguous copy, under other extents if given."""
        return Tensor("cont", _shape(ne) if ne else a.ne, (a,), item=a.item)

    def cast(self, a: Tensor, item: int) -> Tensor:
        """A copy in another type."""
        return Tensor("cpy", a.ne, (a,), item=item)

    def copy_into(self, a: Tensor, target: Tensor) -> Tensor:
        """The elements of one tensor written into another's memory."""
        return Tensor("cpy", target.ne, (a, target), item=target.item, nb=target.nb, view_of=target.view_of or target)

    def glu(self, a: Tensor, b: Tensor | None = None) -> Tensor:
        """A gated activation: of two tensors, or of the two halves of one."""
        if b is not None:
            return Tensor("glu", a.ne, (a, b))
        return Tensor("glu", (a.ne[0] // 2, *a.ne[1:]), (a,))

    # others

    def mul_mat(self, weight: Tensor, x: Tensor, *, second: Tensor | None = None) -> Tensor:
        """weight [in, out] times x [in, ...]: [out, ...].

        Args:
            second: the gate's matrix, in the same operation (ik_llama.cpp's ggml_fused_up_gate).
        """
        matrices = (weight,) if second is None else (weight, second)
        tensor = Tensor("mul_mat", (weight.ne[1], x.ne[1], x.ne[2], x.ne[3]), (*matrices, x))
        tensor.operand_rows = x.ne[1]
        return tensor

    def mul_mat_id(self, experts: Tensor, x: Tensor, ids: Tensor, *, second: Tensor | None = None) -> Tensor:
        """The chosen experts' matrices times x [in, 1 or used, tokens]: [out, used, tokens].

        Args:
            second: gates, in the same operation (ik_llama.cpp's ggml_moe_up_gate).
        """
        matrices = (experts,) if second is None else (experts, second)
        tensor = Tensor("mul_mat_id", (experts.ne[1], ids.ne[0], x.ne[2], 1), (*matrices, x, ids))
        tensor.operand_rows = x.ne[2] * ids.ne[0] // experts.ne[2] if self.rows_by_expert else x.ne[2]
        return tensor

    def get_rows(self, a: Tensor, ids: Tensor) -> Tensor:
        """Rows of a matrix, as F32 (integers stay integers)."""
        return Tensor("get_rows", (a.ne[0], ids.ne[0], ids.ne[1], ids.ne[2]), (a, ids))

    def set_rows(self, target: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
        """Rows written into a tensor."""
        tensor = Tensor(
            "set_rows",
            target.ne,
            (rows, ids, target),
            item=target.item,
            nb=target.nb,
            view_of=target.view_of or target,
        )
        return tensor

    def concat(self, a: Tensor, b: Tensor, dim: int) -> Tensor:
        """One behind the other along a dimension."""
        ne = list(a.ne)
        ne[dim] += b.ne[dim]
        return Tensor("concat", (ne[0], ne[1], ne[2], ne[3]), (a, b), item=a.item)

    def repeat(self, a: Tensor, *ne: int) -> Tensor:
        """Copies of a tensor that fill these extents."""
        return Tensor("repeat", _shape(ne), (a,), item=a.item)

    def pad(self, a: Tensor, columns: int) -> Tensor:
        """Zeros behind every row."""
        return Tensor("pad", (a.ne[0] + columns, *a.ne[1:]), (a,))

    def sum_rows(self, a: Tensor) -> Tensor:
        """One sum a row."""
        return Tensor("sum_rows", (1, *a.ne[1:]), (a,))

    def top_k(self, a: Tensor, k: int) -> Tensor:
        """Places of the k largest of each row: a view of all places in order."""
        order = Tensor("argsort", a.ne, (a,), item=I32)
        return self.view(order, (k, *a.ne[1:]), order.nb[1:])

    def flash_attention(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, sinks: Tensor | None) -> Tensor:
        """Attention of q [d, tokens, heads, ...] on k and v [d, cells, heads, ...]: [d_v, heads, tokens, ...]."""
        sources = [q, k, v] + [tensor for tensor in (mask, sinks) if tensor is not None]
        return Tensor("flash_attn", (v.ne[0], q.ne[2], q.ne[1], q.ne[3]), tuple(sources))

    def flat(self, op: str, size: int, *sources: Tensor) -> Tensor:
        """A result whose parts are taken out of it by views (ssm_scan, gated_delta_net)."""
        return Tensor(op, (size, 1, 1, 1), sources)


def _shape(ne: tuple[int, ...]) -> Shape:
    first, second, third, fourth = (*ne, 1, 1, 1)[:4]
    return (first, second, third, fourth)
