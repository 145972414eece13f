"""Arranging the parts of a drawing in layers from left to right, with few crossing edges.

The layout uses the algorithm of Sugiyama, Tagawa and Toda ("Methods for Visual Understanding of
Hierarchical System Structures", 1981): reverse the edges that close a cycle, assign layers, order
the parts in each layer, and assign positions. The result is deterministic. Lengths are in pixels.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

# The number of passes over all layers, for both ordering and positioning.
SWEEPS = 12
# The distance between two layers: the minimum, the increment per edge, and the maximum.
MIN_LAYER_GAP, GAP_PER_EDGE, MAX_LAYER_GAP = 84.0, 0.3, 300.0
# The minimum and maximum distance between adjacent parts in a layer. The distance can exceed the
# minimum if another layer is taller.
GAP, MAX_GAP = 14.0, 44.0
# The maximum number of layers. A drawing with more layers would not be legible, so its parts are
# drawn in two columns.
MAX_LAYERS = 10
# The height that a long edge needs in each layer that it crosses.
PASSAGE_HEIGHT = 6.0

Edge = tuple[str, str]


class Size(NamedTuple):
    """The width and height of a part."""

    width: float
    height: float


class Rect(NamedTuple):
    """The position of a part's upper left corner, and the part's size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """The vertical position of the centre."""
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The positions of all edges, and of all parts that have edges.

    ``passages`` maps each edge to the positions at which the edge crosses the layers between its
    ends, from left to right. The value is None for an edge between two parts in the same column.
    Such edges occur only if there would be too many layers.
    """

    rects: Mapping[str, Rect]
    passages: Mapping[Edge, tuple[Rect, ...] | None]
    width: float
    height: float


def layout(sizes: Mapping[str, Size], edges: Sequence[Edge], columns: Mapping[str, int]) -> Layout:
    """Position the parts so that most edges go from left to right.

    A part without edges has no position. If two parts are connected by edges in both directions,
    the first edge determines which part is on the left. All parts in a layer have the same width.
    ``columns`` maps each part to its column, and column 0 is on the right. The columns are used if
    there would be more than `MAX_LAYERS` layers.
    """
    edges = list(dict.fromkeys(edge for edge in edges if edge[0] != edge[1]))
    with_edges = {end for edge in edges for end in edge}
    keys = [key for key in sizes if key in with_edges]
    forward = _reverse_cycles(keys, edges)
    layer_of = _assign_layers(keys, list(dict.fromkeys(forward.values())))
    if max(layer_of.values(), default=0) >= MAX_LAYERS:
        layer_of = {key: columns[key] for key in keys}
        forward = {edge: _from_left_to_right(edge, layer_of) for edge in edges}
    chains = {}
    for edge in edges:
        if layer_of[edge[0]] != layer_of[edge[1]]:
            chains[edge] = _chain(edge, forward[edge], layer_of)
    layers = _order_layers(keys, layer_of, chains)
    heights = {}
    for key in itertools.chain.from_iterable(layers):
        heights[key] = sizes[key].height if key in sizes else PASSAGE_HEIGHT
    middles = _assign_middles(layers, heights, chains)
    result = _build_layout(layers, sizes, heights, middles, chains)
    return replace(result, passages={edge: result.passages.get(edge) for edge in edges})


# --- layers ---


def _reverse_cycles(keys: Sequence[str], edges: Sequence[Edge]) -> dict[Edge, Edge]:
    """Map each edge to the direction in which it is drawn.

    The edges that close a cycle are reversed. They are found by an iterative depth-first search,
    because a chain of parts can be longer than the recursion limit.
    """
    targets: dict[str, list[str]] = {key: [] for key in keys}
    forward: dict[Edge, Edge] = {}
    for source, target in edges:
        if source in targets[target]:
            # An edge in the opposite direction already exists.
            forward[source, target] = target, source
        else:
            targets[source].append(target)
    visited: set[str] = set()
    on_path: set[str] = set()
    for start in keys:
        if start in visited:
            continue
        visited.add(start)
        on_path.add(start)
        stack = [(start, iter(targets[start]))]
        while stack:
            key, remaining = stack[-1]
            successor = next(remaining, None)
            if successor is None:
                on_path.discard(key)
                stack.pop()
                continue
            closes_cycle = successor in on_path
            forward[key, successor] = (successor, key) if closes_cycle else (key, successor)
            if successor not in visited:
                visited.add(successor)
                on_path.add(successor)
                stack.append((successor, iter(targets[successor])))
    return forward


def _assign_layers(keys: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Map each part to its layer, which is one more than the highest layer of its targets.

    Layer 0 is on the right.
    """
    targets: dict[str, list[str]] = {key: [] for key in keys}
    sources: dict[str, list[str]] = {key: [] for key in keys}
    for source, target in edges:
        targets[source].append(target)
        sources[target].append(source)
    layer_of = dict.fromkeys(keys, 0)
    # Maps each part to the number of its targets whose layers are not final.
    pending = {key: len(targets[key]) for key in keys}
    ready = [key for key in keys if not pending[key]]
    while ready:
        key = ready.pop(0)
        for source in sources[key]:
            layer_of[source] = max(layer_of[source], layer_of[key] + 1)
            pending[source] -= 1
            if not pending[source]:
                ready.append(source)
    return layer_of


def _from_left_to_right(edge: Edge, layer_of: Mapping[str, int]) -> Edge:
    source, target = edge
    if layer_of[source] >= layer_of[target]:
        return edge
    return target, source


def _chain(edge: Edge, forward: Edge, layer_of: Mapping[str, int]) -> tuple[str, ...]:
    """Return an edge's left end, its passage in each layer between its ends, and its right end."""
    left, right = forward
    between = range(layer_of[left] - 1, layer_of[right], -1)
    passages = [f"{edge[0]} > {edge[1]} @ {layer}" for layer in between]
    return (left, *passages, right)


# --- order ---


def _order_layers(
    keys: Sequence[str], layer_of: Mapping[str, int], chains: Mapping[Edge, tuple[str, ...]]
) -> list[list[str]]:
    """Return the layers from left to right, each in the best order that was found.

    The best order has the fewest crossings. The parts in each layer are sorted repeatedly,
    alternately by their left and their right neighbours.
    """
    depth = max(layer_of.values(), default=-1) + 1
    layers: list[list[str]] = [[] for _ in range(depth)]
    for key in keys:
        layers[depth - 1 - layer_of[key]].append(key)
    for chain in chains.values():
        first = depth - 1 - layer_of[chain[0]]
        for offset, passage in enumerate(chain[1:-1], 1):
            layers[first + offset].append(passage)
    left, right = _neighbours(chains)
    best = [list(layer) for layer in layers]
    fewest = _count_crossings(layers, right)
    for sweep in range(SWEEPS):
        if sweep % 2 == 0:
            for layer in layers[1:]:
                _sort_layer(layer, left, layers)
        else:
            for layer in layers[-2::-1]:
                _sort_layer(layer, right, layers)
        crossings = _count_crossings(layers, right)
        if crossings < fewest:
            best = [list(layer) for layer in layers]
            fewest = crossings
    return best


def _neighbours(
    chains: Mapping[Edge, tuple[str, ...]],
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the left neighbours and the right neighbours of each part and passage."""
    left: dict[str, list[str]] = {}
    right: dict[str, list[str]] = {}
    for chain in chains.values():
        for source, target in itertools.pairwise(chain):
            left.setdefault(target, []).append(source)
            right.setdefault(source, []).append(target)
    return left, right


def _sort_layer(
    layer: list[str], neighbours: Mapping[str, list[str]], layers: Sequence[Sequence[str]]
) -> None:
    """Sort the parts in a layer by the mean position of their neighbours.

    A part without neighbours is sorted by its own current position.
    """
    position = {}
    for other in layers:
        for index, key in enumerate(other):
            position[key] = index / len(other)
    means = {}
    for key in layer:
        positions = [position[neighbour] for neighbour in neighbours.get(key, ())]
        means[key] = sum(positions) / len(positions) if positions else position[key]
    layer.sort(key=lambda key: means[key])


def _count_crossings(layers: Sequence[Sequence[str]], right: Mapping[str, list[str]]) -> int:
    """Return the number of pairs of edges that cross."""
    total = 0
    for layer, next_layer in itertools.pairwise(layers):
        position = {key: index for index, key in enumerate(next_layer)}
        previous_ends: list[int] = []
        for key in layer:
            ends = sorted(position[target] for target in right.get(key, ()))
            for end in ends:
                # Count the edges that begin above this edge and end below it.
                total += len(previous_ends) - bisect.bisect_right(previous_ends, end)
            for end in ends:
                bisect.insort(previous_ends, end)
    return total


# --- positions ---


def _assign_middles(
    layers: Sequence[Sequence[str]],
    heights: Mapping[str, float],
    chains: Mapping[Edge, tuple[str, ...]],
) -> dict[str, float]:
    """Map each part to a vertical position near the mean position of its neighbours."""
    left, right = _neighbours(chains)
    layers_with_gaps = list(zip(layers, _gaps(layers, heights), strict=True))
    middles: dict[str, float] = {}
    for layer, gap in layers_with_gaps:
        middles.update(_spread(layer, dict.fromkeys(layer, 0.0), heights, gap))
    for sweep in range(SWEEPS):
        ordered = layers_with_gaps if sweep % 2 == 0 else layers_with_gaps[::-1]
        for layer, gap in ordered:
            wanted = {}
            for key in layer:
                neighbours = [*left.get(key, ()), *right.get(key, ())] or [key]
                wanted[key] = sum(middles[other] for other in neighbours) / len(neighbours)
            middles.update(_spread(layer, wanted, heights, gap))
    return middles


def _gaps(layers: Sequence[Sequence[str]], heights: Mapping[str, float]) -> list[float]:
    """Return the gap between parts in each layer.

    The gap can exceed `GAP` if another layer is taller.
    """
    filled = []
    for layer in layers:
        filled.append(sum(heights[key] for key in layer))
    totals = [height + GAP * len(layer) for layer, height in zip(layers, filled, strict=True)]
    highest = max(totals, default=0.0)
    gaps = []
    for layer, height in zip(layers, filled, strict=True):
        available = (highest - height) / len(layer) / 2
        gaps.append(min(MAX_GAP, max(GAP, available)))
    return gaps


def _spread(
    layer: Sequence[str], wanted: Mapping[str, float], heights: Mapping[str, float], gap: float
) -> dict[str, float]:
    """Return the positions closest to ``wanted`` that keep the layer's order and gap.

    The function minimizes the sum of the squared distances by isotonic regression (pool adjacent
    violators): it subtracts from each wanted position the distance from the first part, and
    replaces values that are not in ascending order by their mean.
    """
    offsets: list[float] = []
    for index, key in enumerate(layer):
        if index == 0:
            offsets.append(0.0)
        else:
            step = (heights[layer[index - 1]] + heights[key]) / 2 + gap
            offsets.append(offsets[-1] + step)
    # The mean position of each block of adjacent parts, and the number of parts in the block.
    blocks: list[tuple[float, int]] = []
    for key, offset in zip(layer, offsets, strict=True):
        mean, count = wanted[key] - offset, 1
        while blocks and blocks[-1][0] > mean:
            previous_mean, previous_count = blocks.pop()
            total = previous_mean * previous_count + mean * count
            mean = total / (previous_count + count)
            count += previous_count
        blocks.append((mean, count))
    means = [mean for mean, count in blocks for _ in range(count)]
    return {key: mean + offset for key, mean, offset in zip(layer, means, offsets, strict=True)}


def _build_layout(
    layers: Sequence[Sequence[str]],
    sizes: Mapping[str, Size],
    heights: Mapping[str, float],
    middles: Mapping[str, float],
    chains: Mapping[Edge, tuple[str, ...]],
) -> Layout:
    top = min((middles[key] - heights[key] / 2 for key in middles), default=0.0)
    left, _ = _neighbours(chains)
    rects: dict[str, Rect] = {}
    x = 0.0
    for index, layer in enumerate(layers):
        if index:
            edge_count = sum(len(left.get(key, ())) for key in layer)
            x += min(MAX_LAYER_GAP, MIN_LAYER_GAP + GAP_PER_EDGE * edge_count)
        width = max((sizes[key].width for key in layer if key in sizes), default=0.0)
        for key in layer:
            y = middles[key] - heights[key] / 2 - top
            rects[key] = Rect(x, y, width, heights[key])
        x += width
    passages = {}
    for edge, chain in chains.items():
        passages[edge] = tuple(rects[key] for key in chain[1:-1])
    return Layout(
        rects={key: rect for key, rect in rects.items() if key in sizes},
        passages=passages,
        width=x,
        height=max((rect.y + rect.height for rect in rects.values()), default=0.0),
    )
